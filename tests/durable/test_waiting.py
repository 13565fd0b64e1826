"""Waiting costs nothing, ends when it should, and misses nothing."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

LONG = "1100ms"


@dataclass
class Approval:
    by: str


async def until_paused(handle: swf.RunHandle[Any]) -> swf.Run:
    async with asyncio.timeout(10):
        while (run := await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
    return run


async def test_a_sleeping_run_is_paused_until_its_time(app: swf.App) -> None:
    @app.workflow("t.sleep.v1")
    async def handler(ctx: swf.Context) -> None:
        await ctx.sleep("1h")

    async with app.worker():
        handle = await app.trigger(handler)
        run = await until_paused(handle)
    assert run.run_at is not None
    assert run.lease_until is None
    assert 3590 < (run.run_at - run.updated_at).total_seconds() <= 3600


async def test_many_sleepers_need_few_slots_and_none_wakes_early(app: swf.App) -> None:
    @app.workflow("t.sleep.v1")
    async def handler(ctx: swf.Context) -> float:
        before = await ctx.now()
        await ctx.sleep("1500ms")
        return (await ctx.now() - before).total_seconds()

    async with app.worker(concurrency=5):
        handles = await app.trigger_many(handler, [None] * 200)
        slept = [await handle.result("30s") for handle in handles]
    assert min(slept) >= 1.5
    assert all([(await handle.get()).lease_epoch == 2 for handle in handles[:5]])


async def test_a_short_sleep_stays_in_memory(app: swf.App) -> None:
    @app.workflow("t.sleep.v1")
    async def handler(ctx: swf.Context) -> list[float]:
        before = await ctx.now()
        await ctx.sleep("200ms")
        return [(await ctx.now() - before).total_seconds(), ctx.epoch]

    async with app.worker():
        slept, epoch = await app.run(handler, timeout="10s")
    assert 0.2 <= slept < 1
    assert epoch == 1


async def test_a_run_sleeps_until_an_instant_and_refuses_one_without_a_zone(app: swf.App) -> None:
    @app.workflow("t.sleep.v1")
    async def handler(ctx: swf.Context, instant: datetime) -> bool:
        with pytest.raises(swf.InvalidWorkflow, match="time zone"):
            await ctx.sleep_until(instant.replace(tzinfo=None))
        await ctx.sleep_until(instant - timedelta(days=1))
        await ctx.sleep_until(instant)
        return await ctx.now() >= instant

    async with app.worker():
        assert await app.run(handler, datetime.now(UTC) + timedelta(seconds=1.5), timeout="10s")


async def test_a_sleep_beside_a_busy_branch_is_not_prolonged_by_it(app: swf.App) -> None:
    @app.workflow("t.sleep.v1")
    async def handler(ctx: swf.Context) -> list[float]:
        before = await ctx.now()

        async def nap(length: str) -> float:
            await ctx.sleep(length)
            return (await ctx.now() - before).total_seconds()

        slept, _ = await asyncio.gather(nap("2500ms"), ctx.step("busy", lambda: asyncio.sleep(1.2)))
        return [slept, ctx.epoch]

    async with app.worker():
        slept, epoch = await app.run(handler, timeout="10s")
    assert 2.5 <= slept < 3.4
    assert epoch == 2


async def test_a_sleep_of_a_resident_run_is_on_record_and_not_started_anew(app: swf.App) -> None:
    began: list[int] = []

    @app.workflow("t.sleep.v1")
    async def handler(ctx: swf.Context) -> float:
        before = await ctx.now()
        began.append(1)

        async def nap() -> float:
            await ctx.sleep("3s")
            return (await ctx.now() - before).total_seconds()

        napping = asyncio.create_task(nap())
        if len(began) == 1:
            await asyncio.sleep(60)
        return await napping

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: began)
        await asyncio.sleep(1.5)  # not blind: the law is about the time that a resident run has slept
    async with app.worker():
        assert 3 <= await handle.result("10s") < 4.2


async def test_signals_come_in_order_before_and_after_the_wait_begins(app: swf.App) -> None:
    @app.workflow("t.signal.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        first = await ctx.wait_for_signal("go")
        second = await ctx.wait_for_signal("go")
        other = await ctx.wait_for_signal("approved", Approval)
        return [first, second, repr(other), await ctx.wait_for_signal("go")]

    handle = await app.trigger(handler)
    await handle.signal("go", 1)
    await handle.signal("approved", Approval("ada"))
    await handle.signal("go", 2)
    async with app.worker():
        run = await until_paused(handle)
        assert run.run_at is None
        await handle.signal("go", 3)
        assert await handle.result("10s") == [1, 2, "Approval(by='ada')", 3]


async def test_two_branches_that_wait_for_one_name_get_one_signal_each(app: swf.App) -> None:
    @app.workflow("t.signal.v1")
    async def handler(ctx: swf.Context) -> list[int]:
        async def branch() -> int:
            got: int = await ctx.wait_for_signal("go")
            await ctx.step("use", lambda: got)
            return got

        return list(await asyncio.gather(branch(), branch(), branch()))

    for _ in range(5):
        async with app.worker():
            handle = await app.trigger(handler)
            for number in range(3):
                await handle.signal("go", number)
            assert await handle.result("10s") == [0, 1, 2]
        assert None not in {signal.consumed_at for signal in await handle.signals()}


async def test_a_wait_that_ran_out_of_time_is_remembered(app: swf.App) -> None:
    seen: list[str] = []

    @app.workflow("t.signal.v1")
    async def handler(ctx: swf.Context) -> Any:
        try:
            await ctx.wait_for_signal("go", timeout=LONG)
        except swf.SignalTimeout as error:
            seen.append(str(error))
        await ctx.sleep(LONG)
        return await ctx.wait_for_signal("go", timeout=0)

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(lambda: seen)
        await handle.signal("go", "late")
        assert await handle.result("10s") == "late"
    assert seen == ["no signal 'go' came within 1.1s"] * len(seen)
    assert len(seen) >= 2


async def test_a_signal_to_a_finished_or_unknown_run_is_refused_and_unconsumed_ones_are_listed(app: swf.App) -> None:
    @app.workflow("t.signal.v1")
    async def handler(ctx: swf.Context) -> Any:
        return await ctx.wait_for_signal("go")

    handle = await app.trigger(handler)
    await handle.signal("go", 1)
    await handle.signal("stray", 2)
    async with app.worker():
        assert await handle.result("10s") == 1
    with pytest.raises(swf.AlreadyFinished, match="'go' was not accepted"):
        await handle.signal("go", 3)
    with pytest.raises(swf.RunNotFound):
        await app.signal(uuid4(), "go")
    assert [(s.name, s.consumed_at is None) for s in await handle.signals()] == [
        ("go", False),
        ("stray", True),
    ]


async def test_no_signal_is_lost_between_a_wait_and_a_pause(app: swf.App) -> None:
    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[int]:
        return [await ctx.wait_for_signal("go"), await ctx.wait_for_signal("go")]

    chance = random.Random(7)

    async def one() -> None:
        handle = await app.trigger(handler)
        for number in (1, 2):
            await asyncio.sleep(chance.choice([0.0, chance.random() * 0.02, chance.random() * 0.1]))
            await handle.signal("go", number)
        assert await handle.result("20s") == [1, 2]

    async with app.worker(concurrency=10):
        for _ in range(15):
            await asyncio.gather(*(one() for _ in range(20)))


async def test_a_branch_that_waits_for_something_else_keeps_the_run_resident(app: swf.App) -> None:
    @app.workflow("t.resident.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        async def socket() -> int:
            await asyncio.sleep(0.4)
            return ctx.epoch

        async def signal() -> Any:
            return await ctx.wait_for_signal("go")

        return list(await asyncio.gather(socket(), signal()))

    async with app.worker():
        handle = await app.trigger(handler)
        await until_paused(handle)
        await handle.signal("go", "gone")
        assert await handle.result("10s") == [2, "gone"]
        handle = await app.trigger(handler)
        await handle.signal("go", "at once")
        assert await handle.result("10s") == [1, "at once"]


@pytest.mark.parametrize("spelling", ["timeout", "wait_for", "wait"])
async def test_a_timeout_of_asyncio_around_a_durable_wait_fires(app: swf.App, spelling: str) -> None:
    @app.workflow("t.resident.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        try:
            if spelling == "timeout":
                async with asyncio.timeout(0.3):
                    await ctx.wait_for_signal("never")
            elif spelling == "wait_for":
                await asyncio.wait_for(ctx.wait_for_signal("never"), 0.3)
            else:
                task = asyncio.create_task(ctx.wait_for_signal("never"))
                await asyncio.wait({task}, timeout=0.3)
                task.cancel()
                raise TimeoutError
        except TimeoutError:
            return ["out of time", ctx.epoch]
        return []

    async with app.worker():
        assert await app.run(handler, timeout="10s") == ["out of time", 1]


async def test_branches_that_meet_in_memory_stay_there_and_meet(app: swf.App) -> None:
    """Nobody can tell whether a lock or a queue is shared with other runs, so such a run is not unwound."""

    @app.workflow("t.meet.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        lock, event, queue = asyncio.Lock(), asyncio.Event(), asyncio.Queue[str]()

        async def holder() -> str:
            async with lock:
                await ctx.sleep(LONG)
                await queue.put(await ctx.wait_for_signal("go"))
            event.set()
            return "held"

        async def follower() -> str:
            async with lock:
                return "followed"

        async def waiter() -> str:
            await event.wait()
            return await queue.get()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work()) for work in (holder, follower, waiter)]
        done, _ = await asyncio.wait(tasks)
        return [*(task.result() for task in tasks), len(done), ctx.epoch]

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.signal("go", "word")
        assert await handle.result("10s") == ["held", "followed", "word", 3, 1]


async def test_cleaning_up_runs_at_suspension_and_durable_calls_there_raise(app: swf.App) -> None:
    log: list[str] = []

    class Resource:
        async def __aenter__(self) -> None:
            log.append("open")

        async def __aexit__(self, *_: object) -> None:
            log.append("close")

    @app.workflow("t.clean.v1")
    async def handler(ctx: swf.Context) -> str:
        async with Resource():
            try:
                await ctx.sleep(LONG)
            finally:
                try:
                    await ctx.step("tidy", lambda: log.append("tidy"))
                except BaseException as error:
                    log.append(type(error).__name__)
                    raise
        return "ended"

    async with app.worker():
        assert await app.run(handler, timeout="10s") == "ended"
    assert log == ["open", "ExecutionStopped", "close", "open", "tidy", "close"]


async def test_a_signal_that_a_cancelled_wait_had_taken_goes_to_the_next(app: swf.App) -> None:
    ready: list[int] = []

    @app.workflow("t.giveback.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        first = asyncio.create_task(ctx.wait_for_signal("go"))
        post: Any = ctx._stage.post  # type: ignore[attr-defined]
        deliver = post.hear

        def hear_and_cancel(*news: Any) -> None:
            deliver(*news)
            first.cancel()  # after the delivery, before the waiting task has run again

        post.hear = hear_and_cancel
        while not first.done():
            ready.append(1)
            await asyncio.sleep(0.01)
        return [first.cancelled(), await ctx.wait_for_signal("go", timeout="5s")]

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(lambda: len(ready) > 1)
        await handle.signal("go", 1)
        assert await handle.result("10s") == [True, 1]
