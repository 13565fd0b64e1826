"""Runs whose time is over while they wait: ended to the moment, by any worker, without running user code.

The owner of a running execution stops it at its deadline, logs that, and has a second to do so. A run that waits has no
owner: every sweep ends what is overdue, and asks when the next will be. What a worker has let go of itself, with a
deadline before its next sweep, it remembers. Many workers know the same time: they look a moment after it, each at
another moment, and the first has done it for all. Where no waiting run has a deadline there is one look per sweep.
"""

from __future__ import annotations

import asyncio
import random
from heapq import heappop, heappush

from ..clock import monotonic
from ..runtime.meter import Meter
from ..store import Ledger
from ..store.operations import leases
from .loop import forever, pause_unless
from .sweep import BATCH, count_swept, tell_ended

SLACK = 0.005
SPREAD = 0.1
"""Seconds within which the workers look that have only read of a deadline."""
SOONEST = 0.05
"""Seconds between two looks, however many deadlines there are."""
OF_THE_OWNER = 1.0
"""Seconds that a worker has to end a run of its own that is past its deadline."""
LOCKED = 1.0
"""Seconds until the next look when somebody has locked what is overdue."""


class Overdue:
    def __init__(self, every: float) -> None:
        self._every = every
        self._known: list[float] = []
        self._read = float("-inf")
        self._wake = asyncio.Event()

    def start(self, ledger: Ledger, stopping: asyncio.Event, meter: Meter | None) -> list[asyncio.Task[None]]:
        async def look() -> None:
            await self._until_due()
            await self._end(ledger, meter)

        return [asyncio.get_running_loop().create_task(forever("deadlines", SOONEST, look, stopping))]

    def expect(self, seconds: float) -> None:
        """A run that this worker has let go of has so much time left."""
        if seconds < 2 * self._every:
            heappush(self._known, monotonic() + max(seconds, 0.0) + SLACK)
            self._wake.set()

    async def _until_due(self) -> None:
        sweep = monotonic() + self._every * random.uniform(0.8, 1.0)
        while (left := min(sweep, self._read, *self._known[:1]) - monotonic()) > 0:
            self._wake.clear()
            await pause_unless(self._wake, left)

    async def _end(self, ledger: Ledger, meter: Meter | None) -> None:
        now = monotonic()
        while self._known and self._known[0] <= now:
            heappop(self._known)
        self._read = now  # until it has been read anew
        while True:
            ended = await ledger.run(leases.expire(limit=BATCH, grace=OF_THE_OWNER))
            tell_ended("timed out, past a deadline or not started in time", ended)
            await count_swept(ledger, meter, ended)
            if len(ended) < BATCH:
                break
        left = await ledger.run(leases.next_expiry())
        pause = left + SLACK + random.uniform(0.0, SPREAD) if left > 0 else LOCKED
        self._read = monotonic() + pause
