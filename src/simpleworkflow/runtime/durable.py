"""The durable calls of a run: what is recorded is returned, what is not is done and recorded.

Every call has an identity (branches.py). On replay the record decides; otherwise the work is done, its outcome is
encoded, written through the journal, decoded again and only then returned: types never change because of a crash. A
call of an execution that is no longer wanted does not return at all.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID, uuid5

from ..clock import monotonic
from ..model import failure, payload
from ..model.duration import Duration, human, seconds
from ..model.errors import (
    ExecutionStopped,
    InvalidWorkflow,
    NonDeterminismError,
    PayloadError,
    RetryAfter,
    RunFailed,
    SignalTimeout,
    StepFailed,
    StepTimeout,
)
from ..model.moves import Outcome, Record
from ..model.records import History, Lease, NewRun, Run, Signal, Step
from ..model.states import Status, StepKind, StepStatus
from .branches import BRANCH, IN_STEP, Branch
from .registry import Workflow
from .step import CURRENT_STEP, Call, StepInfo, resolve
from .waits import Wait

IN_MEMORY = 1.0
"""Delays shorter than this stay in memory: unwinding and resuming would cost more than it frees."""


class Stage(Protocol):
    """What an execution offers to the durable calls made on it."""

    lease: Lease
    history: History
    waits: dict[Wait, None]
    max_payload: int

    @property
    def is_over(self) -> bool: ...

    def now(self) -> datetime: ...

    def write(self, record: Record) -> asyncio.Future[Outcome]: ...

    def begin_work(self) -> None: ...

    def end_work(self) -> None: ...

    def look_again(self) -> None: ...

    def lose(self) -> None: ...

    def in_thread(self, function: Any, *args: Any) -> asyncio.Future[Any]: ...

    def look_up(self, run_id: UUID, /) -> Awaitable[Run | None]: ...


class Durable:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    # Identity and records.

    def _enter(self) -> Branch:
        """The branch of the caller, or a sentence that says why there is none."""
        if self._stage.is_over:
            raise ExecutionStopped
        if IN_STEP.get():
            raise InvalidWorkflow("a durable call inside a step: a step is one piece; call it from the workflow itself")
        branch = BRANCH.get()
        if branch is None:
            raise InvalidWorkflow("durable calls belong to the workflow's own tasks; this one comes from elsewhere")
        if branch.unordered:
            raise InvalidWorkflow(
                "durable calls inside asyncio.as_completed cannot be told apart on replay; use gather"
            )
        return branch

    def _recorded(self, step_id: str, kind: StepKind) -> Step | None:
        known = self._stage.history.steps.get(step_id)
        if known is not None and known.kind is not kind:
            raise NonDeterminismError(
                f"{step_id} was recorded as a {known.kind} and is a {kind} now; the code of a run under way has changed"
            )
        return known

    def _record(self, step_id: str, kind: StepKind, status: StepStatus, **rest: Any) -> Record:
        lease = self._stage.lease
        return Record(lease.id, lease.epoch, step_id, kind, status, clears_suspicion=lease.crashes > 0, **rest)

    async def _write(self, record: Record) -> None:
        """Returns when the record is durable; never when the run is no longer ours."""
        self._stage.begin_work()
        try:
            outcome = await asyncio.shield(self._stage.write(record))
        finally:
            self._stage.end_work()
        if outcome is not Outcome.DONE:
            self._stage.lose()
            await asyncio.Event().wait()

    def _encode(self, value: Any, what: str) -> str:
        return payload.encode(value, limit=self._stage.max_payload, what=what)

    # Steps.

    async def step(self, first: Any, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        branch = self._enter()
        call, args = resolve(first, rest)
        step_id = branch.identify(call.name, call.options.key)
        known = self._recorded(step_id, StepKind.STEP)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return payload.decode(known.output_json or "null", call.output_type, what=f"output of step {call.name}")
        if known is not None and known.status is StepStatus.FAILED:
            raise StepFailed.recorded(call.name, known.error_json)
        attempt = 0
        if known is not None and known.status is StepStatus.RETRYING:
            attempt = known.attempt
            await self._pass_time(self._left(known), record=None)
        return await self._until_done(call, args, kwargs, step_id, attempt)

    async def _until_done(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str, attempt: int
    ) -> Any:
        policy = call.options.retry
        while True:
            started = monotonic()
            try:
                output = self._encode(
                    await self._body(call, args, kwargs, step_id, attempt), f"output of step {call.name}"
                )
            except Exception as error:
                if self._stage.is_over:
                    raise
                attempt += 1
                as_json, _ = failure.describe(error)
                spent = attempt >= policy.max_attempts or not policy.retries(error) or isinstance(error, PayloadError)
                rest: dict[str, Any] = {"attempt": attempt, "elapsed": monotonic() - started, "error": as_json}
                if spent:
                    await self._write(self._record(step_id, StepKind.STEP, StepStatus.FAILED, **rest))
                    raise StepFailed.recorded(call.name, as_json) from error
                delay = error.delay if isinstance(error, RetryAfter) else policy.delay(attempt, random.random())
                await self._write(self._record(step_id, StepKind.STEP, StepStatus.RETRYING, due_in=delay, **rest))
                await self._pass_time(delay, record=None)
                continue
            done = self._record(
                step_id,
                StepKind.STEP,
                StepStatus.SUCCEEDED,
                attempt=attempt,
                elapsed=monotonic() - started,
                output=output,
            )
            await self._write(done)
            return payload.decode(output, call.output_type, what=f"output of step {call.name}")

    async def _body(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], step_id: str, attempt: int) -> Any:
        lease = self._stage.lease
        info = StepInfo(call.name, lease.id, f"{lease.id}:{step_id}", lease.epoch, attempt)
        marks = IN_STEP.set(True), CURRENT_STEP.set(info)
        self._stage.begin_work()
        try:
            if call.is_async:
                async with asyncio.timeout(call.options.timeout):
                    return await call.function(*args, **kwargs)
            return await self._thread_body(call, args, kwargs)
        except TimeoutError as error:
            if call.options.timeout is None:
                raise
            raise StepTimeout(f"step {call.name} took longer than {human(call.options.timeout)}") from error
        finally:
            self._stage.end_work()
            CURRENT_STEP.reset(marks[1])
            IN_STEP.reset(marks[0])

    async def _thread_body(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A thread cannot be stopped: a step that ran out of time is waited for before it is tried again."""
        context = contextvars.copy_context()
        thread = self._stage.in_thread(lambda: context.run(call.function, *args, **kwargs))
        done, _ = await asyncio.wait({thread}, timeout=call.options.timeout)
        if not done:
            await asyncio.wait({thread})
            raise TimeoutError
        return thread.result()

    # Time.

    async def sleep(self, duration: Duration) -> None:
        step_id = self._enter().identify("sleep")
        await self._sleep(step_id, seconds(duration, what="sleep"))

    async def sleep_until(self, instant: datetime) -> None:
        step_id = self._enter().identify("sleep")
        if instant.tzinfo is None:
            raise InvalidWorkflow(f"sleep_until({instant!r}): give the instant a time zone")
        await self._sleep(step_id, max((instant - self._stage.now()).total_seconds(), 0.0))

    async def _sleep(self, step_id: str, duration: float) -> None:
        known = self._recorded(step_id, StepKind.SLEEP)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return
        left = duration if known is None else self._left(known)
        waiting = self._record(step_id, StepKind.SLEEP, StepStatus.WAITING, due_in=left)
        await self._pass_time(left, record=waiting if known is None else None)
        await self._write(self._record(step_id, StepKind.SLEEP, StepStatus.SUCCEEDED, due_in=0.0))

    def _left(self, known: Step) -> float:
        if known.due_at is None:
            return 0.0
        return max((known.due_at - self._stage.now()).total_seconds(), 0.0)

    async def _pass_time(self, left: float, *, record: Record | None) -> None:
        if left < IN_MEMORY:
            self._stage.begin_work()
            try:
                await asyncio.sleep(left)
            finally:
                self._stage.end_work()
            return
        await self._wait(record=record, duration=left)

    async def _wait(
        self, *, record: Record | None, duration: float | None, signal: str | None = None, child_id: UUID | None = None
    ) -> Any:
        """Block this branch; the run may be unwound meanwhile, and then this never returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        wait = Wait(future, record=record, seconds=duration, signal=signal, child_id=child_id)
        timer = None if duration is None else loop.call_later(duration, _resolve, future)
        self._stage.waits[wait] = None
        self._stage.look_again()
        try:
            return await future
        finally:
            self._stage.waits.pop(wait, None)
            if timer is not None:
                timer.cancel()

    # Signals.

    async def wait_for_signal(self, name: str, as_type: Any, timeout: Duration | None) -> Any:
        step_id = self._enter().identify(name)
        known = self._recorded(step_id, StepKind.SIGNAL)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return payload.decode(known.output_json or "null", as_type, what=f"signal {name}")
        if known is not None and known.status is StepStatus.FAILED:
            raise SignalTimeout(f"no signal {name!r} came in time")
        limit = None if timeout is None else seconds(timeout, what="timeout")
        if known is not None:
            limit = None if known.due_at is None else self._left(known)
        signal = self._take(name)
        if signal is None and (limit is None or limit > 0):
            waiting = self._record(step_id, StepKind.SIGNAL, StepStatus.WAITING, due_in=limit)
            signal = await self._wait(record=None if known else waiting, duration=limit, signal=name)
        if signal is None:
            await self._write(self._record(step_id, StepKind.SIGNAL, StepStatus.FAILED))
            raise SignalTimeout(f"no signal {name!r} came within {human(limit or 0.0)}")
        text = signal.payload_json
        await self._write(
            self._record(step_id, StepKind.SIGNAL, StepStatus.SUCCEEDED, output=text, signal_id=signal.id)
        )
        return payload.decode(text, as_type, what=f"signal {name}")

    def _take(self, name: str) -> Signal | None:
        signals = self._stage.history.signals
        for index, signal in enumerate(signals):
            if signal.name == name:
                return signals.pop(index)
        return None

    # Child runs.

    async def trigger(self, workflow: Workflow[Any, Any] | str, input: Any, key: str | None) -> UUID:
        target = workflow if isinstance(workflow, Workflow) else Workflow[Any, Any](workflow)
        step_id = self._enter().identify(target.name, key)
        child_id = uuid5(self._stage.lease.id, step_id)
        if self._recorded(step_id, StepKind.CHILD) is None:
            text = self._encode(input, f"payload of {target.name}")
            child = NewRun(child_id, target.name, text, parent_id=self._stage.lease.id)
            output = payload.encode(str(child_id))
            await self._write(
                self._record(step_id, StepKind.CHILD, StepStatus.SUCCEEDED, input=text, output=output, child=child)
            )
        return child_id

    async def child_result(self, child_id: UUID, as_type: Any) -> Any:
        step_id = self._enter().identify(f"result of {child_id}")
        known = self._recorded(step_id, StepKind.CHILD)
        if known is None or known.status is StepStatus.WAITING:
            run = await self._finished_child(child_id, step_id, known)
            succeeded = run.status is Status.SUCCEEDED
            record = self._record(
                step_id,
                StepKind.CHILD,
                StepStatus.SUCCEEDED if succeeded else StepStatus.FAILED,
                output=run.result_json if succeeded else None,
                error=None if succeeded else payload.encode({"status": run.status, "message": run.last_error}),
            )
            await self._write(record)
            known = Step(
                self._stage.lease.id,
                step_id,
                record.kind,
                record.status,
                0,
                None,
                None,
                None,
                None,
                record.output,
                record.error,
            )
        if known.status is StepStatus.FAILED:
            story = payload.decode(known.error_json or "{}")
            raise RunFailed(f"child run {child_id} {story.get('status')}: {story.get('message')}")
        return payload.decode(known.output_json or "null", as_type, what=f"result of run {child_id}")

    async def _finished_child(self, child_id: UUID, step_id: str, known: Step | None) -> Run:
        while True:
            self._stage.begin_work()
            try:
                run = await self._stage.look_up(child_id)
            finally:
                self._stage.end_work()
            if run is not None and run.is_finished:
                return run
            waiting = self._record(step_id, StepKind.CHILD, StepStatus.WAITING)
            await self._wait(record=None if known else waiting, duration=None, child_id=child_id)

    # Values.

    async def now(self) -> datetime:
        step_id = self._enter().identify("now")
        known = self._recorded(step_id, StepKind.VALUE)
        if known is not None:
            return self._instant(known.output_json or "null")
        text = payload.encode(self._stage.now())
        await self._write(self._record(step_id, StepKind.VALUE, StepStatus.SUCCEEDED, output=text))
        return self._instant(text)

    def _instant(self, text: str) -> datetime:
        instant: datetime = payload.decode(text, datetime, what="now")
        return instant

    def uuid(self) -> UUID:
        return uuid5(self._stage.lease.id, self._enter().identify("uuid"))

    def random(self) -> float:
        return random.Random(f"{self._stage.lease.id}/{self._enter().identify('random')}").random()


def _resolve(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
