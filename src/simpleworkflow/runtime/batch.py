"""Natural batching: while one flush is under way the next batch gathers.

An idle system flushes at once; a busy one shares a commit among everybody who came in the meantime. No timer, no
tuning. One bad item must not strand its neighbours: when a flush is refused the batch is halved until the culprit
stands alone, and only its own caller hears of it. When the database is away items wait (`patient`) or their callers
are told (not patient); a flush that is tried again is told so, since the first try may have committed.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ..model.errors import StoreUnavailable

log = logging.getLogger("simpleworkflow.batch")

MAX_WEIGHT = 4 * 1024 * 1024
"""Characters of payload in one flush."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    def __init__(
        self,
        flush: Callable[[list[Item], bool], Awaitable[Sequence[Answer]]],
        *,
        limit: int,
        patient: bool,
        name: str,
        weigh: Callable[[Item], int] = lambda _: 0,
    ) -> None:
        self._flush = flush
        self._limit = limit
        self._patient = patient
        self._name = name
        self._weigh = weigh
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._flusher: asyncio.Task[None] | None = None
        self._in_flight = 0

    @property
    def backlog(self) -> int:
        return len(self._waiting) + self._in_flight

    def submit(self, item: Item) -> asyncio.Future[Answer]:
        """Queue an item; the future ends when its flush has committed."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, answer))
        if self._flusher is None:
            # In a context of its own: it serves everybody, and must not be stopped with the run that came first.
            self._flusher = loop.create_task(
                self._flush_all(), name=f"simpleworkflow-{self._name}", context=contextvars.Context()
            )
        return answer

    async def drain(self, timeout: float) -> bool:
        """Wait until everything is flushed; False when the time is up first."""
        if self._flusher is not None:
            await asyncio.wait({self._flusher}, timeout=timeout)
        return self.backlog == 0

    def abandon(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()

    async def _flush_all(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                self._in_flight = len(batch)
                await self._flush_some(batch)
                self._in_flight = 0
        finally:
            self._flusher = None
            self._in_flight = 0

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        """Bounded in number and in weight: a few hundred large payloads would be one enormous statement."""
        batch = [self._waiting.popleft()]
        weight = self._weigh(batch[0][0])
        while self._waiting and len(batch) < self._limit:
            weight += self._weigh(self._waiting[0][0])
            if weight > MAX_WEIGHT:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _flush_some(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._persist([item for item, _ in batch])
        except Exception as error:
            await self._split(batch, error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def _split(self, batch: list[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
        if len(batch) > 1 and not isinstance(error, StoreUnavailable):
            middle = len(batch) // 2
            await self._flush_some(batch[:middle])
            await self._flush_some(batch[middle:])
            return
        for _, future in batch:
            if not future.done():
                future.set_exception(error)

    async def _persist(self, items: list[Item]) -> Sequence[Answer]:
        pause, repeated = 0.1, False
        while True:
            try:
                return await self._flush(items, repeated)
            except StoreUnavailable as error:
                if not self._patient:
                    raise
                repeated = True
                log.warning("%s: %d entries wait for the database: %s", self._name, len(items), error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, 5.0)
