"""Child runs: started once, executed anywhere, their outcome remembered by the parent."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

SOON = swf.Retry(max_attempts=1)


@dataclass
class Label:
    text: str


async def until(handle: swf.RunHandle[Any], *statuses: Status) -> swf.Run:
    async with asyncio.timeout(10):
        while (run := await handle.get()).status not in statuses:
            await asyncio.sleep(0.01)
    return run


async def children(app: swf.App, parent: swf.RunHandle[Any]) -> list[swf.Run]:
    return [run async for run in app.runs() if run.parent_id == parent.id]


async def test_a_child_runs_on_a_worker_of_its_own_and_returns_its_type(url: str, app: swf.App) -> None:
    there = swf.App(url, settings=app.settings)

    @there.workflow("media.label.v1")
    async def label(ctx: swf.Context, parcel: str) -> Label:
        return Label(f"to {parcel}")

    remote = app.declare("media.label.v1", input=str, output=Label)

    @app.workflow("orders.fulfil.v1")
    async def fulfil(ctx: swf.Context) -> list[str]:
        one = await ctx.run(remote, "ada")
        handle = await ctx.trigger(remote, "bob")
        return [repr(one), repr(await handle.result()), repr(await ctx.run("media.label.v1", "eve"))]

    async with app.worker(), there.worker():
        handle = await app.trigger(fulfil)
        assert await handle.result("15s") == ["Label(text='to ada')", "Label(text='to bob')", "Label(text='to eve')"]
    await there.close()
    assert len(await children(app, handle)) == 3


async def test_a_parent_gives_up_its_slot_while_it_waits(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, depth: int) -> int:
        return 0 if depth == 0 else 1 + await ctx.run(child, depth - 1)

    async with app.worker(concurrency=1):
        assert await app.run(child, 4, timeout="20s") == 4


async def test_a_childs_end_is_remembered_as_an_error_of_its_kind(app: swf.App) -> None:
    ran: list[str] = []
    seen: list[list[str]] = []

    @app.workflow("t.fails.v1", retry=SOON)
    async def fails(ctx: swf.Context) -> None:
        ran.append("fails")
        raise RuntimeError("broken")

    @app.workflow("t.slow.v1", timeout="300ms")
    async def slow(ctx: swf.Context) -> None:
        ran.append("slow")
        await asyncio.sleep(60)

    @app.workflow("t.stopped.v1")
    async def stopped(ctx: swf.Context) -> None:
        ran.append("stopped")
        await asyncio.sleep(60)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[str]:
        said = []
        for child in (fails, slow, stopped):
            try:
                await ctx.run(child)
            except swf.RunEnded as error:
                said.append(f"{type(error).__name__}: {str(error).partition(': ')[2]}")
        seen.append(said)
        await ctx.sleep("1100ms")
        return said

    async with app.worker():
        handle = await app.trigger(parent)
        await eventually(lambda: "stopped" in ran)
        (victim,) = [run for run in await children(app, handle) if run.type == "t.stopped.v1"]
        await app.cancel(victim.id, reason="enough")
        said = await handle.result("15s")
    assert said[0] == "RunFailed: RuntimeError: broken"
    assert [line.partition(":")[0] for line in said] == ["RunFailed", "RunTimedOut", "RunCancelled"]
    assert seen == [said, said]
    assert ran == ["fails", "slow", "stopped"]


async def test_a_fan_out_with_keys_starts_each_child_once_though_the_parent_is_stopped(app: swf.App) -> None:
    ran: Counter[int] = Counter()
    gate = threading.Event()

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        if number >= 10:
            while not gate.is_set():
                await asyncio.sleep(0.01)
        ran[number] += 1
        return number * number

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[int]:
        order = range(20) if ctx.epoch % 2 else reversed(range(20))
        squares = await asyncio.gather(*(ctx.run(child, n, key=f"n{n}") for n in order))
        return sorted(squares)

    async with app.worker():
        handle = await app.trigger(parent)
        await eventually(lambda: len(ran) == 10)
        await until(handle, Status.PAUSED)
    gate.set()
    async with app.worker():
        assert await handle.result("20s") == [n * n for n in range(20)]
    assert ran == dict.fromkeys(range(20), 1)
    assert len(await children(app, handle)) == 20


async def test_cancelling_a_parent_cancels_its_children(app: swf.App) -> None:
    began: list[int] = []

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        began.append(1)
        await asyncio.sleep(60)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> None:
        await asyncio.gather(ctx.run(child), ctx.run(child))

    async with app.worker():
        handle = await app.trigger(parent)
        await eventually(lambda: len(began) == 2)
        assert (await handle.cancel()).status is Status.CANCELLED
        statuses = {run.status for run in await children(app, handle)}
    assert statuses == {Status.CANCELLED}


async def test_an_input_that_does_not_fit_the_child_is_refused_in_the_parent(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        return number

    @app.workflow("t.parent.v1", retry=SOON)
    async def parent(ctx: swf.Context) -> str:
        with pytest.raises(swf.InvalidInput, match=r"payload of t\.child\.v1"):
            await ctx.run(child, "seven")  # type: ignore[arg-type]
        return "refused"

    async with app.worker():
        handle = await app.trigger(parent)
        assert await handle.result("10s") == "refused"
    assert await children(app, handle) == []


async def test_a_child_that_ends_while_its_parent_is_being_paused_is_not_missed(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        return number

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context, number: int) -> int:
        return await ctx.run(child, number) + await ctx.run(child, number)

    async with app.worker(concurrency=20):
        handles = await app.trigger_many(parent, list(range(150)))
        assert [await handle.result("40s") for handle in handles] == [2 * n for n in range(150)]
