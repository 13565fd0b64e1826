"""What every durable call stands on: who is calling, what is on record, and how to add to the record.

A call gets its identity where it is *written*, not where it is awaited: `gather(ctx.step(a), ctx.step(b))` numbers its
steps in the order of the program, whichever task starts or ends first. A call of an execution that is no longer wanted
does not return at all.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar
from uuid import UUID

from ...model import payload
from ...model.duration import human
from ...model.errors import (
    ExecutionStopped,
    InvalidInput,
    InvalidWorkflow,
    Misfit,
    NonDeterminismError,
    PayloadError,
)
from ...model.moves import Outcome, Record, taking_along
from ...model.records import Signal, Step
from ...model.states import StepKind, StepStatus
from ..branches import BRANCH, IN_STEP, Branch, check_name
from ..changed_code import ChangedCode
from ..labels import about
from ..lazily import Lazily
from ..made_calls import MadeCalls, caller
from ..replay import Replay
from ..waits import Wait, resolve

if TYPE_CHECKING:
    from ..stage import Stage
    from .races import Ticket

T = TypeVar("T")
P = ParamSpec("P")
M = TypeVar("M", bound="Part")
Coro = Coroutine[Any, Any, T]

log = logging.getLogger("simpleworkflow.execute")

IN_MEMORY = 1.0
"""Delays shorter than this stay in memory: unwinding and resuming would cost more than it frees."""
FINISHED = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


class Part(Protocol):
    """A part of the durable calls, such as timers: it stands on the memo of its execution."""

    _memo: Memo


def durable(method: Callable[Concatenate[M, P], Coro[T]]) -> Callable[Concatenate[M, P], Coro[T]]:
    """A call of user code. When the execution is being stopped it raises, but never without a turn of the loop in
    between: code that catches everything and tries again must not freeze the worker."""

    @functools.wraps(method)
    def call(self: M, /, *args: P.args, **kwargs: P.kwargs) -> Coro[T]:
        memo = self._memo
        return method(self, *args, **kwargs) if memo.stage.reason is None else memo.refuse()

    return call


class Memo:
    changed = Lazily[ChangedCode](lambda self: ChangedCode(self.stage, self.replay, self.is_written))

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.replay = Replay(stage.history.steps, stage.history.redone)
        self.has_past = bool(stage.history.steps)
        """Whether something is on record that this execution has not written itself."""
        self.is_also_written: Callable[[str], bool] = lambda _: False
        """Whether a child's start is written, though its own call is another one's."""
        self.written: dict[str, Coroutine[Any, Any, Any]] = {}
        """The durable calls that have been written and not begun, by where they will leave their finishing record."""
        self.made = MadeCalls()
        self.inner: dict[str, Sequence[Any]] = {}
        """The calls inside each race that has been written and not begun."""
        self.tickets: dict[str, Ticket] = {}
        """The races under way, by the places of their contenders."""
        self.has_raced = False
        self._warned = False

    @property
    def is_refused(self) -> bool:
        return self.stage.reason is not None

    async def refuse(self) -> Any:
        await asyncio.sleep(0)
        raise ExecutionStopped

    def enter(self) -> Branch:
        """The branch of the caller, or a sentence that says why there is none."""
        stage, branch = self.stage, BRANCH.get()
        if (
            branch is not None
            and (branch is stage.trunk or (branch.root is stage.trunk and not branch.unordered))
            and IN_STEP.get() is None
            and get_ident() in stage.threads
            and stage.reason is None  # is_over, without the price of a call
            and not stage.ended
            and not self.made.dropped
        ):
            return branch
        raise self._why_not(branch)

    def _why_not(self, branch: Branch | None) -> BaseException:
        if self.stage.has_ended:
            return InvalidWorkflow(f"run {self.stage.lease.id} has ended; its ctx cannot be used any more")
        if self.stage.is_over:
            return ExecutionStopped()
        if get_ident() not in self.stage.threads:
            return InvalidWorkflow("durable calls belong to the workflow's own thread; this one comes from elsewhere")
        if self.made.dropped and IN_STEP.get() is None:
            return self.made.mistake()
        if IN_STEP.get() is not None:
            told = "a durable call inside a step: a step is one piece; call it from the workflow itself"
            return InvalidWorkflow(told)
        if branch is None:
            return InvalidWorkflow("durable calls belong to the workflow's own tasks; this one comes from elsewhere")
        if branch.root is not self.stage.trunk:
            return InvalidWorkflow("this ctx belongs to another run; a workflow uses the ctx that it was called with")
        return InvalidWorkflow(
            "durable calls inside asyncio.as_completed cannot be told apart on replay; use gather or ctx.race"
        )

    def at(self, step_id: str, call: Coroutine[Any, Any, T], what: str) -> Coroutine[Any, Any, T]:
        """Remember where this call will leave its finishing record; a race wants to know."""
        self.written[step_id] = call
        return self.made_here(step_id, call, what, caller())

    def made_here(
        self, place: str, call: Coroutine[Any, Any, T], what: str, frame: FrameType
    ) -> Coroutine[Any, Any, T]:
        branch = BRANCH.get()
        self.made.add(place, call, what, frame, branch)
        if branch is not None and branch.callers is not None:
            branch.callers.append((asyncio.current_task(), call))
        return call

    def close(self) -> None:
        """The code is over."""
        self.made.close()
        self.__dict__.pop("changed", None)  # which knows us: nobody should have to look for circles

    @contextmanager
    def scope(self, name: str, key: str | None) -> Iterator[None]:
        """Durable calls in there have places of their own, whatever tasks make them."""
        branch = self.enter().scope(check_name(name, "scope"), key)
        mark = BRANCH.set(branch)
        try:
            yield
        finally:
            BRANCH.reset(mark)

    def place_of(self, call: Any) -> str | None:
        return next((place for place, written in self.written.items() if written is call), None)

    def begin(self, step_id: str) -> None:
        """A call that was written is awaited now, perhaps elsewhere: it must belong there, too."""
        self.written.pop(step_id, None)
        self.enter()

    def recorded(self, step_id: str, kind: StepKind) -> Step | None:
        known = self.stage.history.steps.get(step_id)
        if known is None:
            self.replay.is_new(step_id)
            return None
        if known.kind is not kind:
            raise self.misfit(
                NonDeterminismError(
                    f"{step_id} was recorded as a {known.kind} and is a {kind} now; the code of a run under way has "
                    f"changed. {self._go_on}"
                )
            )
        self.replay.asked(step_id)
        if known.status in FINISHED:
            self.replay.passed(step_id)
        return known

    def misfit(self, error: Exception) -> BaseException:
        """What is on record does not fit the code: what to raise. A run that is held stops here, whatever its code
        would make of the error."""
        if not self.stage.holds_misfits:
            return error
        self.stage.set_aside(error)
        return ExecutionStopped()

    def read(self, read: Callable[[str], T], text: str | None, step_id: str) -> T:
        """What is on record, as the type that the code has for it."""
        try:
            return read(text or "null")
        except (InvalidInput, PayloadError) as error:
            told = f"what is on record of {step_id} cannot be read: {error}. {self._go_on}"
            raise self.misfit(Misfit(told)) from error

    @property
    def _go_on(self) -> str:
        again = "resume" if self.stage.holds_misfits else "retry"
        return f"Deploy code that fits it; then: simpleworkflow runs {again} {self.stage.lease.id}"

    def is_written(self, place: str) -> bool:
        """Whether the code has written this call and not begun it yet."""
        return place in self.written or self.is_also_written(place)

    def record(self, step_id: str, kind: StepKind, status: StepStatus, **rest: Any) -> Record:
        lease = self.stage.lease
        return Record(lease.id, lease.epoch, step_id, kind, status, clears_suspicion=lease.crashes > 0, **rest)

    async def add(self, step_id: str, kind: StepKind, status: StepStatus, **rest: Any) -> None:
        """Put this on record; see `write`."""
        await self.write(self.record(step_id, kind, status, **rest))

    async def write(self, record: Record) -> None:
        """Returns when the record is durable; never when the run is no longer ours, or the race is lost."""
        if self.has_raced:
            if self.is_beaten(record.step_id):
                await self.never()
            if self.tickets and record.status in FINISHED:
                record = self._claim(record)
        stage = self.stage
        stage.begin_work()
        try:
            outcome = await stage.write(record)
        finally:
            stage.end_work()
        if outcome is not Outcome.DONE:
            stage.lose()
            await self.never()
        if (self.has_past or stage.kept) and record.status in FINISHED:
            stage.kept.pop(record.step_id, None)
            self.replay.is_new(record.step_id)
            if record.status is StepStatus.FAILED:
                self.replay.fails(record.step_id)

    async def never(self) -> None:
        """For calls whose outcome is no longer wanted: the code that awaits them is being stopped."""
        await asyncio.Event().wait()

    def is_beaten(self, step_id: str) -> bool:
        """Whether another contender of the same race has won already; then nothing of this one is written."""
        if not self.has_raced:
            return False
        branch = BRANCH.get()
        if branch is not None and branch.is_lost:
            return True
        while (ticket := self.tickets.get(step_id)) is not None:  # a race may be a contender of another one
            if ticket.is_lost_for(step_id):
                return True
            step_id = ticket.step_id
        return False

    def _claim(self, record: Record) -> Record:
        """The first to finish takes its race along, and the races around that: all of it is written together."""
        decided: tuple[Record, ...] = ()
        step_id = record.step_id
        while (ticket := self.tickets.get(step_id)) is not None and ticket.winner is None:
            decided += ticket.claim(ticket.places[step_id])
            step_id = ticket.step_id
        return taking_along(record, decided) if decided else record

    def encode(self, value: Any, what: str) -> str:
        return payload.encode(value, limit=self.stage.services.max_payload, what=what)

    # Time.

    def left(self, known: Step) -> float:
        if known.due_at is None:
            return 0.0
        return max((known.due_at - self.stage.now()).total_seconds(), 0.0)

    async def pass_time(self, step_id: str, left: float, *, record: Record | None, is_known: bool) -> None:
        if left < IN_MEMORY:
            await self.stage.nap(left)
        else:
            await self.wait(step_id, record=record, is_known=is_known, duration=left)

    async def wait(
        self,
        step_id: str,
        *,
        record: Record | None,
        is_known: bool,
        duration: float | None,
        signal: str | None = None,
        child_id: UUID | None = None,
    ) -> Any:
        """Block this branch; the run may be unwound meanwhile, and then this never returns.

        A wait of a run that stays resident is put on record after a moment: a crash must not start it anew.
        """
        stage = self.stage
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        due = None if duration is None else stage.clock.passed() + duration
        wait = Wait(future, step_id, record=record, is_known=is_known, due=due, signal=signal, child_id=child_id)
        timers = [] if duration is None else [stage.call_later(duration, lambda: resolve(future))]
        if record is not None:
            timers.append(stage.call_later(IN_MEMORY, lambda: stage.keep(wait)))
        self._warn_of_deadline(duration)
        if self.written or self.made.dropped:
            self.made.refuse_dropped(self.written)
        stage.waits[wait] = None
        stage.look_again()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and isinstance(future.result(), Signal):
                stage.post.give_back(future.result())
            stage.give_up(wait)
            raise
        finally:
            stage.waits.pop(wait, None)
            for timer in timers:
                timer.cancel()

    def _warn_of_deadline(self, duration: float | None) -> None:
        limit = self.stage.lease.deadline_in
        if duration is None or limit is None or self._warned or duration <= limit - self.stage.elapsed:
            return
        self._warned = True
        lease = self.stage.lease
        told = human(round(max(limit - self.stage.elapsed, 0.0), 3))
        log.warning(
            "run %s (%s) waits for %s, but its deadline is in %s",
            *(lease.id, lease.type, human(round(duration, 3)), told),
            extra=about(lease),
        )
