"""How a figure becomes a verdict: pairs, ratios, an interval, and what is then said.

On a small shared machine two identical runs can differ by a factor of two, mostly because of what else the machine was
doing in that minute. So nobody is compared with a figure from another hour: a pair is one run of each side in the
same round, rounds take turns at who goes first, and what counts is the ratio within a pair. The verdict is read off a
bootstrap interval of the median: *pass* when all of it reaches the bar, *fail* when none of it does, *inconclusive*
otherwise, and always inconclusive with fewer than three values, or without a peer that may have been the best of them.
With so few values the interval reaches from one of them to another: of seven from the second to the sixth, of nine from
the third to the seventh, of three from end to end. It then holds the true median in 88, 82 and 75 of a hundred cases.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "fail", "inconclusive", "reported"]

OURS = "ours"
FEWEST = 3
LEVEL = 0.90
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Bar:
    """What a value must reach (`at_least`) or stay under (`at_most`). Exactly one of them is given."""

    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a bar is either a floor or a ceiling")

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"

    def verdict(self, low: float, high: float, values: int) -> Verdict:
        if values < FEWEST:
            return "inconclusive"
        if self.at_least is not None:
            low, high, bar = low, high, self.at_least
        else:
            assert self.at_most is not None
            low, high, bar = -high, -low, -self.at_most
        if low >= bar:
            return "pass"
        return "fail" if high < bar else "inconclusive"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `values` is what the verdict is read from: ratios within pairs, or plain figures."""

    key: str
    """Stable, dotted, for machines: drain.pgqueuer."""
    title: str
    """For people: no-op drain, 1 worker, against pgqueuer."""
    unit: str
    """Of `ours` and `theirs`: runs/s, ms, bytes/run."""
    ours: float
    theirs: float | None
    values: tuple[float, ...]
    bar: Bar | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    """Who might have been the best of the peers, and took no part: then nobody is known to be beaten."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        return interval(self.values)

    @property
    def verdict(self) -> Verdict:
        if self.bar is None:
            return "reported"
        return "inconclusive" if self.absent else self.bar.verdict(*self.interval, len(self.values))

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "unit": self.unit,
            "ours": self.ours,
            "theirs": self.theirs,
            "bar": None if self.bar is None else str(self.bar),
            "median": self.median,
            "interval": list(self.interval),
            "level": LEVEL,
            "verdict": self.verdict,
            "values": list(self.values),
            "detail": self.detail,
            "absent": list(self.absent),
        }


def paired(
    key: str,
    title: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    bar: Bar | None = None,
    detail: dict[str, Any] | None = None,
) -> Finding:
    """A finding over the figures of pairs, in the order in which they ran; its values are ours over theirs."""
    medians = statistics.median(ours), statistics.median(theirs)
    return Finding(key, title, unit, *medians, tuple(ratios(ours, theirs)), bar, detail or {})


def turns(pairs: int, *others: str) -> list[tuple[str, ...]]:
    """Who runs in which order, round by round: the list is turned by one each time, so a drift favours nobody."""
    everyone = (OURS, *others)
    return [everyone[nth % len(everyone) :] + everyone[: nth % len(everyone)] for nth in range(pairs)]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Our figure over theirs, pair by pair."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} runs of ours and {len(theirs)} of theirs do not make pairs")
    if any(figure <= 0 for figure in (*ours, *theirs)):
        raise ValueError("a figure must be above zero; a run that did nothing has none")
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def interval(values: Sequence[float], *, level: float = LEVEL, seed: int = 1) -> tuple[float, float]:
    """The percentile bootstrap interval of the median. The same values and seed give the same interval."""
    if not values:
        raise ValueError("no values, no interval")
    dice = random.Random(seed)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = round((1 - level) / 2 * RESAMPLES)
    return medians[tail], medians[RESAMPLES - 1 - tail]
