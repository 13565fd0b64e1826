"""Calls of one name that come in another order than they did: no outcome is given to another call, and nothing is done
a second time, without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.deploys import GO, Shop, begun, until_held

import simpleworkflow as swf

did: list[str] = []
Code = Callable[[swf.Context, list[int]], Awaitable[Any]]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[swf.App]:
    """What is held is decided before any database is asked, so one is enough."""
    app = swf.App(str(tmp_path / "swapped.db"), settings=swf.Settings(poll_every=0.1, drain=0.0))
    yield app
    await app.close()


@pytest.fixture
def shop(app: swf.App) -> Shop:
    did.clear()

    @app.workflow("t.kid.v1")
    async def kid(ctx: swf.Context, number: int) -> int:
        did.append(f"kid {number}")
        return number

    return Shop(app)


@swf.step
async def charge(number: int) -> int:
    did.append(f"charge {number}")
    return number


async def steps(ctx: swf.Context, numbers: list[int]) -> None:
    for number in numbers:
        await charge(number)


async def gathered(ctx: swf.Context, numbers: list[int]) -> None:
    await asyncio.gather(*(ctx.step(charge, number) for number in numbers))


async def one_branch_each(ctx: swf.Context, numbers: list[int]) -> None:
    async def branch(number: int) -> None:
        await charge(number)

    await asyncio.gather(*map(branch, numbers))


async def partials(ctx: swf.Context, numbers: list[int]) -> None:
    for number in numbers:
        await ctx.step(partial(charge.function, number))


async def named(ctx: swf.Context, numbers: list[int]) -> None:
    for number in numbers:
        await ctx.step("pay", lambda n: did.append(f"charge {n}"), number)


async def children(ctx: swf.Context, numbers: list[int]) -> None:
    for number in numbers:
        await ctx.trigger("t.kid.v1", number)


async def of_the_app(ctx: swf.Context, numbers: list[int]) -> None:
    for number in numbers:
        await shop_app[0].trigger("t.kid.v1", number)


async def emits(ctx: swf.Context, numbers: list[int]) -> None:
    for number in numbers:
        await ctx.emit("paid", number)


shop_app: list[swf.App] = []

KINDS: dict[str, Code] = {
    "steps": steps,
    "gathered": gathered,
    "a branch each": one_branch_each,
    "partials": partials,
    "named": named,
    "children": children,
    "of the app": of_the_app,
    "emits": emits,
}
ORDERS = {
    "another order of what is on record": ([1, 2], [2, 1]),
    "one before the others": ([1], [7, 1]),
    "one between": ([1, 2], [1, 7, 2]),
    "one of several removed": ([1, 2, 3], [2, 3]),
    "a set whose order has changed": ([1], [2, 1]),
}


def looping(code: Code, numbers: list[int], rest: list[int] = []) -> Callable[[swf.Context], Any]:  # noqa: B006
    async def handler(ctx: swf.Context) -> str:
        await code(ctx, numbers)
        await ctx.wait_for_signal(GO)
        await code(ctx, rest)
        return "done"

    return handler


@pytest.mark.parametrize(("old", "new"), ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("code", KINDS.values(), ids=KINDS)
async def test_calls_that_come_in_another_order_hold_the_run(
    shop: Shop, code: Code, old: list[int], new: list[int]
) -> None:
    shop_app[:] = [shop.app]
    handle = await begun(shop, looping(code, old))
    before = sorted(did)
    with swf.testing.serving(shop.app, shop.deploy(looping(code, new))):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
    assert "other arguments" in str(run.hold_reason)
    assert not {one for one in did if did.count(one) > before.count(one)} & set(before), "nothing is done again"


@pytest.mark.parametrize("code", KINDS.values(), ids=KINDS)
async def test_calls_that_are_added_behind_the_others_run(shop: Shop, code: Code) -> None:
    shop_app[:] = [shop.app]
    handle = await begun(shop, looping(code, [1, 2]))
    with swf.testing.serving(shop.app, shop.deploy(looping(code, [1, 2, 3], [1, 4]))):
        async with shop.app.worker():
            assert await handle.result("10s") == "done"


@pytest.mark.parametrize("code", [steps, children, emits], ids=["steps", "children", "emits"])
async def test_other_arguments_that_are_nowhere_on_record_are_warned_of(
    shop: Shop, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await begun(shop, looping(code, [1]))

    with swf.testing.serving(shop.app, shop.deploy(looping(code, [5]))):
        async with shop.app.worker():
            assert await handle.result("10s") == "done"
    assert not [one for one in did if one.endswith("5")]
    assert "is on record with other arguments" in caplog.text


@pytest.mark.parametrize("code", KINDS.values(), ids=KINDS)
async def test_a_call_that_somebody_said_is_new_runs(shop: Shop, code: Code) -> None:
    shop_app[:] = [shop.app]
    handle = await begun(shop, looping(code, [1]))
    with swf.testing.serving(shop.app, shop.deploy(looping(code, [7, 1]))):
        async with shop.app.worker():
            await until_held(shop.app, handle.id)
            await handle.resume(run_new=True)
            assert await handle.result("10s") == "done"


async def test_a_renamed_event_is_named_when_the_run_ends(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async def old(ctx: swf.Context) -> None:
        await ctx.emit("paid", 1)
        await ctx.wait_for_signal(GO)

    async def new(ctx: swf.Context) -> None:
        await ctx.emit("order.paid", 1)
        await ctx.wait_for_signal(GO)

    handle = await begun(shop, old)
    with swf.testing.serving(shop.app, shop.deploy(new)):
        async with shop.app.worker():
            await handle.result("10s")
    assert "without asking for @emit paid#0" in caplog.text


async def test_a_signal_that_is_sent_before_another_one_holds_the_run(shop: Shop) -> None:
    """Its id says which signal of the workflow it is."""
    other = await shop.app.trigger("t.other.v1")

    def sending(names: list[str]) -> Callable[[swf.Context], Any]:
        async def handler(ctx: swf.Context) -> None:
            for name in names:
                await shop.app.signal(other.id, name)
            await ctx.wait_for_signal(GO)

        return handler

    handle = await begun(shop, sending(["paid"]))
    with swf.testing.serving(shop.app, shop.deploy(sending(["packed", "paid"]))):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
    assert "app.signal(packed) was not sent: an earlier execution has sent the signal paid" in str(run.hold_reason)
    assert [signal.name for signal in await shop.app.handle(other.id).signals()] == ["paid"]


async def test_a_signal_whose_payload_has_changed_is_sent_once(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    other = await shop.app.trigger("t.other.v1")

    def sending(payload: int) -> Callable[[swf.Context], Any]:
        async def handler(ctx: swf.Context) -> None:
            await shop.app.signal(other.id, "paid", payload)
            await ctx.wait_for_signal(GO)

        return handler

    handle = await begun(shop, sending(1))
    with swf.testing.serving(shop.app, shop.deploy(sending(2))):
        async with shop.app.worker():
            await handle.result("10s")
    assert [signal.payload_json for signal in await shop.app.handle(other.id).signals()] == ["1"]
    assert "was sent before with another payload" in caplog.text


@swf.step
async def tick(number: int) -> None:
    did.append(f"tick {number}")


async def test_arguments_that_come_from_a_clock_hold_no_run(shop: Shop) -> None:
    """Each execution has other ones; the next may find some of them on record."""
    days = iter([1, 2, 3, 3, 3])
    today = [0]

    async def handler(ctx: swf.Context) -> str:
        today[0] = next(days)
        for signal in ("a", "b", "c"):
            await tick(today[0])
            await ctx.wait_for_signal(signal)
        return "done"

    workflow = shop.deploy(handler)
    with swf.testing.serving(shop.app, workflow):
        async with shop.app.worker():
            handle = await shop.app.trigger(workflow)
            for signal in ("a", "b", "c"):
                await handle.signal(signal)
                while not (run := await handle.get()).is_finished and await unread(shop.app, handle.id):
                    assert run.held_at is None, run.hold_reason
                    await asyncio.sleep(0.01)
            assert await handle.result("10s") == "done"
    assert len(did) == 3


async def unread(app: swf.App, run_id: Any) -> bool:
    return any(signal.consumed_at is None for signal in await app.handle(run_id).signals())


async def test_another_step_with_the_arguments_of_a_changed_one_runs(shop: Shop) -> None:
    async def old(ctx: swf.Context) -> None:
        await tick(17)
        await ctx.wait_for_signal(GO)
        await charge(17)

    async def new(ctx: swf.Context) -> None:
        await tick(18)
        await ctx.wait_for_signal(GO)
        await charge(17)

    handle = await begun(shop, old)
    with swf.testing.serving(shop.app, shop.deploy(new)):
        async with shop.app.worker():
            await handle.result("10s")
    assert did == ["tick 17", "charge 17"]


async def test_calls_of_another_kind_do_not_hide_what_was_done(shop: Shop) -> None:
    async def old(ctx: swf.Context) -> None:
        await tick(17)
        await ctx.trigger("t.kid.v1", 17)
        await ctx.wait_for_signal(GO)

    async def new(ctx: swf.Context) -> None:
        await tick(18)
        await ctx.trigger("t.kid.v1", 99)
        await ctx.trigger("t.kid.v1", 17)
        await ctx.wait_for_signal(GO)

    handle = await begun(shop, old)
    with swf.testing.serving(shop.app, shop.deploy(new)):
        async with shop.app.worker():
            await until_held(shop.app, handle.id)
    assert len(await handle.children()) == 1
