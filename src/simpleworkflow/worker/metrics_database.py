"""The queue as scrapes see it: read from the database in this one place, and kept for a while.

However many scrapes come, and from wherever, the database is asked at most once in FRESH seconds per process, at a
bounded price (store/operations/queue_depth.py). It runs on the metrics thread with connections of its own: neither the
worker's loop nor its claims wait for it. A database that does not answer is an answer too, and is kept as long.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from ..clock import monotonic
from ..store import Ledger
from ..store.operations.queue_depth import QueueDepth, queue_depth

log = logging.getLogger("simpleworkflow.metrics")

FRESH = 15.0
TIMEOUT = 3.0
"""Well within the ten seconds that Prometheus waits for a scrape."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`depth` is None when the database could not be read."""

    depth: QueueDepth | None = None
    seconds: float = 0.0


class QueueReader:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._reading = Reading()
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def read(self) -> Reading:
        async with self._turn:  # whoever comes meanwhile gets the same answer
            if monotonic() - self._read_at >= FRESH:
                self._reading = await self._look()
                self._read_at = monotonic()
            return self._reading

    async def _look(self) -> Reading:
        began = monotonic()
        depth: QueueDepth | None = None
        try:
            async with asyncio.timeout(TIMEOUT + 1.0):
                depth = await self._ledger.run(queue_depth(), timeout=TIMEOUT)
        except Exception as error:  # a scrape answers, whatever the database does
            log.warning("the queue cannot be read for the metrics: %s", str(error) or type(error).__name__)
        return Reading(depth, monotonic() - began)

    async def close(self) -> None:
        await self._ledger.close()
