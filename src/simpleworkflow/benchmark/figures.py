"""The results of the benchmark: rates, latencies and amounts, with what they were computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so many seconds."""

    key: str
    title: str
    unit: str
    count: int
    seconds: float

    @property
    def value(self) -> float:
        return self.count / self.seconds

    def as_json(self) -> dict[str, Any]:
        return {"value": round(self.value, 1), **_without_key(self)}


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds."""

    key: str
    title: str
    unit: str
    count: int
    p50: float
    p99: float

    def as_json(self) -> dict[str, Any]:
        return _without_key(self)


@dataclass(frozen=True, slots=True)
class Amount:
    """So much per run."""

    key: str
    title: str
    unit: str
    count: int
    value: float

    def as_json(self) -> dict[str, Any]:
        return _without_key(self)


Figure = Rate | Latency | Amount


def _without_key(figure: Figure) -> dict[str, Any]:
    return {name: value for name, value in asdict(figure).items() if name != "key"}


def latency(key: str, title: str, seconds: Sequence[float]) -> Latency:
    p50, p99 = (round(percentile(seconds, share) * 1000, 3) for share in (50, 99))
    return Latency(key, title, "ms", len(seconds), p50, p99)


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that is not exceeded by `share` per cent of them."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]
