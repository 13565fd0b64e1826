"""The durable calls of a run: what is recorded is returned, what is not is done and recorded.

Steps are in steps.py; here are timers, signals, child runs and values. Each call is a plain function that takes its
identity at once and returns a coroutine (see memo.py).
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from ..model import payload
from ..model.duration import Duration, human, seconds
from ..model.errors import (
    InvalidInput,
    InvalidWorkflow,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunTimedOut,
    SignalTimeout,
)
from ..model.records import NewRun, Run, Step
from ..model.states import Status, StepKind, StepStatus
from .registry import Workflow
from .steps import Steps

_ENDINGS: dict[str, type[RunEnded]] = {Status.CANCELLED: RunCancelled, Status.TIMED_OUT: RunTimedOut}


class Durable(Steps):
    # Time.

    def sleep(self, duration: Duration) -> Coroutine[Any, Any, None]:
        branch = self._enter()
        length = seconds(duration, what="sleep")
        return self._sleep(branch.identify("sleep"), length)

    def sleep_until(self, instant: datetime) -> Coroutine[Any, Any, None]:
        branch = self._enter()
        if not isinstance(instant, datetime) or instant.utcoffset() is None:
            raise InvalidWorkflow(f"sleep_until({instant!r}): give a datetime with a time zone")
        return self._sleep(branch.identify("sleep"), max((instant - self._stage.now()).total_seconds(), 0.0))

    async def _sleep(self, step_id: str, duration: float) -> None:
        self._enter()
        known = self._recorded(step_id, StepKind.SLEEP)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return
        left = duration if known is None else self._left(known)
        waiting = self._record(step_id, StepKind.SLEEP, StepStatus.WAITING, due_in=left)
        await self._pass_time(left, record=waiting if known is None else None)
        await self._write(self._record(step_id, StepKind.SLEEP, StepStatus.SUCCEEDED, due_in=0.0))

    # Signals.

    def wait_for_signal(self, name: str, as_type: Any, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        branch = self._enter()
        limit = None if timeout is None else seconds(timeout, what="timeout")
        return self._signal(branch.identify(name), name, as_type, limit)

    async def _signal(self, step_id: str, name: str, as_type: Any, limit: float | None) -> Any:
        self._enter()
        known = self._recorded(step_id, StepKind.SIGNAL)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return payload.decode(known.output_json or "null", as_type, what=f"signal {name}")
        told = f"no signal {name!r} came" + ("" if limit is None else f" within {human(limit)}")
        if known is not None and known.status is StepStatus.FAILED:
            raise SignalTimeout(told)
        left = limit
        if known is not None:
            left = None if known.due_at is None else self._left(known)
        signal = self._stage.post.take(name)
        if signal is None and (left is None or left > 0):
            waiting = self._record(step_id, StepKind.SIGNAL, StepStatus.WAITING, due_in=left)
            signal = await self._wait(record=None if known else waiting, duration=left, signal=name)
        if signal is None:
            await self._write(self._record(step_id, StepKind.SIGNAL, StepStatus.FAILED))
            raise SignalTimeout(told)
        text: str = signal.payload_json
        await self._write(
            self._record(step_id, StepKind.SIGNAL, StepStatus.SUCCEEDED, output=text, signal_id=signal.id)
        )
        return payload.decode(text, as_type, what=f"signal {name}")

    # Child runs.

    def trigger(self, workflow: Any, input: Any, key: str | None) -> tuple[UUID, Coroutine[Any, Any, None]]:
        """(the child's id, what starts it)"""
        target = workflow if isinstance(workflow, Workflow) else Workflow[Any, Any](workflow)
        step_id = self._enter().identify(target.name, key)
        child_id = uuid5(self._stage.lease.id, step_id)
        return child_id, self._start(target, input, step_id, child_id)

    async def _start(self, target: Workflow[Any, Any], input: Any, step_id: str, child_id: UUID) -> None:
        self._enter()
        if self._recorded(step_id, StepKind.CHILD) is None:
            text = self._input(target, input)
            child = NewRun(child_id, target.name, text, parent_id=self._stage.lease.id)
            output = payload.encode(str(child_id))
            await self._write(
                self._record(step_id, StepKind.CHILD, StepStatus.SUCCEEDED, input=text, output=output, child=child)
            )

    def _input(self, target: Workflow[Any, Any], input: Any) -> str:
        if not target.takes_input and input is not None:
            raise InvalidInput(f"{target.name} takes no input, but got {type(input).__name__}")
        what = f"payload of {target.name}"
        text = self._encode(input, what)
        if target.takes_input:
            payload.decode(text, target.input_type, what=what)
        return text

    def child_result(self, child_id: UUID, as_type: Any) -> Coroutine[Any, Any, Any]:
        return self._result(self._enter().identify(f"result of {child_id}"), child_id, as_type)

    def run(self, workflow: Any, input: Any, key: str | None) -> Coroutine[Any, Any, Any]:
        child_id, start = self.trigger(workflow, input, key)
        step_id = self._enter().identify(f"result of {child_id}")

        async def both() -> Any:
            await start
            return await self._result(step_id, child_id, getattr(workflow, "output_type", Any))

        return both()

    async def _result(self, step_id: str, child_id: UUID, as_type: Any) -> Any:
        self._enter()
        known = self._recorded(step_id, StepKind.CHILD)
        if known is not None and known.status is not StepStatus.WAITING:
            output, error = known.output_json, known.error_json
        else:
            run = await self._finished_child(child_id, step_id, known)
            succeeded = run.status is Status.SUCCEEDED
            output = (run.result_json or "null") if succeeded else None
            error = None if succeeded else payload.encode({"status": run.status, "message": run.last_error})
            status = StepStatus.SUCCEEDED if succeeded else StepStatus.FAILED
            await self._write(self._record(step_id, StepKind.CHILD, status, output=output, error=error))
        if error is not None:
            story = payload.decode(error)
            kind = _ENDINGS.get(str(story.get("status")), RunFailed)
            raise kind(f"child run {child_id} {story.get('status')}: {story.get('message')}")
        return payload.decode(output or "null", as_type, what=f"result of run {child_id}")

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

    def now(self) -> Coroutine[Any, Any, datetime]:
        return self._now(self._enter().identify("now"))

    async def _now(self, step_id: str) -> datetime:
        self._enter()
        known = self._recorded(step_id, StepKind.VALUE)
        text = (known.output_json or "null") if known is not None else payload.encode(self._stage.now())
        if known is None:
            await self._write(self._record(step_id, StepKind.VALUE, StepStatus.SUCCEEDED, output=text))
        instant: datetime = payload.decode(text, datetime, what="now")
        return instant

    def uuid(self) -> UUID:
        return uuid5(self._stage.lease.id, self._enter().identify("uuid"))

    def random(self) -> float:
        return random.Random(f"{self._stage.lease.id}/{self._enter().identify('random')}").random()
