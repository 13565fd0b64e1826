"""What `simpleworkflow top` shows: rates, lateness, workers and counts.

A look is cheap however large the tables are. Rates come from the newest events, by id; lateness from the index of due
runs, lane by lane; workers from the index of leased runs. Only the counts read the whole table of runs: they are taken
in the background, for a twentieth of the time at most, and the screen says how old they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...clock import monotonic
from ...model.errors import StoreUnavailable
from ...model.records import Count, Pulse
from ...model.states import TERMINAL, EventType

if TYPE_CHECKING:
    from ...app import App

SHARE = 20
"""Counting may take one part in this many of the time."""
RATES: Mapping[str, frozenset[EventType]] = {
    "triggered": frozenset({EventType.CREATED}),
    "finished": frozenset(EventType(status.value) for status in TERMINAL),
    "failed": frozenset({EventType.FAILED, EventType.TIMED_OUT}),
    "retried": frozenset({EventType.RETRIED}),
}


@dataclass(frozen=True)
class Counts:
    counts: list[Count]
    at: float
    took: float


@dataclass(frozen=True)
class Snapshot:
    """The result of one look."""

    rates: dict[str, float]
    is_partial: bool
    late: float | None
    late_type: str | None
    workers: int
    held: int
    counts: Counts | None
    problem: str | None = None


@dataclass
class Looker:
    """Takes snapshots, and remembers what the next one needs."""

    app: App
    counts: Counts | None = None
    problem: str | None = None
    _place: int | None = None
    _at: float = 0.0
    _counting: asyncio.Task[None] | None = field(default=None, repr=False)

    async def start(self) -> None:
        """Find the newest event: rates are counted from there."""
        pulse = await self.app.activity.pulse()
        self._place, self._at = pulse.last_event, monotonic()

    async def look(self) -> Snapshot:
        pulse = await self.app.activity.pulse(self._place)
        since, self._at, self._place = self._at, monotonic(), pulse.last_event
        alive = [worker for worker in await self.app.workers.all() if worker.is_alive]
        return Snapshot(
            rates_of(pulse, self._at - since),
            pulse.is_partial,
            pulse.late,
            pulse.late_type,
            len(alive),
            sum(worker.runs for worker in alive),
            self.counts,
            self.problem,
        )

    def count_in_background(self) -> None:
        """Start to count again when enough time has passed since the last time."""
        if self._counting is not None and not self._counting.done():
            return
        if self.counts is not None and monotonic() < self.counts.at + SHARE * self.counts.took:
            return
        self._counting = asyncio.get_running_loop().create_task(self._count_quietly())

    async def count(self) -> None:
        started = monotonic()
        found = await self.app.activity.counts()
        self.counts = Counts(found, monotonic(), monotonic() - started)

    async def _count_quietly(self) -> None:
        try:
            await self.count()
            self.problem = None
        except StoreUnavailable as error:
            self.problem = f"counts are missing: {error}"
            await asyncio.sleep(self.app.settings.store_timeout)


def rates_of(pulse: Pulse, seconds: float) -> dict[str, float]:
    span = max(seconds, 1e-6)
    return {
        name: sum(count for kind, count in pulse.events.items() if kind in kinds) / span
        for name, kinds in RATES.items()
    }
