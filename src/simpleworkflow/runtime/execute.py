"""One claimed run: user code is called here and nowhere else, and whatever it does becomes one `Ending`.

Dangers, and what is done about them:
- Losing a run must stop its code. The root task is cancelled, then every task the run has created (a task factory
  keeps the list), again and again until all are done; what they return is discarded. A single exception would not do:
  gather(return_exceptions=True) and friends swallow it.
- Threads cannot be stopped. Sync code asks `ctx.is_cancelled()`; its slot stays taken until it returns, and what it
  returns after losing the run is discarded.
- A result may not be JSON, an exception may be hostile, a handler may raise SystemExit: all of it is a recorded
  failure of that run, never of the worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..clock import Timer
from ..model import failure, moves
from ..model.errors import ExecutionStopped, Misfit
from ..model.moves import Ending, Pause
from ..model.records import History, Lease
from . import tracing
from .after_return import look_back
from .branches import BRANCH, Branch
from .context import Context, SyncContext
from .driven import Driven
from .durable.calls import DurableCalls
from .labels import about
from .lazily import Lazily
from .miscalled import as_mistake
from .registry import Workflow
from .stage import Services, Stage
from .stop import Stop
from .tasks import CURRENT, failed_beside
from .threads import call_in_a_thread
from .waits import only_waits

log = logging.getLogger("simpleworkflow.execute")

T = TypeVar("T")

CANCEL_AGAIN = 0.05
STUBBORN_AFTER = 10.0
REFUSAL_PAUSE = 0.01
_NEVER = threading.Event()
RECORDED_SOON = 0.02
CROWDED_PAUSE = 2.0
"""How long a waiting run that was sent away to make room stays away."""


class Execution(Stage):
    """From the claim to the last line of user code. `on_end` gets the ending (None: there is nothing to write)."""

    ticks = 0
    _handler_waits = 0
    _told = False
    is_abandoned = False
    _error: BaseException | None = None
    _span: tracing.ExecutionSpan | None = None
    _deadline: Timer | None = None
    _root: asyncio.Task[Any] | None = None
    ctx: Context | SyncContext | None = None
    """What its handler was called with."""

    durable = Lazily[DurableCalls](lambda self: DurableCalls(self))
    tasks = Lazily[set["asyncio.Future[Any]"]](lambda self: set())
    escaped = Lazily[list[tuple[int, int, Exception]]](lambda self: [])
    _blocking = Lazily[set["asyncio.Task[Any]"]](lambda self: set())

    def __init__(
        self,
        lease: Lease,
        workflow: Workflow[Any, Any],
        history: History,
        services: Services,
        on_end: Callable[[Execution, Ending | Pause | None], None],
        on_code_over: Callable[[Execution], None],
    ) -> None:
        super().__init__(lease, history, services)
        self.workflow = workflow
        self._on_end = on_end
        self._on_code_over = on_code_over

    def start(self) -> None:
        """In a task of its own."""
        self._set_deadline()
        root = self._loop.create_task(self._perform(), name=self.lease.type, context=contextvars.copy_context())
        root.add_done_callback(self._root_done)
        self._root = root

    def try_at_once(self) -> Coroutine[Any, Any, None] | None:
        """In the task that calls this, which belongs to no run so far. None when the code has come to its end without
        waiting for anything; otherwise the caller awaits the rest, and is this run's own task from now on."""
        context, code = contextvars.copy_context(), self._perform()
        self._root = asyncio.current_task(self._loop)
        try:
            waits_for = context.run(code.send, None)
        except StopIteration as stop:
            ending: Ending | Pause | None = stop.value
        except BaseException as error:
            ending = self._broken(error)
        else:
            self._set_deadline()
            return self._rest(code, waits_for, context)
        self._root = None  # the task belongs to no run again: what stops this run must not stop the next
        if self._beside():
            self._loop.call_soon(self._close, ending, 0.0)  # what it set going gets to begin, as in any task
        else:
            self._all_over(ending)
        return None

    async def _rest(self, code: Coroutine[Any, Any, Any], waits_for: Any, context: contextvars.Context) -> None:
        try:
            ending = await Driven(code, waits_for, context)
        except BaseException as error:
            ending = self._broken(error)
        self._close(ending, 0.0)

    def _set_deadline(self) -> None:
        if self.lease.deadline_in is not None:
            left = max(self.lease.deadline_in, 0.0)
            self._deadline = self.clock.call_later(left, lambda: self.stop(Stop.DEADLINE))

    @property
    def is_code_over(self) -> bool:
        return self._on_code_over is _nothing

    def is_stopping(self) -> bool:
        """For user code: what it returns after a yes counts for nothing, since it may have stopped half way."""
        self._told = self._told or self.reason is not None
        return self._told

    def stop(self, reason: Stop) -> None:
        """Stop user code; the first reason counts, except that losing the run overrides everything."""
        if self.reason is Stop.MISFIT:
            self.unwind()  # there is no time to wait for what is under way
        if self.ended or self.reason is Stop.LOST or (self.reason is not None and reason is not Stop.LOST):
            return
        self.reason = reason
        if not self.workflow.is_async and reason is Stop.DEADLINE:
            # The thread goes on; the run is over now and whatever the thread returns is discarded.
            self._end(self._stopped_ending())
        self.unwind()

    def unwind(self) -> None:
        if self.workflow.is_async:
            self._cancel_all(0.0)
        else:
            self._unblock()

    def _unblock(self) -> None:
        """Whatever durable call the thread is blocked in raises ExecutionStopped there."""
        self._told = self._told or bool(self._blocking)
        for task in self._blocking:
            task.cancel()

    def block(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """For sync handlers: run a durable call on the worker's loop and block this thread until it returns."""
        if self.reason is not None:
            self._told = True
            _NEVER.wait(REFUSAL_PAUSE)  # code that catches everything and tries again does so slowly
            raise ExecutionStopped
        try:
            branch = BRANCH.get()
            branch = self.trunk if branch is None or branch.root is not self.trunk else branch
            branch = branch if threading.get_ident() in self.threads else branch.for_strangers()
            return asyncio.run_coroutine_threadsafe(self._from_thread(work, branch), self._loop).result()
        except concurrent.futures.CancelledError:
            raise ExecutionStopped from None

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """For calls of the App that a workflow makes: done here, as a durable call, whatever loop asks."""
        if asyncio.get_running_loop() is self._loop:
            return await work()
        inside = self._from_thread(work, self.trunk)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(inside, self._loop))

    async def _from_thread(self, work: Callable[[], Coroutine[Any, Any, T]], branch: Branch) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._blocking.add(task)
        BRANCH.set(branch)
        self._handler_waits += not branch.needs_key
        try:
            return await work()
        finally:
            self._handler_waits -= not branch.needs_key
            self._blocking.discard(task)

    def abandon(self) -> None:
        """The worker ends while this code still runs in a thread: nobody waits for it, nothing of it is written."""
        if self._span is not None and not self.ended:
            self._span.over(None)
        self.ended = self.is_abandoned = True
        if self._root is not None:
            self._root.cancel()

    @property
    def _is_void(self) -> bool:
        """Whether user code was interrupted: cancelled, told to stop, or no longer the owner."""
        if self.reason is None:
            return False
        return (
            self.reason in {Stop.LOST, Stop.DEADLINE, Stop.SUSPEND, Stop.MISFIT} or self.workflow.is_async or self._told
        )

    def _cancel_all(self, waited: float) -> None:
        alive = {task for task in (self._root, *self._family()) if task is not None and not task.done()}
        if not alive:
            return
        for task in alive:
            task.cancel()
        pause = min(CANCEL_AGAIN * 2 ** min(waited / CANCEL_AGAIN / 4, 4.0), 1.0)
        if waited <= STUBBORN_AFTER < waited + pause:
            told = self.lease.id, self.lease.type, waited
            log.warning("run %s (%s) has not stopped %ds after it was asked to", *told, extra=self._labels())
        self._loop.call_later(pause, self._cancel_all, waited + pause, context=contextvars.Context())

    def _family(self) -> list[asyncio.Future[Any]]:
        """The tasks of the workflow's own code, and those of its step bodies that are under way."""
        return [*self.tasks, *(task for body in self.bodies for task in body.tasks or ())]

    def _beside(self) -> list[asyncio.Future[Any]]:
        """Everything that its code has set going beside itself."""
        if self.__dict__.keys().isdisjoint(("tasks", "bodies", "_threads")):
            return []  # it never did
        return [*self._family(), *self._threads]

    def _root_done(self, task: asyncio.Task[Ending | Pause | None]) -> None:
        if task.cancelled():
            ending = self._stopped_ending()
        elif (error := task.exception()) is not None:
            ending = self._broken(error)
        else:
            ending = task.result()
        self._close(ending, 0.0)

    def _broken(self, error: BaseException) -> Ending | Pause | None:
        """_perform records everything that user code can raise; this is a defect of ours, and still recorded."""
        if isinstance(error, asyncio.CancelledError):
            return self._stopped_ending()
        log.error("execution of run %s broke", self.lease.id, exc_info=error, extra=self._labels())
        return self._failed(error)

    def _close(self, ending: Ending | Pause | None, waited: float) -> None:
        """What will be executed again is handed over when all of its code has stopped; an end is written at once."""
        if self._deadline is not None:
            self._deadline.cancel()
        beside = self._beside()
        if not beside or all(work.done() for work in beside):
            self._all_over(ending)
            return
        if waited == 0.0 and self.reason is None:
            self._cancel_all(0.0)  # what the code left behind ends with it
        if not isinstance(ending, Pause) and (ending is None or ending.status.is_terminal):
            self._end(ending)
        if not self.is_abandoned:
            pause = min(max(waited, 0.002), 0.1)
            ending = None if self.reason is Stop.LOST else ending
            self._loop.call_later(pause, self._close, ending, waited + pause, context=contextvars.Context())

    def _all_over(self, ending: Ending | Pause | None) -> None:
        self._end(self._pause() if isinstance(ending, Pause) else ending)
        self._code_over()

    def _end(self, ending: Ending | Pause | None) -> None:
        if not self.ended:
            self.ended = True
            if self._error is not None or self.reason is Stop.DEADLINE:
                self._tell_failure(ending)
            if self._span is not None:
                self._span.over(ending)
            self._on_end(self, ending)

    def _tell_failure(self, ending: Ending | Pause | None) -> None:
        error, self._error = self._error, None  # whose traceback knows us: nobody should have to look for circles
        if isinstance(ending, Ending) and ending.error is not None:
            self.services.failures.of_run(self.lease, ending, error)

    def _code_over(self) -> None:
        if self._on_code_over is not _nothing:
            over, self._on_code_over = self._on_code_over, _nothing
            over(self)
            self._root = None  # they know us, too: nobody should have to look for circles
            self.ctx = None
            durable = self.__dict__.pop("durable", None)
            if durable is not None:
                durable.close()

    async def _perform(self) -> Ending | Pause | None:
        CURRENT.set(self)
        BRANCH.set(self.trunk)
        if tracing.on is not None:
            replays = len(self.history.steps)
            self._span = tracing.on.execution(self.lease, worker=self.services.worker, replays=replays)
        try:
            lease, handler = self.lease, self.workflow.handler
            again = "resume" if self.holds_misfits else "retry"
            value = self.workflow.arguments(lease.payload, lease.idempotency_key, again=again)
            assert handler is not None
            if self.workflow.is_async:
                self.ctx = Context(self)
                result = await handler(self.ctx, *value)
            else:
                self.ctx = SyncContext(self)
                result = await call_in_a_thread(self, handler, self.ctx, *value)
            if not (self._is_void or self.__dict__.keys().isdisjoint(("durable", "tasks"))):
                await look_back(self)
            if self._is_void:
                return self._stopped_ending()
            output = self.workflow.encode_output(result, limit=self.services.max_payload)
            return moves.succeed(self.lease, output, elapsed=self.elapsed)
        except asyncio.CancelledError as error:
            if self.reason is not None:
                return self._stopped_ending()
            return self._failed(error)
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._is_void:
                return self._stopped_ending()
            return self._failed(as_mistake(error))

    def _failed(self, error: BaseException) -> Ending:
        """Never raises: an error that nobody can describe must not leave a run without end."""
        self._error = error
        try:
            return self._describe_failure(error)
        except Exception as defect:
            told = f"its error cannot be described ({type(defect).__name__})"
            return self._describe_failure(RuntimeError(told))

    def _describe_failure(self, error: BaseException) -> Ending:
        if isinstance(error, Misfit) and self.holds_misfits:
            return self._set_aside(error)
        siblings = failed_beside(error, self.escaped)
        return failure.after_failure(
            self.lease,
            error,
            self.workflow.retry,
            elapsed=self.elapsed,
            chance=random.random(),
            hold=self.workflow.on_exhausted == "hold",
            also=tuple(step for one in siblings for step in failure.failed_steps(one)),
        )

    def _labels(self) -> dict[str, object]:
        return about(self.lease, worker=self.services.worker)

    def _stopped_ending(self) -> Ending | Pause | None:
        if self.reason is Stop.SUSPEND:
            return self._pause()
        if self.reason is Stop.LOST:
            return None
        if self.reason is Stop.DEADLINE:
            error, line = failure.failure("RunTimedOut", "its deadline passed while it was running")
            return moves.overrun(self.lease, error, line, elapsed=self.elapsed)
        if self.reason is Stop.MISFIT:
            assert self._error is not None
            return self._set_aside(self._error)
        delay = CROWDED_PAUSE if self.reason is Stop.CROWDED else 0.0
        return moves.release(self.lease, elapsed=self.elapsed, delay=delay)

    def set_aside(self, error: Exception) -> None:
        if self.reason is None:
            self._error = error
            self.reason = Stop.MISFIT
            self._unwind_when_recorded()

    def _unwind_when_recorded(self) -> None:
        """Durable calls are refused from now on. Step bodies that are under way come to their end and to their record:
        cut off, they would be done again by the code that fits."""
        if self.is_at_work and not self.ended:
            self._loop.call_later(RECORDED_SOON, self._unwind_when_recorded, context=contextvars.Context())
        else:
            self.unwind()

    def _set_aside(self, error: BaseException) -> Ending:
        as_json, _ = failure.describe(error)
        self._error = error
        return moves.set_aside(self.lease, as_json, failure.hold_reason_of(str(error)), elapsed=self.elapsed)

    def only_waits(self) -> bool:
        # The root of a sync handler waits for its thread, which is blocked in a durable call: the others tell.
        if not self.workflow.is_async and not self._handler_waits:
            return False  # its own thread is at work
        everyone = (self._root, *self.tasks) if self.workflow.is_async else self.tasks
        tasks = [task for task in everyone if isinstance(task, asyncio.Task)]
        return only_waits(tasks, self.waits, self._loop, self)


def _nothing(_: Execution) -> None:
    return None
