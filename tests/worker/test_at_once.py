"""Runs that wait for nothing are started in a task that they share; their code must not be able to tell."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.worker import intake

ONCE = swf.Retry(max_attempts=1)
SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


async def results(app: swf.App, handler: Any, inputs: list[Any], **options: Any) -> list[Any]:
    app.workflow("t.quick.v1", retry=ONCE)(handler)
    handles = await app.trigger_many("t.quick.v1", inputs)
    async with app.worker(**options):
        return await asyncio.gather(*(handle.result("20s") for handle in handles))


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
        async with asyncio.timeout(10):
            while any(count.status == "leased" and count.runs > 4 for count in await app.counts()):
                await asyncio.sleep(0.02)
        assert most == 4
        gate.set()
        await asyncio.gather(*(handle.result("20s") for handle in handles))
    attempts = {(await handle.get()).attempt for handle in handles}
    assert attempts == {0}, "a hand-back burns nothing"
