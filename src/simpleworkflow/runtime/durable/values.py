"""Values that are the same on every replay: the time, identifiers, random numbers, and answers of our own calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID, uuid5

from ...model import payload
from ...model.states import StepKind, StepStatus
from .memo import Memo, durable

T = TypeVar("T")
Coro = Coroutine[Any, Any, T]


class Values:
    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._stage = memo.stage

    @durable
    def now(self) -> Coroutine[Any, Any, datetime]:
        step_id = self._memo.enter().identify("@now")
        return self._memo.at(step_id, self._now(step_id), "now")

    async def _now(self, step_id: str) -> datetime:
        self._memo.begin(step_id)
        known = self._memo.recorded(step_id, StepKind.VALUE)
        text = (known.output_json or "null") if known is not None else payload.encode(self._stage.now())
        if known is None:
            await self._memo.add(step_id, StepKind.VALUE, StepStatus.SUCCEEDED, output=text)
        instant: datetime = payload.decode(text, datetime, what="now")
        return instant

    def uuid(self) -> UUID:
        return uuid5(self._stage.lease.id, self._memo.enter().identify("@uuid"))

    def random(self) -> float:
        return random.Random(f"{self._stage.lease.id}/{self._memo.enter().identify('@random')}").random()

    @durable
    def remember(self, name: str, work: Callable[[], Coro[Any]], as_type: Any) -> Coro[Any]:
        """Work of ours whose outcome is kept: done once, unless a crash comes between it and its record."""
        step_id = self._memo.enter().identify(f"@{name}")
        return self._memo.at(step_id, self._remember(step_id, work, as_type), name)

    async def _remember(self, step_id: str, work: Callable[[], Coro[Any]], as_type: Any) -> Any:
        self._memo.begin(step_id)
        known = self._memo.recorded(step_id, StepKind.VALUE)
        if known is None:
            self._stage.begin_work()
            try:
                text = payload.encode(await self._stage.apart(work()))
            finally:
                self._stage.end_work()
            await self._memo.add(step_id, StepKind.VALUE, StepStatus.SUCCEEDED, output=text)
        else:
            text = known.output_json or "null"
        return payload.decode(text, as_type)
