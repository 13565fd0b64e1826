"""A step whose body ends by a CancelledError of its own has failed like any other; one that was stopped from outside
has not, and leaves no record."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import pytest

import simpleworkflow as swf

THRICE = swf.Retry(max_attempts=3, initial="1ms", max_delay="1ms")
ONCE = swf.Retry(max_attempts=1)

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    ran.clear()


async def awaits_a_cancelled_task() -> None:
    """As a library does whose connection was closed."""
    ran.append("async")
    other = asyncio.create_task(asyncio.sleep(60))
    other.cancel()
    await other


def runs_a_loop_that_is_cancelled() -> None:
    ran.append("thread")
    raise asyncio.CancelledError("from a loop of its own")


def asks_a_future_that_is_cancelled() -> None:
    ran.append("future")
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    future.cancel()
    future.result()


BODIES = [awaits_a_cancelled_task, runs_a_loop_that_is_cancelled, asks_a_future_that_is_cancelled]


@pytest.mark.parametrize("timeout", [None, "60s"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
async def test_a_step_that_ends_by_a_cancellation_of_its_own_fails_after_its_attempts_once_for_good(
    app: swf.App, body: Any, timeout: str | None
) -> None:
    step = swf.step(retry=THRICE, timeout=timeout)(body)

    @app.workflow("t.own.v1", retry=ONCE)
    async def own(ctx: swf.Context) -> list[str]:
        [beside] = await asyncio.gather(ctx.step(step), return_exceptions=True)
        assert isinstance(beside, swf.StepFailed)
        await ctx.sleep("1100ms")
        return [beside.error["type"], str(beside.is_a("CancelledError"))]

    async with app.worker():
        handle = await app.trigger(own)
        assert await handle.result("15s") == ["CancelledError", "True"]
        [recorded] = [one for one in await handle.steps() if one.kind == "step"]
    assert len(ran) == 3
    assert (recorded.status, recorded.attempt) == ("failed", 3)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
async def test_a_plain_workflow_can_catch_it_as_a_failed_step(app: swf.App, body: Any) -> None:
    @app.workflow("t.plain.v1", retry=ONCE)
    def plain(ctx: swf.SyncContext) -> str:
        try:
            ctx.step(swf.step(retry=THRICE)(body))
        except swf.StepFailed as error:
            return str(error.error["type"])
        return ""

    async with app.worker():
        assert await app.run(plain, timeout="10s") == "CancelledError"
    assert len(ran) == 3


async def is_cancelled(ctx: swf.Context, step: Any, began: asyncio.Event) -> None:
    task = asyncio.create_task(ctx.step(step))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancels_itself(ctx: swf.Context, step: Any, began: asyncio.Event) -> None:
    async def itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await ctx.step(step)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(itself())


async def runs_out_of_time(ctx: swf.Context, step: Any, began: asyncio.Event) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ctx.step(step)


async def is_waited_for_no_longer(ctx: swf.Context, step: Any, began: asyncio.Event) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ctx.step(step), 0.05)


async def loses_a_race(ctx: swf.Context, step: Any, began: asyncio.Event) -> None:
    assert (await ctx.race(ctx.step(step), ctx.sleep("50ms"))).index == 1


async def is_in_a_group_that_fails(ctx: swf.Context, step: Any, began: asyncio.Event) -> None:
    async def fail() -> None:
        await began.wait()
        raise LookupError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await ctx.step(step)


STOPPED = [
    is_cancelled,
    cancels_itself,
    runs_out_of_time,
    is_waited_for_no_longer,
    loses_a_race,
    is_in_a_group_that_fails,
]


@pytest.mark.parametrize("timeout", [None, "60s"])
@pytest.mark.parametrize("stopped", STOPPED, ids=lambda stopped: stopped.__name__)
async def test_a_step_that_the_code_around_it_stops_has_not_failed_and_leaves_no_record(
    app: swf.App, stopped: Any, timeout: str | None
) -> None:
    began = asyncio.Event()

    async def long() -> None:
        ran.append("long")
        began.set()
        await asyncio.sleep(60)

    @app.workflow("t.stopped.v1", retry=ONCE)
    async def flow(ctx: swf.Context) -> None:
        await stopped(ctx, swf.step(retry=THRICE, timeout=timeout)(long), began)

    async with app.worker():
        handle = await app.trigger(flow)
        await handle.result("15s")
        assert [one for one in await handle.steps() if one.kind == "step"] == []
    assert ran in (["long"], [])


async def test_a_run_that_is_cancelled_leaves_no_record_of_the_step_that_it_stops(app: swf.App) -> None:
    began = asyncio.Event()

    @swf.step(retry=THRICE)
    async def long() -> None:
        ran.append("long")
        began.set()
        await asyncio.sleep(60)

    @app.workflow("t.run.v1", retry=ONCE)
    async def flow(ctx: swf.Context) -> None:
        await long()

    async with app.worker():
        handle = await app.trigger(flow)
        await asyncio.wait_for(began.wait(), 10)
        await handle.cancel()
        with pytest.raises(swf.RunCancelled):
            await handle.result("10s")
    assert await handle.steps() == []
    assert ran == ["long"]
