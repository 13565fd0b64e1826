"""The environment of a test: one App, one worker, one database in memory, and time that moves only when told to.

Time is advanced in hops, from one instant at which something is due to the next, and between hops the worker gets all
the real time it needs to become quiet. So two sleeps of a day each pass within `advance("3 days")`, in order, and
nothing is judged late that had no chance to be early. Quiet means: nothing is due, and every run that is under way
waits for time or for somebody. A step body that has a timeout gets a moment of real time; if it is not over then, it is
taken to hang, and its timeout passes like any other time.
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ..app import App
from ..clock import ManualClock, from_micros, to_micros
from ..model.duration import Duration, seconds
from ..model.errors import InvalidInput, ResultTimeout
from ..model.states import CLAIMABLE
from ..runtime.context import Context
from ..runtime.registry import Workflow
from ..store.operations import leases, runs
from ..worker.embedded import EmbeddedWorker
from .serving import serving
from .stand_ins import StandIn, stand_in
from .stubs import Stub

T = TypeVar("T")

START = datetime(2030, 1, 1, tzinfo=UTC)
PATIENCE = 30.0
"""Real seconds that code may take between two instants before the test is told what it hangs on."""
BODY_PATIENCE = 0.5
SWEEP = 500


class Env:
    def __init__(self, app: App, clock: ManualClock, worker: EmbeddedWorker, stubs: ExitStack) -> None:
        self.app = app
        self._clock = clock
        self._worker = worker
        self._stubs = stubs

    @property
    def now(self) -> datetime:
        return from_micros(self._clock.wall())

    async def run(self, workflow: Any, input: Any = None, /, **options: Any) -> Any:
        """Trigger, skip all the time that the run waits, and return its output."""
        handle = await self.app.trigger(workflow, input, **options)
        await self.settle()
        while not (await handle.get()).is_finished:
            instant = await self._next_instant()
            if instant is None:
                raise ResultTimeout(f"no time will end this wait: {await handle.explain()}")
            await self._go_to(instant)
        return await handle.result()

    async def advance(self, duration: Duration) -> None:
        """Let so much time pass: whatever is due in it happens, in order, before this returns."""
        target = self._clock.wall() + round(seconds(duration, what="advance") * 1_000_000)
        await self.settle()
        while (instant := await self._next_instant()) is not None and instant <= target:
            await self._go_to(instant)
        await self._go_to(target)

    async def settle(self) -> None:
        """Return when everything that can happen without time passing has happened."""
        loop = asyncio.get_running_loop()
        deadline, hanging_since = loop.time() + PATIENCE, loop.time()
        self._worker.nudge()
        while not await self._stays_quiet():
            if not await self._is_quiet(but_for_bodies=True):
                hanging_since = loop.time()
            if loop.time() - hanging_since > BODY_PATIENCE:
                return
            if loop.time() > deadline:
                raise ResultTimeout(await self._what_hangs())
            await asyncio.sleep(0.002)

    def stub(
        self,
        target: Any,
        does: Callable[..., Any] | None = None,
        *,
        returns: Any = None,
        raises: BaseException | type[BaseException] | None = None,
    ) -> Stub:
        """Replace a step's function, or a whole workflow such as a child that lives in another service.

        `Bank.pay` is the method of every object of that class, `bank.pay` that of this object alone.
        """
        name = target.name if isinstance(target, Workflow) else getattr(target, "__name__", repr(target))
        stub = Stub(name, does, returns, raises)
        if isinstance(target, Workflow):
            self._stubs.enter_context(serving(self.app, _as_workflow(target, stub)))
        elif callable(target):
            standing = self._stubs.enter_context(stand_in(target, stub))
            self._stubs.callback(_mention_a_miss, standing)
        else:
            raise InvalidInput(f"a stub stands in for a step's function or a workflow, not for {target!r}")
        return stub

    async def _go_to(self, instant: int) -> None:
        self._clock.advance(max(instant - self._clock.wall(), 0) / 1_000_000)
        await self.app._client.run(leases.expire(limit=SWEEP))
        await self.settle()

    async def _stays_quiet(self) -> bool:
        """A timer that has rung, or a pause that is about to be written, is not seen by one look."""
        if not await self._is_quiet(but_for_bodies=False):
            return False
        await self._worker.turn()
        return await self._is_quiet(but_for_bodies=False)

    async def _is_quiet(self, *, but_for_bodies: bool) -> bool:
        standing = await self.app._client.run(runs.standing())
        now = self._clock.wall()
        for run in standing:
            waiting = run.status in CLAIMABLE
            if waiting and not run.is_held and self.app._client.serves(run.type) and _is_due(run.run_at, now):
                return False
            if not waiting and not self._worker.is_idle(run.id, run.wakes, but_for_bodies=but_for_bodies):
                return False
        return True

    async def _next_instant(self) -> int | None:
        """When something will be due next, of what is not due already."""
        instants = [self._clock.next_timer()]
        for run in await self.app._client.run(runs.standing()):
            if run.status in CLAIMABLE and not run.is_held and self.app._client.serves(run.type):
                instants.append(None if run.run_at is None else to_micros(run.run_at))
            instants += [to_micros(limit) for limit in (run.deadline_at, run.start_by) if limit is not None]
        return min(
            (instant for instant in instants if instant is not None and instant > self._clock.wall()), default=None
        )

    async def _what_hangs(self) -> str:
        open_runs = await self.app._client.run(runs.standing())
        sentences = [await self.app.explain(run.id) for run in open_runs[:3]]
        return f"something is still going on after {PATIENCE:.0f} s: " + "; ".join(sentences)


def _is_due(instant: datetime | None, now: int) -> bool:
    return instant is not None and to_micros(instant) <= now


def _as_workflow(target: Workflow[Any, Any], stub: Stub) -> Workflow[Any, Any]:
    async def stand(ctx: Context, *input: Any) -> Any:
        return await stub(*input)

    return replace(target, handler=stand, is_async=True)


def _mention_a_miss(standing: StandIn) -> None:
    """The object that was named is none that the workflow works with."""
    if standing.was_missed and not standing.is_used:
        method, owner = standing.target.__name__, standing.target.__self__
        of = owner if isinstance(owner, type) else type(owner)
        defining = next((one for one in of.__mro__ if method in vars(one)), of)
        warnings.warn(
            f"no call reached the stub of {of.__name__}.{method}: it stands for one object, and {method} of another "
            f"one has run for real; for the method of every object write env.stub({defining.__name__}.{method}, …)",
            stacklevel=2,
        )


class SyncEnv:
    """The same, blocking, for tests that are plain functions; an async test may use it too, as it may use app.sync."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.app = env.app.sync

    @property
    def now(self) -> datetime:
        return self._env.now

    def run(self, workflow: Any, input: Any = None, /, **options: Any) -> Any:
        """As `Env.run`."""
        return _block(self._env.run(workflow, input, **options))

    def advance(self, duration: Duration) -> None:
        """As `Env.advance`."""
        _block(self._env.advance(duration))

    def settle(self) -> None:
        """As `Env.settle`."""
        _block(self._env.settle())

    def stub(self, target: Any, does: Callable[..., Any] | None = None, **how: Any) -> Stub:
        """As `Env.stub`."""
        return self._env.stub(target, does, **how)


def _block(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: the caller's thread may have a running loop, as that of an async test has."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, work).result()


class env:  # noqa: N801 - reads as a function: `async with env(app) as env`
    """An App in a test: `async with env(app) as env:`, or plain `with`. Its own database is not touched."""

    def __init__(self, app: App, *, start: datetime = START) -> None:
        self._app = app
        self._clock = ManualClock(start)
        self._stack = ExitStack()

    if not TYPE_CHECKING:  # checkers would believe that it has every name

        def __getattr__(self, name: str) -> Any:
            if name in vars(Env) or name == "app":
                raise AttributeError(f"this environment is not open yet: with swf.testing.env(app) as env: env.{name}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _open(self) -> Env:
        with ExitStack() as stack:
            stack.enter_context(self._app._client.elsewhere(":memory:", clock=self._clock))
            stack.callback(self._app.sync.close)
            worker = stack.enter_context(self._app.worker(schedules=False))
            stubs = stack.enter_context(ExitStack())
            self._stack = stack.pop_all()
            return Env(self._app, self._clock, worker, stubs)

    async def __aenter__(self) -> Env:
        return await asyncio.to_thread(self._open)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)

    def __enter__(self) -> SyncEnv:
        return SyncEnv(self._open())

    def __exit__(self, *_: object) -> None:
        self._stack.close()
