"""Child runs: started once, executed by any worker that serves their type, waited for without a slot.

A child's id is derived from its parent's and from the place that starts it, so that starting it again finds it. It
sorts after its parent's, because locks are taken in the order of ids and an end reaches from the parent down. A child
has attempts of its own: its failure, when the parent does not catch it, ends the parent at once, and a retry of the
parent by an operator opens the child again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid5

from ...model import failure, payload
from ...model.errors import RunCancelled, RunEnded, RunFailed, RunTimedOut
from ...model.names import RESULT
from ...model.records import DEFAULT_PRIORITY, NewRun, Run, Step
from ...model.states import Status, StepKind, StepStatus
from .. import tracing
from ..registry import Workflow
from ..renames import NewCall
from ..step import refuse_function
from .memo import Memo, durable

T = TypeVar("T")

_ENDINGS: dict[str, type[RunEnded]] = {Status.CANCELLED: RunCancelled, Status.TIMED_OUT: RunTimedOut}


def child_id_of(parent: UUID, place: str) -> UUID:
    """A UUIDv8: the millisecond after the parent's, then a digest of parent and place."""
    digest = uuid5(parent, place).int
    moment = min((parent.int >> 80) + 1, (1 << 48) - 1)
    head, tail = (digest >> 64) & 0xFFF, digest & ((1 << 62) - 1)
    return UUID(int=moment << 80 | 0x8 << 76 | head << 64 | 0x2 << 62 | tail)


class Children:
    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._stage = memo.stage
        memo.is_also_written = self._is_start_written
        self.types: dict[UUID, str] = {}
        """The children of this run that its code has asked for."""
        self.awaited: dict[str, tuple[UUID, str]] = {}
        """Children that live for one call of ctx.run, with the place of their start, by the place of their result."""
        self._begun: set[UUID] = set()

    def prepare(self, workflow: Any, input: Any, key: str | None) -> tuple[NewRun, str]:
        """(the child, the place that starts it): everything but the start itself."""
        target = self.target(workflow)
        text = target.encode_input(input, limit=self._stage.services.max_payload)
        return self.adopt(NewRun(UUID(int=0), target.name, text), key)

    def target(self, workflow: Any) -> Workflow[Any, Any]:
        if isinstance(workflow, Workflow):
            return workflow
        refuse_function(workflow, is_inside=True)
        return self._stage.services.by_name(workflow)

    def adopt(self, new: NewRun, key: str | None) -> tuple[NewRun, str]:
        """The same for a request that is complete but for its identity."""
        step_id = self._memo.enter().identify(new.type, key)
        child_id = child_id_of(self._stage.lease.id, step_id)
        child = new._replace(id=child_id, parent_id=self._stage.lease.id)
        if new.priority == DEFAULT_PRIORITY:
            child = child._replace(priority=self._stage.lease.priority)  # who waits for it is served like this
        self.types[child_id] = child.type
        return child, step_id

    def _is_start_written(self, place: str) -> bool:
        """By a call of ctx.run that has not begun yet."""
        return any(place == start and result in self._memo.written for result, (_, start) in self.awaited.items())

    def has_started(self, child_id: UUID, place: str) -> bool:
        return child_id in self._begun or place in self._stage.history.steps

    def place(self, step_id: str, call: Coroutine[Any, Any, T], what: str) -> Coroutine[Any, Any, T]:
        """For callers who build the call themselves: where it will leave its finishing record."""
        return self._memo.at(step_id, call, what)

    async def start(self, child: NewRun, step_id: str) -> None:
        self._memo.begin(step_id)
        known = self._memo.recorded(step_id, StepKind.CHILD)
        if known is not None:
            self._memo.changed.compare(known, child.payload)
            return
        if self._memo.has_past:
            self._memo.changed.check_new(NewCall(step_id, child.payload), StepKind.CHILD)
        self._begun.add(child.id)
        child = child._replace(traceparent=tracing.for_child(self._stage.lease))
        output = payload.encode(str(child.id))
        await self._memo.add(
            step_id, StepKind.CHILD, StepStatus.SUCCEEDED, input=child.payload, output=output, child=child
        )

    @durable
    def child_result(self, child_id: UUID, as_type: Any) -> Coroutine[Any, Any, Any]:
        step_id = self._memo.enter().identify(f"{RESULT}{child_id}")
        return self._memo.at(step_id, self._result(step_id, child_id, as_type), "result")

    @durable
    def run(self, workflow: Any, input: Any, key: str | None) -> Coroutine[Any, Any, Any]:
        child, place = self.prepare(workflow, input, key)
        step_id = self._memo.enter().identify(f"{RESULT}{child.id}", key)
        self.awaited[step_id] = child.id, place

        async def both() -> Any:
            self._memo.begin(step_id)
            if self._memo.is_beaten(step_id):
                await self._memo.never()
            await self.start(child, place)
            return await self._result(step_id, child.id, self.target(workflow).output_type)

        return self._memo.at(step_id, both(), f"run({child.type})")

    async def _result(self, step_id: str, child_id: UUID, as_type: Any) -> Any:
        self._memo.begin(step_id)
        known = self._memo.recorded(step_id, StepKind.RESULT)
        if known is not None and known.status is not StepStatus.WAITING:
            output, error = known.output_json, known.error_json
        else:
            run = await self._finished_child(child_id, step_id, known)
            succeeded = run.status is Status.SUCCEEDED
            output = (run.result_json or "null") if succeeded else None
            told = {"status": run.status, "message": run.last_error, "error": failure.brief(run.error)}
            error = None if succeeded else payload.encode(told)
            status = StepStatus.SUCCEEDED if succeeded else StepStatus.FAILED
            details = {"input": self._type(child_id), "output": output, "error": error}
            await self._memo.add(step_id, StepKind.RESULT, status, **details)
        if error is not None:
            details = payload.decode(error)
            kind = _ENDINGS.get(str(details.get("status")), RunFailed)
            message = f"child run {child_id} {details.get('status')}: {details.get('message')}"
            raise kind(message, step_id=step_id, error=details.get("error"))
        what = f"result of run {child_id}"
        return self._memo.read(partial(payload.decode, as_type=as_type, what=what), output, step_id)

    def _type(self, child_id: UUID) -> str:
        return payload.encode(self.types.get(child_id))

    async def _finished_child(self, child_id: UUID, step_id: str, known: Step | None) -> Run:
        while True:
            before = self._stage.post.wakes
            self._stage.begin_work()
            try:
                run = await self._stage.look_up(child_id)
            finally:
                self._stage.end_work()
            if run is None:
                raise RunFailed(f"child run {child_id} is gone: its row was removed", step_id=step_id)
            if run.is_finished:
                return run
            if self._stage.post.wakes != before:
                continue  # something ended while we looked; it may have been this child
            waiting = self._memo.record(step_id, StepKind.RESULT, StepStatus.WAITING, input=self._type(child_id))
            is_known = known is not None
            await self._memo.wait(step_id, record=waiting, is_known=is_known, duration=None, child_id=child_id)
