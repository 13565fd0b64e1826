"""The sweep: every worker takes back what others lost, from the database and its clock alone.

No leader and no registry: a lease that ran out is enough. On the lease's own host the process behind it can be looked
at, so there a killed worker's runs come back within a second instead of a lease. Type-blind and bounded: a batch of
runs that nobody here can execute does not starve the others. What is overdue is ended in overdue.py.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from uuid import UUID

from ..clock import monotonic
from ..config import Settings
from ..runtime.meter import Meter
from ..store import Ledger
from ..store.operations import leases, workers
from ..store.operations.queue_depth import types_of
from .loop import forever
from .process import is_dead

log = logging.getLogger("simpleworkflow.sweep")

BATCH = 500
MOST_NAMED = 20
FORGET_AFTER = 7 * 24 * 3600.0


def sweeping(
    ledger: Ledger,
    settings: Settings,
    stopping: asyncio.Event,
    on_found: Callable[[], None],
    me: str,
    meter: Meter | None,
) -> list[asyncio.Task[None]]:
    """The role at work, until it is told to stop."""
    sweeper = Sweeper(ledger, on_found, me=me, every=settings.sweep_every, grace=settings.lease / 2, meter=meter)
    loop = asyncio.get_running_loop()
    return [
        loop.create_task(forever("sweep", settings.sweep_every, sweeper.sweep, stopping)),
        loop.create_task(forever("look-around", settings.local_check_every, sweeper.look_around, stopping)),
    ]


async def count_swept(ledger: Ledger, meter: Meter | None, moved: Sequence[UUID]) -> None:
    """For the metrics; a sweep does not stop because of them."""
    if meter is None or not moved:
        return
    try:
        meter.swept.update(await ledger.run(types_of(moved)))
    except Exception as error:
        log.warning("%d swept runs could not be counted: %s", len(moved), error)


def some_runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def tell_ended(how: str, ended: Sequence[UUID]) -> None:
    """Their code never came to say anything."""
    if ended:
        shown = ", ".join(map(str, ended[:MOST_NAMED])) + (" …" if len(ended) > MOST_NAMED else "")
        log.error("%s %s: %s", some_runs(len(ended)), how, shown)


class Sweeper:
    def __init__(
        self,
        ledger: Ledger,
        on_found: Callable[[], None],
        *,
        me: str,
        every: float,
        grace: float,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter
        self._ledger = ledger
        self._on_found = on_found
        self._me = me
        self._gap = 2 * every + 1.0
        self._grace = grace
        self._last = monotonic()
        self._not_before = 0.0

    async def sweep(self) -> None:
        """Expired leases.

        After an outage every lease has run out, though its worker may well be alive and about to renew it: leases get
        a moment before they are judged.
        """
        if monotonic() - self._last > self._gap:
            await self._ledger.run(leases.lease_holders())  # raises while the database is away
            self._not_before = monotonic() + self._grace
        self._last = monotonic()
        if monotonic() >= self._not_before:
            await self._take_back([])
        await self._ledger.run(workers.forget(silence=FORGET_AFTER))

    async def look_around(self) -> None:
        """Leases of processes on this host that are gone."""
        dead = [holder for holder in await self._ledger.run(leases.lease_holders()) if is_dead(holder)]
        if dead:
            await self._take_back(dead)

    async def _take_back(self, dead: list[str]) -> None:
        while True:
            taken = await self._ledger.run(leases.crash(dead, limit=BATCH, chance=random.random(), me=self._me))
            if taken:
                log.warning("took back %s whose worker stopped without finishing", some_runs(len(taken)))
                tell_ended(
                    "failed for good after too many crashes", [run_id for run_id, end in taken if end.is_terminal]
                )
                self._on_found()
                await count_swept(self._ledger, self._meter, [run_id for run_id, _ in taken])
            if len(taken) < BATCH:
                return
