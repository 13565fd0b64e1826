"""The sizes of the benchmark: all follow from the number of runs and of steps that the operator chose."""

from __future__ import annotations

from dataclasses import dataclass

AT_ONCE = 50
"""Callers that trigger at the same time."""
MOST_SAMPLES = 200


@dataclass(frozen=True, slots=True)
class Plan:
    runs: int = 5_000
    steps: int = 10

    @property
    def single(self) -> int:
        return max(1, self.runs // 10)

    @property
    def together(self) -> int:
        """A multiple of AT_ONCE, so that every caller has the same share."""
        return max(1, self.runs // 2 // AT_ONCE) * AT_ONCE

    @property
    def stepped(self) -> int:
        return max(1, self.runs // 10)

    @property
    def samples(self) -> int:
        return min(MOST_SAMPLES, max(2, self.runs // 10))
