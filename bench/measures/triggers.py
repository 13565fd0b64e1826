"""What it costs to hand in a job: one caller, fifty callers at once, and a list of many.

A call counts when its own job is durable, never before: batching may make callers share a commit, not skip one. Fifty
callers are tasks for asynchronous clients and threads for synchronous ones, with as many connections as served each
peer best. The bulk way is compared with pgqueuer's alone, the fastest of the peers by far. For the single ways the bar
is for the best peer in this very run; the short form asks only those that were ahead before.
"""

from __future__ import annotations

from ground import Ground
from judging import OURS, Bar, Finding
from peers.driving import best, finding, rounds

CONCURRENT = {OURS: 30_000, "pgqrs": 6_000, "absurd": 6_000, "pgqueuer": 4_000, "procrastinate": 2_000, "dbos": 1_200}
SINGLE = {OURS: 1_500, "pgqueuer": 2_500, "absurd": 2_000, "pgqrs": 2_000, "procrastinate": 1_200, "dbos": 700}
BULK = {OURS: 60_000, "pgqueuer": 80_000}
AHEAD = {"concurrent": ("pgqrs", "absurd"), "single": ("pgqueuer",)}
SHORTER = 8
ROUNDS = 3


def measure(ground: Ground) -> list[Finding]:
    bulk = rounds(ground, "trigger-bulk", _jobs(BULK, ground.quick), dict.fromkeys(BULK, ROUNDS))
    findings = finding(
        bulk,
        "pgqueuer",
        key="trigger.bulk.pgqueuer",
        title="bulk trigger, against pgqueuer",
        unit="runs/s",
        bar=Bar(at_least=0.8),
    )
    findings += _against_the_best(ground, "concurrent", "50 callers at once", CONCURRENT, ROUNDS, Bar(at_least=4))
    findings += _against_the_best(ground, "single", "one caller", SINGLE, 1 if ground.quick else ROUNDS, None)
    return findings


def _against_the_best(
    ground: Ground, how: str, words: str, jobs: dict[str, int], times: int, bar: Bar | None
) -> list[Finding]:
    """Everybody against ours; only the best of them carries the bar, and it comes first."""
    peers = [peer for peer in jobs if peer != OURS and (not ground.quick or peer in AHEAD[how])]
    taking_part = dict.fromkeys((OURS, *peers), times)
    found = rounds(ground, f"trigger-{how}", _jobs(jobs, ground.quick), taking_part)
    first = best(found, peers)
    findings: list[Finding] = []
    for peer in sorted(peers, key=lambda one: one != first):
        findings += finding(
            found,
            peer,
            key=f"trigger.{how}.best" if peer == first else f"trigger.{how}.{peer}",
            title=f"single triggers, {words}, against {peer}" + (", the best of them" if peer == first else ""),
            unit="runs/s",
            bar=bar if peer == first else None,
            rivals=[one for one in jobs if one != OURS] if peer == first else (),
        )
    return findings


def _jobs(jobs: dict[str, int], quick: bool) -> dict[str, int]:
    return {who: number // SHORTER for who, number in jobs.items()} if quick else jobs
