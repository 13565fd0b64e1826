"""What the durable calls of one execution stand on: its lease, its history, its waits, and when it may be unwound.

A run that only waits gives up its slot: its code is unwound and started again from its history when something happens.
Whether it only waits is looked at whenever something changes: no step body and no durable write in flight, and every
task blocked on a durable wait or on others of the same run (waits.py). Between two looks nothing of the run can move
unseen, because everything it does begins and ends here.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ..clock import Clock, Timer
from ..model.errors import ExecutionStopped
from ..model.moves import GIVEN_UP, Outcome, Pause, Record
from ..model.policies import OnChanged, OnMisfit
from ..model.records import History, Lease, Run
from . import tracing
from .branches import Body, Branch
from .failing import Failures
from .labels import about
from .lazily import Lazily
from .stop import Stop
from .tasks import caught
from .waits import Post, Wait, resolve, soonest

if TYPE_CHECKING:
    from .registry import Workflow

log = logging.getLogger("simpleworkflow.execute")

T = TypeVar("T")

SETTLED = 0.05
"""Seconds that a run must have done nothing but wait before its slot is given to others."""


@dataclass(frozen=True, slots=True)
class Services:
    """What a worker does for every execution on it."""

    clock: Clock
    loop: asyncio.AbstractEventLoop
    home_thread: tuple[int]
    """The one that the loop runs in."""
    threads: Executor
    step_threads: Executor
    prolong: Callable[[Lease, float], Coroutine[Any, Any, bool]]
    write: Callable[[Record], asyncio.Future[Outcome]]
    look_up: Callable[[UUID], asyncio.Future[Run | None]]
    is_fresh: Callable[[Lease], bool]
    """Whether the lease cannot have ended yet, by this machine's own clock."""
    confirm: Callable[[Lease], Coroutine[Any, Any, bool]]
    """Ask the database whether the lease still holds, and prolong it."""
    max_payload: int
    on_changed: OnChanged
    on_misfit: OnMisfit
    failures: Failures
    on_resident: Callable[[], None]
    """A run has come to rest in memory: there is a slot more."""
    home: object
    """What is equal for ledgers of one and the same database."""
    by_name: Callable[[str], Workflow[Any, Any]]
    """The workflow of that name, with the types that it has in this App."""
    worker: str = ""
    """How the worker calls itself in leases."""


class Stage(ABC):
    workflow: Workflow[Any, Any]
    reason: Stop | None = None
    is_resident = False
    """It waits, but cannot be unwound: it keeps its memory and its lease, and leaves its slot to others."""
    limited = 0
    """Step bodies under way that have a timeout."""
    ended = False
    """Its ending has been handed over, or nobody waits for one."""
    _suspended: tuple[int, list[Wait]] | None = None
    _busy = 0
    _naps = 0
    _looking: asyncio.Handle | None = None

    waits = Lazily[dict[Wait, None]](lambda self: {})
    kept = Lazily[dict[str, Record]](lambda self: {})
    """Waits of this execution that have been put on record."""
    post = Lazily[Post](lambda self: Post(self.lease.wakes, self.history.signals, self.waits))
    bodies = Lazily[set[Body]](lambda self: set())
    """Step bodies under way that have made tasks of their own."""
    _threads = Lazily[set["asyncio.Future[Any]"]](lambda self: set())

    def __init__(self, lease: Lease, history: History, services: Services) -> None:
        self.lease = lease
        self.history = history
        self.services = services
        self.clock = services.clock
        self.started = services.clock.passed()
        self.trunk = Branch()
        self._loop = services.loop
        self.threads: tuple[int, ...] = services.home_thread
        """Where durable calls may be made: the loop's own thread, and the one of a sync handler."""

    @property
    def on_changed(self) -> OnChanged:
        return self.workflow.on_changed or self.services.on_changed

    @property
    def holds_misfits(self) -> bool:
        return (self.workflow.on_misfit or self.services.on_misfit) == "hold"

    @property
    def elapsed(self) -> float:
        return self.clock.passed() - self.started

    @property
    def is_over(self) -> bool:
        return self.ended or self.reason is not None

    @property
    def has_ended(self) -> bool:
        """By itself, not because it was stopped."""
        return self.ended and self.reason is None

    def is_idle(self, but_for_bodies: bool = False) -> bool:
        """Whether nothing happens here until some time has passed or somebody else does something.

        A step body that has a timeout may be taken for a wait too: it ends by itself, or by time.
        """
        waiting = self._naps + (self.limited if but_for_bodies else 0)
        return not self.is_over and self._busy == waiting and bool(self.waits or waiting)

    @property
    def is_at_work(self) -> bool:
        """Whether a step body or a record is under way."""
        return self._busy > self._naps

    def now(self) -> datetime:
        """The database's clock, carried on by our own since the claim."""
        return self.lease.claimed_at + timedelta(seconds=self.elapsed)

    def write(self, record: Record) -> asyncio.Future[Outcome]:
        if self.reason is Stop.LOST:
            lost: asyncio.Future[Outcome] = self._loop.create_future()
            lost.set_result(Outcome.LOST)
            return lost
        return self.services.write(record)

    async def look_up(self, run_id: UUID) -> Run | None:
        return await asyncio.shield(self.services.look_up(run_id))

    def begin_work(self) -> None:
        self._busy += 1
        self.is_resident = False

    def end_work(self) -> None:
        self._busy -= 1
        if self.waits:
            self.look_again()

    async def nap(self, seconds: float) -> None:
        """A pause too short to unwind for."""
        future: asyncio.Future[None] = self._loop.create_future()
        timer = self.clock.call_later(seconds, lambda: resolve(future))
        self._naps += 1
        self.begin_work()
        try:
            await future
        finally:
            timer.cancel()
            self._naps -= 1
            self.end_work()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self.clock.call_later(seconds, callback)

    @abstractmethod
    def stop(self, reason: Stop) -> None: ...

    @abstractmethod
    def set_aside(self, error: Exception) -> None:
        """What is on record does not fit the code: stop, and hold the run as it is."""

    def lose(self) -> None:
        self.stop(Stop.LOST)

    def in_thread(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Ends with (value, error): a thread may raise what a future refuses to hold."""

        def unless_over() -> Any:
            if self.is_over:
                raise ExecutionStopped
            return function()

        body = self._loop.run_in_executor(self.services.step_threads, caught, unless_over)
        self._threads.add(body)
        body.add_done_callback(self._thread_over)
        return body

    def tasks_of(self, body: Body) -> set[asyncio.Future[Any]]:
        if body.tasks is None:
            body.tasks = set()
            self.bodies.add(body)
        return body.tasks

    def _thread_over(self, thread: asyncio.Future[Any]) -> None:
        self._threads.discard(thread)
        self.look_again()

    async def confirm(self) -> None:
        """After a freeze: ask the database whether the lease is still ours; a loss never returns."""
        self.begin_work()
        try:
            ours = await asyncio.shield(self.apart(self.services.confirm(self.lease)))
        finally:
            self.end_work()
        if not ours:
            self.lose()
            await asyncio.Event().wait()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """The code waits for something of somebody else: it stays in memory and leaves its slot to others."""
        self.is_resident = True
        self.services.on_resident()
        try:
            yield
        finally:
            self.is_resident = False

    def apart(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work of ours on behalf of user code: it is no task of the run."""
        context = contextvars.Context()
        if tracing.on is not None:
            tracing.on.follow(context)
        return self._loop.create_task(work, context=context)

    # Waiting.

    def keep(self, wait: Wait) -> None:
        """Put a wait on record while the run stays resident."""
        if wait.record is None or wait.is_told or self.is_over:
            return
        # A row of an earlier execution tells again who waits; that is no progress which would clear a suspect.
        clears = wait.record.clears_suspicion and not wait.is_known
        record = replace(self._dated(wait, wait.record), clears_suspicion=clears)
        wait.is_told = wait.is_known = True
        self.kept[record.step_id] = record
        self.write(record).add_done_callback(self._kept)

    def give_up(self, wait: Wait) -> None:
        """Code that goes on has stopped waiting: a row that says otherwise would mislead readers."""
        if wait.record is None or not wait.is_told or self.is_over:
            return
        record = replace(wait.record, due_in=None, clears_suspicion=False, error=GIVEN_UP)
        self.write(record).add_done_callback(self._kept)

    def _kept(self, entry: asyncio.Future[Outcome]) -> None:
        if entry.cancelled():
            return
        if entry.exception() is not None:
            told = self.lease.id, entry.exception()
            log.warning("a wait of run %s could not be put on record: %s", *told, extra=about(self.lease))
        elif entry.result() is Outcome.LOST:
            self.lose()

    def left(self, wait: Wait) -> float | None:
        """Seconds until this wait is due; None when only an event ends it."""
        return None if wait.due is None else max(wait.due - self.clock.passed(), 0.0)

    def _dated(self, wait: Wait, record: Record) -> Record:
        """Due at the instant that was meant, however late it is written."""
        return replace(record, due_in=self.left(wait), left=partial(self.left, wait))

    def look_again(self, pause: float = 0.0) -> None:
        """Something has changed: perhaps all that is left to do is wait."""
        if self.waits and not self.is_over and self._looking is None:
            self._looking = self._loop.call_later(pause, self._suspend_if_idle, pause, context=contextvars.Context())

    def _suspend_if_idle(self, pause: float) -> None:
        self._looking = None
        if self.is_over or not self.waits or self._busy:
            return
        # A thread that outlived its step cannot be unwound: the pause could not be written, and the run would be deaf.
        if self._threads or not self.only_waits():
            if pause >= SETTLED and not self.is_resident:
                self.is_resident = True
                self.services.on_resident()
            self.look_again(min(max(pause * 2, 0.001), 1.0))
            return
        self._suspended = self.post.wakes, list(self.waits)
        self.reason = Stop.SUSPEND
        self.unwind()

    def _pause(self) -> Pause:
        """Made when the code is unwound: however long that took, what is due is due when it was."""
        assert self._suspended is not None
        wakes, waits = self._suspended
        new = [(wait, wait.record) for wait in waits if wait.record is not None and not wait.is_known]
        records = tuple(self._dated(wait, record) for wait, record in new)
        awaited = tuple(wait.step_id for wait in waits)

        def left() -> float | None:
            return soonest(self.left(wait) for wait in waits)

        return Pause(self.lease.id, self.lease.epoch, wakes, left(), self.elapsed, records, left, awaited)

    @abstractmethod
    def only_waits(self) -> bool:
        """Whether all of the code is blocked on durable waits."""

    @abstractmethod
    def unwind(self) -> None:
        """Stop user code; it will be executed again."""
