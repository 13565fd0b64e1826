"""`simpleworkflow top`: counts, rates, lateness and workers, live.

A look must stay cheap however large the tables are. Rates come from the newest events, by id; lateness from the index
of due runs, lane by lane; workers and what they hold from the index of leased runs. Only the counts read the whole
table of runs, so they are taken in the background, and never for more than a twentieth of the time: the screen says
how old they are. A database that cannot be reached is told and waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from ..clock import monotonic
from ..model.errors import StoreUnavailable
from ..model.records import Count, Pulse
from ..model.states import TERMINAL, EventType
from .common.database import opened, place_of
from .common.instants import Interval
from .common.interrupts import run_in_a_loop, stopped_by_sigterm
from .common.options import json_option, url_option
from .common.output import say_json

if TYPE_CHECKING:
    from ..app import App

SHARE = 20
"""Counting may take one part in so many of the time."""
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
    """What one look has seen."""

    rates: dict[str, float]
    is_partial: bool
    late: float | None
    late_type: str | None
    workers: int
    held: int
    counts: Counts | None
    problem: str | None = None


@click.command()
@url_option
@click.option("--interval", default="2s", show_default=True, type=Interval(0.1), help="Between looks.")
@click.option("--once", is_flag=True, help="One look, one interval long, then stop; without a terminal always so.")
@click.option("--limit", default=40, show_default=True, type=click.IntRange(1), help="Types to show.")
@json_option
def top(url: str | None, interval: float, once: bool, limit: int, as_json: bool) -> None:
    """Show counts by type and status, rates, lateness and workers, live."""
    from .screen.text import screen
    from .top_screen import print_snapshot, snapshot_json, watch_live, watch_plainly

    out = screen()
    with opened(url) as app:
        try:
            with stopped_by_sigterm():
                if not as_json and not once and out.is_terminal:
                    watch = watch_plainly if out.is_dumb_terminal else watch_live
                    run_in_a_loop(lambda: watch(Looker(app), out, str(place_of(url)), interval, limit))
                    return
                snapshot = run_in_a_loop(lambda: _look_once(app, interval))
        except KeyboardInterrupt:
            return
    if as_json:
        say_json(snapshot_json(snapshot))
    else:
        print_snapshot(snapshot, out, limit)


async def _look_once(app: App, interval: float) -> Snapshot:
    looker = Looker(app)
    await looker.start()
    await looker.count()
    await asyncio.sleep(interval)
    return await looker.look()


@dataclass
class Looker:
    """Looks again and again, and remembers what the next look needs."""

    app: App
    counts: Counts | None = None
    problem: str | None = None
    _place: int | None = None
    _at: float = 0.0
    _counting: asyncio.Task[None] | None = field(default=None, repr=False)

    async def start(self) -> None:
        """Find the newest event, from which rates are counted."""
        pulse = await self.app.activity.pulse()
        self._place, self._at = pulse.last_event, monotonic()

    async def look(self) -> Snapshot:
        pulse = await self.app.activity.pulse(self._place)
        since, self._at, self._place = self._at, monotonic(), pulse.last_event
        crew = [worker for worker in await self.app.workers.all() if worker.is_alive]
        return Snapshot(
            rates_of(pulse, self._at - since),
            pulse.is_partial,
            pulse.late,
            pulse.late_type,
            len(crew),
            sum(worker.runs for worker in crew),
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
