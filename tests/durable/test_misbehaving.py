"""Code that catches everything, returns the wrong type, or is told the wrong thing: defined outcomes, nobody harmed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

ONCE = swf.Retry(max_attempts=1)


async def until(handle: swf.RunHandle[Any], status: Status) -> swf.Run:
    async with asyncio.timeout(10):
        while (run := await handle.get()).status is not status:
            await asyncio.sleep(0.01)
    return run


async def test_a_handler_that_catches_everything_and_tries_again_does_not_freeze_its_worker(app: swf.App) -> None:
    turns: list[int] = []

    @app.workflow("t.spin.v1")
    async def spin(ctx: swf.Context) -> None:
        while len(turns) < 100_000:
            turns.append(1)
            try:
                await ctx.wait_for_signal("never")
            except BaseException:
                continue

    @app.workflow("t.ok.v1")
    async def ok(ctx: swf.Context) -> int:
        return 1

    async with app.worker():
        handle = await app.trigger(spin)
        await eventually(lambda: len(turns) > 3, "it has been asked to stop")
        assert await app.run(ok, timeout="10s") == 1
        await handle.cancel()
        turns.extend([1] * 100_000)


async def test_a_result_that_does_not_fit_its_annotation_fails_the_run_and_says_so(app: swf.App) -> None:
    @app.workflow("t.wrong.v1")
    async def wrong(ctx: swf.Context) -> int:
        return "a word"  # type: ignore[return-value]

    async with app.worker():
        handle = await app.trigger(wrong)
        with pytest.raises(swf.RunFailed, match="its result does not fit its annotation"):
            await handle.result("10s")
    assert (await handle.get()).attempt == 1


async def test_a_signal_of_the_wrong_type_fails_the_wait_and_a_retry_waits_for_another(app: swf.App) -> None:
    @app.workflow("t.typed.v1")
    async def typed(ctx: swf.Context) -> int:
        return await ctx.wait_for_signal("n", int)

    async with app.worker():
        handle = await app.trigger(typed)
        await handle.signal("n", "typo")
        with pytest.raises(swf.RunFailed, match="signal n"):
            await handle.result("10s")
        assert all(signal.consumed_at for signal in await handle.signals())
        await handle.retry()
        await until(handle, Status.PAUSED)
        await handle.signal("n", 7)
        assert await handle.result("10s") == 7


async def test_a_handler_may_catch_a_signal_of_the_wrong_type_and_takes_the_same_path_on_replay(app: swf.App) -> None:
    @app.workflow("t.typed.v1")
    async def typed(ctx: swf.Context) -> list[int]:
        told = []
        for _ in range(2):
            try:
                told.append(await ctx.wait_for_signal("n", int))
            except swf.InvalidInput:
                told.append(-1)
        await ctx.sleep("1100ms")
        return told

    async with app.worker():
        handle = await app.trigger(typed)
        await handle.signal("n", "typo")
        await handle.signal("n", 7)
        assert await handle.result("10s") == [-1, 7]


async def test_a_child_that_lost_a_race_is_cancelled_and_one_with_a_handle_is_not(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    @app.workflow("t.race.v1")
    async def race(ctx: swf.Context) -> list[Any]:
        kept = await ctx.trigger(child)
        first = await ctx.race(ctx.run(child), kept.result(), ctx.wait_for_signal("go"))
        await ctx.sleep("1100ms")
        return [first.index, str(kept.id)]

    async with app.worker():
        handle = await app.trigger(race)
        await until(handle, Status.PAUSED)
        await handle.signal("go")
        index, kept = await handle.result("10s")
        assert index == 2
        states = {str(run.id): run.status async for run in app.runs(type="t.child.v1")}
    assert len(states) == 2
    assert states.pop(kept) is Status.PAUSED
    assert set(states.values()) == {Status.CANCELLED}


async def test_a_paused_run_says_what_it_waits_for(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("approved")

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> None:
        await asyncio.gather(ctx.run(child), ctx.sleep("1h"))

    async with app.worker():
        handle = await app.trigger(parent)
        await until(handle, Status.PAUSED)
        (below,) = [run async for run in app.runs(type="t.child.v1")]
        await until(app.handle(below.id), Status.PAUSED)
        told = await handle.explain()
        assert f"child run {below.id}" in told
        assert "(a sleep)" in told
        assert "waits for signal 'approved' since" in await app.explain(below.id)


async def test_a_parent_that_catches_a_childs_failure_learns_its_type(app: swf.App) -> None:
    @app.workflow("t.child.v1", retry=ONCE)
    async def child(ctx: swf.Context) -> None:
        raise KeyError("no such parcel")

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[str]:
        try:
            await ctx.run(child)
        except swf.RunFailed as error:
            await ctx.sleep("1100ms")
            return [error.error["type"], error.error["message"]]
        return []

    async with app.worker():
        assert await app.run(parent, timeout="10s") == ["KeyError", "'no such parcel'"]


async def test_the_winner_of_a_race_is_known_though_contenders_moved_and_missed_when_it_is_gone(app: swf.App) -> None:
    version: list[int] = []

    @app.workflow("t.race.v1", retry=ONCE, on_misfit="fail")
    async def race(ctx: swf.Context, gone: bool) -> Any:
        version.append(1)
        signal, sleep, step = ctx.wait_for_signal("go"), ctx.sleep("1h"), ctx.step("other", lambda: asyncio.sleep(60))
        if len(version) == 1:
            step.close()
            first = await ctx.race(sleep, signal)
        elif gone:
            signal.close()
            first = await ctx.race(sleep, step)
        else:
            first = await ctx.race(signal, sleep, step)
        await ctx.sleep("1100ms")
        return [first.index, first.value]

    for gone in (False, True):
        version.clear()
        handle = await app.trigger(race, gone)
        await handle.signal("go", "word")  # before anybody looks, so that the first execution decides the race
        async with app.worker():
            if gone:
                with pytest.raises(swf.RunFailed, match="was won by go#0, which is no contender any more"):
                    await handle.result("10s")
            else:
                assert await handle.result("10s") == [0, "word"]


async def test_children_of_whoever_lost_are_cancelled_however_deep(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    @app.workflow("t.race.v1")
    async def race(ctx: swf.Context) -> int:
        async def own() -> None:
            await ctx.run(child)

        nested = ctx.race(ctx.run(child), ctx.sleep("2h"))
        return (await ctx.race(nested, own(), ctx.wait_for_signal("go"))).index

    async with app.worker():
        handle = await app.trigger(race)
        await until(handle, Status.PAUSED)
        await handle.signal("go")
        assert await handle.result("10s") == 2
        states = [run.status async for run in app.runs(type="t.child.v1")]
    assert states == [Status.CANCELLED] * 2
