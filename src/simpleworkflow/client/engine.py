"""The engine room of an App: one background thread with an event loop that owns all of its I/O.

An App can be called from any loop, any thread and after a fork because none of them ever touches a connection:
calls hop into this thread and their answers hop back. It starts with the first call and is a daemon, so a program
that forgets to close its App still ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ..clock import Clock
from ..config import Settings
from ..model.errors import SimpleWorkflowError, StoreUnavailable
from ..model.records import Created, NewRun
from ..runtime.batch import Batcher
from ..runtime.hints import Hint, Hinter
from ..store import Ledger, open_ledger
from ..store.operations import runs
from ..store.protocol import Operation
from .waiting import Waiters

log = logging.getLogger("simpleworkflow.client")

T = TypeVar("T")
INTAKE_BATCH = 500
KEYED_BATCH = 100

_inherited: list[Engine] = []
"""Engines of a parent process: kept alive so that no destructor touches the parent's sockets and files."""


class Engine:
    def __init__(self, url: str, schema: str | None, settings: Settings, clock: Clock | None) -> None:
        self.pid = os.getpid()
        self.settings = settings
        self.ledger: Ledger = open_ledger(url, schema=schema, clock=clock)
        self.loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="simpleworkflow-engine", daemon=True)
        self.hinter = Hinter(self.ledger)
        self.waiters = Waiters(self.ledger, settings.poll_every)
        # Keyed triggers go apart: one key in somebody's open transaction must not hold up the others.
        self._intake = Batcher(self._create, limit=INTAKE_BATCH, patient=False, name="intake")
        self._keyed = Batcher(self._create, limit=KEYED_BATCH, patient=False, name="keyed-intake")
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    # From anywhere.

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the engine room and wait for it without blocking the caller's loop."""
        if self._closed:
            raise StoreUnavailable("this App is closed")
        if asyncio.get_running_loop() is self.loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self.loop))

    def block(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine room and block the calling thread until it is done."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("app.sync cannot be called from inside the App's own event loop; await the App instead")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def run(self, operation: Operation[T]) -> T:
        timeout = self.settings.store_timeout
        return await self.call(lambda: self.ledger.run(operation, timeout=timeout))

    async def create(self, new: Sequence[NewRun]) -> list[Created | SimpleWorkflowError]:
        """Durable when this returns. Single triggers share commits with whoever comes at the same time."""
        if len(new) == 1:
            intake = self._keyed if new[0].idempotency_key is not None else self._intake
            return [await self.call(lambda: _wait(intake.submit(new[0])))]
        answers: list[Created | SimpleWorkflowError] = []
        for start in range(0, len(new), INTAKE_BATCH):
            chunk = list(new[start : start + INTAKE_BATCH])
            answers += await self.call(lambda chunk=chunk: self._create(chunk))  # type: ignore[misc]
        return answers

    async def _create(self, new: list[NewRun]) -> Sequence[Created | SimpleWorkflowError]:
        answers = await self.ledger.run(runs.create(new), timeout=self.settings.store_timeout)
        self.hinter.tell(Hint.READY)
        return answers

    async def tell(self, kind: Hint) -> None:
        async def send() -> None:
            self.hinter.tell(kind)

        await self.call(send)

    async def close(self) -> None:
        """Close connections and end the thread; safe from any loop but the engine's own."""
        if self._closed:
            return

        async def shut() -> None:
            await self.waiters.close()
            await self.hinter.stop()
            await self.ledger.close()

        await self.call(shut)
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self._thread.join, 5.0)
        self.loop.close()

    def is_inherited(self) -> bool:
        """Whether this engine belongs to a parent process: forked children must start their own."""
        if self.pid == os.getpid():
            return False
        _inherited.append(self)
        return True

    @property
    def is_closed(self) -> bool:
        return self._closed


async def _wait(future: Awaitable[T]) -> T:
    return await future
