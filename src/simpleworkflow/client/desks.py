"""Loops with a desk of their own.

Crossing into the engine's thread costs two wake-ups and a share of the interpreter's lock: a third of what fifty
callers can trigger, and a tenth of a millisecond for each. So a loop that keeps triggering gets connections of its own
(PostgreSQL; SQLite has one writer anyway). The first calls of a loop still hop: `asyncio.run(app.trigger(...))` must
not pay for a new connection every time.

The danger is a loop that ends while it owns connections. asyncio.run and every server built on it close what was left
open when they shut down asynchronous generators, so each desk stands behind one: the end of the loop closes it. A loop
that was closed without that leaves its connections to the garbage collector, which closes them. A loop with tasks of
its own making gets no desk: its factory may know nothing of contexts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, Callable
from weakref import WeakKeyDictionary

from ..model.errors import StoreUnavailable
from .desk import Desk

WORTH_IT = 20
"""Triggers after which a loop is taken to be here to stay."""
LOOP_ENDS = "the event loop that triggered this run has ended"


class Desks:
    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], Desk], is_worth_it: bool) -> None:
        self._make = make
        self._is_worth_it = is_worth_it
        self._guard = threading.Lock()
        self._calls: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._desks: dict[asyncio.AbstractEventLoop, Desk] = {}
        self._closed = False

    def at(self, loop: asyncio.AbstractEventLoop) -> Desk | None:
        """The desk of the running loop, if it has one, or deserves one by now."""
        known = self._desks.get(loop)
        if known is not None or not self._is_worth_it:
            return known
        with self._guard:
            calls = self._calls[loop] = self._calls.get(loop, 0) + 1
            if calls != WORTH_IT or self._closed or loop.get_task_factory() is not None:
                return None
            self._desks = {one: desk for one, desk in self._desks.items() if not one.is_closed()}
            desk = self._desks[loop] = self._make(loop)
        desk.keeper = self._keep(desk)
        _begin(desk.keeper)
        return desk

    async def _keep(self, desk: Desk) -> AsyncGenerator[None, None]:
        """Waits for the end of the loop, as any generator that nobody has finished does."""
        try:
            yield
        finally:
            with self._guard:
                self._desks.pop(desk.loop, None)
            await desk.close(StoreUnavailable(LOOP_ENDS), patience=0.0)

    def close(self, error: StoreUnavailable, patience: float) -> None:
        """From any thread. A loop that is blocked by this very call closes its desk when it turns again."""
        with self._guard:
            self._closed = True
            desks, self._desks = self._desks, {}
        waiting = [closing for desk in desks.values() if (closing := _close(desk, error, patience)) is not None]
        concurrent.futures.wait(waiting, timeout=patience + 1.0)


def _begin(keeper: AsyncGenerator[None, None]) -> None:
    """Up to its yield: from there on the loop knows of it."""
    try:
        keeper.__anext__().__await__().__next__()
    except StopIteration:
        pass


def _close(desk: Desk, error: StoreUnavailable, patience: float) -> concurrent.futures.Future[None] | None:
    if not desk.loop.is_running():
        return None
    closing = desk.close(error, patience)
    try:
        if asyncio.get_running_loop() is desk.loop:
            desk.loop.create_task(closing)
            return None
    except RuntimeError:
        pass  # this thread has no loop, so the desk's loop runs elsewhere
    try:
        return asyncio.run_coroutine_threadsafe(closing, desk.loop)
    except RuntimeError:  # it ended just now
        closing.close()
        return None
