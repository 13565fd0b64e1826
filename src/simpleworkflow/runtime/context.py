"""What a handler holds: who it is, how to ask for more time, how to learn that it should stop.

`Context` for `async def`, `SyncContext` for `def`: the same names, awaited or blocking.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

from ..model.duration import Duration, seconds
from ..model.errors import InvalidWorkflow
from ..model.policies import OnSignalMisfit
from ..model.schedule import ScheduledSlot, slot_of
from . import tracing
from .branches import IN_STEP
from .heartbeat import heartbeat, heartbeat_blocking
from .labels import about

if TYPE_CHECKING:
    from .durable.calls import DurableCalls
    from .durable.races import RaceResult
    from .execute import Execution
    from .registry import Workflow

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

Coro = Coroutine[Any, Any, T]
"""A durable call takes its identity where it is written, so that it may be awaited anywhere."""


class _RunLog(logging.LoggerAdapter[logging.Logger]):
    durable: DurableCalls

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """The caller's own extra=, then ours: a line can always be found by its run."""
        body, ids = IN_STEP.get(), tracing.current_ids()
        step = {} if body is None else {"step": body.step_id}
        trace = {} if ids is None else {"trace_id": ids[0], "span_id": ids[1]}
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {}), **step, **trace}
        return msg, kwargs

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's own name
        return not self.durable.is_replaying() and super().isEnabledFor(level)


class _Identity:
    def __init__(self, stage: Execution) -> None:
        self._stage = stage
        self._log: _RunLog | None = None

    @property
    def run_id(self) -> UUID:
        return self._stage.lease.id

    @property
    def type(self) -> str:
        return self._stage.lease.type

    @property
    def attempt(self) -> int:
        """How many executions of this run have failed before: 0 the first time."""
        return self._stage.lease.attempt

    @property
    def max_attempts(self) -> int:
        return self._stage.lease.max_attempts

    @property
    def epoch(self) -> int:
        """The fencing token: it grows with every execution; pass it on to systems that can refuse an older one."""
        return self._stage.lease.epoch

    @property
    def idempotency_key(self) -> str | None:
        return self._stage.lease.idempotency_key

    @property
    def schedule(self) -> ScheduledSlot | None:
        """The schedule and the slot that this run was started for; None when something else started it."""
        return slot_of(self._stage.lease.idempotency_key)

    def is_cancelled(self) -> bool:
        """Whether this execution should stop: cancelled, lost, out of time, or the worker is shutting down."""
        return self._stage.is_stopping()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that knows the run, and is silent while the code only repeats what it did before."""
        if self._log is None:
            extra = about(self._stage.lease, worker=self._stage.services.worker)
            self._log = _RunLog(logging.getLogger(f"simpleworkflow.run.{self.type}"), extra)
            self._log.durable = self._stage.durable
        return self._log

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type} {self.run_id}>"


class Context(_Identity):
    """The first parameter of an `async def` workflow."""

    async def heartbeat(self, lease: Duration = 30) -> None:
        """Prolong the lease to at least this long from now, and leave a line in the audit trail.

        Leases are renewed without your help; ask only when the trail should show that the work is alive. Does not
        return when the run is no longer ours: the execution is being stopped.
        """
        await heartbeat(self._stage, seconds(lease, what="heartbeat"))

    @overload
    def step(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Coro[R]: ...
    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coro[R]: ...
    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Coro[R]: ...
    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coro[R]: ...
    def step(self, first: Any, /, *args: Any, **kwargs: Any) -> Coro[Any]:
        """Run a function once for good: its outcome is remembered, and returned without running it ever after."""
        return self._stage.durable.steps.step(first, args, kwargs)

    def sleep(self, duration: Duration) -> Coro[None]:
        """Go on after so long; the wait costs neither memory nor a slot, and survives everything."""
        return self._stage.durable.timers.sleep(duration)

    def sleep_until(self, instant: datetime) -> Coro[None]:
        """Go on at that instant."""
        return self._stage.durable.timers.sleep_until(instant)

    @overload
    def wait_for_signal(
        self, name: str, /, *, timeout: Duration | None = None, on_misfit: OnSignalMisfit = "raise"
    ) -> Coro[Any]: ...
    @overload
    def wait_for_signal(
        self, name: str, as_type: type[R], /, *, timeout: Duration | None = None, on_misfit: OnSignalMisfit = "raise"
    ) -> Coro[R]: ...
    def wait_for_signal(
        self, name: str, as_type: Any = Any, /, *, timeout: Duration | None = None, on_misfit: OnSignalMisfit = "raise"
    ) -> Coro[Any]:
        """The next signal of that name, whether it came before or comes later; SignalTimeout when none does.

        on_misfit: a signal that does not fit the type raises InvalidInput, or is put on record and skipped ("skip").
        """
        return self._stage.durable.signals.wait_for_signal(name, as_type, timeout, on_misfit)

    @overload
    def trigger(self, workflow: Workflow[None, O], /, *, key: str | None = None) -> Coro[ChildHandle[O]]: ...
    @overload
    def trigger(self, workflow: Workflow[I, O], input: I, /, *, key: str | None = None) -> Coro[ChildHandle[O]]: ...
    @overload
    def trigger(self, workflow: str, input: Any = None, /, *, key: str | None = None) -> Coro[ChildHandle[Any]]: ...
    def trigger(self, workflow: Any, input: Any = None, /, *, key: str | None = None) -> Coro[ChildHandle[Any]]:
        """Start a child run on any worker that serves its type; it is started once, however often this code runs."""
        memo, children = self._stage.durable.memo, self._stage.durable.children
        if memo.is_refused:
            return memo.refuse()
        child, place = children.prepare(workflow, input, key)

        async def started() -> ChildHandle[Any]:
            await children.start(child, place)
            return ChildHandle(self._stage, child.id, children.target(workflow).output_type)

        return memo.at(place, started(), f"trigger({child.type})")

    @overload
    def run(self, workflow: Workflow[None, O], /, *, key: str | None = None) -> Coro[O]: ...
    @overload
    def run(self, workflow: Workflow[I, O], input: I, /, *, key: str | None = None) -> Coro[O]: ...
    @overload
    def run(self, workflow: str, input: Any = None, /, *, key: str | None = None) -> Coro[Any]: ...
    def run(self, workflow: Any, input: Any = None, /, *, key: str | None = None) -> Coro[Any]:
        """Start a child run and wait for its result; RunFailed, RunCancelled or RunTimedOut when it ends otherwise."""
        return self._stage.durable.children.run(workflow, input, key)

    def scope(self, name: str, *, key: str | None = None) -> AbstractContextManager[None]:
        """Durable calls in there have places of their own, whatever tasks a library makes: `with ctx.scope("agent"):`.

        Calls are counted per name in the order in which they are made; tasks that make calls side by side give each a
        key, or open a scope with a key each.
        """
        return self._stage.durable.memo.scope(name, key)

    @overload
    def race(self, a: Coro[A], b: Coro[B], /) -> Coro[RaceResult[A | B]]: ...
    @overload
    def race(self, a: Coro[A], b: Coro[B], c: Coro[C], /) -> Coro[RaceResult[A | B | C]]: ...
    @overload
    def race(self, a: Coro[A], b: Coro[B], c: Coro[C], d: Coro[D], /) -> Coro[RaceResult[A | B | C | D]]: ...
    @overload
    def race(self, *calls: Coro[T]) -> Coro[RaceResult[T]]: ...
    def race(self, *calls: Coro[Any]) -> Coro[RaceResult[Any]]:
        """The first of several calls: `first = await ctx.race(ctx.wait_for_signal("paid"), ctx.sleep("3 days"))`.

        `first.index` says which, `first.value` what it returned. Decided once, the same on every replay; the others
        are stopped, and a child run that ctx.run had started for it is cancelled.
        """
        return self._stage.durable.races.race(calls)

    def emit(self, event_type: str, data: Any = None, /) -> Coro[None]:
        """Hand an event to the outbox, once, in the transaction that remembers it."""
        return self._stage.durable.telling.emit(event_type, data)

    def set_value(self, name: str, value: Any, /) -> Coro[None]:
        """Show a value to others: `await handle.get_value("progress")`. The newest one counts."""
        return self._stage.durable.telling.set_value(name, value)

    def now(self) -> Coro[datetime]:
        """The time, the same on every replay."""
        return self._stage.durable.values.now()

    def uuid(self) -> UUID:
        """A UUID that is the same on every replay."""
        return self._stage.durable.values.uuid()

    def random(self) -> float:
        """A number in [0, 1) that is the same on every replay."""
        return self._stage.durable.values.random()


Contender = Callable[[Context], Coro[T]]
"""What a plain def gives to a race: a function that makes the call when it is told to."""


class ChildHandle(Generic[O]):
    """A child run, held by its parent."""

    def __init__(self, stage: Execution, run_id: UUID, output_type: Any) -> None:
        self.id = run_id
        self._stage = stage
        self._output_type = output_type

    def result(self) -> Coro[O]:
        """Wait durably for the child and return its output; RunFailed and its kin when it ends otherwise."""
        return self._stage.durable.children.child_result(self.id, self._output_type)


class SyncChildHandle(Generic[O]):
    """A child run, held by its blocking parent."""

    def __init__(self, stage: Execution, run_id: UUID, output_type: Any) -> None:
        self.id = run_id
        self._stage = stage
        self._output_type = output_type

    def result(self) -> O:
        """As `ChildHandle.result`."""
        output: O = self._stage.block(lambda: self._stage.durable.children.child_result(self.id, self._output_type))
        return output


class SyncContext(_Identity):
    """The first parameter of a plain `def` workflow, which runs in a thread."""

    def heartbeat(self, lease: Duration = 30) -> None:
        """As `Context.heartbeat`; raises ExecutionStopped when the run is no longer ours."""
        heartbeat_blocking(self._stage, seconds(lease, what="heartbeat"))

    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, first: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As `Context.step`."""
        return self._stage.block(lambda: self._stage.durable.steps.step(first, args, kwargs))

    def sleep(self, duration: Duration) -> None:
        """As `Context.sleep`; unwinds this thread when the wait is long."""
        self._stage.block(lambda: self._stage.durable.timers.sleep(duration))

    def sleep_until(self, instant: datetime) -> None:
        """As `Context.sleep_until`."""
        self._stage.block(lambda: self._stage.durable.timers.sleep_until(instant))

    def wait_for_signal(
        self, name: str, as_type: Any = Any, /, *, timeout: Duration | None = None, on_misfit: OnSignalMisfit = "raise"
    ) -> Any:
        """As `Context.wait_for_signal`."""
        return self._stage.block(lambda: self._stage.durable.signals.wait_for_signal(name, as_type, timeout, on_misfit))

    def run(self, workflow: Any, input: Any = None, /, *, key: str | None = None) -> Any:
        """As `Context.run`."""
        return self._stage.block(lambda: self._stage.durable.children.run(workflow, input, key))

    def trigger(self, workflow: Any, input: Any = None, /, *, key: str | None = None) -> SyncChildHandle[Any]:
        """As `Context.trigger`."""

        async def started() -> UUID:
            children = self._stage.durable.children
            child, place = children.prepare(workflow, input, key)
            await children.start(child, place)
            return child.id

        child_id = self._stage.block(started)
        return SyncChildHandle(self._stage, child_id, self._stage.durable.children.target(workflow).output_type)

    def scope(self, name: str, *, key: str | None = None) -> AbstractContextManager[None]:
        """As `Context.scope`."""
        return self._stage.durable.memo.scope(name, key)

    @overload
    def race(self, a: Contender[A], b: Contender[B], /) -> RaceResult[A | B]: ...
    @overload
    def race(self, a: Contender[A], b: Contender[B], c: Contender[C], /) -> RaceResult[A | B | C]: ...
    @overload
    def race(
        self, a: Contender[A], b: Contender[B], c: Contender[C], d: Contender[D], /
    ) -> RaceResult[A | B | C | D]: ...
    @overload
    def race(self, *calls: Contender[T]) -> RaceResult[T]: ...
    def race(self, *calls: Contender[Any]) -> RaceResult[Any]:
        """As `Context.race`, with functions of an async context: `ctx.race(lambda c: c.sleep("1h"), ...)`."""
        stage = self._stage
        if not all(callable(call) for call in calls):
            raise InvalidWorkflow("in a plain def, race takes functions: ctx.race(lambda c: c.sleep('1h'), …)")
        return stage.block(lambda: stage.durable.races.race([call(Context(stage)) for call in calls]))

    def emit(self, event_type: str, data: Any = None, /) -> None:
        """As `Context.emit`."""
        self._stage.block(lambda: self._stage.durable.telling.emit(event_type, data))

    def set_value(self, name: str, value: Any, /) -> None:
        """As `Context.set_value`."""
        self._stage.block(lambda: self._stage.durable.telling.set_value(name, value))

    def now(self) -> datetime:
        """As `Context.now`."""
        return self._stage.block(self._stage.durable.values.now)

    def uuid(self) -> UUID:
        """As `Context.uuid`."""
        return self._stage.durable.values.uuid()

    def random(self) -> float:
        """As `Context.random`."""
        return self._stage.durable.values.random()
