"""What every durable call stands on: who is calling, what is on record, and how to add to the record.

A call gets its identity where it is *written*, not where it is awaited: `gather(ctx.step(a), ctx.step(b))` numbers its
steps in the order of the program, whichever task starts or ends first. A call of an execution that is no longer wanted
does not return at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from ..model import payload
from ..model.errors import ExecutionStopped, InvalidWorkflow, NonDeterminismError
from ..model.moves import Outcome, Record
from ..model.records import History, Lease, Run, Signal, Step
from ..model.states import StepKind, StepStatus
from .branches import BRANCH, IN_STEP, Branch
from .waits import Post, Wait

IN_MEMORY = 1.0
"""Delays shorter than this stay in memory: unwinding and resuming would cost more than it frees."""


class Stage(Protocol):
    """What an execution offers to the durable calls made on it."""

    lease: Lease
    history: History
    waits: dict[Wait, None]
    post: Post
    max_payload: int
    trunk: Branch

    @property
    def is_over(self) -> bool: ...

    @property
    def has_ended(self) -> bool: ...

    def now(self) -> datetime: ...

    def write(self, record: Record) -> asyncio.Future[Outcome]: ...

    def begin_work(self) -> None: ...

    def end_work(self) -> None: ...

    def look_again(self) -> None: ...

    def lose(self) -> None: ...

    def keep(self, wait: Wait) -> None: ...

    def in_thread(self, function: Callable[[], Any]) -> asyncio.Future[Any]: ...

    def look_up(self, run_id: UUID, /) -> Coroutine[Any, Any, Run | None]: ...


class Memo:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _enter(self) -> Branch:
        """The branch of the caller, or a sentence that says why there is none."""
        if self._stage.has_ended:
            raise InvalidWorkflow(f"run {self._stage.lease.id} has ended; its ctx cannot be used any more")
        if self._stage.is_over:
            raise ExecutionStopped
        if IN_STEP.get():
            raise InvalidWorkflow("a durable call inside a step: a step is one piece; call it from the workflow itself")
        branch = BRANCH.get()
        if branch is None:
            raise InvalidWorkflow("durable calls belong to the workflow's own tasks; this one comes from elsewhere")
        if branch.root is not self._stage.trunk:
            raise InvalidWorkflow("this ctx belongs to another run; a workflow uses the ctx that it was called with")
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

    # Time.

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
        """Block this branch; the run may be unwound meanwhile, and then this never returns.

        A wait of a run that stays resident is put on record after a moment: a crash must not start it anew.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        wait = Wait(future, record=record, seconds=duration, signal=signal, child_id=child_id)
        timers = [] if duration is None else [loop.call_later(duration, _resolve, future)]
        if record is not None:
            timers.append(loop.call_later(IN_MEMORY, self._stage.keep, wait))
        self._stage.waits[wait] = None
        self._stage.look_again()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and isinstance(future.result(), Signal):
                self._stage.post.give_back(future.result())
            raise
        finally:
            self._stage.waits.pop(wait, None)
            for timer in timers:
                timer.cancel()


def _resolve(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
