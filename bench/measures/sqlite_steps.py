"""The same on SQLite: ten-step workflows beside dbos, and what a drain and a bulk trigger reach.

Both sides use a file in a temporary folder and their own settings for durability. dbos needs a newer SQLite than an
older system has and gets one (peers/drive_dbos_sqlite.py), so the two sides do not run on the same SQLite library; next
to a factor of twenty that is nothing. Nobody else among the peers has steps on SQLite.
"""

from __future__ import annotations

import statistics

from ground import Ground
from judging import Bar, Finding
from peers.driving import DBOS_SQLITE, OURS_SQLITE, STEPS, finding, rounds

WORKFLOWS = {OURS_SQLITE: 2_000, DBOS_SQLITE: 90}
QUICK_WORKFLOWS = {OURS_SQLITE: 300, DBOS_SQLITE: 12}
ALONE = {"drain": ("no-op drain", 20_000), "trigger-bulk": ("bulk trigger", 40_000)}
SHORTER = 5
ROUNDS = 3


def measure(ground: Ground) -> list[Finding]:
    workflows = QUICK_WORKFLOWS if ground.quick else WORKFLOWS
    findings = finding(
        rounds(ground, "steps", workflows, dict.fromkeys(workflows, ROUNDS)),
        DBOS_SQLITE,
        ours=OURS_SQLITE,
        key="sqlite.steps.dbos",
        title="SQLite: steps in ten-step workflows, against dbos on SQLite",
        unit="steps/s",
        times=STEPS,
        bar=Bar(at_least=20),
    )
    times = 1 if ground.quick else ROUNDS
    for command, (words, jobs) in ALONE.items():
        number = {OURS_SQLITE: jobs // SHORTER if ground.quick else jobs}
        found = [one[OURS_SQLITE] for one in rounds(ground, command, number, {OURS_SQLITE: times})]
        rates = tuple(one["rate"] for one in found)
        key, title = f"sqlite.{command.removeprefix('trigger-')}", f"SQLite: {words}"
        findings.append(Finding(key, title, "runs/s", statistics.median(rates), None, rates, detail={"runs": found}))
    return findings
