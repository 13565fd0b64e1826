"""What a thousand parked runs cost the worker's memory: asleep in the database, or waiting in the process itself.

A run that only waits durably is unwound and should leave nothing behind. A run that also waits for something nobody
can write down stays in memory, up to ten for each slot. Each figure comes from a fresh worker process (`parked.py`), as
the growth of what the system counts as resident. Reported, without a bar.
"""

from __future__ import annotations

from statistics import median

import our_worker
from ground import Ground
from judging import Finding

ROUNDS, QUICK_ROUNDS = 3, 1
ASLEEP, QUICK_ASLEEP = 10_000, 3_000
AS_MANY_AS_FIT = 0


def measure(ground: Ground) -> list[Finding]:
    asleep = QUICK_ASLEEP if ground.quick else ASLEEP
    return [
        grown(ground, "asleep", asleep, f"worker's memory for 1,000 runs asleep in the database ({asleep:,} parked)"),
        grown(ground, "resident", AS_MANY_AS_FIT, "worker's memory for 1,000 runs waiting in memory"),
    ]


def grown(ground: Ground, kind: str, runs: int, title: str) -> Finding:
    values: list[float] = []
    detail: dict[str, int] = {}
    for _ in range(QUICK_ROUNDS if ground.quick else ROUNDS):
        with ground.database() as url:
            our_worker.prepare(url)
            detail = our_worker.program("parked.py", kind, url, str(runs))
        values.append((detail["after_bytes"] - detail["before_bytes"]) / detail["jobs"] * 1_000 / 1024)
    return Finding(f"memory.{kind}", title, "KiB/1,000 runs", median(values), None, tuple(values), None, dict(detail))
