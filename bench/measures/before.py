"""This working tree against an older commit of ours: is it as fast as it was?

Five measures, each in pairs: a round has one run of both, and the order changes from round to round. All ratios are
written so that more is better, 1.0 is as fast as before, and 0.96 is what must be reached. The latency is taken as in
latency.py, with both up at the same time and taking turns of half a second; a sitting is one value, and its ratio is
inverted: the time of the older commit over ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from ground import Ground
from judging import OURS, Bar, Finding
from peers.driving import BEFORE, BEFORE_SQLITE, OURS_SQLITE, STEPS, finding, rounds
from peers.sitting import sit, sitting_finding

BAR = Bar(at_least=0.96)
ROUNDS, QUICK_ROUNDS = 9, 3
TURNS, QUICK_TURNS = 8, 3


@dataclass(frozen=True, slots=True)
class Pair:
    """A measure of the rate, and who takes part."""

    command: str
    title: str
    unit: str
    jobs: int
    """Two to three seconds of work."""
    times: int = 1
    now: str = OURS
    before: str = BEFORE


RATES = {
    "drain": Pair("drain", "no-op drain, 1 worker process", "runs/s", 80_000),
    "steps": Pair("steps", "steps in ten-step workflows", "steps/s", 10_000, STEPS),
    "triggers": Pair("trigger-concurrent", "single triggers, 50 callers at once", "runs/s", 50_000),
    "sqlite": Pair("steps", "SQLite: steps in ten-step workflows", "steps/s", 4_000, STEPS, OURS_SQLITE, BEFORE_SQLITE),
}
SHORTER = 5
LATENCY = "idle latency, trigger to start, p50 (ratio inverted: before / now)"
NAMES = ("drain", "steps", "triggers", "latency", "sqlite")
Measure = Callable[[Ground], list[Finding]]


def finder(number: int) -> Callable[[str], Measure]:
    """What finds one of NAMES, in so many rounds."""

    def found_by_name(name: str) -> Measure:
        return functools.partial(latency, number) if name == "latency" else functools.partial(rate, name, number)

    return found_by_name


def rate(name: str, number: int, ground: Ground) -> list[Finding]:
    pair = RATES[name]
    both = (pair.now, pair.before)
    jobs = pair.jobs // SHORTER if ground.quick else pair.jobs
    return finding(
        rounds(ground, pair.command, dict.fromkeys(both, jobs), dict.fromkeys(both, number)),
        pair.before,
        ours=pair.now,
        key=f"before.{name}",
        title=pair.title,
        unit=pair.unit,
        times=pair.times,
        bar=BAR,
    )


def latency(number: int, ground: Ground) -> list[Finding]:
    both, turns = (OURS, BEFORE), QUICK_TURNS if ground.quick else TURNS
    sittings = [sit(ground, both[:: -1 if nth % 2 else 1], turns) for nth in range(number)]
    found = sitting_finding(sittings, OURS, BEFORE, key="before.latency", title=LATENCY, bar=BAR)
    return [replace(found, values=tuple(1 / value for value in found.values))]
