"""Signals to a run: each is consumed once, in the order of its name, by the record of the wait that took it.

A signal that does not fit the wait's type is consumed as well: the wait fails, or skips it with a record of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, NoReturn
from uuid import UUID, uuid5

from ...model import failure, payload
from ...model.duration import Duration, human, seconds
from ...model.errors import InvalidInput, SignalTimeout
from ...model.policies import ON_SIGNAL_MISFIT, OnSignalMisfit, check_choice
from ...model.records import Signal
from ...model.states import StepKind, StepStatus
from ...model.step_places import SKIPPED, path_of
from ..branches import check_name
from ..labels import about
from .memo import Memo, durable

log = logging.getLogger("simpleworkflow.execute")


class Signals:
    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._stage = memo.stage

    @durable
    def wait_for_signal(
        self, name: str, as_type: Any, timeout: Duration | None, on_misfit: OnSignalMisfit = "raise"
    ) -> Coroutine[Any, Any, Any]:
        branch = self._memo.enter()
        check_choice("on_misfit of a signal", on_misfit, ON_SIGNAL_MISFIT)
        limit = None if timeout is None else seconds(timeout, what="timeout")
        step_id = branch.identify(check_name(name, "signal"))
        return self._memo.at(
            step_id, self._signal(step_id, name, as_type, limit, on_misfit == "skip"), f"wait_for_signal({name})"
        )

    async def _signal(self, step_id: str, name: str, as_type: Any, limit: float | None, skips: bool) -> Any:
        self._memo.begin(step_id)
        known = self._memo.recorded(step_id, StepKind.SIGNAL)
        decode = partial(payload.decode, as_type=as_type, what=f"signal {name}")
        if known is not None and known.status is StepStatus.SUCCEEDED:
            return self._memo.read(decode, known.output_json, step_id)
        told = f"no signal {name!r} came" + ("" if limit is None else f" within {human(limit)}")
        if known is not None and known.status is StepStatus.FAILED:
            if known.error_json is not None:
                raise InvalidInput(payload.decode(known.error_json).get("message"), step_id=step_id)
            raise SignalTimeout(told, step_id=step_id)
        left = limit
        if known is not None:
            left = None if known.due_at is None else self._memo.left(known)
        due = None if left is None else self._stage.clock.passed() + left
        while True:
            signal = await self._next_signal(step_id, name, due, is_known=known is not None)
            if signal is None:
                await self._memo.add(step_id, StepKind.SIGNAL, StepStatus.FAILED, due_in=0.0)
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
            waiting = self._memo.record(step_id, StepKind.SIGNAL, StepStatus.WAITING, due_in=left)
            signal = await self._memo.wait(step_id, record=waiting, is_known=is_known, duration=left, signal=name)
        if signal is not None and self._memo.is_beaten(step_id):
            self._stage.post.give_back(signal)
            await self._memo.never()
        return signal

    async def _consume(self, step_id: str, signal: Signal, value: Any) -> Any:
        text = signal.payload_json
        await self._memo.add(step_id, StepKind.SIGNAL, StepStatus.SUCCEEDED, output=text, signal_id=signal.id)
        return value

    async def _reject(self, step_id: str, signal: Signal, misfit: str) -> NoReturn:
        """It is consumed, and the wait has failed: a retry of the run waits for another one."""
        told, _ = failure.failure("InvalidInput", misfit)
        await self._memo.add(step_id, StepKind.SIGNAL, StepStatus.FAILED, error=told, signal_id=signal.id)
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
        await self._memo.add(place, StepKind.VALUE, StepStatus.FAILED, error=told, output=output, signal_id=signal.id)

    async def new_id(self) -> UUID:
        """For a signal that this workflow sends: the same on every replay."""
        return uuid5(self._stage.lease.id, self._memo.enter().identify("@signal to others"))
