"""The same on SQLite, beside dbos: ten-step workflows, a drain, triggers in their three ways, and the idle latency.

Both sides use a file in a temporary folder and their own settings for durability. dbos needs a newer SQLite than an
older system has and gets one (peers/drive_dbos_sqlite.py), so the two sides do not run on the same SQLite library; next
to a factor of twenty that is nothing. Nobody else among the peers has steps on SQLite. The short form asks for the
steps alone.
"""

from __future__ import annotations

from ground import Ground
from judging import Bar, Finding
from peers.driving import DBOS_SQLITE, OURS_SQLITE, STEPS, finding, rounds

WORKFLOWS = {OURS_SQLITE: 2_000, DBOS_SQLITE: 90}
BESIDE = {
    "drain": ("no-op drain, 1 worker process", {OURS_SQLITE: 20_000, DBOS_SQLITE: 400}),
    "trigger-bulk": ("bulk trigger", {OURS_SQLITE: 40_000, DBOS_SQLITE: 1_000}),
    "trigger-concurrent": ("single triggers, 50 callers at once", {OURS_SQLITE: 5_000, DBOS_SQLITE: 300}),
    "trigger-single": ("single triggers, one caller", {OURS_SQLITE: 600, DBOS_SQLITE: 300}),
}
SAMPLES = {OURS_SQLITE: 60, DBOS_SQLITE: 40}
SHORTER = 6
ROUNDS = 3


def measure(ground: Ground) -> list[Finding]:
    findings = beside(ground, "steps", "steps", "steps in ten-step workflows", WORKFLOWS, bar=Bar(at_least=20))
    if ground.quick:
        return findings
    for command, (words, jobs) in BESIDE.items():
        findings += beside(ground, command, command.removeprefix("trigger-"), words, jobs)
    found = rounds(ground, "latency", SAMPLES, dict.fromkeys(SAMPLES, ROUNDS))
    for what in ("start", "result"):
        findings += finding(
            found,
            DBOS_SQLITE,
            ours=OURS_SQLITE,
            key=f"sqlite.latency.{what}",
            title=f"SQLite: idle latency, trigger to {what}, p50, against dbos on SQLite",
            unit="ms",
            figure=f"{what}_p50_ms",
        )
    return findings


def beside(
    ground: Ground, command: str, key: str, words: str, jobs: dict[str, int], bar: Bar | None = None
) -> list[Finding]:
    number = {who: jobs_of // SHORTER for who, jobs_of in jobs.items()} if ground.quick else jobs
    return finding(
        rounds(ground, command, number, dict.fromkeys(number, ROUNDS)),
        DBOS_SQLITE,
        ours=OURS_SQLITE,
        key=f"sqlite.{key}.dbos",
        title=f"SQLite: {words}, against dbos on SQLite",
        unit="steps/s" if command == "steps" else "runs/s",
        times=STEPS if command == "steps" else 1,
        bar=bar,
    )
