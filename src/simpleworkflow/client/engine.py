"""The engine room of an App: one background thread with an event loop that owns all of its I/O.

An App can be called from any loop, any thread and after a fork because none of them ever touches a connection:
calls hop into this thread and their answers hop back. It starts with the first call and is a daemon, so a program
that forgets to close its App still ends.

Closing is where threads hang: a call that slips in after the last look would wait for a loop that no longer turns. So
entering and closing share one gate, whoever is inside gets a moment to finish, and whoever is not done then is told
that the App was closed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from ..clock import Clock
from ..config import Settings
from ..model.duration import human
from ..model.errors import ExecutionStopped, SimpleWorkflowError, StoreBusy, StoreUnavailable
from ..model.records import Created, NewRun
from ..runtime.batch import MAX_WEIGHT, Batcher, Reply, Sorter, resolve
from ..runtime.hints import Hint, Hinter
from ..runtime.stage import Stage
from ..runtime.tasks import CURRENT, is_being_cancelled
from ..store import Ledger, open_ledger
from ..store.migrate import Applied, Migration
from ..store.operations import runs
from ..store.protocol import Operation
from .doorway import Doorway
from .waiting import Waiters

log = logging.getLogger("simpleworkflow.client")

T = TypeVar("T")
Answer = Created | SimpleWorkflowError
INTAKE_BATCH = 500
INTAKE_SHARE = 16
"""So many triggers are worth a commit beside another one."""
BULK_AT_ONCE = 2
KEYED_BATCH = 100
PASSAGE = 3
WAITING_ROOM = 2
"""How many triggers may try alone, and how many may wait for somebody's lock, at a time: each holds a connection."""
CLOSE_GRACE = 5.0
TIMEOUT_GRACE = 1.0
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
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="simpleworkflow-engine", daemon=True)
        self.hinter = Hinter(self.ledger)
        self.waiters = Waiters(self.ledger, settings.poll_every)
        # Keyed triggers go apart: one key in somebody's open transaction must not hold up the others.
        self._intake: Batcher[NewRun, Answer] = Sorter(
            self._intake_flush,
            flushers=2,
            line=attrgetter("id"),
            kind=lambda _: None,
            flights={None: 2 if self.ledger.has_lateral else 1},
            limit=INTAKE_BATCH,
            patient=False,
            name="intake",
            weigh=_weight,
            share=INTAKE_SHARE,
        )
        self._keyed = Batcher(self._intake_flush, limit=KEYED_BATCH, patient=False, name="keyed-intake", weigh=_weight)
        self._doorway: Doorway[NewRun, Answer] = Doorway(self.loop, self._take)
        self._alone: set[asyncio.Task[None]] = set()
        self._passage = asyncio.Semaphore(PASSAGE)
        self._waiting_room = asyncio.Semaphore(WAITING_ROOM)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    # From anywhere.

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the engine room and wait for it without blocking the caller's loop."""
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
        """Run a coroutine in the engine room and block the calling thread until it is done."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("app.sync cannot be called from inside the App's own event loop; await the App instead")
        if CURRENT.get() is not None and _in_event_loop():
            work.close()
            raise RuntimeError("app.sync in an async workflow would block its whole worker; await the App instead")
        inside = self._enter(work)
        try:
            return inside.result()
        except concurrent.futures.CancelledError:
            raise _why_cancelled() from None
        except BaseException:
            inside.cancel()
            raise

    def _enter(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._gate:
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
        """Durable when this returns. Single triggers share commits with whoever comes at the same time."""
        if len(new) == 1:
            return [await self._create_one(new[0])]
        return await self.call(lambda: self._create_many(new))

    async def _create_many(self, new: Sequence[NewRun]) -> list[Answer]:
        """Two statements at a time: one is prepared here while the other one is being written."""
        answers: list[Answer] = []
        under_way: deque[asyncio.Task[Sequence[Answer]]] = deque()
        try:
            for chunk in _chunks(new):
                under_way.append(self.loop.create_task(self._create(chunk, impatient=False)))
                if len(under_way) == BULK_AT_ONCE:
                    answers += await under_way.popleft()
            while under_way:
                answers += await under_way.popleft()
        finally:
            if under_way:  # one has failed: the others are not left behind unheard
                await asyncio.gather(*under_way, return_exceptions=True)
        return answers

    async def _create_one(self, new: NewRun) -> Answer:
        if asyncio.get_running_loop() is not self.loop:
            return await self._doorway.enter(new)
        answer: asyncio.Future[Answer] = self.loop.create_future()
        self._take(new, partial(resolve, answer))
        return await answer

    def _take(self, new: NewRun, reply: Reply[Answer]) -> None:
        """With whoever comes at the same time. When somebody's open transaction holds one of their keys, each goes
        on alone: the innocent get through at the next try, the others wait where they hold up nobody.
        """
        deadline = self.loop.time() + self.settings.store_timeout

        def heard(answer: Answer | None, error: Exception | None) -> None:
            if isinstance(error, StoreBusy):
                self._alone.add(task := self.loop.create_task(self._answer_alone(new, deadline, reply)))
                task.add_done_callback(self._alone.discard)
            else:
                reply(answer, error)

        (self._intake if new.idempotency_key is None else self._keyed).post(new, heard)

    async def _answer_alone(self, new: NewRun, deadline: float, reply: Reply[Answer]) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                reply(await self._create_alone(new, deadline), None)
        except (TimeoutError, StoreBusy):
            what = f"idempotency key {new.idempotency_key!r}" if new.idempotency_key else f"run id {new.id}"
            told = f"somebody's open transaction holds {what}; trigger again to learn what came of it"
            reply(None, StoreBusy(told))
        except Exception as error:
            reply(None, error)

    async def _create_alone(self, new: NewRun, deadline: float) -> Answer:
        try:
            async with self._passage:
                (answer,) = await self._create([new])
        except StoreBusy:
            async with self._waiting_room:
                (answer,) = await self._create([new], timeout=deadline - self.loop.time(), impatient=False)
        return answer

    async def _intake_flush(self, new: list[NewRun], _: bool) -> Sequence[Answer]:
        return await self._create(new)

    async def _create(
        self, new: list[NewRun], *, timeout: float | None = None, impatient: bool = True
    ) -> Sequence[Answer]:
        telling = len(new) == 1 and self.ledger.has_lateral and self.hinter.may_tell_now()
        operation = runs.create(new, telling=telling)
        operation.impatient = impatient
        timeout = self.settings.store_timeout if timeout is None else timeout
        answers = await self._in_time(self.ledger.run(operation, timeout=timeout))
        if not telling:
            self.hinter.tell(Hint.READY)
        return answers

    async def _in_time(self, work: Awaitable[T]) -> T:
        """The store keeps its own deadline and knows best what went wrong; this one catches what has none."""
        try:
            async with asyncio.timeout(self.settings.store_timeout + TIMEOUT_GRACE):
                return await work
        except TimeoutError:
            limit = human(self.settings.store_timeout)
            raise StoreUnavailable(f"{self.ledger.url} did not answer within {limit}") from None

    async def tell(self, kind: Hint) -> None:
        async def send() -> None:
            self.hinter.tell(kind)

        await self.call(send)

    def close(self) -> None:
        """Close connections and end the thread. Blocks for a moment; from any thread but the engine's own."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._doorway.refuse(StoreUnavailable(CLOSED))
            shut = asyncio.run_coroutine_threadsafe(self._shut(), self.loop)
        try:
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
        self._doorway.clear(StoreUnavailable(CLOSED))
        await self.ledger.close()

    def is_inherited(self) -> bool:
        """Whether this engine belongs to a parent process: forked children must start their own."""
        if self._born == _forks:
            return False
        _inherited.append(self)
        return True

    @property
    def is_closed(self) -> bool:
        return self._closed


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


def _weight(new: NewRun) -> int:
    return len(new.payload)


def _chunks(new: Sequence[NewRun]) -> Iterator[list[NewRun]]:
    """In order, each bounded in number and weight."""
    chunk: list[NewRun] = []
    weight = 0
    for one in new:
        weight += _weight(one)
        if chunk and (len(chunk) == INTAKE_BATCH or weight > MAX_WEIGHT):
            yield chunk
            chunk, weight = [], _weight(one)
        chunk.append(one)
    if chunk:
        yield chunk


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)
