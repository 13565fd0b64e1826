"""`swf.current()` finds the running ctx; `ctx.scope` gives durable calls places that no library's own tasks change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import simpleworkflow as swf

SIGNAL = "go"


async def weigh(parcel: str) -> int:
    return len(parcel)


async def ids(app: swf.App, handle: Any) -> list[str]:
    return sorted(step.step_id for step in await handle.steps() if step.kind == "step")


async def in_its_own_task(work: Callable[[], Awaitable[Any]]) -> Any:
    async def private_wrapper() -> Any:
        return await work()

    return await asyncio.create_task(private_wrapper())


async def after_an_upgrade(work: Callable[[], Awaitable[Any]]) -> Any:
    class Renamed:
        async def runner(self) -> Any:
            return await in_its_own_task(work)

    return await asyncio.create_task(Renamed().runner())


async def test_current_is_the_ctx_of_the_code_that_asks_and_none_elsewhere(app: swf.App) -> None:
    found: list[Any] = []

    @swf.step
    async def inside() -> bool:
        return swf.current() is None

    @app.workflow("t.async.v1")
    async def flow(ctx: swf.Context) -> bool:
        found.append(swf.current() is ctx)
        found.append(await in_its_own_task(lambda: _is_current(ctx)))
        return await ctx.step(inside)

    @app.workflow("t.sync.v1")
    def plain(ctx: swf.SyncContext) -> bool:
        return swf.current() is ctx

    assert swf.current() is None
    async with app.worker():
        assert await app.run(flow, timeout="10s") is True
        assert await app.run(plain, timeout="10s") is True
    assert found == [True, True]


async def _is_current(ctx: Any) -> bool:
    return swf.current() is ctx


async def test_a_library_that_renames_its_tasks_repeats_nothing_of_a_scope(app: swf.App) -> None:
    library: list[Any] = [in_its_own_task]
    weighed: list[str] = []

    @swf.step
    async def weigh_once(parcel: str) -> int:
        weighed.append(parcel)
        return len(parcel)

    async def hook() -> int:
        ctx = swf.current()
        assert isinstance(ctx, swf.Context)
        return await ctx.step(weigh_once, "abc")

    @app.workflow("t.agent.v1")
    async def agent(ctx: swf.Context) -> list[int]:
        weights = []
        for _ in range(2):
            with ctx.scope("agent"):
                weights.append(await library[-1](hook))
        await ctx.wait_for_signal(SIGNAL)
        return [*weights, await weigh_once("d")]

    async with app.worker():
        handle = await app.trigger(agent)
        while not [step for step in await handle.steps() if step.status == "waiting"]:
            await asyncio.sleep(0.01)
        library.append(after_an_upgrade)
        await handle.signal(SIGNAL)
        assert await handle.result("10s") == [3, 3, 1]
    assert weighed == ["abc", "abc", "d"]
    assert await ids(app, handle) == ["agent:0/weigh_once#0", "agent:1/weigh_once#0", "weigh_once#0"]


async def test_a_scope_with_a_key_is_found_by_it_and_the_key_may_hold_anything(app: swf.App) -> None:
    @app.workflow("t.tools.v1")
    async def tools(ctx: swf.Context) -> list[int]:
        async def tool(call_id: str) -> int:
            with ctx.scope("tool", key=call_id):
                return await ctx.step(weigh, call_id)

        with ctx.scope("agent"):
            return await asyncio.gather(tool("a/1"), tool("b#2"))

    @app.workflow("t.twice.v1")
    async def twice(ctx: swf.Context) -> None:
        for _ in range(2):
            with ctx.scope("tool", key="a"):
                pass

    async with app.worker():
        handle = await app.trigger(tools)
        assert await handle.result("10s") == [3, 3]
        with pytest.raises(swf.RunFailed, match="names two scopes tool"):
            await app.run(twice, timeout="10s")
    assert await ids(app, handle) == ["agent:0/tool=a%2F1/weigh#0", "agent:0/tool=b%232/weigh#0"]


async def test_calls_that_tasks_of_a_scope_make_at_the_same_time_need_keys(app: swf.App) -> None:
    @app.workflow("t.parallel.v1")
    async def parallel(ctx: swf.Context, keyed: bool) -> list[int]:
        step = swf.step(weigh)

        async def tool(parcel: str) -> int:
            await ctx.step(step.options(key=parcel) if keyed else step, parcel)
            return await ctx.step(step.options(key=f"{parcel}2") if keyed else step, parcel)

        with ctx.scope("agent"):
            return await asyncio.gather(tool("a"), tool("bc"))

    async with app.worker():
        assert await app.run(parallel, True, timeout="10s") == [1, 2]
        with pytest.raises(swf.RunFailed, match=r"several tasks of the scope agent:0/ make durable calls"):
            await app.run(parallel, False, timeout="10s")


async def test_a_plain_workflow_has_scopes_too(app: swf.App) -> None:
    @app.workflow("t.plain.v1")
    def plain(ctx: swf.SyncContext) -> int:
        with ctx.scope("outer"), ctx.scope("inner"):
            ctx.step(weigh, "a")
            ctx.uuid()
            with ctx.scope("innermost"):
                ctx.random()
        return int(ctx.step(weigh, "bc"))

    async with app.worker():
        handle = await app.trigger(plain)
        assert await handle.result("10s") == 2
    assert await ids(app, handle) == ["outer:0/inner:0/weigh#0", "weigh#0"]


async def test_branches_of_an_anyio_task_group_are_named_after_their_own_functions(app: swf.App) -> None:
    async def pack(ctx: swf.Context, parcel: str) -> None:
        await ctx.step(weigh, parcel)

    @app.workflow("t.anyio.v1")
    async def packs(ctx: swf.Context) -> None:
        async with anyio.create_task_group() as group:
            for parcel in ("a", "bc"):
                group.start_soon(pack, ctx, parcel)

    async with app.worker():
        handle = await app.trigger(packs)
        await handle.result("10s")
    name = pack.__qualname__
    assert await ids(app, handle) == [f"{name}:{number}/weigh#0" for number in (0, 1)]


async def opens_a_scope(ctx: swf.Context, paid: list[str]) -> None:
    async def pay(who: str) -> None:
        paid.append(who)

    async def ada() -> None:
        await ctx.step("look", weigh, "ada")
        with ctx.scope("tool"):
            await ctx.step("pay", pay, "ada")

    async def bob() -> None:
        with ctx.scope("tool"):
            await ctx.step("pay", pay, "bob")

    await asyncio.gather(ada(), bob())


async def races_one_after_the_other(ctx: swf.Context, paid: list[str]) -> None:
    is_over = asyncio.Event()

    async def wait(who: str) -> None:
        await is_over.wait()

    async def ada() -> None:
        await ctx.step(swf.step(name="look", key="ada")(wait), "ada")
        await ctx.race(ctx.sleep("1ms"), ctx.sleep("1h"))

    async def bob() -> None:
        await ctx.race(ctx.sleep("1ms"), ctx.sleep("1h"))
        is_over.set()

    await asyncio.gather(ada(), bob())


async def draws_numbers(ctx: swf.Context, paid: list[str]) -> None:
    async def draw(who: str) -> None:
        await ctx.step(swf.step(name="look", key=who)(weigh), who)
        ctx.uuid()

    await asyncio.gather(draw("ada"), draw("bob"))


async def waits_for_a_task_in_a_task(ctx: swf.Context, paid: list[str]) -> None:
    async def ada() -> None:
        await ctx.step(swf.step(name="look", key="ada")(weigh), "ada")
        await in_its_own_task(lambda: ctx.sleep("1ms"))

    await asyncio.gather(ada(), ctx.sleep("1ms"), in_its_own_task(lambda: ctx.sleep("1ms")))


@pytest.mark.parametrize("tools", [opens_a_scope, races_one_after_the_other, draws_numbers, waits_for_a_task_in_a_task])
async def test_calls_without_a_key_of_tasks_side_by_side_are_refused_at_the_first_execution(
    app: swf.App, tools: Callable[[swf.Context, list[str]], Awaitable[None]]
) -> None:
    """Also when they do not come at the same time: on a replay they may come in another order."""
    paid: list[str] = []

    @app.workflow("t.beside.v1")
    async def beside(ctx: swf.Context) -> None:
        with ctx.scope("agent"):
            await tools(ctx, paid)

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"several tasks of the scope agent:0/ .*with ctx\.scope\(") as failed:
            await app.run(beside, timeout="10s")
    assert failed.value.run.lease_epoch == 1
    assert paid == []


async def test_calls_without_a_key_of_tasks_that_follow_each_other_are_counted_together(app: swf.App) -> None:
    @app.workflow("t.follow.v1")
    async def follow(ctx: swf.Context) -> list[int]:
        weighed = []

        async def tool(parcel: str) -> None:
            with ctx.scope("tool"):
                weighed.append(await ctx.step(weigh, parcel))
            await ctx.race(ctx.sleep("1ms"), ctx.sleep("1h"))

        with ctx.scope("agent"):
            await tool("a")
            await in_its_own_task(lambda: tool("bc"))
            await asyncio.wait_for(after_an_upgrade(lambda: tool("def")), 60)
            await tool("ghij")
            first = ctx.step(weigh, "first")
            await asyncio.gather(first, in_its_own_task(lambda: ctx.step(weigh, "the second")))
        await ctx.sleep("1100ms")
        return weighed

    async with app.worker():
        handle = await app.trigger(follow)
        assert await handle.result("15s") == [1, 2, 3, 4]
        recorded = {step.step_id: step.input_json for step in await handle.steps() if step.kind == "step"}
    assert recorded == {
        **{f"agent:0/tool:{number}/weigh#0": f'"{parcel}"' for number, parcel in enumerate(["a", "bc", "def", "ghij"])},
        "agent:0/weigh#0": '"first"',
        "agent:0/weigh#1": '"the second"',
    }


async def test_a_task_whose_calls_have_keys_stands_in_no_ones_way(app: swf.App) -> None:
    @app.workflow("t.keyed.v1")
    async def keyed(ctx: swf.Context) -> list[Any]:
        async def with_keys() -> int:
            return await ctx.step(swf.step(key="a")(weigh), "a")

        async def without() -> int:
            return await ctx.step(weigh, "bc")

        with ctx.scope("agent"):
            return await asyncio.gather(with_keys(), without())

    async with app.worker():
        assert await app.run(keyed, timeout="10s") == [1, 2]
