"""Steps per second in workflows of ten steps that do nothing.

Every step is on record before the next one begins, so this is the price of remembering. Ours keeps as many workflows in
flight as a worker does by default; the peers as many as was best for each of them. dbos starts its workflows inside the
clock, because that was faster for it than its queue. After a run the database is asked for its step records: ten for
every workflow, or there is no figure.

absurd and pgqrs are close to each other, so the bar is for the better of the two in this very run.
"""

from __future__ import annotations

from ground import Ground
from judging import OURS, Bar, Finding
from peers.driving import STEPS, best, finding, rounds

WORKFLOWS = {OURS: 16_000, "dbos": 180, "absurd": 400, "pgqrs": 500}
"""Four seconds or so for ours and for dbos, which are far apart: in two the machine's moods weigh too much."""
QUICK_WORKFLOWS = {OURS: 500, "dbos": 15, "absurd": 60, "pgqrs": 80}
OTHERS = ("absurd", "pgqrs")
ROUNDS = {OURS: 19, "dbos": 19, "absurd": 7, "pgqrs": 7}
"""dbos is right beside us and in many more rounds, because its bar is the one that is near, and two rounds differ by a
tenth."""


def measure(ground: Ground) -> list[Finding]:
    workflows = QUICK_WORKFLOWS if ground.quick else WORKFLOWS
    found = rounds(ground, "steps", workflows, dict.fromkeys(workflows, 3) if ground.quick else ROUNDS)
    findings: list[Finding] = []
    better = best(found, OTHERS)
    for peer in ("dbos", *OTHERS):
        bar = Bar(at_least=80) if peer == "dbos" else Bar(at_least=10) if peer == better else None
        findings += finding(
            found,
            peer,
            key=f"steps.{peer}",
            title=f"steps in ten-step workflows, against {peer}" + (", the better of two" if peer == better else ""),
            unit="steps/s",
            times=STEPS,
            bar=bar,
            rivals=OTHERS if peer == better else (),
        )
    return findings
