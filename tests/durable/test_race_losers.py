"""Those who lose a race: they are stopped, they keep nothing that they had taken, and they hold up nobody.

A signal that a loser had taken goes to the next who asks, in its order; a wait that lost is over on record; a body that
swallows its cancellation, or a call that never began, must not matter to the winner.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status
from simpleworkflow.store.operations import steps

LONG = "1050ms"
"""Just long enough for the run to be unwound."""


async def until_paused(handle: swf.RunHandle[Any]) -> swf.Run:
    async with asyncio.timeout(10):
        while (run := await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
    return run


async def free_signals(app: swf.App, handle: swf.RunHandle[Any]) -> list[tuple[str, Any]]:
    return [(s.name, s.payload) for s in await handle.signals() if s.consumed_at is None]


async def test_of_signals_that_are_all_there_the_losers_get_theirs_back_in_order(app: swf.App) -> None:
    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        first = await ctx.race(ctx.wait_for_signal("a"), ctx.wait_for_signal("b"), ctx.wait_for_signal("b"))
        rest = [await ctx.wait_for_signal("b"), await ctx.wait_for_signal("b")]
        return [first.index, first.value, *rest]

    handle = await app.trigger(handler)
    for name, value in (("b", 1), ("b", 2), ("a", 0), ("b", 3)):
        await handle.signal(name, value)
    async with app.worker():
        assert await handle.result("10s") == [0, 0, 1, 2]
    assert await free_signals(app, handle) == [("b", 3)]


async def test_signals_delivered_to_losers_in_one_go_come_back_in_their_order(app: swf.App) -> None:
    """All waits are resident and all signals are heard at once: two losers hold the first and the second."""
    resident: list[int] = []

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        post: Any = ctx._stage.post  # type: ignore[attr-defined]
        hear = post.hear

        def hear_all_at_once(wakes: int, history: Any) -> None:
            if len(history.signals) == 3:
                hear(wakes, history)

        async def stay() -> None:
            resident.append(1)
            await asyncio.sleep(60)

        post.hear = hear_all_at_once
        first = await ctx.race(ctx.wait_for_signal("a"), ctx.wait_for_signal("b"), ctx.wait_for_signal("b"), stay())
        return [first.index, await ctx.wait_for_signal("b"), await ctx.wait_for_signal("b")]

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(lambda: resident)
        for name, value in (("b", 1), ("b", 2), ("a", 0)):
            await handle.signal(name, value)
        assert await handle.result("10s") == [0, 1, 2]


async def test_what_a_beaten_coroutine_asks_for_is_not_done(app: swf.App) -> None:
    """Its own calls lose with it: a signal that came in the instant of the decision is left for the code after it."""

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        async def own() -> Any:
            return await ctx.wait_for_signal("b")

        first = await ctx.race(ctx.wait_for_signal("a"), own())
        return [first.index, await ctx.wait_for_signal("b", timeout="300ms")]

    handle = await app.trigger(handler)
    await handle.signal("a", 1)
    await handle.signal("b", 2)
    async with app.worker():
        assert await handle.result("10s") == [0, 2]


async def test_a_losing_step_body_is_stopped_and_may_tidy_up(app: swf.App) -> None:
    log: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            log.append("stopped")

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> int:
        first = await ctx.race(ctx.step(slow), ctx.sleep("50ms"))
        log.append("decided")
        await ctx.sleep(LONG)
        return first.index

    async with app.worker():
        assert await app.run(handler, timeout="10s") == 1
    assert log == ["stopped", "decided", "decided"]


@pytest.mark.parametrize("answer", ["a value", "an error", "a call"])
async def test_a_loser_that_swallows_its_stop_cannot_hold_up_the_winner(app: swf.App, answer: str) -> None:
    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> int:
        async def stubborn() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if answer == "an error":
                    raise RuntimeError("not now") from None
            return "ignored"

        async def own() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await ctx.wait_for_signal("never")

        first = await ctx.race(own() if answer == "a call" else ctx.step(stubborn), ctx.sleep("50ms"))
        return first.index

    async with app.worker():
        assert await app.run(handler, timeout="3s") == 1


async def test_a_beaten_wait_is_over_on_record_too(app: swf.App) -> None:
    """Whatever is still `waiting` on record is what people are told that the run waits for."""

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> None:
        async def own() -> None:
            await ctx.wait_for_signal("mine")

        await ctx.race(ctx.wait_for_signal("a"), ctx.sleep("1h"))
        await ctx.race(own(), ctx.wait_for_signal("b"), ctx.sleep("2h"))
        await ctx.wait_for_signal("end")

    async with app.worker():
        handle = await app.trigger(handler)
        await until_paused(handle)
        for name, waits in (("a", 3), ("mine", 1)):
            await handle.signal(name)
            async with asyncio.timeout(10):
                while (waiting := await waits_on_record(app, handle)) is None or len(waiting) != waits:
                    await asyncio.sleep(0.02)
        assert waiting == ["end#0"]
        await handle.cancel()


async def waits_on_record(app: swf.App, handle: swf.RunHandle[Any]) -> list[str] | None:
    """None while the run is being executed."""
    if (await handle.get()).status is not Status.PAUSED:
        return None
    histories = await app._client.engine.run(steps.load([handle.id]))
    return [step.step_id for step in histories[handle.id].steps.values() if step.status == "waiting"]


async def test_a_call_that_lost_before_it_began_leaves_no_warning_and_starts_nothing(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        return None

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> int:
        first = await ctx.race(
            ctx.sleep("1h"),
            ctx.step("quick", lambda: 1),
            ctx.race(ctx.sleep("1h"), ctx.wait_for_signal("never")),
            ctx.trigger("t.nobody.v1"),
            ctx.run("t.nobody.v1"),
            ctx.set_value("nothing", 1),
        )
        await ctx.sleep(LONG)
        return first.index

    async with app.worker():
        assert await app.run(handler, timeout="10s") in {1, 3, 5}


async def test_a_race_inside_a_beaten_one_takes_nothing_either(app: swf.App) -> None:
    """The outer race is decided while the inner one has yet to begin: what waits for the inner one is left alone."""

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context, way: str) -> list[Any]:
        async def own() -> Any:
            return await ctx.wait_for_signal("b")

        inner: Any = ctx.race(ctx.wait_for_signal("b") if way == "call" else own(), ctx.sleep("1h"))
        first = await ctx.race(inner, ctx.wait_for_signal("a"))
        return [first.index, await ctx.wait_for_signal("b", timeout="300ms")]

    for way in ("call", "own"):
        handle = await app.trigger(handler, way)
        await handle.signal("a", 1)
        await handle.signal("b", 2)
        async with app.worker():
            assert await handle.result("10s") == [1, 2], way
