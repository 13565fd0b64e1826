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
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from enum import Enum
from typing import Any

from ..clock import monotonic
from ..model import failure, moves, payload
from ..model.errors import ExecutionStopped, InvalidInput, PayloadError, PermanentError
from ..model.moves import Ending
from ..model.records import Lease
from .context import Context, SyncContext
from .registry import Workflow

log = logging.getLogger("simpleworkflow.execute")

CURRENT: contextvars.ContextVar[Execution | None] = contextvars.ContextVar("simpleworkflow_execution", default=None)
CANCEL_AGAIN = 0.05
STUBBORN_AFTER = 10.0


class Stop(Enum):
    """Why an execution is being stopped, and so how it ends."""

    LOST = "lost"
    HELD = "held"
    DRAIN = "drain"
    DEADLINE = "deadline"


class Execution:
    """From the claim to the last line of user code. `on_end` gets the ending (None: there is nothing to write)."""

    def __init__(
        self,
        lease: Lease,
        workflow: Workflow[Any, Any],
        *,
        threads: Executor,
        prolong: Callable[[Lease, float], Any],
        on_end: Callable[[Execution, Ending | None], None],
        on_code_over: Callable[[Execution], None],
        max_payload: int,
    ) -> None:
        self.lease = lease
        self.workflow = workflow
        self.reason: Stop | None = None
        self.started = monotonic()
        self.tasks: set[asyncio.Future[Any]] = set()
        self._threads = threads
        self._prolong = prolong
        self._on_end = on_end
        self._on_code_over = on_code_over
        self._max_payload = max_payload
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._told = False
        self._last_word: Ending | None = None
        self._abandoned = False
        self._deadline: asyncio.TimerHandle | None = None
        self._root: asyncio.Task[Ending | None] | None = None

    def start(self) -> None:
        if self.lease.deadline_in is not None:
            self._deadline = self._loop.call_later(max(self.lease.deadline_in, 0), self.stop, Stop.DEADLINE)
        context = contextvars.copy_context()
        context.run(CURRENT.set, self)
        name = f"simpleworkflow-run-{self.lease.id}"
        self._root = self._loop.create_task(self._perform(), name=name, context=context)
        self._root.add_done_callback(self._root_done)

    def is_stopping(self) -> bool:
        """For user code: what it returns after a yes counts for nothing, since it may have stopped half way."""
        self._told = self._told or self.reason is not None
        return self._told

    @property
    def elapsed(self) -> float:
        return monotonic() - self.started

    def stop(self, reason: Stop) -> None:
        """Stop user code; the first reason counts, except that losing the run overrides everything."""
        if self._ended or self.reason is Stop.LOST or (self.reason is not None and reason is not Stop.LOST):
            return
        self.reason = reason
        if not self.workflow.is_async and reason is Stop.DEADLINE:
            # The thread goes on; the run is over now and whatever the thread returns is discarded.
            self._end(self._stopped_ending())
        if self.workflow.is_async:
            self._cancel_all(0.0)

    def abandon(self) -> None:
        """The worker ends while this code still runs in a thread: nobody waits for it, nothing of it is written."""
        self._ended = self._abandoned = True
        if self._root is not None:
            self._root.cancel()

    @property
    def _is_void(self) -> bool:
        """Whether user code was interrupted: cancelled, told to stop, or no longer the owner."""
        if self.reason in {Stop.LOST, Stop.DEADLINE}:
            return True
        return self.reason is not None and (self.workflow.is_async or self._told)

    def _cancel_all(self, waited: float) -> None:
        alive = [task for task in (self._root, *self.tasks) if task is not None and not task.done()]
        if not alive:
            self._end(self._last_word)
            self._code_over()
            return
        for task in alive:
            task.cancel()
        pause = min(CANCEL_AGAIN * 2 ** min(waited / CANCEL_AGAIN / 4, 4.0), 1.0)
        if waited <= STUBBORN_AFTER < waited + pause:
            log.warning("run %s (%s) has not stopped %ds after it was asked to", self.lease.id, self.lease.type, waited)
        self._loop.call_later(pause, self._cancel_all, waited + pause)

    def _root_done(self, task: asyncio.Task[Ending | None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if task.cancelled():
            ending = self._stopped_ending()
        elif task.exception() is not None:
            # _perform records everything that user code can raise; this is a defect of ours, and still recorded.
            log.error("execution of run %s broke", self.lease.id, exc_info=task.exception())
            ending = self._failed(task.exception())
        else:
            ending = task.result()
        if self.reason is not None and any(not other.done() for other in self.tasks):
            self._last_word = ending  # nothing is handed back while a task of the run still runs
            return
        self._end(ending)
        self._code_over()

    def _end(self, ending: Ending | None) -> None:
        if not self._ended:
            self._ended = True
            self._on_end(self, ending)

    def _code_over(self) -> None:
        if self._on_code_over is not _nothing:
            over, self._on_code_over = self._on_code_over, _nothing
            over(self)

    async def _perform(self) -> Ending | None:
        try:
            value = self._input()
            result = await self._call(value)
            if self._is_void:
                return self._stopped_ending()
            return moves.succeed(self.lease, self._output(result), elapsed=self.elapsed)
        except asyncio.CancelledError as error:
            if self.reason is not None:
                return self._stopped_ending()
            return self._failed(error)
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._is_void:
                return self._stopped_ending()
            return self._failed(error)

    def _input(self) -> tuple[Any, ...]:
        if not self.workflow.takes_input:
            return ()
        what = f"payload of run {self.lease.id}"
        try:
            return (payload.decode(self.lease.payload, self.workflow.input_type, what=what),)
        except (InvalidInput, PayloadError) as error:
            raise PermanentError(f"its payload does not fit {self.lease.type}: {error}") from error

    async def _call(self, value: tuple[Any, ...]) -> Any:
        handler = self.workflow.handler
        assert handler is not None
        if self.workflow.is_async:
            return await handler(Context(self), *value)
        context = contextvars.copy_context()
        call = self._loop.run_in_executor(self._threads, context.run, _called, handler, SyncContext(self), *value)
        while not call.done():
            try:
                await asyncio.wait({call})
            except asyncio.CancelledError:
                if self._abandoned or self.reason is None:
                    raise
        return call.result()

    def _output(self, result: Any) -> str:
        try:
            return payload.encode(result, limit=self._max_payload, what=f"result of {self.lease.type}")
        except PayloadError as error:
            raise PermanentError(f"its result cannot be stored: {error}") from error

    def _failed(self, error: BaseException | None) -> Ending:
        assert error is not None
        log.info("run %s (%s) failed: %s", self.lease.id, self.lease.type, type(error).__name__)
        policy = self.workflow.retry
        return failure.after_failure(self.lease, error, policy, elapsed=self.elapsed, chance=random.random())

    def _stopped_ending(self) -> Ending | None:
        if self.reason is Stop.LOST:
            return None
        if self.reason is Stop.DEADLINE:
            error, line = failure.failure("RunTimedOut", "its deadline passed while it was running")
            return moves.overrun(self.lease, error, line, elapsed=self.elapsed)
        return moves.release(self.lease, elapsed=self.elapsed)

    async def heartbeat(self, lease: float) -> None:
        if not await self._prolong(self.lease, lease):
            self.stop(Stop.LOST)
            await asyncio.Event().wait()  # never returns: this execution is being cancelled

    def heartbeat_blocking(self, lease: float) -> None:
        if self.reason is Stop.LOST or self._abandoned:
            self._told = True
            raise ExecutionStopped
        if not self._wait_for(asyncio.run_coroutine_threadsafe(self._prolong(self.lease, lease), self._loop)):
            self._loop.call_soon_threadsafe(self.stop, Stop.LOST)
            raise ExecutionStopped

    def _wait_for(self, answer: concurrent.futures.Future[bool]) -> bool:
        """In this thread; in slices, because a worker that has ended answers no more."""
        while True:
            try:
                return answer.result(1.0)
            except concurrent.futures.TimeoutError:
                if self._abandoned:
                    raise ExecutionStopped from None


def _nothing(_: Execution) -> None:
    return None


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Remember which run created a task; the factory that is already there keeps working inside this one."""
    inner = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> Any:
        execution = CURRENT.get()
        if execution is not None and asyncio.iscoroutine(coro):
            coro = _contained(coro)
        task = asyncio.Task(coro, loop=loop, **kwargs) if inner is None else inner(loop, coro, **kwargs)
        if execution is not None:
            execution.tasks.add(task)
            task.add_done_callback(execution.tasks.discard)
        return task

    loop.set_task_factory(factory)


async def _contained(coro: Coroutine[Any, Any, Any]) -> Any:
    """sys.exit() in a task of a run ends that run's execution, not the worker and everybody else's."""
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a task of the workflow raised {error!r}") from error


def _called(handler: Callable[..., Any], *args: Any) -> Any:
    """In a thread. A future cannot carry StopIteration: it would never end, and neither would the run."""
    try:
        return handler(*args)
    except StopIteration as error:
        raise RuntimeError("the workflow raised StopIteration (a bare next() on something empty?)") from error
