"""The engine of an App: one background thread with an event loop that owns its connections.

An App can be called from any loop, any thread and after a fork, because no caller touches a connection that is not its
own: calls hop into this thread and their answers hop back. (Loops that trigger often have connections of their own:
triggers/.) It starts with the first call and is a daemon, so a program that forgets to close its App still ends.

Closing is where threads hang: a call that enters after the last look would wait for a loop that no longer turns. So
entering and closing share one lock, calls under way get a moment to finish, and those that are not done then get an
error that says that the App was closed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ..clock import Clock
from ..config import Settings
from ..model.errors import ExecutionStopped, InvalidWorkflow, StoreUnavailable
from ..model.records import NewRun
from ..runtime.hints import Hint, Hinter
from ..runtime.stage import Stage
from ..runtime.tasks import CURRENT, is_being_cancelled
from ..store import Ledger, open_ledger
from ..store.migrate import Applied, Migration
from ..store.protocol import Operation
from .results import ResultWaiters
from .triggers.batcher import Answer, in_time
from .triggers.road import Triggers

log = logging.getLogger("simpleworkflow.client")

T = TypeVar("T")
CLOSE_GRACE = 5.0
INTERRUPTIBLE = 0.5
"""Seconds after which a blocking wait looks for signals again."""
CLOSED = "this App was closed meanwhile; the next call opens it again"

_forks = 0
"""How often this process was forked off: asked at every call, so no call to the system."""
_inherited: list[Engine] = []
"""Engines of a parent process: kept alive so that no destructor touches the parent's sockets and files."""


class Engine:
    def __init__(self, url: str, schema: str | None, settings: Settings, clock: Clock | None) -> None:
        self._born = _forks
        self.settings = settings
        self.ledger: Ledger = open_ledger(url, schema=schema, clock=clock)
        self.loop = asyncio.new_event_loop()
        self._guard = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="simpleworkflow-engine", daemon=True)
        self.hinter = Hinter(self.ledger)
        self.waiters = ResultWaiters(self.ledger, settings.poll_every)
        self._triggers = Triggers(self.loop, self.ledger, self.hinter, settings)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    # From anywhere.

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the engine's thread and wait for it without blocking the caller's loop."""
        if asyncio.get_running_loop() is self.loop:
            return await work()
        inside = self._enter(work())
        try:
            return await asyncio.wrap_future(inside)
        except asyncio.CancelledError:
            if self._closed and not is_being_cancelled():
                raise StoreUnavailable(CLOSED) from None
            raise

    def block(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine's thread and block the calling thread until it is done."""
        if CURRENT.get() is not None and _in_event_loop():
            work.close()
            raise InvalidWorkflow("app.sync in an async workflow would block its whole worker; await the App instead")
        if self.is_here():
            work.close()
            raise RuntimeError("app.sync cannot be called from inside the App's own event loop; await the App instead")
        inside = self._enter(work)
        try:
            return _outcome_of(inside)
        except concurrent.futures.CancelledError:
            raise _why_cancelled() from None
        except BaseException:
            inside.cancel()
            raise

    def _enter(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._guard:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        raise StoreUnavailable(CLOSED)

    async def run(self, operation: Operation[T]) -> T:
        timeout = self.settings.store_timeout
        return await self.call(lambda: self._in_time(self.ledger.run(operation, timeout=timeout)))

    async def check(self) -> None:
        await self.call(lambda: self._in_time(self.ledger.check(timeout=self.settings.store_timeout)))

    async def migrate(self, down: int | None) -> list[Migration]:
        """Up to this version, or so many migrations down; without the usual deadline, large tables take their time."""
        return await self.call(lambda: self.ledger.migrate_up() if down is None else self.ledger.migrate_down(down))

    async def migration_status(self) -> list[Applied]:
        return await self.call(lambda: self._in_time(self.ledger.migration_status(timeout=self.settings.store_timeout)))

    async def create(self, new: Sequence[NewRun]) -> list[Answer]:
        """Durable when this returns."""
        if len(new) > 1:
            return await self.call(lambda: self._triggers.create_many(new))
        return [await self._triggers.create(new[0])]

    async def _in_time(self, work: Awaitable[T]) -> T:
        return await in_time(self.ledger, self.settings, work)

    async def tell(self, kind: Hint) -> None:
        async def send() -> None:
            self.hinter.tell(kind)

        await self.call(send)

    def close(self) -> None:
        """Close connections and end the thread. Blocks for a moment; from any thread but the engine's own."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._triggers.refuse(StoreUnavailable(CLOSED))
            shut = asyncio.run_coroutine_threadsafe(self._shut(), self.loop)
        try:
            self._triggers.close_loops(StoreUnavailable(CLOSED), CLOSE_GRACE)
            shut.result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(CLOSE_GRACE)
            if not self.loop.is_running():
                self.loop.close()

    async def _shut(self) -> None:
        await self.waiters.close()
        await self.hinter.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, late = await asyncio.wait(others, timeout=CLOSE_GRACE)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)
        self._triggers.clear(StoreUnavailable(CLOSED))
        await self.ledger.close()

    def is_inherited(self) -> bool:
        """Whether this engine belongs to a parent process: forked children must start their own."""
        if self._born == _forks:
            return False
        _inherited.append(self)
        return True

    def is_here(self) -> bool:
        """Whether the caller is inside: in this engine's own thread."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        return self._closed


def _outcome_of(inside: concurrent.futures.Future[T]) -> T:
    """A signal that another thread takes, or that comes just before the wait begins, does not wake a thread that sleeps
    in a lock: Ctrl-C would be lost. So the wait is made of short ones."""
    while True:
        try:
            return inside.result(INTERRUPTIBLE)
        except TimeoutError:
            if inside.done():
                return inside.result()  # with an error of its own, maybe a TimeoutError


def _why_cancelled() -> BaseException:
    """A call that a workflow made is cancelled with its execution; any other one because the App was closed."""
    owner = CURRENT.get()
    stopped = isinstance(owner, Stage) and owner.reason is not None
    return ExecutionStopped() if stopped else StoreUnavailable(CLOSED)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)
