"""A decorated step that a workflow calls like a function is a durable step; elsewhere it is a function."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import simpleworkflow as swf

calls: list[str] = []


@pytest.fixture(autouse=True)
def none_yet() -> None:
    calls.clear()


@swf.step
async def charge(cents: int, *, currency: str = "EUR") -> str:
    calls.append(f"charge {cents} {currency}")
    return f"{cents} {currency}"


@swf.step(retry=swf.Retry(max_attempts=2, initial=0))
def weigh(parcel: str) -> int:
    calls.append(f"weigh {parcel}")
    if len(calls) == 1:
        raise RuntimeError("the first time it fails")
    return len(parcel)


async def ids(app: swf.App, handle: Any) -> list[str]:
    return [step.step_id for step in await handle.steps()]


async def test_a_step_called_directly_in_an_async_workflow_is_recorded_and_not_run_again(app: swf.App) -> None:
    @app.workflow("t.pay.v1")
    async def pay(ctx: swf.Context) -> list[str]:
        first = await charge(1, currency="CHF")
        await ctx.sleep("1100ms")
        return [first, await ctx.step(charge, 2), *await asyncio.gather(charge(3), charge.options(key="k")(4))]

    async with app.worker():
        handle = await app.trigger(pay)
        assert await handle.result("15s") == ["1 CHF", "2 EUR", "3 EUR", "4 EUR"]
    assert calls.count("charge 1 CHF") == 1
    assert sorted(await ids(app, handle)) == ["@sleep#0", "charge#0", "charge#1", "charge#2", "charge#=k"]


async def test_a_plain_step_called_directly_in_a_plain_workflow_is_recorded_and_retried(app: swf.App) -> None:
    @app.workflow("t.weigh.v1")
    def weigh_it(ctx: swf.SyncContext) -> int:
        weight = weigh("abc")
        ctx.sleep("1100ms")
        return weight

    async with app.worker():
        handle = await app.trigger(weigh_it)
        assert await handle.result("15s") == 3
    assert calls == ["weigh abc", "weigh abc"]
    assert await ids(app, handle) == ["weigh#0", "@sleep#0"]


async def test_a_plain_step_in_an_async_workflow_is_refused_with_the_line_to_write(app: swf.App) -> None:
    @app.workflow("t.mixed.v1")
    async def mixed(ctx: swf.Context) -> int:
        return weigh("abc")

    @app.workflow("t.mixed_too.v1")
    def mixed_too(ctx: swf.SyncContext) -> Any:
        return charge(1)

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"weigh is a plain def step.*write await ctx\.step\(weigh, …\)"):
            await app.run(mixed, timeout="5s")
        with pytest.raises(swf.RunFailed, match=r"charge is an async def step.*write ctx\.step\(charge, …\)"):
            await app.run(mixed_too, timeout="5s")
    assert calls == []


async def test_a_step_called_inside_a_step_or_outside_of_a_workflow_is_the_plain_function(app: swf.App) -> None:
    @swf.step
    async def outer() -> str:
        return await charge(1) + await asyncio.create_task(charge(2))

    @app.workflow("t.outer.v1")
    async def run(ctx: swf.Context) -> str:
        return await ctx.step(outer)

    assert await charge(9) == "9 EUR"
    async with app.worker():
        handle = await app.trigger(run)
        assert await handle.result("5s") == "1 EUR2 EUR"
    assert await ids(app, handle) == ["outer#0"]


async def test_a_step_called_from_another_thread_of_a_workflow_is_refused(app: swf.App) -> None:
    @app.workflow("t.thread.v1")
    async def threaded(ctx: swf.Context) -> Any:
        return await asyncio.to_thread(charge, 1)

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="this one comes from elsewhere"):
            await app.run(threaded, timeout="5s")
    assert calls == []


def test_the_decorator_takes_no_parentheses_too_and_refuses_what_cannot_be_a_step() -> None:
    @swf.step
    def bare() -> int:
        return 1

    assert bare() == 1
    app = swf.App("unused.db")

    @app.workflow("t.a.v1")
    async def flow(ctx: swf.Context) -> None: ...

    with pytest.raises(swf.InvalidPolicy, match=r"write retry=swf\.Retry\(max_attempts=3\)"):
        swf.step(retry=3)  # type: ignore[call-overload]
    with pytest.raises(swf.InvalidPolicy, match="takes a Retry"):
        charge.options(retry="3")  # type: ignore[arg-type]
    with pytest.raises(swf.InvalidWorkflow, match="flow cannot be a step as well"):
        swf.step(flow)
    with pytest.raises(swf.InvalidWorkflow, match="is a step already"):
        swf.step(bare)
    with pytest.raises(swf.InvalidWorkflow, match=r"write @swf\.step\(name='charge'\)"):
        swf.step("charge")  # type: ignore[call-overload]
    with pytest.raises(swf.InvalidWorkflow, match=r"write @staticmethod above @swf\.step"):
        swf.step(staticmethod(bare))
    with pytest.raises(swf.InvalidName, match="formerly= of a step takes a name or several, not 3"):
        swf.step(formerly=3)  # type: ignore[call-overload]


def test_a_step_cannot_be_a_workflow_as_well() -> None:
    app = swf.App("unused.db")

    @swf.step
    async def charged(ctx: swf.Context) -> None: ...

    with pytest.raises(swf.InvalidWorkflow, match=r"charged is a step: .* take @swf\.step away"):
        app.workflow("t.charged.v1")(charged)


async def test_a_workflow_given_to_ctx_step_is_refused_with_the_line_to_write(app: swf.App) -> None:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None: ...

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> None:
        await ctx.step(child)  # type: ignore[call-overload]

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"child is a workflow: write ctx\.run\(child, …\)"):
            await app.run(parent, timeout="5s")
