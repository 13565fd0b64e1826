"""Steps of a run: done once, remembered for good.

On replay the record decides; otherwise the body runs, its output is encoded, decoded again (types never change because
of a crash), written through the journal and only then returned. Every failed attempt is on record before its delay
begins. An output that cannot be stored, or does not fit its own annotation, is a permanent failure of the step.

The danger is a CancelledError: it says that somebody has stopped the code around the step, which leaves no record, or
that the body has awaited something that was cancelled, which is a failure like any other. The task itself knows.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import random
from collections.abc import Awaitable, Coroutine
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...model import failure, moves, payload
from ...model.duration import human
from ...model.errors import ExecutionStopped, PayloadError, RetryAfter, StepFailed, StepTimeout
from ...model.states import StepKind, StepStatus
from ...python_internals import frame_above
from .. import tracing
from ..branches import IN_STEP, Body, Branch
from ..labels import about
from ..miscalled import is_miscalled, miscalled
from ..renames import NewCall
from ..step import Call, resolve
from ..tasks import is_being_cancelled
from .memo import Memo

if TYPE_CHECKING:
    pass

log = logging.getLogger("simpleworkflow.execute")

LONGEST_INPUT = 16_384
"""Characters of a step's arguments that are worth keeping for people to look at."""
UNTRACED = nullcontext()
GRACE = 0.1
"""Seconds that a step may come back after its timeout without a word about it."""
STUBBORN_AFTER = 10.0
"""Seconds that a step may go on after it was cancelled by its timeout without a word about it."""
STALLED = (
    "the event loop stood still meanwhile, in this step or in another run: await what takes long, or write it as a "
    "plain def"
)
SWALLOWED = "its code has caught the cancellation and gone on: let asyncio.CancelledError pass"


class _EndedByCancel(Exception):
    """The body of a step has ended by a CancelledError, and nobody has cancelled the task that it ran in."""

    def __init__(self, error: asyncio.CancelledError) -> None:
        super().__init__()
        self.error = error


class Steps:
    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._stage = memo.stage
        self._stragglers: dict[str, asyncio.Future[Any]] = {}
        """Threads of steps that ran out of time."""

    def step(
        self, first: Any, rest: tuple[Any, ...], kwargs: dict[str, Any], above: int = 2
    ) -> Coroutine[Any, Any, Any]:
        """`above`: how many frames the line that made the call is away."""
        if self._stage.reason is not None:
            return self._memo.refuse()  # as `durable` does it, without the price of a call
        branch = self._memo.enter()
        call, args = resolve(first, rest)
        step_id = branch.identify(call.name, call.options.key)
        if call.options.formerly and self._memo.has_past:
            step_id = self._as_recorded(branch, step_id, call)
        made = self._memo.written[step_id] = self._step(call, args, kwargs, step_id)
        self._memo.made.add(step_id, made, call.shown, frame_above(above), branch)
        if branch.callers is not None:
            branch.callers.append((asyncio.current_task(), made))
        return made

    async def _step(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str) -> Any:
        self._memo.begin(step_id)
        seen, attempt = _seen(call.function, args, kwargs), 0
        known = self._memo.recorded(step_id, StepKind.STEP) if self._memo.has_past else None
        if known is None and self._memo.has_past:
            new = NewCall(step_id, seen, call.own_name, call.function, call.options.formerly)
            self._memo.changed.check_new(new, StepKind.STEP)
        if known is not None:
            self._memo.changed.compare(known, seen)
            if known.status is StepStatus.SUCCEEDED:
                return self._memo.read(call.read, known.output_json, step_id)
            if known.status is StepStatus.FAILED:
                raise StepFailed.recorded(call.name, step_id, known.error_json)
            attempt = known.attempt
            await self._memo.pass_time(step_id, self._memo.left(known), record=None, is_known=True)
        while True:
            started = self._stage.clock.passed()
            try:
                value = await self._body(call, args, kwargs, step_id, attempt)
                output = call.keeper.write(value, limit=self._stage.services.max_payload, what=call.what)
                value = call.read(output)
            except (Exception, SystemExit) as raised:
                error = raised.error if isinstance(raised, _EndedByCancel) else raised
                if self._stage.is_over:
                    raise ExecutionStopped from error
                if type(error) is TypeError and is_miscalled(call.function, args, kwargs, error):
                    error = miscalled(kwargs, error)
                attempt += 1
                details = {"attempt": attempt, "elapsed": self._stage.clock.passed() - started, "input": seen}
                failed = await self._after_failure(call, step_id, error, details)
            else:
                elapsed = self._stage.clock.passed() - started
                await self._memo.write(moves.remember(self._stage.lease, step_id, attempt, elapsed, seen, output))
                return value
            if failed is not None:  # raised out here it has no __context__, as on every replay
                raise StepFailed.recorded(call.name, step_id, failed)

    def _as_recorded(self, branch: Branch, step_id: str, call: Call) -> str:
        """Where a step that was renamed is on record, if it is.

        It is counted there as a use of its former name: of two calls, one of the old name and one of the new, each has
        a record of its own.
        """
        steps, key = self._stage.history.steps, call.options.key
        if step_id in steps:
            return step_id
        for name in call.options.formerly:
            place = branch.place_of_next(name, key)
            if place in steps and branch.take_next(name, key):
                return place
        return step_id

    async def _after_failure(
        self, call: Call, step_id: str, error: BaseException, details: dict[str, Any]
    ) -> str | None:
        """Returns when it is time for another attempt; if there is none, with the error as it is on record."""
        policy, attempt = call.options.retry, details["attempt"]
        permanent = not policy.retries(error) or failure.is_mistake(error)
        as_json, line = failure.describe(error, permanent=permanent)
        is_last = attempt >= policy.max_attempts or permanent
        delay = error.delay if isinstance(error, RetryAfter) else policy.delay(attempt, random.random())
        self._stage.services.failures.of_step(
            self._stage.lease,
            (call.name, step_id),
            error,
            attempt=attempt,
            most=policy.max_attempts,
            retry_in=None if is_last else delay,
        )
        if is_last:
            await self._memo.add(step_id, StepKind.STEP, StepStatus.FAILED, error=as_json, **details)
            return as_json
        told = payload.encode(
            {
                "activity_name": call.name,
                "step_id": step_id,
                "attempt": attempt,
                "error": line,
                "delay": round(delay, 3),
            }
        )
        details |= {"error": as_json, "due_in": delay, "told": told}
        await self._memo.add(step_id, StepKind.STEP, StepStatus.RETRYING, **details)
        straggler = self._stragglers.pop(step_id, None)
        if straggler is not None:
            self._stage.begin_work()
            try:
                await asyncio.wait({straggler})
            finally:
                self._stage.end_work()
        await self._memo.pass_time(step_id, delay, record=None, is_known=True)
        return None

    async def _body(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str, attempt: int) -> Any:
        stage = self._stage
        if self._memo.has_raced and self._memo.is_beaten(step_id):
            await self._memo.never()
        if not stage.services.is_fresh(stage.lease):
            await stage.confirm()
        body = Body(stage.lease, call.name, step_id, attempt)
        mark = IN_STEP.set(body)
        stage.begin_work()
        try:
            if call.is_simple and tracing.on is None:
                return await call.function(*args, **kwargs)
            return await self._any_body(call, args, kwargs, body)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            raise _EndedByCancel(error) from error
        finally:
            body.is_over = True
            if body.tasks is not None:
                stage.bodies.discard(body)
            stage.end_work()
            IN_STEP.reset(mark)

    async def _any_body(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], body: Body) -> Any:
        """In a thread, in time, with a span: whatever it takes."""
        stage, limited = self._stage, call.options.timeout is not None
        stage.limited += limited
        try:
            with UNTRACED if tracing.on is None else tracing.on.step(body):
                if call.is_async:
                    return await self._in_time(call, call.function(*args, **kwargs))
                value = await self._thread_body(call, args, kwargs, body.step_id)
                return await self._in_time(call, value) if inspect.isawaitable(value) else value
        finally:
            stage.limited -= limited

    async def _thread_body(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str) -> Any:
        """A thread cannot be stopped: one that ran out of time is waited for before the step is tried again."""
        context = contextvars.copy_context()
        thread = self._stage.in_thread(lambda: context.run(call.function, *args, **kwargs))
        limit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = (
            self._stage.call_later(call.options.timeout, lambda: limit.set_result(None))
            if call.options.timeout
            else None
        )
        try:
            await asyncio.wait({thread, limit}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
        if not thread.done():
            self._stragglers[step_id] = thread
            raise _too_late(call)
        value, error = thread.result()
        if error is not None:
            raise error
        return value

    async def _in_time(self, call: Call, work: Awaitable[Any]) -> Any:
        if call.options.timeout is None:
            return await work
        limit, loop, began = asyncio.timeout(None), asyncio.get_running_loop(), self._stage.clock.passed()
        body, is_stopped = IN_STEP.get(), False

        def passed() -> float:
            return self._stage.clock.passed() - began

        def expire() -> None:
            limit.reschedule(loop.time())
            goes_on = self._stage.call_later(
                STUBBORN_AFTER, lambda: self._warn_of_time(call, body, passed(), SWALLOWED)
            )
            timers.append(goes_on)

        timers = [self._stage.call_later(call.options.timeout, expire)]
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            is_stopped = True
            raise _too_late(call) from error
        except asyncio.CancelledError:
            is_stopped = True
            raise
        finally:
            for timer in timers:
                timer.cancel()
            if passed() > call.options.timeout + GRACE and not is_stopped:
                self._warn_of_time(call, body, passed(), SWALLOWED if limit.expired() else STALLED)

    def _warn_of_time(self, call: Call, body: Body | None, took: float, why: str) -> None:
        """It has ended by itself, too late, or goes on."""
        lease = self._stage.lease
        log.warning(
            "step %s of run %s (%s) took %s; its timeout of %s could not be enforced, since %s",
            *(call.name, lease.id, lease.type, human(round(took, 1)), human(call.options.timeout or 0.0), why),
            extra=about(lease, **({} if body is None else {"step": body.step_id})),
        )


def _seen(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """A step's arguments as its history shows them; what is not JSON, or is large, is left out."""
    if type(function) is functools.partial:
        args, kwargs = (*function.args, *args), function.keywords | kwargs
    if not args and not kwargs:
        return None
    shown: Any = args[0] if len(args) == 1 else args
    try:
        return payload.glance({"args": args, "kwargs": kwargs} if kwargs else shown, limit=LONGEST_INPUT)
    except PayloadError:
        return None


def _too_late(call: Call) -> StepTimeout:
    return StepTimeout(f"step {call.name} took longer than {human(call.options.timeout or 0.0)}")
