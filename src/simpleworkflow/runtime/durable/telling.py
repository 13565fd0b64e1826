"""What a run tells others: events for the outbox, and published values.

An event is handed to the outbox in the transaction of its record, so it goes out once. A published value is one row for
each branch and name, and the newest one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

from ...model.outbox import check_emitted
from ...model.states import StepKind, StepStatus
from ..branches import check_name
from ..made_calls import caller
from .memo import Memo, durable
from .steps import LONGEST_INPUT

PUBLISHED = "@publish "


class Telling:
    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._stage = memo.stage
        self._published: Counter[str] = Counter()

    @durable
    def emit(self, event_type: str, data: Any) -> Coroutine[Any, Any, None]:
        branch = self._memo.enter()
        text = self._memo.encode(data, f"event {event_type}")
        step_id = branch.identify(f"@emit {check_emitted(check_name(event_type, 'event'))}")
        return self._memo.at(step_id, self._emit(step_id, event_type, text), f"emit({event_type})")

    async def _emit(self, step_id: str, event_type: str, text: str) -> None:
        self._memo.begin(step_id)
        seen = text if len(text) <= LONGEST_INPUT else None
        known = self._memo.recorded(step_id, StepKind.EMIT)
        if known is not None:
            self._memo.changed.compare(known, seen)
            return
        if self._memo.has_past:
            self._memo.changed.check_effect(step_id, StepKind.EMIT, seen)
        await self._memo.add(step_id, StepKind.EMIT, StepStatus.SUCCEEDED, input=seen, emits=(event_type, text))

    @durable
    def set_value(self, name: str, value: Any) -> Coroutine[Any, Any, None]:
        """One row per branch and name, written over: progress is what it is now, not a history."""
        branch = self._memo.enter()
        text = self._memo.encode(value, f"published {name}")
        step_id = f"{branch.path}{PUBLISHED}{check_name(name, 'published value')}#0"
        self._published[step_id] += 1
        number = self._published[step_id]
        made = self._set_value(step_id, number, text)
        return self._memo.made_here(f"{step_id} {number}", made, f"set_value({name})", caller())

    async def _set_value(self, step_id: str, number: int, text: str) -> None:
        self._memo.begin(step_id)
        known = self._stage.history.steps.get(step_id)
        if known is not None and known.attempt >= number:
            self._memo.replay.passed(step_id)
            return
        await self._memo.add(step_id, StepKind.PUBLISH, StepStatus.SUCCEEDED, attempt=number, output=text)
