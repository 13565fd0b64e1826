"""The queue as scrapes see it, and how large the tables are: read from the database in this one place, and kept for a
while.

However many scrapes come, and from wherever, the database is asked at most once in FRESH seconds per process, at a
bounded price (store/operations/queue_depth.py, sizes.py). It runs on the metrics thread with connections of its own:
neither the worker's loop nor its claims wait for it. A database that does not answer is an answer too, and is kept as
long. Sizes are asked for by themselves and briefly: somebody who rewrites a table (VACUUM FULL) locks them, and the
queue is told all the same.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TypeVar

from ..clock import monotonic
from ..model.errors import StoreUnavailable
from ..store import Ledger
from ..store.operations.queue_depth import QueueDepth, queue_depth
from ..store.operations.sizes import Sizes, table_sizes
from ..store.outage import level
from ..store.protocol import Operation

T = TypeVar("T")
log = logging.getLogger("simpleworkflow.metrics")

FRESH = 15.0
TIMEOUT = 3.0
"""Well within the ten seconds that Prometheus waits for a scrape."""
SIZES_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """`depth` is None when the database could not be read, `sizes` when it would not tell them."""

    depth: QueueDepth | None = None
    seconds: float = 0.0
    sizes: Sizes | None = None


class QueueReader:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._reading = Reading()
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def read(self) -> Reading:
        async with self._turn:  # scrapes that come meanwhile get the same answer
            if monotonic() - self._read_at >= FRESH:
                self._reading = await self._look()
                self._read_at = monotonic()
            return self._reading

    async def _look(self) -> Reading:
        began = monotonic()
        depth = await self._ask(queue_depth(), TIMEOUT, grace=1.0)
        took = monotonic() - began
        sizes = None if depth is None else await self._ask(table_sizes(), SIZES_TIMEOUT, grace=0.5)
        return Reading(depth, took, sizes)

    async def _ask(self, operation: Operation[T], timeout: float, *, grace: float) -> T | None:
        try:
            async with asyncio.timeout(timeout + grace):
                return await self._ledger.run(operation, timeout=timeout)
        except Exception as error:  # a scrape answers, whatever the database does
            what, why = operation.name.replace("_", " "), str(error) or type(error).__name__
            grade = level(error) if isinstance(error, StoreUnavailable) else logging.WARNING
            log.log(grade, "the %s cannot be read for the metrics: %s", what, why)
        return None

    async def close(self) -> None:
        await self._ledger.close()
