"""Steps of a run: done once, remembered for good.

On replay the record decides; otherwise the body runs, its output is encoded, decoded again (types never change because
of a crash), written through the journal and only then returned. Every failed attempt is on record before its delay
begins. An output that cannot be stored, or does not fit its own annotation, is a permanent failure of the step.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
from collections.abc import Awaitable, Coroutine
from typing import Any

from ..clock import monotonic
from ..model import failure, payload
from ..model.duration import human
from ..model.errors import ExecutionStopped, InvalidInput, PayloadError, RetryAfter, StepFailed, StepTimeout
from ..model.states import StepKind, StepStatus
from .branches import IN_STEP
from .memo import Memo, Stage
from .step import CURRENT_STEP, Call, StepInfo, resolve


class Steps(Memo):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._stragglers: dict[str, asyncio.Future[Any]] = {}
        """Threads of steps that ran out of time."""

    def step(self, first: Any, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        branch = self._enter()
        call, args = resolve(first, rest)
        return self._step(call, args, kwargs, branch.identify(call.name, call.options.key))

    async def _step(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str) -> Any:
        self._enter()
        known = self._recorded(step_id, StepKind.STEP)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return _decode(call, known.output_json or "null")
        if known is not None and known.status is StepStatus.FAILED:
            raise StepFailed.recorded(call.name, known.error_json)
        attempt = 0
        if known is not None and known.status is StepStatus.RETRYING:
            attempt = known.attempt
            await self._pass_time(self._left(known), record=None)
        while True:
            started = monotonic()
            try:
                value = await self._body(call, args, kwargs, step_id, attempt)
                output = self._encode(value, f"output of step {call.name}")
                value = _decode(call, output)
            except (Exception, SystemExit) as error:
                if self._stage.is_over:
                    raise ExecutionStopped from error
                attempt += 1
                await self._after_failure(call, step_id, attempt, error, monotonic() - started)
                continue
            rest = {"attempt": attempt, "elapsed": monotonic() - started, "output": output}
            await self._write(self._record(step_id, StepKind.STEP, StepStatus.SUCCEEDED, **rest))
            return value

    async def _after_failure(
        self, call: Call, step_id: str, attempt: int, error: BaseException, elapsed: float
    ) -> None:
        """Returns when it is time for another attempt; raises StepFailed when there is none."""
        policy = call.options.retry
        as_json, _ = failure.describe(error)
        unfit = isinstance(error, PayloadError | InvalidInput)
        rest: dict[str, Any] = {"attempt": attempt, "elapsed": elapsed, "error": as_json}
        if attempt >= policy.max_attempts or not policy.retries(error) or unfit:
            await self._write(self._record(step_id, StepKind.STEP, StepStatus.FAILED, **rest))
            raise StepFailed.recorded(call.name, as_json) from error
        delay = error.delay if isinstance(error, RetryAfter) else policy.delay(attempt, random.random())
        await self._write(self._record(step_id, StepKind.STEP, StepStatus.RETRYING, due_in=delay, **rest))
        straggler = self._stragglers.pop(step_id, None)
        if straggler is not None:
            self._stage.begin_work()
            try:
                await asyncio.wait({straggler})
            finally:
                self._stage.end_work()
        await self._pass_time(delay, record=None)

    async def _body(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str, attempt: int) -> Any:
        lease = self._stage.lease
        info = StepInfo(call.name, lease.id, f"{lease.id}:{step_id}", lease.epoch, attempt)
        marks = IN_STEP.set(True), CURRENT_STEP.set(info)
        self._stage.begin_work()
        try:
            if call.is_async:
                return await _in_time(call, call.function(*args, **kwargs))
            value = await self._thread_body(call, args, kwargs, step_id)
            return await _in_time(call, value) if inspect.isawaitable(value) else value
        finally:
            self._stage.end_work()
            CURRENT_STEP.reset(marks[1])
            IN_STEP.reset(marks[0])

    async def _thread_body(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str) -> Any:
        """A thread cannot be stopped: one that ran out of time is waited for before the step is tried again."""
        context = contextvars.copy_context()
        thread = self._stage.in_thread(lambda: context.run(call.function, *args, **kwargs))
        done, _ = await asyncio.wait({thread}, timeout=call.options.timeout)
        if not done:
            self._stragglers[step_id] = thread
            raise _too_late(call)
        value, error = thread.result()
        if error is not None:
            raise error
        return value


async def _in_time(call: Call, work: Awaitable[Any]) -> Any:
    limit = asyncio.timeout(call.options.timeout)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise _too_late(call) from error


def _too_late(call: Call) -> StepTimeout:
    return StepTimeout(f"step {call.name} took longer than {human(call.options.timeout or 0.0)}")


def _decode(call: Call, text: str) -> Any:
    return payload.decode(text, call.output_type, what=f"output of step {call.name}")
