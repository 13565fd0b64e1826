"""How fast a backlog of jobs that do nothing is worked off.

No-op jobs measure the engine alone: claiming, running, recording the end. One worker process each, at our defaults and
at every peer's fastest documented settings (the head of its driver says which). A round has one run of ours, which is
the partner of every peer in that round; pgqueuer, the closest of them, always runs right beside it. Slow peers get
fewer jobs, so that everybody works for some seconds; what is compared are rates. Before that every database is
vacuumed and analyzed, because without statistics pgqueuer's claims cost the more the longer its backlog is, and no
backlog is that new for more than a minute.

pgqrs brings no worker of its own (the loop is ours) and graphile-worker lives in Node: both are reported without a bar,
as are two worker processes, which on a machine with two cores compete with the server for them.
"""

from __future__ import annotations

from ground import Ground
from judging import OURS, Bar, Finding
from peers.driving import finding, rounds

JOBS = {
    OURS: 120_000,
    "pgqueuer": 75_000,
    "absurd": 6_000,
    "procrastinate": 1_800,
    "dbos": 2_100,
    "pgqrs": 60_000,
    "graphile": 90_000,
}
"""Two to six seconds for everybody, about four for ours and pgqueuer: in one the machine's moods weigh too much."""
QUICK_JOBS = {
    OURS: 6_000,
    "pgqueuer": 6_000,
    "absurd": 400,
    "procrastinate": 150,
    "dbos": 150,
    "pgqrs": 8_000,
    "graphile": 15_000,
}
BARS = {
    "pgqueuer": Bar(at_least=1.5),
    "absurd": Bar(at_least=15),
    "procrastinate": Bar(at_least=35),
    "dbos": Bar(at_least=35),
}


def measure(ground: Ground) -> list[Finding]:
    jobs = QUICK_JOBS if ground.quick else JOBS
    full, few = (3, 1) if ground.quick else (7, 3)
    taking_part = {OURS: full} | dict.fromkeys(BARS, full) | {"pgqrs": few, "graphile": few}
    alone = rounds(ground, "drain", jobs, taking_part)
    together = rounds(ground, "drain", jobs, {OURS: few, "pgqueuer": few}, workers=2)
    findings: list[Finding] = []
    for peer in (*BARS, "pgqrs", "graphile"):
        findings += finding(
            alone,
            peer,
            key=f"drain.{peer}",
            title=f"no-op drain, 1 worker process, against {peer}",
            unit="runs/s",
            bar=BARS.get(peer),
        )
    findings += finding(
        together,
        "pgqueuer",
        key="drain.two.pgqueuer",
        title="no-op drain, 2 worker processes, against pgqueuer",
        unit="runs/s",
    )
    return findings
