"""Waiting for runs to finish: one listener and one query for all callers of this process that wait.

A caller gets the run as that query found it, without a second question. Hints make it quick; polling, at growing
intervals, makes it certain. Closing answers every caller that still waits, so that no thread hangs.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from ..clock import monotonic
from ..model.errors import StoreUnavailable
from ..model.records import Run
from ..poll_backoff import PollBackoff
from ..runtime.hints import Hint
from ..store import Ledger
from ..store.operations import runs

log = logging.getLogger("simpleworkflow.client")

PAUSE, CROWD = 0.002, 100
"""Seconds between two queries that hints ask for, for every so many callers: each query asks for all of them."""
SOONEST = 0.01
"""Seconds until the first query without a hint: behind a pooler there are no hints."""


class ResultWaiters:
    def __init__(self, ledger: Ledger, poll_every: float) -> None:
        self._ledger = ledger
        self._poll_every = poll_every
        self._waiting: dict[UUID, list[asyncio.Future[Run]]] = {}
        self._news = asyncio.Event()
        self._looks = PollBackoff(SOONEST)
        self._tasks: list[asyncio.Task[None]] = []

    async def finished(self, run_id: UUID) -> Run:
        """The run, when it has finished; called in the engine's loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Run] = loop.create_future()
        self._waiting.setdefault(run_id, []).append(future)
        if not self._tasks:
            self._tasks = [loop.create_task(self._watch()), loop.create_task(self._ledger.listen(self._hear))]
        self._looks.happened()
        self._news.set()
        try:
            return await future
        finally:
            waiting = self._waiting.get(run_id, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(run_id, None)

    def _hear(self, kind: str) -> None:
        if kind != Hint.READY:
            self._news.set()

    async def _watch(self) -> None:
        while True:
            self._news.clear()
            began = monotonic()
            if self._waiting:
                try:
                    await self._look()
                except StoreUnavailable as error:
                    self._looks.failed()
                    log.debug("cannot look for results: %s", error)
                except Exception:
                    self._looks.failed()
                    log.exception("looking for results went wrong and will be tried again")
            took = monotonic() - began
            gather = self._gather_for()
            await asyncio.sleep(gather)
            try:
                async with asyncio.timeout(max(self._looks.pause(self._poll_every, took) - gather, 0.0)):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _gather_for(self) -> float:
        """Seconds in which hints may gather after a query, for the callers that it has not answered."""
        still = sum(not all(future.done() for future in futures) for futures in self._waiting.values())
        return min(PAUSE * max(still / CROWD, 1.0), self._poll_every)

    async def _look(self) -> None:
        """Answers the callers that waited when it began: a run may have been reopened before the others came."""
        waiting = {run_id: tuple(futures) for run_id, futures in self._waiting.items()}
        found = await self._ledger.run(runs.finished_among(list(waiting)))
        if found:
            self._looks.happened()
        for run in found:
            for future in waiting[run.id]:
                if not future.done():
                    future.set_result(run)

    async def close(self) -> None:
        for future in [future for waiting in self._waiting.values() for future in waiting]:
            if not future.done():
                future.set_exception(StoreUnavailable("this App was closed while waiting for a run; the run goes on"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
