"""Concurrent parts of a run find their own outcomes again, however they are interleaved and wherever they are cut."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status
from simpleworkflow.runtime.code_names import StepNames
from simpleworkflow.store import open_ledger
from simpleworkflow.store.operations import steps as memo

LENGTH = 4
Program = Callable[[swf.Context, "Counted"], Awaitable[Any]]


class Counted:
    """Step bodies that count their executions and, after the k-th, do not end."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.limit = 1_000_000

    async def work(self, who: str, number: int) -> str:
        label = f"{who}{number}"
        self.ran[label] += 1
        await asyncio.sleep(0.001 * ((ord(who[0]) * 7 + number * 5 + self.limit) % 4))
        if sum(self.ended.values()) >= self.limit:
            await asyncio.Event().wait()
        self.ended[label] += 1
        return label


async def sequence(ctx: swf.Context, counted: Counted, who: str) -> list[str]:
    return [await ctx.step(counted.work, who, number) for number in range(LENGTH)]


async def gathered(ctx: swf.Context, counted: Counted) -> Any:
    first = await ctx.step(counted.work, "first", 0)
    lists = await asyncio.gather(*(sequence(ctx, counted, who) for who in "abc"))
    return [first, *lists, await ctx.step(counted.work, "last", 0)]


async def grouped(ctx: swf.Context, counted: Counted) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sequence(ctx, counted, who)) for who in "abc"]
        own = await sequence(ctx, counted, "own")
    return [own, *(task.result() for task in tasks)]


async def nested(ctx: swf.Context, counted: Counted) -> Any:
    async def inner(who: str) -> list[str]:
        return list(await asyncio.gather(*(ctx.step(counted.work, who, n) for n in range(2))))

    background = asyncio.create_task(ctx.step(counted.work, "background", 0))
    await ctx.step(counted.work, "own", 0)
    second = await ctx.step(counted.work, "own", 1)
    parts = await asyncio.gather(inner("x"), asyncio.gather(inner("y"), inner("z")))
    return [second, parts, await background]


async def timed(ctx: swf.Context, counted: Counted) -> Any:
    one = await asyncio.wait_for(sequence(ctx, counted, "a"), 60)
    two = await asyncio.wait_for(ctx.step(counted.work, "b", 0), 60)
    async with asyncio.timeout(60):
        return [one, two, *await sequence(ctx, counted, "c")]


PROGRAMS = {"gather": gathered, "group": grouped, "nested": nested, "wait_for": timed}


async def paths(url: str, handle: swf.RunHandle[Any]) -> set[str]:
    ledger = open_ledger(url)
    history = (await ledger.run(memo.load([handle.id])))[handle.id]
    await ledger.close()
    return set(history.steps)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_a_run_cut_after_any_number_of_steps_ends_as_if_it_had_not_been(
    app: swf.App, url: str, program: Program
) -> None:
    bodies = [Counted()]

    @app.workflow("t.branches.v1")
    async def handler(ctx: swf.Context) -> Any:
        return await program(ctx, bodies[-1])

    async with app.worker():
        whole = await app.run(handler, timeout="20s")
    steps = sum(bodies[-1].ended.values())
    for limit in range(steps):
        counted = Counted()
        counted.limit = limit
        bodies.append(counted)
        handle = await app.trigger(handler)
        async with app.worker(), asyncio.timeout(10):
            while len(await paths(url, handle)) < limit or not counted.ran:
                await asyncio.sleep(0.005)
        assert (await handle.get()).status is Status.PENDING
        counted.limit = 1_000_000
        async with app.worker():
            assert await handle.result("20s") == whole, f"cut after {limit} of {steps} steps"
        assert counted.ended == dict.fromkeys(counted.ended, 1), f"cut after {limit} of {steps} steps"
        assert len(counted.ended) == steps


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_the_same_program_has_the_same_paths_every_time(app: swf.App, url: str, program: Program) -> None:
    counted = Counted()

    @app.workflow("t.branches.v1")
    async def handler(ctx: swf.Context) -> Any:
        return await program(ctx, counted)

    async with app.worker():
        handles = await app.trigger_many(handler, [None] * 5)
        results = [await handle.result("20s") for handle in handles]
    assert all(result == results[0] for result in results)
    assert len({frozenset(await paths(url, handle)) for handle in handles}) == 1


async def test_paths_name_the_branch_and_count_the_uses_of_a_name(app: swf.App, url: str) -> None:
    async def pack(ctx: swf.Context) -> None:
        await ctx.step("weigh", lambda: 1)
        await ctx.step("weigh", lambda: 2)

    @app.workflow("t.branches.v1")
    async def handler(ctx: swf.Context) -> None:
        async def library() -> None:
            await asyncio.create_task(asyncio.sleep(0))

        await ctx.step("fetch", library)
        await asyncio.gather(pack(ctx), ctx.step("direct", lambda: 0), asyncio.wait_for(pack(ctx), 10))
        await ctx.step("fetch", library)

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.result("10s")
    name = "test_paths_name_the_branch_and_count_the_uses_of_a_name.<locals>.pack"
    found = await paths(url, handle)
    assert {"fetch#0", "fetch#1", "direct#0", f"{name}:0/weigh#0", f"{name}:0/weigh#1"} <= found
    assert len(found) == 7


async def test_durable_calls_in_as_completed_are_refused_with_the_way_out(app: swf.App) -> None:
    @app.workflow("t.branches.v1", retry=swf.Retry(max_attempts=1))
    async def handler(ctx: swf.Context) -> list[str]:
        said = []
        for work in asyncio.as_completed([sequence(ctx, Counted(), "a"), ctx.step("direct", lambda: 1)]):
            try:
                await work
            except swf.InvalidWorkflow as error:
                said.append(str(error))
        return said

    async with app.worker():
        said = await app.run(handler, timeout="10s")
    assert (
        said == ["durable calls inside asyncio.as_completed cannot be told apart on replay; use gather or ctx.race"] * 2
    )


async def test_a_task_that_is_cancelled_before_it_begins_leaves_no_warning(
    app: swf.App, recwarn: pytest.WarningsRecorder
) -> None:
    @app.workflow("t.branches.v1")
    async def handler(ctx: swf.Context) -> bool:
        task = asyncio.create_task(ctx.step("never", lambda: 1))
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    async with app.worker():
        assert await app.run(handler, timeout="10s")
    gc.collect()
    assert [str(one.message) for one in recwarn if issubclass(one.category, RuntimeWarning)] == []


async def half_done(
    app: swf.App, old: Callable[..., Any], new: Callable[..., Any], names: str = ""
) -> tuple[Any, Counter[str]]:
    """Run the old code until its `stop` step, then the new code to its end; also which bodies the new code ran."""
    ran: Counter[str] = Counter()
    stopped: list[int] = []
    version = {"code": old}

    @app.workflow("t.release.v1", retry=swf.Retry(max_attempts=1), on_misfit="fail")
    async def handler(ctx: swf.Context) -> Any:
        async def do(name: str) -> str:
            def body() -> str:
                ran[name] += 1
                return name

            return await ctx.step(name, body)

        async def stop() -> None:
            stopped.append(1)
            await asyncio.Event().wait()

        return await version["code"](ctx, do, stop)

    known = StepNames(set(names.split()), set())  # the code of this workflow is data
    handler.__dict__["names_beside"] = lambda _: known
    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: stopped)
    version["code"] = new
    ran.clear()
    async with app.worker():
        result = await handle.result("10s")
    return result, ran


async def test_adding_removing_and_reordering_steps_between_releases_is_survived(app: swf.App) -> None:
    async def old(ctx: swf.Context, do: Any, stop: Any) -> Any:
        await do("a")
        await do("b")
        await asyncio.gather(do("c"), do("d"))
        await do("removed")
        await ctx.step(stop)

    async def new(ctx: swf.Context, do: Any, stop: Any) -> Any:
        return [
            await do("added"),
            await do("b"),
            await do("a"),
            *await asyncio.gather(do("c"), do("d"), do("e")),
            await do("a"),
        ]

    result, ran = await half_done(app, old, new, "added a b c d e")
    assert result == ["added", "b", "a", "c", "d", "e", "a"]
    assert ran == {"added": 1, "e": 1, "a": 1}


async def test_a_record_whose_kind_has_changed_fails_the_run_for_good_with_a_sentence(app: swf.App) -> None:
    async def old(ctx: swf.Context, do: Any, stop: Any) -> Any:
        await do("approval")
        await ctx.step(stop)

    async def new(ctx: swf.Context, do: Any, stop: Any) -> Any:
        await ctx.wait_for_signal("approval", timeout="1h")

    with pytest.raises(swf.RunFailed, match="approval#0 was recorded as a step and is a signal now") as failed:
        await half_done(app, old, new)
    assert failed.value.run.status is Status.FAILED
    assert failed.value.run.attempt == 1


async def test_a_handler_that_swallows_everything_still_stops_and_goes_on_elsewhere(app: swf.App) -> None:
    began: list[int] = []

    async def hang() -> str:
        began.append(1)
        await asyncio.sleep(0 if len(began) > 1 else 60)
        return "done"

    @app.workflow("t.swallow.v1")
    async def handler(ctx: swf.Context) -> str:
        while True:
            try:
                results = await asyncio.gather(ctx.step(hang), return_exceptions=True)
                if isinstance(results[0], str):
                    return results[0]
            except BaseException:
                return "swallowed"

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: began)
    async with app.worker():
        assert await handle.result("10s") == "done"
