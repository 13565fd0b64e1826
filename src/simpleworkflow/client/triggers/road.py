"""In which event loop a trigger is written: the caller's own, or the engine's.

Crossing into the engine's thread costs two wake-ups and a share of the interpreter's lock: a third of what fifty
callers can trigger, and a tenth of a millisecond for each. So a loop that keeps triggering gets connections of its own
(PostgreSQL; SQLite has one writer anyway). The first calls of a loop still hop: `asyncio.run(app.trigger(...))` must
not pay for a new connection every time.

The danger is a loop that ends while it owns connections. asyncio.run and every server built on it close the
asynchronous generators that were left open, so each batcher is held by one: the end of the loop closes it. A loop that
was closed without that leaves its connections to the garbage collector, which closes them. A loop with a task factory
of its own keeps hopping: such a factory may not know the `context` argument.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, Sequence
from weakref import WeakKeyDictionary

from ...config import Settings
from ...model.errors import StoreUnavailable
from ...model.records import NewRun
from ...runtime.hints import Hinter
from ...store import Ledger
from .batcher import Answer, TriggerBatcher
from .thread_hop import ThreadHop

OFTEN = 20
"""Triggers after which a loop gets connections of its own."""
LOOP_ENDS = "the event loop that triggered this run has ended"


class Triggers:
    """Made by the engine, for its loop; `create` may be called from any loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ledger: Ledger, hinter: Hinter, settings: Settings) -> None:
        self._loop = loop
        self._ledger = ledger
        self._settings = settings
        self._here = TriggerBatcher(loop, ledger, hinter, settings)
        self._hop = ThreadHop(loop, self._here.take)
        self._guard = threading.Lock()
        self._calls: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._batchers: dict[asyncio.AbstractEventLoop, TriggerBatcher] = {}
        self._closed = False

    def create(self, new: NewRun) -> asyncio.Future[Answer]:
        """Durable when the future ends. Single triggers share commits with others that come at the same time."""
        caller = asyncio.get_running_loop()
        batcher = self._here if caller is self._loop else self._batcher_of(caller)
        return self._hop.create(new) if batcher is None else batcher.create(new)

    async def create_many(self, new: Sequence[NewRun]) -> list[Answer]:
        """In the engine's loop."""
        return await self._here.create_many(new)

    def _batcher_of(self, caller: asyncio.AbstractEventLoop) -> TriggerBatcher | None:
        """The batcher of this loop, if it has one, or has triggered often enough by now."""
        known = self._batchers.get(caller)
        if known is not None or not self._ledger.can.has_many_writers:
            return known
        with self._guard:
            calls = self._calls[caller] = self._calls.get(caller, 0) + 1
            if calls != OFTEN or self._closed or caller.get_task_factory() is not None:
                return None
            self._batchers = {one: batcher for one, batcher in self._batchers.items() if not one.is_closed()}
            ledger = self._ledger.twin()
            batcher = self._batchers[caller] = TriggerBatcher(caller, ledger, Hinter(ledger), self._settings)
        batcher.keeper = self._keep(batcher)
        _begin(batcher.keeper)
        return batcher

    async def _keep(self, batcher: TriggerBatcher) -> AsyncGenerator[None, None]:
        """Waits for the end of the loop, which closes every generator that is still open."""
        try:
            yield
        finally:
            with self._guard:
                self._batchers.pop(batcher.loop, None)
            await batcher.close(StoreUnavailable(LOOP_ENDS), patience=0.0)

    def refuse(self, error: StoreUnavailable) -> None:
        """From any thread: no trigger hops any more."""
        self._hop.refuse(error)

    def close_loops(self, error: StoreUnavailable, patience: float) -> None:
        """From any thread. A loop that is blocked by this very call closes its batcher when it turns again."""
        with self._guard:
            self._closed = True
            batchers, self._batchers = self._batchers, {}
        closing = [done for one in batchers.values() if (done := _close(one, error, patience)) is not None]
        concurrent.futures.wait(closing, timeout=patience + 1.0)

    def clear(self, error: StoreUnavailable) -> None:
        """In the engine's loop: answer every trigger that hopped and has no answer yet."""
        self._hop.clear(error)


def _begin(keeper: AsyncGenerator[None, None]) -> None:
    """Up to its yield: from there on the loop knows of it."""
    try:
        keeper.__anext__().__await__().__next__()
    except StopIteration:
        pass


def _close(batcher: TriggerBatcher, error: StoreUnavailable, patience: float) -> concurrent.futures.Future[None] | None:
    if not batcher.loop.is_running():
        return None
    closing = batcher.close(error, patience)
    try:
        if asyncio.get_running_loop() is batcher.loop:
            batcher.loop.create_task(closing)
            return None
    except RuntimeError:
        pass  # this thread has no loop, so the batcher's loop runs elsewhere
    try:
        return asyncio.run_coroutine_threadsafe(closing, batcher.loop)
    except RuntimeError:  # it ended just now
        closing.close()
        return None
