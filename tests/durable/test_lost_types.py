"""No value changes its type without a word: outputs, inputs, and inputs that nobody would see."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest

import simpleworkflow as swf
from simpleworkflow.model.states import Status

if TYPE_CHECKING:
    from fractions import Fraction as Missing

ONCE = swf.Retry(max_attempts=1)
RETRIED = swf.Retry(max_attempts=5, initial="1ms")


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=str.upper)
    id: str
    total: Decimal


@pydantic.dataclasses.dataclass
class Amount:
    cents: int = pydantic.Field(gt=0)


def unresolved() -> Missing:
    return Decimal(1)  # type: ignore[return-value]


@pytest.fixture
def started() -> list[str]:
    return []


async def test_an_output_of_a_step_that_would_come_back_as_another_type_fails_the_step_for_good(
    app: swf.App, started: list[str]
) -> None:
    async def price(sku: str):  # type: ignore[no-untyped-def]
        started.append(sku)
        return Decimal("1.10")

    @app.workflow("t.price.v1", retry=RETRIED)
    async def handler(ctx: swf.Context) -> str:
        value = await ctx.step(swf.step(retry=RETRIED)(price), "x")
        return str(value * 2)

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"output of step price .* annotate `-> Decimal`") as caught:
            await app.run(handler, timeout="15s")
    assert started == ["x"]
    assert caught.value.is_a(swf.PayloadError)
    assert caught.value.run.attempt == 1


async def test_a_result_of_a_workflow_that_would_come_back_as_another_type_fails_the_run_for_good(
    app: swf.App,
) -> None:
    @app.workflow("t.pair.v1", retry=RETRIED)
    async def handler(ctx: swf.Context):  # type: ignore[no-untyped-def]
        return 1, "a"

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"result of t\.pair\.v1 .* annotate `-> tuple\[int, str\]`") as caught:
            await app.run(handler, timeout="15s")
    assert caught.value.run.attempt == 1


async def test_an_annotation_that_cannot_be_resolved_is_told_when_it_would_have_mattered(app: swf.App) -> None:
    @app.workflow("t.unresolved.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> str:
        return str(await ctx.step(unresolved))

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"cannot be resolved \(name 'Missing' is not defined\)"):
            await app.run(handler, timeout="15s")


async def test_an_input_that_the_handler_would_get_as_another_type_is_refused_and_nothing_is_created(
    app: swf.App, url: str
) -> None:
    @app.workflow("t.input.v1")
    async def handler(ctx: swf.Context, order) -> None: ...  # type: ignore[no-untyped-def]

    for target in (handler, "t.input.v1"):
        for call in (app.trigger, app.run):
            with pytest.raises(
                swf.PayloadError, match=r"at \$\.total: .* annotate the parameter as `dict\[str, Decimal\]`"
            ):
                await call(target, {"total": Decimal(1)})
    assert [run async for run in app.runs()] == []
    elsewhere = swf.App(url)
    assert (await elsewhere.trigger("t.input.v1", {"total": Decimal(1)})).is_new, "it is for the other side to read"
    await elsewhere.close()


async def test_models_with_aliases_and_pydantic_dataclasses_go_through_a_run_and_its_replays(app: swf.App) -> None:
    async def double(order: Order) -> Order:
        return Order(ID=order.id, TOTAL=order.total * 2)

    async def count(orders: list[Order]) -> dict[str, Amount]:
        return {order.id: Amount(int(order.total * 100)) for order in orders}

    @app.workflow("t.models.v1", retry=ONCE)
    async def handler(ctx: swf.Context, orders: list[Order]) -> list[Amount]:
        doubled = [await ctx.step(double, order) for order in orders]
        amounts = await ctx.step(count, doubled)
        more = await ctx.wait_for_signal("more", Order)
        await ctx.sleep("1100ms")  # and again from the top
        return [*amounts.values(), Amount(int(more.total))]

    async with app.worker():
        handle = await app.trigger(handler, [Order(ID="a", TOTAL=Decimal("1.10"))])
        await handle.signal("more", {"ID": "b", "TOTAL": "7"})
        assert await handle.result("15s") == [Amount(220), Amount(7)]


async def test_constraints_are_checked_on_the_way_out_of_a_step(app: swf.App) -> None:
    async def lower(by: int) -> Amount:
        amount = Amount(1)
        amount.cents -= by
        return amount

    @app.workflow("t.constraint.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> Amount:
        return await ctx.step(lower, 5)

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="greater than 0"):
            await app.run(handler, timeout="15s")


@pytest.fixture
def takes_none(app: swf.App, started: list[str]) -> swf.Workflow[None, None]:
    @app.workflow("t.none.v1", retry=RETRIED)
    async def handler(ctx: swf.Context) -> None:
        started.append(str(ctx.idempotency_key))

    return handler


@pytest.mark.parametrize("given", [5, [], {"a": 1}, "", False])
async def test_an_input_for_a_workflow_that_takes_none_is_refused_also_by_name(
    app: swf.App, takes_none: swf.Workflow[None, None], given: Any
) -> None:
    for target in ("t.none.v1", takes_none):
        with pytest.raises(swf.InvalidInput, match=r"t\.none\.v1 takes no input"):
            await app.trigger(target, given)  # type: ignore[arg-type]
    with pytest.raises(swf.InvalidSchedule, match=r"t\.none\.v1 takes no input"):
        await app.schedules.put("s", "t.none.v1", every="1h", payload=given)
    assert [run async for run in app.runs()] == []


@pytest.mark.parametrize("given", [None, {}])
async def test_no_input_is_none_however_it_is_spelled(
    app: swf.App, takes_none: swf.Workflow[None, None], given: Any, started: list[str]
) -> None:
    async with app.worker():
        await app.run("t.none.v1", given, timeout="15s")
    assert started == ["None"]


async def test_a_stored_input_that_nobody_would_see_holds_the_run_before_its_code_begins(
    app: swf.App, url: str, takes_none: swf.Workflow[None, None], started: list[str]
) -> None:
    elsewhere = swf.App(url)  # it does not know the workflow
    handle = await elsewhere.trigger("t.none.v1", {"a": 1})
    async with app.worker(), asyncio.timeout(15):
        while not (run := await handle.get()).is_held:
            await asyncio.sleep(0.01)
    await elsewhere.close()
    assert "t.none.v1 takes no input, but this run has a payload" in str(run.hold_reason)
    assert (started, run.attempt) == ([], 0)


async def test_the_end_of_another_run_may_start_a_workflow_that_takes_no_input(
    app: swf.App, takes_none: swf.Workflow[None, None], started: list[str]
) -> None:
    @app.workflow("t.fails.v1", retry=ONCE, on_failure="t.none.v1")
    async def fails(ctx: swf.Context, n: int) -> None:
        raise ValueError("no")

    @app.workflow("t.undone.v1", retry=ONCE, on_cancel="t.none.v1")
    async def undone(ctx: swf.Context, n: int) -> None:
        await ctx.sleep("1h")

    async with app.worker():
        with pytest.raises(swf.RunFailed):
            await app.run(fails, 1, timeout="15s")
        handle = await app.trigger(undone, 1)
        await app.cancel(handle.id)
        handles = [app.handle(run.id) async for run in app.runs(type="t.none.v1")]
        for one in handles:
            await one.result("15s")
            assert (await one.get()).status is Status.SUCCEEDED
    assert {key.split(":")[0] for key in started} == {"on_cancel", "dead_letter"}


@pytest.mark.parametrize(
    ("kind", "argument", "value"),
    [(Decimal, "1.10", Decimal("1.10")), (tuple, [1, 2], (1, 2)), (UUID, str(UUID(int=7)), UUID(int=7))],
)
async def test_a_class_that_is_run_as_a_step_gives_back_one_of_its_own(
    app: swf.App, kind: Any, argument: Any, value: Any
) -> None:
    executions: list[Any] = []

    @app.workflow("t.class.v1")
    async def made(ctx: swf.Context) -> None:
        executions.append(await ctx.step(kind, argument))
        await ctx.sleep("1100ms")

    async with app.worker():
        await app.run(made, timeout="10s")
    assert executions == [value, value]


class NotFound(pydantic.BaseModel):
    reason: str = "none"


async def look_up(name: str) -> NotFound | dict[str, int]:
    return {"stock": 3}


async def test_a_dict_is_never_read_as_a_model_that_stands_in_a_union_with_it(app: swf.App) -> None:
    @app.workflow("t.look_up.v1", retry=RETRIED)
    async def by_step(ctx: swf.Context) -> str:
        return repr(await ctx.step(swf.step(retry=RETRIED)(look_up), "bolts"))

    @app.workflow("t.found.v1", retry=RETRIED)
    async def by_result(ctx: swf.Context) -> NotFound | dict[str, int]:
        return {"stock": 3}

    @app.workflow("t.find.v1")
    async def by_input(ctx: swf.Context, found: NotFound | dict[str, int]) -> str:
        return repr(found)

    async with app.worker():
        for handler in (by_step, by_result):
            with pytest.raises(swf.RunFailed, match=r"at \$: a dict would come back as .*NotFound"):
                await app.run(handler, timeout="15s")
    with pytest.raises(swf.PayloadError, match=r"at \$: a dict would come back as .*NotFound"):
        await app.trigger(by_input, {"stock": 3})
    assert [run async for run in app.runs(type="t.find.v1")] == []


@dataclasses.dataclass
class Doubled:
    net: Decimal

    def __post_init__(self) -> None:
        self.net *= 2


async def test_an_object_that_its_class_would_change_at_each_reading_reaches_nobody(app: swf.App) -> None:
    async def double() -> Doubled:
        return Doubled(Decimal(10))

    @app.workflow("t.step.v1", retry=RETRIED)
    async def by_step(ctx: swf.Context) -> Decimal:
        return (await ctx.step(double)).net

    @app.workflow("t.result.v1", retry=RETRIED)
    async def by_result(ctx: swf.Context) -> Doubled:
        return Doubled(Decimal(10))

    @app.workflow("t.input.v1")
    async def by_input(ctx: swf.Context, order: Doubled) -> None: ...

    async with app.worker():
        for handler in (by_step, by_result):
            with pytest.raises(swf.RunFailed, match=r"at \$\.net: .* __post_init__ runs at each reading"):
                await app.run(handler, timeout="15s")
        handle = await app.trigger("t.elsewhere.v1")
        for call in (
            lambda: app.trigger(by_input, Doubled(Decimal(10))),
            lambda: handle.signal("go", Doubled(Decimal(10))),
        ):
            with pytest.raises(swf.PayloadError, match=r"at \$\.net: "):
                await call()
    assert [run async for run in app.runs(type="t.input.v1")] == []


@dataclasses.dataclass
class Visit:
    at: datetime

    def __post_init__(self) -> None:
        pass


async def test_a_moment_in_the_hour_that_exists_twice_goes_through_a_run(app: swf.App) -> None:
    @app.workflow("t.visit.v1", retry=ONCE)
    async def handler(ctx: swf.Context, visit: Visit) -> Visit:
        return visit

    second = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    async with app.worker():
        back = await app.run(handler, Visit(second), timeout="15s")
    assert back.at.isoformat() == second.isoformat() == "2024-10-27T02:30:00+01:00"


async def test_keys_that_an_annotation_does_not_name_are_read_from_others_and_refused_from_us(
    app: swf.App, url: str
) -> None:
    @app.workflow("t.order.v1")
    async def handler(ctx: swf.Context, order: Narrow) -> int:
        return order["id"]

    with pytest.raises(swf.PayloadError, match=r"payload of t\.order\.v1 .* at \$\.extra: .* would be dropped"):
        await app.trigger(handler, {"id": 1, "extra": 2})
    elsewhere = swf.App(url)
    handle = await elsewhere.trigger("t.order.v1", {"id": 1, "extra": 2})
    async with app.worker():
        assert await handle.result(timeout="15s") == 1
    await elsewhere.close()


class Narrow(TypedDict):
    id: int


async def test_by_name_a_workflow_of_this_app_has_its_types_too(app: swf.App) -> None:
    @app.workflow("t.kid.v1")
    async def kid(ctx: swf.Context, price: Decimal) -> Decimal:
        return price * 2

    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> list[str]:
        handle = await ctx.trigger("t.kid.v1", Decimal("1.10"))
        inside = await app.trigger("t.kid.v1", Decimal("1.10"))
        found = [await ctx.run("t.kid.v1", Decimal("1.10")), await handle.result(), await inside.result()]
        return [repr(one) for one in found]

    @app.workflow("t.plain.v1", retry=ONCE)
    def plain(ctx: swf.SyncContext) -> list[str]:
        found = [ctx.run("t.kid.v1", Decimal("1.10")), ctx.trigger("t.kid.v1", Decimal("1.10")).result()]
        return [repr(one) for one in found]

    async with app.worker():
        assert await app.run(parent, timeout="15s") == ["Decimal('2.20')"] * 3
        assert await app.run(plain, timeout="15s") == ["Decimal('2.20')"] * 2
        assert repr(await app.run("t.kid.v1", Decimal("1.10"), timeout="15s")) == "Decimal('2.20')"
        (many,) = await app.trigger_many("t.kid.v1", [Decimal("1.10")])
        assert repr(await many.result("15s")) == "Decimal('2.20')"


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_child_that_takes_no_input_refuses_one(
    app: swf.App, takes_none: swf.Workflow[None, None], by_name: bool, started: list[str]
) -> None:
    target: Any = "t.none.v1" if by_name else takes_none

    @app.workflow("t.parent.v1", retry=RETRIED)
    async def parent(ctx: swf.Context, is_run: bool) -> None:
        await (ctx.run(target, 5) if is_run else ctx.trigger(target, 5))

    async with app.worker():
        for is_run in (True, False):
            with pytest.raises(swf.RunFailed, match=r"t\.none\.v1 takes no input, but got int") as caught:
                await app.run(parent, is_run, timeout="15s")
            assert caught.value.run.attempt == 1
    assert started == []
    assert [run async for run in app.runs(type="t.none.v1")] == []


async def test_a_name_that_this_app_does_not_know_takes_anything_and_gives_plain_json(app: swf.App, url: str) -> None:
    there = swf.App(url, settings=app.settings)

    @there.workflow("t.there.v1")
    async def elsewhere(ctx: swf.Context, price: Decimal) -> Decimal:
        return price * 2

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[str]:
        return [repr(await ctx.run("t.there.v1", Decimal("1.10")))]

    async with app.worker(), there.worker():
        assert await app.run(parent, timeout="15s") == ["'2.20'"]
        assert await app.run("t.there.v1", Decimal("1.10"), timeout="15s") == "2.20"
    await there.close()
