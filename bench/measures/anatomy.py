"""Why an idle worker takes milliseconds: what a sleeping machine charges for waking up, and where our own time goes.

Two figures of the machine, each asked once every 40 ms and once without a pause: the smallest round trip there is
(`SELECT 1`) and the smallest durable write (one row into a table of its own). A trigger and its claim are two durable
writes in a row, so twice the second figure is what no engine that claims durably goes below, unless it keeps the
machine awake by asking all the time. Then the parts of our own way from trigger to start (`../anatomy.py`). Reported,
without a bar: this explains the latency lines.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from statistics import median

import asyncpg
import our_worker
from ground import Ground
from judging import Finding

ROUNDS, QUICK_ROUNDS = 3, 1
SAMPLES, QUICK_SAMPLES = 150, 40
IDLE = 0.04
SMALLEST = {
    "ping": ("SELECT 1", "the smallest round trip on a machine at rest, against the same without pauses"),
    "write": (
        "INSERT INTO anatomy (text) VALUES ('x')",
        "the smallest durable write on a machine at rest, against the same without pauses",
    ),
}
WORDS = {
    "prepare": "from the call until the insert is sent",
    "insert": "until the insert is durable and answered",
    "notice": "until the worker hears of it (before the answer: negative)",
    "ask": "until the worker's claim is sent",
    "claim": "until the claim is durable and answered",
    "start": "until the handler starts",
    "whole": "all of it",
}


def measure(ground: Ground) -> list[Finding]:
    rounds = range(QUICK_ROUNDS if ground.quick else ROUNDS)
    samples = QUICK_SAMPLES if ground.quick else SAMPLES
    with ground.database() as url:
        machine = [asyncio.run(smallest(url, samples)) for _ in rounds]
    findings = []
    for name, (_, title) in SMALLEST.items():
        idle, busy = ([one[name, pause] for one in machine] for pause in (IDLE, 0.0))
        ratios = tuple(a / b for a, b in zip(idle, busy, strict=True))
        findings.append(Finding(f"anatomy.{name}", title, "ms", median(idle), median(busy), ratios))
    ways = [_way(ground, samples) for _ in rounds]
    for part, words in WORDS.items():
        values = tuple(way[part] for way in ways)
        findings.append(
            Finding(f"anatomy.{part}", f"trigger to start at rest, {words}", "ms", median(values), None, values)
        )
    return findings


async def smallest(url: str, samples: int) -> dict[tuple[str, float], float]:
    """The median of each in milliseconds, with and without a pause before."""
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE IF NOT EXISTS anatomy (id bigserial PRIMARY KEY, text text)")
    found: dict[tuple[str, float], float] = {}
    for name, (statement, _) in SMALLEST.items():
        for pause in (0.0, IDLE):
            taken: list[float] = []
            for _ in range(samples):
                if pause:
                    await asyncio.sleep(pause)
                began = time.perf_counter()
                await connection.fetch(statement)
                taken.append(time.perf_counter() - began)
            found[name, pause] = statistics.median(taken) * 1_000
    await connection.close()
    return found


def _way(ground: Ground, samples: int) -> dict[str, float]:
    with ground.database() as url:
        our_worker.prepare(url)
        ground.checkpoint()
        told = our_worker.program("anatomy.py", "client", url, str(samples))
    if told["jobs"] < samples * 0.9:
        raise our_worker.DriverFailed(f"only {told['jobs']} of {samples} runs could be followed all the way")
    figures: dict[str, float] = told["milliseconds"]
    return figures
