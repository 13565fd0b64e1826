"""The durable calls of a run: what is recorded is returned, what is not is done and recorded.

Steps are in steps.py, child runs in children.py, races in races.py; here are timers, signals, values, and what a run
tells others. Each call is a plain function that takes its identity at once and returns a coroutine (see memo.py).
Steps, signals and children are known by the names that people gave them, so that one turned into another is noticed;
the names of all other pieces start with @.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import UUID, uuid5

from ..model import failure, payload
from ..model.duration import Duration, human, seconds
from ..model.errors import InvalidInput, InvalidWorkflow, SignalTimeout
from ..model.outbox import check_emitted
from ..model.policies import ON_SIGNAL_MISFIT, OnSignalMisfit, check_choice
from ..model.records import Signal
from ..model.states import StepKind, StepStatus
from ..model.step_places import SKIPPED, path_of
from .branches import BRANCH, IN_STEP, check_name
from .labels import about
from .made import caller
from .memo import durable
from .races import Races
from .steps import LONGEST_INPUT

if TYPE_CHECKING:
    from .stage import Stage

log = logging.getLogger("simpleworkflow.execute")

PUBLISHED = "@publish "

T = TypeVar("T")
Coro = Coroutine[Any, Any, T]


class Durable(Races):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._published: Counter[str] = Counter()

    def is_replaying(self) -> bool:
        """Whether the calling code only repeats what an earlier execution has done."""
        branch = BRANCH.get()
        return branch is not None and IN_STEP.get() is None and self.replay.is_under_way(branch.path)

    # Time.

    @durable
    def sleep(self, duration: Duration) -> Coroutine[Any, Any, None]:
        branch = self._enter()
        length = seconds(duration, what="sleep")
        step_id = branch.identify("@sleep")
        return self._at(step_id, self._sleep(step_id, length), "sleep")

    @durable
    def sleep_until(self, instant: datetime) -> Coroutine[Any, Any, None]:
        branch = self._enter()
        if not isinstance(instant, datetime) or instant.utcoffset() is None:
            raise InvalidWorkflow(f"sleep_until({instant!r}): give a datetime with a time zone")
        length = max((instant - self._stage.now()).total_seconds(), 0.0)
        step_id = branch.identify("@sleep")
        return self._at(step_id, self._sleep(step_id, length), "sleep")

    async def _sleep(self, step_id: str, duration: float) -> None:
        self._begin(step_id)
        known = self._recorded(step_id, StepKind.SLEEP)
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return
        left = duration if known is None else self._left(known)
        waiting = self._record(step_id, StepKind.SLEEP, StepStatus.WAITING, due_in=left)
        await self._pass_time(step_id, left, record=waiting, is_known=known is not None)
        await self._write(self._record(step_id, StepKind.SLEEP, StepStatus.SUCCEEDED, due_in=0.0))

    # Signals.

    @durable
    def wait_for_signal(
        self, name: str, as_type: Any, timeout: Duration | None, on_misfit: OnSignalMisfit = "raise"
    ) -> Coroutine[Any, Any, Any]:
        branch = self._enter()
        check_choice("on_misfit of a signal", on_misfit, ON_SIGNAL_MISFIT)
        limit = None if timeout is None else seconds(timeout, what="timeout")
        step_id = branch.identify(check_name(name, "signal"))
        return self._at(
            step_id, self._signal(step_id, name, as_type, limit, on_misfit == "skip"), f"wait_for_signal({name})"
        )

    async def _signal(self, step_id: str, name: str, as_type: Any, limit: float | None, skips: bool) -> Any:
        self._begin(step_id)
        known = self._recorded(step_id, StepKind.SIGNAL)
        decode = partial(payload.decode, as_type=as_type, what=f"signal {name}")
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return self.read(decode, known.output_json, step_id)
        told = f"no signal {name!r} came" + ("" if limit is None else f" within {human(limit)}")
        if known is not None and known.status is StepStatus.FAILED:
            if known.error_json is not None:
                raise InvalidInput(payload.decode(known.error_json).get("message"), step_id=step_id)
            raise SignalTimeout(told, step_id=step_id)
        left = limit
        if known is not None:
            left = None if known.due_at is None else self._left(known)
        due = None if left is None else self._stage.clock.passed() + left
        while True:
            signal = await self._next_signal(step_id, name, due, is_known=known is not None)
            if signal is None:
                await self._write(self._record(step_id, StepKind.SIGNAL, StepStatus.FAILED, due_in=0.0))
                raise SignalTimeout(told, step_id=step_id)
            misfit = ""
            try:
                value = decode(signal.payload_json)
            except InvalidInput as error:
                misfit = str(error)
            # Out here: what is raised has no __context__, as on a replay.
            if not misfit:
                return await self._consume(step_id, signal, value)
            if not skips:
                await self._reject(step_id, signal, misfit)
            await self._skip(step_id, signal, misfit)

    async def _next_signal(self, step_id: str, name: str, due: float | None, *, is_known: bool) -> Signal | None:
        """None when none came in time."""
        left = None if due is None else max(due - self._stage.clock.passed(), 0.0)
        signal = self._stage.post.take(name)
        if signal is None and (left is None or left > 0):
            waiting = self._record(step_id, StepKind.SIGNAL, StepStatus.WAITING, due_in=left)
            signal = await self._wait(step_id, record=waiting, is_known=is_known, duration=left, signal=name)
        if signal is not None and self._is_beaten(step_id):
            self._stage.post.give_back(signal)
            await self._never()
        return signal

    async def _consume(self, step_id: str, signal: Signal, value: Any) -> Any:
        text = signal.payload_json
        await self._write(
            self._record(step_id, StepKind.SIGNAL, StepStatus.SUCCEEDED, output=text, signal_id=signal.id)
        )
        return value

    async def _reject(self, step_id: str, signal: Signal, misfit: str) -> NoReturn:
        """It is consumed, and the wait has failed: a retry of the run waits for another one."""
        told, _ = failure.failure("InvalidInput", misfit)
        await self._write(self._record(step_id, StepKind.SIGNAL, StepStatus.FAILED, error=told, signal_id=signal.id))
        raise InvalidInput(misfit, step_id=step_id)

    async def _skip(self, step_id: str, signal: Signal, misfit: str) -> None:
        """It is consumed by a record of its own, and the wait goes on."""
        lease = self._stage.lease
        log.warning(
            "run %s (%s): a signal was skipped: %s", lease.id, lease.type, misfit, extra=about(lease, step=step_id)
        )
        told, _ = failure.failure("InvalidInput", misfit)
        place = f"{path_of(step_id)}{SKIPPED}{signal.id}#0"
        output = signal.payload_json
        await self._write(
            self._record(place, StepKind.VALUE, StepStatus.FAILED, error=told, output=output, signal_id=signal.id)
        )

    # Values.

    @durable
    def now(self) -> Coroutine[Any, Any, datetime]:
        step_id = self._enter().identify("@now")
        return self._at(step_id, self._now(step_id), "now")

    async def _now(self, step_id: str) -> datetime:
        self._begin(step_id)
        known = self._recorded(step_id, StepKind.VALUE)
        text = (known.output_json or "null") if known is not None else payload.encode(self._stage.now())
        if known is None:
            await self._write(self._record(step_id, StepKind.VALUE, StepStatus.SUCCEEDED, output=text))
        instant: datetime = payload.decode(text, datetime, what="now")
        return instant

    def uuid(self) -> UUID:
        return uuid5(self._stage.lease.id, self._enter().identify("@uuid"))

    async def new_signal_id(self) -> UUID:
        """For a signal that this workflow sends: the same on every replay."""
        return uuid5(self._stage.lease.id, self._enter().identify("@signal to others"))

    def random(self) -> float:
        return random.Random(f"{self._stage.lease.id}/{self._enter().identify('@random')}").random()

    @durable
    def remember(self, name: str, work: Callable[[], Coro[Any]], as_type: Any) -> Coro[Any]:
        """Work of ours whose outcome is kept: done once, unless a crash comes between it and its record."""
        step_id = self._enter().identify(f"@{name}")
        return self._at(step_id, self._remember(step_id, work, as_type), name)

    async def _remember(self, step_id: str, work: Callable[[], Coro[Any]], as_type: Any) -> Any:
        self._begin(step_id)
        known = self._recorded(step_id, StepKind.VALUE)
        if known is None:
            self._stage.begin_work()
            try:
                text = payload.encode(await self._stage.apart(work()))
            finally:
                self._stage.end_work()
            await self._write(self._record(step_id, StepKind.VALUE, StepStatus.SUCCEEDED, output=text))
        else:
            text = known.output_json or "null"
        return payload.decode(text, as_type)

    # Telling others.

    @durable
    def emit(self, event_type: str, data: Any) -> Coroutine[Any, Any, None]:
        branch = self._enter()
        text = self._encode(data, f"event {event_type}")
        step_id = branch.identify(f"@emit {check_emitted(check_name(event_type, 'event'))}")
        return self._at(step_id, self._emit(step_id, event_type, text), f"emit({event_type})")

    async def _emit(self, step_id: str, event_type: str, text: str) -> None:
        self._begin(step_id)
        seen = text if len(text) <= LONGEST_INPUT else None
        known = self._recorded(step_id, StepKind.EMIT)
        if known is not None:
            self.changed.compare(known, seen)
            return
        if self._has_past:
            self.changed.check_effect(step_id, StepKind.EMIT, seen)
        await self._write(
            self._record(step_id, StepKind.EMIT, StepStatus.SUCCEEDED, input=seen, emits=(event_type, text))
        )

    @durable
    def publish(self, name: str, value: Any) -> Coroutine[Any, Any, None]:
        """One row per branch and name, written over: progress is what it is now, not a history."""
        branch = self._enter()
        text = self._encode(value, f"published {name}")
        step_id = f"{branch.path}{PUBLISHED}{check_name(name, 'published value')}#0"
        self._published[step_id] += 1
        number = self._published[step_id]
        made = self._publish(step_id, number, text)
        return self._made_here(f"{step_id} {number}", made, f"publish({name})", caller())

    async def _publish(self, step_id: str, number: int, text: str) -> None:
        self._begin(step_id)
        known = self._stage.history.steps.get(step_id)
        if known is not None and known.attempt >= number:
            self.replay.passed(step_id)
            return
        await self._write(self._record(step_id, StepKind.PUBLISH, StepStatus.SUCCEEDED, attempt=number, output=text))
