"""A deploy changes the code of runs that are under way: nothing that is on record is done again unseen.

The first half is about whole Apps; the second tries every pair of edits of a workflow of six steps with branches.
"""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from support.deploys import DONE, GO, Shop, begun, until_held, until_it_waits

import simpleworkflow as swf


@pytest.fixture
def shop(app: swf.App) -> Shop:
    return Shop(app)


charge = swf.step(lambda: None, name="unused")
charge_card = ship = notify = charge


def of(shop: Shop, *names: str, **options: Any) -> None:
    """The steps that the code below names, as globals of this module, as they are in people's own."""
    for name in names:
        globals()[name] = shop.step(name, **options)


async def old_code(ctx: swf.Context) -> list[str]:
    first = [await ctx.step(charge, 1), await ctx.step(ship, 1)]
    await ctx.wait_for_signal(GO)
    return [*first, await ctx.step(notify)]


async def new_code(ctx: swf.Context) -> list[str]:
    first = [await ctx.step(charge_card, 1), await ctx.step(ship, 1)]
    await ctx.wait_for_signal(GO)
    return [*first, await ctx.step(notify)]


async def test_a_renamed_step_is_not_run_again_but_holds_the_run_with_both_names(shop: Shop) -> None:
    of(shop, "charge", "charge_card", "ship", "notify")
    handle = await begun(shop, old_code)
    new = shop.deploy(new_code)
    with swf.testing.serving(shop.app, new):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
            assert shop.did == ["charge", "ship"]
            assert "charge_card#0 is not on record, and charge#0, which is, is not asked for" in str(run.hold_reason)
            assert run.attempt == 0
            assert "renamed" in await handle.explain()
            (told,) = [one for one in await shop.app.doctor.examine() if one.check == "held-runs"]
            assert "1 of them because what is on record does not fit the code" in told.seen
            assert "resume --run-new" in str(told.fix)
            await handle.resume()
            await until_held(shop.app, handle.id)  # the same code meets the same doubt
            await handle.resume(run_new=True)
            assert await handle.result("10s") == ["charge_card", "ship", "notify"]
    assert shop.did == ["charge", "ship", "charge_card", "notify"]


async def as_a_keyword(ctx: swf.Context) -> str:
    paid = await ctx.step(charge_card, 1)
    await ctx.wait_for_signal(GO)
    return "{charge}".format_map(SimpleNamespace(charge=paid).__dict__)


async def as_a_key(ctx: swf.Context) -> dict[str, str]:
    paid = str(await ctx.step(charge_card, 1))
    await ctx.wait_for_signal(GO)
    return {"charge": paid}


async def as_a_value(ctx: swf.Context) -> None:
    await ctx.set_value("state", "charge")
    await ctx.step(charge_card, 1)
    await ctx.wait_for_signal(GO)


async def as_a_part(ctx: swf.Context) -> str:
    paid = await ctx.step(charge_card, 1)
    await ctx.wait_for_signal(GO)
    return f"charge{paid}"


@pytest.mark.parametrize("code", [as_a_keyword, as_a_key, as_a_value, as_a_part])
async def test_a_renamed_step_holds_the_run_although_its_old_name_is_a_word_of_the_code(shop: Shop, code: Any) -> None:
    of(shop, "charge", "charge_card", "ship", "notify")
    handle = await begun(shop, old_code)
    with swf.testing.serving(shop.app, shop.deploy(code)):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
    assert "charge_card#0 is not on record, and charge#0, ship#0 are, and are not asked for" in str(run.hold_reason)
    assert shop.did == ["charge", "ship"]


async def test_a_step_that_is_added_before_others_of_its_kind_and_arguments_runs(shop: Shop) -> None:
    async def body(number: int) -> None:
        shop.did.append("body")

    async def before(ctx: swf.Context) -> None:
        for name in ("first", "second"):
            await ctx.step(name, body, 1)
        await ctx.wait_for_signal(GO)

    async def after(ctx: swf.Context) -> None:
        for name in ("added", "first", "second"):
            await ctx.step(name, body, 1)
        await ctx.wait_for_signal(GO)

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            await handle.result("10s")
    assert shop.did == ["body"] * 3


class Desk:
    async def pay(self, ctx: swf.Context) -> None:
        await ctx.step(charge, 1)


desk = Desk()


async def test_a_step_that_is_added_before_those_of_an_object_runs(shop: Shop) -> None:
    of(shop, "charge", "notify")

    async def before(ctx: swf.Context) -> None:
        await desk.pay(ctx)
        await ctx.wait_for_signal(GO)

    async def after(ctx: swf.Context) -> None:
        await ctx.step(notify, 1)
        await desk.pay(ctx)
        await ctx.wait_for_signal(GO)

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            await handle.result("10s")
    assert shop.did == ["charge", "notify"]


async def test_a_step_finds_its_record_under_a_former_name(shop: Shop) -> None:
    of(shop, "charge", "ship", "notify")
    handle = await begun(shop, old_code)
    of(shop, "charge_card", formerly="charge")
    new = shop.deploy(new_code)
    with swf.testing.serving(shop.app, new):
        async with shop.app.worker():
            assert await handle.result("10s") == ["charge", "ship", "notify"]
    assert shop.did == ["charge", "ship", "notify"]


async def test_a_record_under_a_former_name_belongs_to_one_call_only(shop: Shop) -> None:
    of(shop, "charge")

    async def before(ctx: swf.Context) -> list[str]:
        first = [await ctx.step(charge, 1), await ctx.step(charge, 2)]
        await ctx.wait_for_signal(GO)
        return first

    async def after(ctx: swf.Context) -> list[str]:
        done = [await ctx.step(charge_card, 1), await ctx.step(charge, 2), await ctx.step(charge, 3)]
        await ctx.wait_for_signal(GO)
        return done

    handle = await begun(shop, before)
    of(shop, "charge_card", formerly="charge")
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            await handle.result("10s")
    steps = {step.step_id: step.input_json for step in await handle.steps() if step.kind == "step"}
    assert steps == {"charge#0": "1", "charge#1": "2", "charge#2": "3"}
    assert shop.did == ["charge", "charge", "charge"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_new_step_that_bears_a_former_name_is_not_taken_for_the_renamed_one(shop: Shop, key: Any) -> None:
    of(shop, "charge", key=key)
    of(shop, "charge_card", key=key, formerly="charge")

    async def code(ctx: swf.Context) -> list[str]:
        first = await ctx.step(charge, 1)
        await ctx.wait_for_signal(GO)
        return [first, await ctx.step(charge_card, 1)]

    handle = await begun(shop, code)
    with swf.testing.serving(shop.app, shop.deploy(code)):
        async with shop.app.worker():
            assert await handle.result("10s") == ["charge", "charge_card"]
    assert shop.did == ["charge", "charge_card"]


@pytest.mark.parametrize("policy", ["warn", "run"])
async def test_a_workflow_may_say_that_renamed_steps_run(
    shop: Shop, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    of(shop, "charge", "charge_card", "ship", "notify")
    handle = await begun(shop, old_code)
    new = shop.deploy(new_code, on_changed=policy)
    with swf.testing.serving(shop.app, new), caplog.at_level(logging.WARNING):
        async with shop.app.worker():
            assert await handle.result("10s") == ["charge_card", "ship", "notify"]
    assert any("seems to be renamed; it runs" in line.message for line in caplog.records) is (policy == "warn")


async def test_a_hold_of_another_reason_lets_no_record_make_room(shop: Shop) -> None:
    of(shop, "charge", "charge_card", "ship", "notify")
    handle = await begun(shop, old_code)
    with swf.testing.serving(shop.app, shop.deploy(new_code)):
        async with shop.app.worker():
            await until_held(shop.app, handle.id)
    await handle.resume()
    await handle.hold(reason="for another reason")
    await handle.resume(run_new=True)
    with swf.testing.serving(shop.app, shop.deploy(old_code)):
        async with shop.app.worker():
            assert await handle.result("10s") == ["charge", "ship", "notify"]
    assert shop.did == ["charge", "ship", "notify"]


async def test_a_record_that_is_left_behind_at_the_end_is_told(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    of(shop, "charge", "ship", "notify")
    handle = await begun(shop, old_code)

    async def without(ctx: swf.Context) -> list[str]:
        first = await ctx.step(ship, 1)
        await ctx.wait_for_signal(GO)
        return [first, await ctx.step(notify)]

    with swf.testing.serving(shop.app, shop.deploy(without)), caplog.at_level(logging.WARNING):
        async with shop.app.worker():
            assert await handle.result("10s") == ["ship", "notify"]
    assert "has ended without asking for charge#0, which is on record" in caplog.text


async def test_a_child_of_another_name_is_not_started_beside_the_one_on_record(shop: Shop) -> None:
    @shop.app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        shop.did.append("child")
        return number

    async def before(ctx: swf.Context) -> int:
        one: int = await ctx.run("t.child.v1", 1)
        await ctx.wait_for_signal(GO)
        return one

    async def after(ctx: swf.Context) -> int:
        one: int = await ctx.run("t.child.v2", 1)
        await ctx.wait_for_signal(GO)
        return one

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
    assert "t.child.v2#0 is not on record, and t.child.v1#0" in str(run.hold_reason)


async def test_a_renamed_branch_holds_the_run(shop: Shop) -> None:
    of(shop, "charge", "ship")

    async def pack(ctx: swf.Context, number: int) -> str:
        return str(await ctx.step(charge, number))

    async def wrap(ctx: swf.Context, number: int) -> str:
        return str(await ctx.step(charge, number))

    async def before(ctx: swf.Context) -> list[str]:
        done = await asyncio.gather(pack(ctx, 1), pack(ctx, 2))
        await ctx.wait_for_signal(GO)
        return done

    async def after(ctx: swf.Context) -> list[str]:
        done = await asyncio.gather(wrap(ctx, 1), wrap(ctx, 2))
        await ctx.wait_for_signal(GO)
        return done

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            await until_held(shop.app, handle.id)
    assert shop.did == ["charge", "charge"]


async def test_a_step_that_moved_into_a_branch_holds_the_run(shop: Shop) -> None:
    of(shop, "charge", "ship", "notify")
    handle = await begun(shop, old_code)

    async def pay(ctx: swf.Context) -> str:
        return str(await ctx.step(charge, 1))

    async def after(ctx: swf.Context) -> list[str]:
        paid = await asyncio.gather(pay(ctx))
        await ctx.step(ship, 1)
        await ctx.wait_for_signal(GO)
        return paid

    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
    assert "seems to be moved" in str(run.hold_reason)
    assert shop.did == ["charge", "ship"]


async def test_what_lost_a_race_is_not_missed(shop: Shop) -> None:
    of(shop, "charge", "ship", "notify")

    async def slowly(ctx: swf.Context) -> None:
        await ctx.step(charge, 1)
        await ctx.sleep("1h")

    async def quickly(ctx: swf.Context) -> None:
        await ctx.step(ship, 1)
        await ctx.sleep("100ms")

    async def code(ctx: swf.Context) -> str:
        await ctx.race(slowly(ctx), quickly(ctx))
        await ctx.wait_for_signal(GO)
        return str(await ctx.step(charge, 1))

    handle = await begun(shop, code)
    with swf.testing.serving(shop.app, shop.deploy(code)):
        async with shop.app.worker():
            assert await handle.result("10s") == "charge"


async def test_calls_of_a_scope_come_in_no_order_and_are_not_taken_for_renamed_ones(shop: Shop) -> None:
    executions: list[int] = []

    async def call(ctx: swf.Context, name: str, key: str) -> None:
        async def body(argument: str) -> None:
            shop.did.append(key)

        await ctx.step(swf.step(name="".join(reversed(name)), key=key)(body), key)

    async def code(ctx: swf.Context) -> None:
        executions.append(1)

        async def one() -> None:
            await call(ctx, "ledom", "1")
            if len(executions) == 1:
                with ctx.scope("waiting", key="1"):
                    await ctx.wait_for_signal(GO)
            await call(ctx, "rehto", "3")  # before the other task has asked for what it has on record

        async def other() -> None:
            await call(ctx, "loot", "2")
            if len(executions) == 1:
                with ctx.scope("waiting", key="2"):
                    await ctx.wait_for_signal("never")

        with ctx.scope("agent"):
            await asyncio.gather(one(), other())

    handle = await begun(shop, code)
    with swf.testing.serving(shop.app, shop.deploy(code)):
        async with shop.app.worker():
            await handle.result("10s")
    assert shop.did == ["1", "2", "3"]


# Data that the code cannot read.


async def test_an_input_that_the_code_cannot_read_holds_the_run_and_fitting_code_goes_on(
    app: swf.App, url: str
) -> None:
    async def strict(ctx: swf.Context, order: dict[str, int]) -> int:
        return order["cents"]

    async def lenient(ctx: swf.Context, order: dict[str, Any]) -> int:
        return int(order["cents"])

    def made(handler: Any, **options: Any) -> Any:
        return swf.App("unused.db").workflow("t.input.v1", **options)(handler)

    elsewhere = swf.App(url)  # which does not know the code
    handle = await elsewhere.trigger("t.input.v1", {"cents": "12"})
    with swf.testing.serving(app, made(strict)):
        async with app.worker():
            run = await until_held(app, handle.id)
            assert "its payload does not fit t.input.v1" in str(run.hold_reason)
            assert "Deploy code that fits it, then resume it" in str(run.hold_reason)
            assert run.attempt == 0
    await handle.resume()
    with swf.testing.serving(app, made(lenient)):
        async with app.worker():
            assert await handle.result("10s") == 12
    with swf.testing.serving(app, made(strict, on_misfit="fail")):
        async with app.worker():
            with pytest.raises(swf.RunFailed, match=r"does not fit .* Deploy code that fits it, then retry it"):
                await (await elsewhere.trigger("t.input.v1", {"cents": "12"})).result("10s")
    await elsewhere.close()


async def test_a_record_that_the_code_cannot_read_holds_the_run_whatever_the_code_catches(shop: Shop) -> None:
    async def price() -> Any:
        return "12"

    async def priced() -> int:
        return 12

    priced.__name__ = "price"

    async def before(ctx: swf.Context) -> str:
        cents = await ctx.step(price)
        await ctx.wait_for_signal(GO)
        return str(cents)

    async def after(ctx: swf.Context) -> str:
        try:
            cents = await ctx.step(priced)
        except Exception:
            return "caught"
        await ctx.wait_for_signal(GO)
        return str(cents)

    handle = await begun(shop, before)
    with swf.testing.serving(shop.app, shop.deploy(after)):
        async with shop.app.worker():
            run = await until_held(shop.app, handle.id)
    assert "what is on record of price#0 cannot be read" in str(run.hold_reason)
    await handle.resume()
    with swf.testing.serving(shop.app, shop.deploy(before)):
        async with shop.app.worker():
            assert await handle.result("10s") == "12"


@pytest.mark.parametrize("policy", ["hold", "fail"])
async def test_a_record_of_another_kind_holds_the_run_or_fails_it(shop: Shop, policy: Any) -> None:
    of(shop, "charge", "ship", "notify")

    async def after(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("charge")

    handle = await begun(shop, old_code)
    with swf.testing.serving(shop.app, shop.deploy(after, on_misfit=policy)):
        async with shop.app.worker():
            if policy == "hold":
                assert "recorded as a step and is a signal now" in str(
                    (await until_held(shop.app, handle.id)).hold_reason
                )
            else:
                with pytest.raises(swf.RunFailed, match="NonDeterminismError") as caught:
                    await handle.result("10s")
                told = caught.value.error["message"]
                assert told.endswith(f"Deploy code that fits it; then: simpleworkflow runs retry {handle.id}")


def test_a_policy_of_another_word_is_refused(app: swf.App) -> None:
    with pytest.raises(swf.InvalidPolicy, match="on_changed must be 'hold', 'warn' or 'run', not 'stop'"):
        swf.Settings(on_changed="stop")  # type: ignore[arg-type]
    with pytest.raises(swf.InvalidPolicy, match=r"new_code: on_misfit must be 'hold' or 'fail', not 'raise'"):
        app.workflow("t.x.v1", on_misfit="raise")(new_code)  # type: ignore[arg-type]


# Signals that do not fit.


async def test_a_signal_that_does_not_fit_may_be_skipped_and_is_on_record(app: swf.App) -> None:
    @app.workflow("t.signal.v1", retry=DONE)
    async def waits(ctx: swf.Context) -> int:
        number = await ctx.wait_for_signal("number", int, timeout="1h", on_misfit="skip")
        await ctx.wait_for_signal(GO)
        return number

    async with app.worker():
        handle = await app.trigger(waits)
        await handle.signal("number", "one")
        await until_it_waits(app, handle.id)
        await handle.signal("number", {"two": 2})
        await handle.signal("number", 3)
        while not [step for step in await handle.steps() if step.step_id == "number#0" and step.completed_at]:
            await asyncio.sleep(0.01)
        await until_it_waits(app, handle.id)
        await handle.signal(GO)
        assert await handle.result("10s") == 3
    skipped = [step for step in await handle.steps() if step.step_id.startswith("@skipped ")]
    assert [step.output_json for step in skipped] == ['"one"', '{"two":2}']
    assert all("does not fit" in str(step.error_json) for step in skipped)
