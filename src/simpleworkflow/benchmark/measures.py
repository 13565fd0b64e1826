"""The measures of the benchmark: what the operator's database gives, on this machine, to one process.

Caller, engine and worker share one process, as in a small installation, so the figures are a floor: separate worker
processes do better where there are free cores. A clock starts when the first run starts, and stops when the database
counts every run as succeeded. A measure that did not do all of its work raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..app import App
from ..clock import monotonic
from ..model.errors import StoreError
from ..model.states import Status
from ..runtime.context import Context
from ..runtime.registry import Workflow
from ..runtime.step import step
from ..store.operations.benchmark import wal_position
from ..store.operations.health import durability
from .figures import Amount, Figure, Latency, Rate, latency
from .place import Place
from .plan import AT_ONCE, Plan

PREFIX = "bench."
PAYLOAD = {"order": 1, "note": "x" * 80}
"""About a hundred bytes."""
WARM_UP = 20
PAUSE = 0.01
"""Between two samples of the latency, so that each finds an idle worker."""
LOOK_EVERY = 0.02
GIVE_UP_AFTER = 120.0
"""How long nothing may move before a measure gives up."""
QUIET = 3.0
"""How long nothing may move before the database is checked: a worker alone would wait for it for ever."""

OnProgress = Callable[[str, int, int], None]
"""Called with the title of the measure, how much of it is done, and how much there is in all."""


async def take(place: Place, plan: Plan, on_progress: OnProgress) -> tuple[dict[str, str], list[Figure]]:
    """(the settings of the database that the figures depend on, every figure)."""
    settings = {setting.name: setting.value for setting in await place.app._client.run(durability())}
    return settings, await Measures(place.app, plan, on_progress).take()


class Seen:
    """What the handlers have noted. The worker's thread writes and ours reads: one writer, so no lock."""

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

    def __init__(self, app: App, plan: Plan, on_progress: OnProgress) -> None:
        self._app = app
        self._plan = plan
        self._on_progress = on_progress
        self._seen = Seen()
        self._unserved = app.declare(f"{PREFIX}unserved.v1")  # has no handler, so the worker leaves it alone
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
            self._on_progress(title, nth + 1, count)
        return Rate("trigger_single", title, "runs/s", count, monotonic() - started)

    async def _at_once(self) -> Rate:
        title, count = f"trigger, {AT_ONCE} at once", self._plan.together
        share = count // AT_ONCE

        async def caller() -> None:
            for _ in range(share):
                await self._app.trigger(self._unserved, PAYLOAD)

        started = monotonic()
        self._on_progress(title, 0, count)
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
                await asyncio.sleep(PAUSE)
                before = monotonic()
                handle = await self._app.trigger(self._probe, nth)
                await handle.result(GIVE_UP_AFTER)
                if nth >= 0:
                    results.append(monotonic() - before)
                    starts.append(self._seen.starts[nth] - before)
                    self._on_progress("latency of an idle worker", nth + 1, count)
        return (
            latency("latency_start", "idle, trigger → start", starts),
            latency("latency_result", "idle, trigger → result", results),
        )

    async def _bulk_and_drain(self) -> list[Figure]:
        count = self._plan.runs
        log_before = await self._app._client.run(wal_position())
        title = "trigger, in bulk"
        self._on_progress(title, 0, count)
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
                self._on_progress(title, min(seen.calls, runs), runs)
                if seen.calls != calls:
                    moved, calls = monotonic(), seen.calls
                elif monotonic() - moved > GIVE_UP_AFTER:
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
