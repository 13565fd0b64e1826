"""Runs that wait for nothing are started in a task that they share; their code must not be able to tell."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.runtime.execute import Execution
from simpleworkflow.worker import intake

ONCE = swf.Retry(max_attempts=1)
SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


async def results(app: swf.App, handler: Any, inputs: list[Any], **options: Any) -> list[Any]:
    app.workflow("t.quick.v1", retry=ONCE)(handler)
    handles = await app.trigger_many("t.quick.v1", inputs)
    async with app.worker(**options):
        return await asyncio.gather(*(handle.result("20s") for handle in handles))


async def no_more_than_leased(app: swf.App, limit: int) -> None:
    """Until whatever was claimed ahead has gone back."""
    async with asyncio.timeout(10):
        while sum(count.runs for count in await app.activity.counts() if count.status == "leased") > limit:
            await asyncio.sleep(0.01)


async def test_context_variables_of_one_run_are_not_seen_by_the_next(app: swf.App) -> None:
    async def handler(ctx: swf.Context, number: int) -> str:
        before = SEEN.get()
        SEEN.set(str(number))
        return before

    assert await results(app, handler, list(range(30))) == ["nothing"] * 30


async def test_a_context_variable_survives_the_waits_of_its_own_run(app: swf.App) -> None:
    async def handler(ctx: swf.Context, number: int) -> list[str]:
        SEEN.set(f"run {number}")
        await asyncio.sleep(0.01)
        inner = await asyncio.create_task(told())
        await ctx.step("one", lambda: 1)
        return [SEEN.get(), inner]

    async def told() -> str:
        return SEEN.get()

    assert await results(app, handler, [1, 2, 3]) == [[f"run {n}", f"run {n}"] for n in (1, 2, 3)]


async def test_timeouts_and_task_groups_work_from_the_first_line_on(app: swf.App) -> None:
    async def handler(ctx: swf.Context, number: int) -> str:
        assert asyncio.current_task() is not None
        try:
            async with asyncio.timeout(0.02):
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "both"))
        return task.result()

    assert await results(app, handler, [1, 2, 3, 4]) == ["both"] * 4


async def test_a_run_that_cancels_its_own_task_stops_nobody_else(app: swf.App) -> None:
    calls: list[int] = []

    async def handler(ctx: swf.Context, number: int) -> int:
        calls.append(number)
        if number == 0 and calls.count(0) == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return number

    assert sorted(await results(app, handler, list(range(12)))) == list(range(12))
    assert all(calls.count(number) == 1 for number in range(1, 12))


async def test_an_error_in_one_run_is_not_the_next_ones(app: swf.App) -> None:
    async def handler(ctx: swf.Context, number: int) -> int:
        if number % 3 == 0:
            raise SystemExit("out")
        return number

    app.workflow("t.quick.v1", retry=ONCE)(handler)
    handles = await app.trigger_many("t.quick.v1", list(range(12)))
    async with app.worker():
        told = await asyncio.gather(*(handle.result("20s") for handle in handles), return_exceptions=True)
    assert [isinstance(one, swf.RunFailed) for one in told] == [n % 3 == 0 for n in range(12)]


async def test_runs_that_sometimes_wait_all_come_to_their_end(app: swf.App) -> None:
    async def handler(ctx: swf.Context, number: int) -> int:
        if number % 7 == 3:
            await asyncio.sleep(0.01)
        if number % 11 == 5:
            await ctx.step("one", lambda: number)
        return number

    assert await results(app, handler, list(range(300)), concurrency=5) == list(range(300))


async def test_runs_claimed_ahead_go_back_when_they_turn_out_to_wait(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ended at once until now, so many were claimed; with every slot taken the others are not kept from others."""
    monkeypatch.setattr(intake, "TURN", 0.0)  # one run per turn: the next claim comes while some are not started yet
    gate, waiting, most = asyncio.Event(), 0, 0

    @app.workflow("t.ahead.v1")
    async def ahead(ctx: swf.Context, number: int) -> None:
        nonlocal waiting, most
        if number < 40:
            return
        waiting += 1
        most = max(most, waiting)
        while not gate.is_set():
            await asyncio.sleep(0.01)
        waiting -= 1

    handles = await app.trigger_many(ahead, range(120))
    async with app.worker(concurrency=4):
        await eventually(lambda: waiting == 4)
        await no_more_than_leased(app, 4)
        assert most == 4
        gate.set()
        await asyncio.gather(*(handle.result("20s") for handle in handles))
    attempts = {(await handle.get()).attempt for handle in handles}
    assert attempts == {0}, "a hand-back burns nothing"


async def test_the_limit_holds_for_slow_runs_that_come_after_fast_ones(app: swf.App) -> None:
    """What was learnt about one type says nothing of another."""
    gate, now, most = asyncio.Event(), 0, 0

    @app.workflow("t.fast.v1")
    async def fast(ctx: swf.Context, number: int) -> None: ...

    @app.workflow("t.slow.v1")
    async def slow(ctx: swf.Context, number: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        while not gate.is_set():
            await asyncio.sleep(0.005)
        now -= 1

    handles: list[swf.RunHandle[Any]] = [*await app.trigger_many(fast, range(600), priority=10)]
    handles += await app.trigger_many(slow, range(40), priority=500)
    async with app.worker(concurrency=4):
        await eventually(lambda: now == 4)
        await no_more_than_leased(app, 4)
        assert most == 4
        gate.set()
        await asyncio.gather(*(handle.result("20s") for handle in handles))


async def test_what_a_run_left_behind_is_stopped_without_stopping_the_next_one(app: swf.App) -> None:
    left: list[asyncio.Task[Any]] = []

    async def handler(ctx: swf.Context, number: int) -> str:
        if number % 2 == 0:
            left.append(asyncio.create_task(asyncio.sleep(60)))
            return "left something"
        await asyncio.sleep(0.05)
        return "waited"

    app.workflow("t.quick.v1", retry=ONCE)(handler)
    handles = await app.trigger_many("t.quick.v1", range(10))
    async with app.worker():
        told = await asyncio.gather(*(handle.result("20s") for handle in handles))
    assert told == ["left something", "waited"] * 5
    assert all(task.cancelled() for task in left)


async def test_a_run_of_a_type_that_nobody_knows_yet_has_its_task_to_itself(app: swf.App) -> None:
    """State that libraries keep by task must not travel from run to run, where runs can await anything."""
    tasks: dict[str, list[object]] = {"t.a.v1": [], "t.b.v1": [], "t.c.v1": []}

    def add(name: str) -> None:
        @app.workflow(name)
        async def handler(ctx: swf.Context) -> None:
            tasks[name].append(asyncio.current_task())
            if name != "t.a.v1":
                await asyncio.sleep(0)

    for name in tasks:
        add(name)
    handles = [await app.trigger(name) for name in tasks for _ in range(3)]
    async with app.worker():
        await asyncio.gather(*(handle.result("20s") for handle in handles))
    waiting = tasks["t.b.v1"] + tasks["t.c.v1"]
    assert len({id(task) for task in waiting}) == 6
    assert not {id(task) for task in waiting} & {id(task) for task in tasks["t.a.v1"]}


class Unspeakable(Exception):
    __module__ = 5  # type: ignore[assignment]

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_error_that_cannot_be_described_ends_its_run_and_nothing_else(app: swf.App) -> None:
    async def handler(ctx: swf.Context, number: int) -> int:
        if number == 1:
            raise Unspeakable
        return number

    app.workflow("t.quick.v1", retry=ONCE)(handler)
    handles = await app.trigger_many("t.quick.v1", range(30))
    async with app.worker(concurrency=3):
        told = await asyncio.gather(*(handle.result("20s") for handle in handles), return_exceptions=True)
    assert isinstance(told[1], swf.RunFailed)
    assert [one for n, one in enumerate(told) if n != 1] == [n for n in range(30) if n != 1]


async def test_a_start_that_goes_wrong_does_not_stop_the_worker(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours, or of a library that we call, concerns one run for a moment."""
    real, broken = Execution.try_at_once, 2

    def sometimes(self: Execution) -> Any:
        nonlocal broken
        if broken:
            broken -= 1
            raise RuntimeError("a defect")
        return real(self)

    monkeypatch.setattr(Execution, "try_at_once", sometimes)

    async def handler(ctx: swf.Context, number: int) -> int:
        return number

    assert await results(app, handler, list(range(20)), concurrency=5) == list(range(20))
