"""Ordinary edits of real code under runs that are under way: what moves or renames a finished step holds the run, and
what leaves it recognisable goes on. In no case is an effect repeated without a word."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.deploys import GO, Shop, begun, until_held

import simpleworkflow as swf

did: list[str] = []


@pytest.fixture
def shop(app: swf.App) -> Shop:
    did.clear()
    return Shop(app)


@swf.step
async def charge(number: int) -> None:
    did.append(f"charge {number}")


@swf.step
async def notify(number: int) -> None:
    did.append(f"notify {number}")


async def plain_charge(number: int) -> None:
    did.append(f"charge {number}")


async def pack(ctx: swf.Context, number: int) -> None:
    await charge(number)


class Packer:
    async def pack(self, ctx: swf.Context, number: int) -> None:
        await charge(number)


packer = Packer()


async def nested(ctx: swf.Context) -> None:
    async def inner(number: int) -> None:
        await charge(number)

    await asyncio.gather(inner(1), inner(2))
    await ctx.wait_for_signal(GO)


async def nested_in_another_function(ctx: swf.Context) -> None:
    async def inner(number: int) -> None:
        await charge(number)

    await asyncio.gather(inner(1), inner(2))
    await ctx.wait_for_signal(GO)


async def in_branches(ctx: swf.Context) -> None:
    await asyncio.gather(pack(ctx, 1), pack(ctx, 2))
    await ctx.wait_for_signal(GO)


async def in_branches_with_a_limit(ctx: swf.Context) -> None:
    await asyncio.gather(asyncio.wait_for(pack(ctx, 1), 60), asyncio.wait_for(pack(ctx, 2), 60))
    await ctx.wait_for_signal(GO)


async def in_methods(ctx: swf.Context) -> None:
    await asyncio.gather(packer.pack(ctx, 1), packer.pack(ctx, 2))
    await ctx.wait_for_signal(GO)


async def without_key(ctx: swf.Context) -> None:
    await charge(1)
    await ctx.wait_for_signal(GO)


async def with_key(ctx: swf.Context) -> None:
    await charge.options(key="order-1")(1)
    await ctx.wait_for_signal(GO)


async def loop_without_keys(ctx: swf.Context) -> None:
    for number in (1, 2, 3):
        await charge(number)
    await ctx.wait_for_signal(GO)


async def loop_with_keys(ctx: swf.Context) -> None:
    for number in (1, 2, 3):
        await charge.options(key=str(number))(number)
    await ctx.wait_for_signal(GO)


async def under_another_name(ctx: swf.Context) -> None:
    await charge.options(name="charge in euros")(1)
    await ctx.wait_for_signal(GO)


async def unlabelled(ctx: swf.Context) -> None:
    await ctx.step(plain_charge, 1)
    await ctx.wait_for_signal(GO)


async def labelled(ctx: swf.Context) -> None:
    await ctx.step("pay", plain_charge, 1)
    await ctx.wait_for_signal(GO)


async def in_a_scope(ctx: swf.Context) -> None:
    with ctx.scope("agent"):
        await charge(1)
    await ctx.wait_for_signal(GO)


async def in_a_scope_with_key(ctx: swf.Context) -> None:
    with ctx.scope("agent", key="1"):
        await charge(1)
    await ctx.wait_for_signal(GO)


HELD = {
    "the function around the branches is renamed": (nested, nested_in_another_function),
    "branches get a limit": (in_branches, in_branches_with_a_limit),
    "a branch becomes a method": (in_branches, in_methods),
    "a method becomes a function": (in_methods, in_branches),
    "a nested function moves to the module": (nested, in_branches),
    "a key is added": (without_key, with_key),
    "a key is dropped": (with_key, without_key),
    "keys are added in a loop": (loop_without_keys, loop_with_keys),
    "a step gets another name by options": (without_key, under_another_name),
    "a function gets a name": (unlabelled, labelled),
    "a scope gets a key": (in_a_scope, in_a_scope_with_key),
    "a scope loses its key": (in_a_scope_with_key, in_a_scope),
    "a scope is put around": (without_key, in_a_scope),
    "a scope is taken away": (in_a_scope, without_key),
}


@pytest.mark.parametrize(("before", "after"), HELD.values(), ids=HELD)
async def test_an_edit_that_would_repeat_a_finished_step_holds_the_run(shop: Shop, before: Any, after: Any) -> None:
    handle = await begun(shop, before)
    done = list(did)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
    assert did == done
    assert "charge" in str(run.hold_reason)
    with swf.testing.serving(shop.app, shop.deploy(before)):  # and the old code goes on with all of it
        async with shop.app.worker():
            await handle.resume()
            await handle.result("10s")
    assert did == done


async def by_removal(ctx: swf.Context) -> None:
    await ctx.wait_for_signal(GO)
    await notify(1)


async def added_before_with_a_key(ctx: swf.Context) -> None:
    await charge.options(key="fee")(2)
    await charge(1)
    await ctx.wait_for_signal(GO)


GOES_ON = {
    "a step is removed and another one has its arguments behind a wait": (without_key, by_removal, ["notify 1"]),
    "a use with a key is added before": (without_key, added_before_with_a_key, ["charge 2"]),
    "the handler is renamed": (in_branches, in_branches, []),
}


@pytest.mark.parametrize(("before", "after", "new"), GOES_ON.values(), ids=GOES_ON)
async def test_an_edit_that_leaves_every_step_recognisable_goes_on(
    shop: Shop, before: Any, after: Any, new: Any
) -> None:
    handle = await begun(shop, before)
    did.clear()
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            await handle.result("10s")
    assert did == new


class Search:
    async def run(self, ctx: swf.Context) -> None:
        await ctx.step("look " + "up", slow)


class Mail:
    async def run(self, ctx: swf.Context) -> None:
        await ctx.step("se" + "nd", quick)


executions: list[int] = []


async def slow(*_: str) -> None:
    if len(executions) == 1:
        await asyncio.Event().wait()
    did.append("slow")


async def quick(*_: str) -> None:
    did.append("quick")


async def steps_side_by_side(ctx: swf.Context) -> None:
    executions.append(1)
    bodies = {"search": slow, "mail": quick}
    await asyncio.gather(*(ctx.step("tool " + tool, body, "same") for tool, body in bodies.items()))


async def objects_side_by_side(ctx: swf.Context) -> None:
    executions.append(1)
    made = [kind() for kind in (Search, Mail)]
    await asyncio.gather(*(tool.run(ctx) for tool in made))


async def children_side_by_side(ctx: swf.Context) -> None:
    executions.append(1)
    await asyncio.gather(ctx.step("tool " + "search", slow), *(ctx.run("t.child" + ".v1", 1) for _ in range(1)))


@pytest.mark.parametrize("code", [steps_side_by_side, objects_side_by_side, children_side_by_side])
async def test_a_restart_with_the_same_code_holds_no_run_whatever_its_names_are_computed_from(
    shop: Shop, code: Any
) -> None:
    """The first of its parts is not on record and is judged before the others have asked for theirs."""
    executions.clear()

    @shop.app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> None:
        did.append("quick")

    workflow = shop.deploy(code)
    with swf.testing.serving(shop.app, workflow):
        async with shop.app.worker(drain=0.0):
            handle = await shop.app.trigger(workflow)
            while "quick" not in did or not await handle.steps():
                await asyncio.sleep(0.01)
        async with shop.app.worker():
            await handle.result("20s")
    assert sorted(did) == ["quick", "slow"]


def without_wraps(function: Any) -> Any:
    async def inner(number: int) -> None:
        await function(number)

    return inner


wrapped_charge = without_wraps(plain_charge)


async def delegating_charge(number: int) -> None:
    await plain_charge(number)


class Bank:
    async def charge(self, number: int) -> None:
        did.append(f"charge {number}")

    async def charge_card(self, number: int) -> None:
        did.append(f"charge {number}")


bank = Bank()


async def charged(ctx: swf.Context) -> None:
    await ctx.step(plain_charge, 1)
    await ctx.wait_for_signal(GO)


async def charged_in_a_wrapper(ctx: swf.Context) -> None:
    await ctx.step(wrapped_charge, 1)
    await ctx.wait_for_signal(GO)


async def charged_by_delegation(ctx: swf.Context) -> None:
    await ctx.step(delegating_charge, 1)
    await ctx.wait_for_signal(GO)


async def charged_in_a_lambda(ctx: swf.Context) -> None:
    await ctx.step("pay", lambda: plain_charge(1))
    await ctx.wait_for_signal(GO)


async def charged_at_the_bank(ctx: swf.Context) -> None:
    await ctx.step(bank.charge, 1)
    await ctx.wait_for_signal(GO)


async def charged_at_the_bank_by_card(ctx: swf.Context) -> None:
    await ctx.step(bank.charge_card, 1)
    await ctx.wait_for_signal(GO)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (charged, charged_in_a_wrapper),
        (charged, charged_by_delegation),
        (charged, charged_in_a_lambda),
        (charged_at_the_bank, charged_at_the_bank_by_card),
    ],
)
async def test_an_old_name_counts_only_where_the_workflow_itself_can_still_ask_for_it(
    shop: Shop, before: Any, after: Any
) -> None:
    """The new step may call the old function, and the old method may still stand in its class."""
    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            await until_held(shop.app, handle.id)
    assert did == ["charge 1"]


async def test_of_several_records_that_a_new_call_may_be_none_is_advised(shop: Shop) -> None:
    async def before(ctx: swf.Context) -> None:
        await ctx.step("charge", plain_charge, 1)
        await ctx.step("ship", plain_charge, 1)
        await ctx.wait_for_signal(GO)

    async def after(ctx: swf.Context) -> None:
        await ctx.step("charge by card", plain_charge, 1)
        await ctx.step("post", plain_charge, 1)
        await ctx.wait_for_signal(GO)

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            held = await until_held(shop.app, handle.id)
    assert "If it is one of them, write @swf.step(name='charge by card', formerly=…)" in str(held.hold_reason)


async def test_new_for_one_call_says_nothing_of_another(shop: Shop) -> None:
    """Two steps are new to the run; only one of them has been looked at by an operator."""

    async def before(ctx: swf.Context) -> None:
        await ctx.step("old", plain_charge, 1)
        await ctx.wait_for_signal(GO)

    async def after(ctx: swf.Context) -> None:
        await ctx.step("check", quick)
        await ctx.step("pay", plain_charge, 1)
        await ctx.wait_for_signal(GO)

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            first = await until_held(shop.app, handle.id)
            await handle.resume(run_new=True)
            second = await until_held(shop.app, handle.id)
            assert did == ["charge 1", "quick"]
            await handle.resume(run_new=True)
            await handle.result("10s")
    assert str(first.hold_reason).startswith("check#0")
    assert str(second.hold_reason).startswith("pay#0")
    assert did == ["charge 1", "quick", "charge 1"]


async def test_what_is_under_way_beside_a_renamed_step_comes_to_its_record(shop: Shop) -> None:
    """A step body that is cut off would be done again by the code that fits."""
    gate, begins = asyncio.Event(), asyncio.Event()

    async def post() -> None:
        begins.set()
        await gate.wait()
        did.append("post")

    async def before(ctx: swf.Context) -> None:
        await charge(1)
        await ctx.wait_for_signal(GO)

    async def after(ctx: swf.Context) -> None:
        async def renamed() -> None:
            await begins.wait()
            asyncio.get_running_loop().call_later(0.1, gate.set)
            await ctx.step("pay", plain_charge, 1)

        async def posting() -> None:
            await ctx.step("post", post)

        await asyncio.gather(posting(), renamed())
        await ctx.wait_for_signal(GO)

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            await until_held(shop.app, handle.id)
    assert did == ["charge 1", "post"]
    assert any("post#0" in step.step_id for step in await handle.steps() if step.status == "succeeded")
