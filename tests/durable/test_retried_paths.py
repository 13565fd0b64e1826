"""Code that has not changed may take another path when a run is tried again: a step that failed succeeds this time.
Whatever its steps are called, such a run is not held, and nobody is told that its code has changed. Nor does the failed
path hide a rename."""

from __future__ import annotations

from typing import Any

import pytest
from support.deploys import GO, Shop, begun, until_held, until_it_waits

import simpleworkflow as swf

PLAN = {"task": "book a seat", "undo": "cancel the seat", "next": "print the ticket"}
AGAIN = swf.Retry(max_attempts=3, initial="1ms")

did: list[str] = []
failures: list[int] = []


@pytest.fixture
def shop(app: swf.App) -> Shop:
    did.clear()
    failures[:] = [1]
    return Shop(app)


async def reserve(sku: str) -> str:
    if failures:
        failures.pop()
        raise ConnectionError("away")
    did.append("reserved")
    return f"reserved {sku}"


async def release(sku: str) -> str:
    did.append("released")
    return f"released {sku}"


async def ship(sku: str) -> str:
    did.append("shipped")
    return f"shipped {sku}"


async def planned(ctx: swf.Context, plan: dict[str, str]) -> list[str]:
    try:
        first = await ctx.step(plan["task"], reserve, "x")
    except swf.StepFailed:
        await ctx.step(plan["undo"], release, "x")
        raise
    return [first, await ctx.step(plan["next"], ship, "x")]


def planned_and_blocking(ctx: swf.SyncContext, plan: dict[str, str]) -> list[str]:
    try:
        first = ctx.step(plan["task"], reserve, "x")
    except swf.StepFailed:
        ctx.step(plan["undo"], release, "x")
        raise
    return [first, ctx.step(plan["next"], ship, "x")]


@pytest.mark.parametrize("code", [planned, planned_and_blocking])
async def test_a_retry_that_takes_another_path_holds_no_run_whatever_its_names_are_computed_from(
    shop: Shop, code: Any, caplog: pytest.LogCaptureFixture
) -> None:
    workflow = swf.App("unused.db").workflow("t.planned.v1", retry=AGAIN)(code)
    with swf.testing.serving(shop.app, workflow):
        async with shop.app.worker():
            handle = await shop.app.trigger(workflow, PLAN)
            assert await handle.result("20s") == ["reserved x", "shipped x"]
    assert did == ["released", "reserved", "shipped"]
    assert "without asking for" not in caplog.text


async def paid(ctx: swf.Context) -> str:
    await ctx.step("charge", ship, "x")
    try:
        return await ctx.step("reserve", reserve, "x")
    except swf.StepFailed:
        await ctx.step("release", release, "x")
        await ctx.wait_for_signal(GO)
        raise


async def paid_under_another_name(ctx: swf.Context) -> str:
    await ctx.step("take money", ship, "x")
    return await ctx.step("reserve", reserve, "x")


async def released_under_another_name(ctx: swf.Context) -> str:
    await ctx.step("charge", ship, "x")
    try:
        return await ctx.step("reserve", reserve, "x")
    except swf.StepFailed:
        await ctx.step("give back", release, "x")
        raise


async def test_a_rename_of_what_came_before_the_failed_step_is_held_after_a_retry_too(shop: Shop) -> None:
    handle = await begun(shop, paid)
    await _ended_by_its_failure(shop, handle)
    with swf.testing.serving(shop.app, shop.deploy(paid_under_another_name)):
        async with shop.app.worker():
            await handle.retry()
            held = await until_held(shop.app, handle.id)
    assert "take money#0 is not on record, and charge#0" in str(held.hold_reason)
    assert did == ["shipped", "released"]


async def test_a_rename_on_the_path_of_a_failure_is_held_when_the_step_fails_again(shop: Shop) -> None:
    handle = await begun(shop, paid)
    await _ended_by_its_failure(shop, handle)
    failures.append(1)
    with swf.testing.serving(shop.app, shop.deploy(released_under_another_name)):
        async with shop.app.worker():
            await handle.retry()
            held = await until_held(shop.app, handle.id)
    assert "give back#0 is not on record, and release#0" in str(held.hold_reason)
    assert did == ["shipped", "released"]


async def test_a_rename_behind_a_step_that_was_done_again_is_held(shop: Shop) -> None:
    """The path of the failure ends where its step succeeded: what was recorded afterwards belongs to the code."""

    async def before(ctx: swf.Context) -> None:
        await ctx.step("reserve", reserve, "x")
        await ctx.step("charge", ship, "x")
        await ctx.wait_for_signal(GO)

    async def after(ctx: swf.Context) -> None:
        await ctx.step("reserve", reserve, "x")
        await ctx.step("take money", ship, "x")
        await ctx.wait_for_signal(GO)

    old = swf.App("unused.db").workflow("t.shop.v1", retry=AGAIN)(before)
    with swf.testing.serving(shop.app, old):
        async with shop.app.worker():
            handle = await shop.app.trigger(old)
            await until_it_waits(shop.app, handle.id)
    assert did == ["reserved", "shipped"]
    await handle.signal(GO)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            held = await until_held(shop.app, handle.id)
    assert "take money#0 is not on record, and charge#0" in str(held.hold_reason)


async def _ended_by_its_failure(shop: Shop, handle: Any) -> None:
    with swf.testing.serving(shop.app, shop.deploy(paid)):
        async with shop.app.worker():
            with pytest.raises(swf.RunFailed):
                await handle.result("20s")
