"""Timers of a run: a sleep is on record with the instant at which it is due, and costs neither memory nor a slot."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any

from ...model.duration import Duration, seconds
from ...model.errors import InvalidWorkflow
from ...model.states import StepKind, StepStatus
from .memo import Memo, durable


class Timers:
    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._stage = memo.stage

    @durable
    def sleep(self, duration: Duration) -> Coroutine[Any, Any, None]:
        branch = self._memo.enter()
        length = seconds(duration, what="sleep")
        step_id = branch.identify("@sleep")
        return self._memo.at(step_id, self._sleep(step_id, length), "sleep")

    @durable
    def sleep_until(self, instant: datetime) -> Coroutine[Any, Any, None]:
        branch = self._memo.enter()
        if not isinstance(instant, datetime) or instant.utcoffset() is None:
            raise InvalidWorkflow(f"sleep_until({instant!r}): give a datetime with a time zone")
        length = max((instant - self._stage.now()).total_seconds(), 0.0)
        step_id = branch.identify("@sleep")
        return self._memo.at(step_id, self._sleep(step_id, length), "sleep")

    async def _sleep(self, step_id: str, duration: float) -> None:
        self._memo.begin(step_id)
        known = self._memo.recorded(step_id, StepKind.SLEEP)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return
        left = duration if known is None else self._memo.left(known)
        waiting = self._memo.record(step_id, StepKind.SLEEP, StepStatus.WAITING, due_in=left)
        await self._memo.pass_time(step_id, left, record=waiting, is_known=known is not None)
        await self._memo.add(step_id, StepKind.SLEEP, StepStatus.SUCCEEDED, due_in=0.0)
