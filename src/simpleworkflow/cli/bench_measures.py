"""The measures of `simpleworkflow bench`: what an operator's own database gives, on this machine, to one process.

Caller, engine and worker share one process here, as they do in a small installation, so the figures are a floor:
separate worker processes do better on a machine with free cores. Every clock starts when the first run starts, not
when the worker does, and stops when the database counts every run as done. A measure that did not do all of its work
raises: a rate of runs that failed would be worth nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..app import App
from ..clock import monotonic
from ..model.errors import StoreError
from ..model.states import Status
from ..runtime.context import Context
from ..runtime.registry import Workflow
from ..runtime.step import step
from ..store.operations.benchmark import wal_position

PREFIX = "bench."
PAYLOAD = {"order": 1, "note": "x" * 80}
"""About a hundred bytes, as small orders are."""
AT_ONCE = 50
WARM_UP = 20
SAMPLES = 200
BREATH = 0.01
"""Between two samples of the latency, so that each finds an idle worker."""
LOOK_EVERY = 0.02
PATIENCE = 120.0
"""How long nothing may move before a measure gives up."""
QUIET = 3.0
"""How long nothing may move before the database is asked whether it is there: a worker would wait for it patiently."""

Told = Callable[[str, int, int], None]
"""What is under way, how much of it is done, and how much it is in all."""


@dataclass(frozen=True, slots=True)
class Plan:
    runs: int = 5_000
    steps: int = 10

    @property
    def single(self) -> int:
        return max(1, self.runs // 10)

    @property
    def together(self) -> int:
        """A multiple of those who call at once."""
        return max(1, self.runs // 2 // AT_ONCE) * AT_ONCE

    @property
    def stepped(self) -> int:
        return max(1, self.runs // 10)

    @property
    def samples(self) -> int:
        return min(SAMPLES, max(2, self.runs // 10))


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so many seconds."""

    key: str
    title: str
    unit: str
    count: int
    seconds: float

    @property
    def value(self) -> float:
        return self.count / self.seconds

    def as_json(self) -> dict[str, Any]:
        return {"value": round(self.value, 1), **_without_key(self)}


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds."""

    key: str
    title: str
    unit: str
    count: int
    p50: float
    p99: float

    def as_json(self) -> dict[str, Any]:
        return _without_key(self)


@dataclass(frozen=True, slots=True)
class Amount:
    """So much for each."""

    key: str
    title: str
    unit: str
    count: int
    value: float

    def as_json(self) -> dict[str, Any]:
        return _without_key(self)


Figure = Rate | Latency | Amount


def _without_key(figure: Figure) -> dict[str, Any]:
    return {name: value for name, value in asdict(figure).items() if name != "key"}


class Seen:
    """What the handlers tell: in the worker's thread, read from ours. One writer, so no lock."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.calls = 0
        self.starts: dict[int, float] = {}

    def note(self) -> None:
        if self.first is None:
            self.first = monotonic()
        self.calls += 1


class Measures:
    """The workflows of the benchmark, on the App of its place."""

    def __init__(self, app: App, plan: Plan, told: Told) -> None:
        self._app = app
        self._plan = plan
        self._told = told
        self._seen = Seen()
        self._unserved = app.declare(f"{PREFIX}unserved.v1")  # accepted and left alone: the worker must not mix in
        self._noop = app.workflow(f"{PREFIX}noop.v1")(self._do_nothing)
        self._stepped = app.workflow(f"{PREFIX}steps.v1")(self._take_steps)
        self._probe = app.workflow(f"{PREFIX}probe.v1")(self._note_start)

    async def take(self) -> list[Figure]:
        await self._one_by_one(WARM_UP)
        return [
            await self._one_by_one(self._plan.single),
            await self._at_once(),
            *await self._latency(),
            *await self._bulk_and_drain(),
            await self._steps(),
        ]

    # Handlers; they run in the worker's thread.

    async def _do_nothing(self, ctx: Context, order: dict[str, Any]) -> None:
        self._seen.note()

    async def _take_steps(self, ctx: Context, order: dict[str, Any]) -> int:
        self._seen.note()
        total = 0
        for nth in range(order["steps"]):
            total += await ctx.step(one, nth)
        return total

    async def _note_start(self, ctx: Context, nth: int) -> None:
        self._seen.starts[nth] = monotonic()

    # What is measured.

    async def _one_by_one(self, count: int) -> Rate:
        title = "trigger, one by one"
        started = monotonic()
        for nth in range(count):
            await self._app.trigger(self._unserved, PAYLOAD)
            self._told(title, nth + 1, count)
        return Rate("trigger_single", title, "runs/s", count, monotonic() - started)

    async def _at_once(self) -> Rate:
        title, count = f"trigger, {AT_ONCE} at once", self._plan.together
        share = count // AT_ONCE

        async def caller() -> None:
            for _ in range(share):
                await self._app.trigger(self._unserved, PAYLOAD)

        started = monotonic()
        self._told(title, 0, count)
        async with asyncio.TaskGroup() as callers:
            for _ in range(AT_ONCE):
                callers.create_task(caller())
        return Rate("trigger_concurrent", title, "runs/s", count, monotonic() - started)

    async def _latency(self) -> tuple[Latency, Latency]:
        """One run at a time through an idle worker."""
        count = self._plan.samples
        starts, results = [], []
        async with self._app.worker(prefixes=[PREFIX]):
            for nth in range(-WARM_UP, count):
                await asyncio.sleep(BREATH)
                before = monotonic()
                handle = await self._app.trigger(self._probe, nth)
                await handle.result(PATIENCE)
                if nth >= 0:
                    results.append(monotonic() - before)
                    starts.append(self._seen.starts[nth] - before)
                    self._told("latency of an idle worker", nth + 1, count)
        return (
            Latency("latency_start", "idle, trigger → start", "ms", count, *_in_ms(starts)),
            Latency("latency_result", "idle, trigger → result", "ms", count, *_in_ms(results)),
        )

    async def _bulk_and_drain(self) -> list[Figure]:
        count = self._plan.runs
        log_before = await self._app._client.run(wal_position())
        title = "trigger, in bulk"
        self._told(title, 0, count)
        started = monotonic()
        await self._app.trigger_many(self._noop, [PAYLOAD] * count)
        bulk = Rate("trigger_bulk", title, "runs/s", count, monotonic() - started)
        title = "drain of no-op runs"
        drain = Rate("drain", title, "runs/s", count, await self._drained(self._noop, count, title))
        log_after = await self._app._client.run(wal_position())
        if log_before is None or log_after is None:
            return [bulk, drain]
        return [bulk, drain, Amount("wal", "write-ahead log", "bytes/run", count, (log_after - log_before) / count)]

    async def _steps(self) -> Rate:
        runs, steps = self._plan.stepped, self._plan.steps
        await self._app.trigger_many(self._stepped, [{**PAYLOAD, "steps": steps}] * runs)
        title = f"workflows of {steps} steps"
        return Rate("steps", title, "steps/s", runs * steps, await self._drained(self._stepped, runs, title))

    async def _drained(self, workflow: Workflow[Any, Any], runs: int, title: str) -> float:
        """Seconds from the first start until the database counts every run of it as succeeded."""
        seen = self._seen = Seen()
        moved = asked = monotonic()
        calls = 0
        async with self._app.worker(prefixes=[PREFIX]):
            while seen.calls < runs or await self._succeeded(workflow) < runs:
                await asyncio.sleep(LOOK_EVERY)
                self._told(title, min(seen.calls, runs), runs)
                if seen.calls != calls:
                    moved, calls = monotonic(), seen.calls
                elif monotonic() - moved > PATIENCE:
                    raise StoreError(f"{title}: only {calls} of {runs} runs were started; no figure is worth reporting")
                elif monotonic() - max(moved, asked) > QUIET:
                    await self._app.doctor.check()
                    asked = monotonic()
            ended = monotonic()
        assert seen.first is not None
        return ended - seen.first

    async def _succeeded(self, workflow: Workflow[Any, Any]) -> int:
        counts = await self._app.activity.counts()
        return sum(one.runs for one in counts if one.type == workflow.name and one.status is Status.SUCCEEDED)


@step()
async def one(nth: int) -> int:
    return 1


def _in_ms(samples: Sequence[float]) -> tuple[float, float]:
    return round(percentile(samples, 50) * 1000, 3), round(percentile(samples, 99) * 1000, 3)


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that so many per cent of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]
