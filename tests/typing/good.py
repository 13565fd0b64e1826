"""What type checkers must accept, and the types that they must see. Read by mypy and pyright, never run."""

# pyright: strict
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID, uuid4

import simpleworkflow as swf
from simpleworkflow.compat import pgqrs


@dataclass
class Order:
    id: str
    cents: int


@dataclass
class Receipt:
    paid: bool


app = swf.App("orders.db", settings=swf.Settings(lease=10))


@app.workflow("orders.pay.v1", retry=swf.Retry(max_attempts=5), timeout="1h", concurrency=4)
async def pay(ctx: swf.Context, order: Order) -> Receipt:
    ctx.log.info("paying %s for %s, attempt %d", order.id, ctx.run_id, ctx.attempt)
    await ctx.heartbeat("1m")
    return Receipt(order.cents > 0)


@app.workflow()
async def tick(ctx: swf.Context) -> int:
    return ctx.epoch


@app.workflow("orders.print.v1", on_cancel=tick, on_failure="ops.failed.v1")
def print_label(ctx: swf.SyncContext, words: list[str]) -> str:
    ctx.heartbeat(timedelta(seconds=30))
    return " ".join(words)


@app.workflow("orders.sweep.v1", lease=60)
def sweep(ctx: swf.SyncContext) -> None:
    assert not ctx.is_cancelled()


@app.workflow("orders.race.v1")
async def race(ctx: swf.Context, order: Order) -> str:
    first = await ctx.race(ctx.run(pay, order), ctx.sleep("3 days"))
    assert_type(first, swf.RaceResult[Receipt | None])
    three = await ctx.race(ctx.run(tick), ctx.wait_for_signal("word", str), ctx.sleep(1))
    assert_type(three.value, int | str | None)
    four = await ctx.race(ctx.run(tick), ctx.run(tick), ctx.now(), ctx.run(pay, order))
    assert_type(four.value, int | datetime | Receipt)
    many = await ctx.race(*[ctx.run(pay, order) for _ in range(9)])
    assert_type(many, swf.RaceResult[Receipt])
    assert_type((await ctx.race(ctx.wait_for_signal("any"), ctx.wait_for_signal("other"))).value, Any)
    return str(first.index)


@app.workflow("orders.sync_race.v1")
def sync_race(ctx: swf.SyncContext) -> int:
    first = ctx.race(lambda c: c.run(tick), lambda c: c.sleep("1h"))
    assert_type(first, swf.RaceResult[int | None])
    return first.index


label = app.declare("media.label.v1", input=str, output=list[str])
unknown = app.declare("media.unknown.v1")

assert_type(pay, swf.Workflow[Order, Receipt])
assert_type(tick, swf.Workflow[None, int])
assert_type(print_label, swf.Workflow[list[str], str])
assert_type(sweep, swf.Workflow[None, None])
assert_type(label, swf.Workflow[str, list[str]])


async def awaited(order: Order, key: str | None) -> None:
    handle = await app.trigger(pay, order, idempotency_key=key, priority=50, delay="5s", max_attempts=2)
    assert_type(handle, swf.RunHandle[Receipt])
    assert_type(await handle.result("30s"), Receipt)
    assert_type(await app.trigger(tick, require="worker", id=uuid4()), swf.RunHandle[int])
    assert_type(await app.run(pay, order, timeout=30, run_at=datetime.now(UTC)), Receipt)
    assert_type(await app.run(tick), int)
    assert_type(await app.run(label, "x"), list[str])
    assert_type(await app.trigger_many(pay, [order, order], start_within=60), list[swf.RunHandle[Receipt]])
    assert_type(await app.trigger("orders.pay.v1", {"id": "1"}), swf.RunHandle[Any])
    await app.run(unknown, {"any": "thing"})
    await app.trigger(sweep)
    assert_type(app.handle(handle.id, pay), swf.RunHandle[Receipt])
    assert_type(app.handle(key="order-1", workflow=pay), swf.RunHandle[Receipt])
    by_key = app.handle(key="order-1")
    assert_type(by_key, swf.RunHandle[Any])
    assert_type(await app.get(key=key), swf.Run)
    assert_type(await app.signal("approved", order, key="order-1"), UUID)
    assert_type(await app.signal("approved", payload=order, key="order-1"), UUID)
    assert_type(await app.signal(handle.id, "approved"), UUID)
    assert_type(await app.handle(key="order-1").wait(timeout="30s"), swf.Run)
    await app.handle(key="order-1").get_value("progress")
    run = await handle.cancel("why")
    assert_type(run, swf.Run)
    assert_type(run.status, swf.Status)
    async for one in app.runs(prefix="orders.", status=["failed", swf.Status.CANCELLED], limit=10):
        assert_type(one.id, UUID)
    async with app.worker(prefixes="orders.*", concurrency=10, drain="5s", on_unknown="leave"):
        pass


def blocking(order: Order) -> None:
    handle = app.sync.trigger(pay, order, priority=50)
    assert_type(handle, swf.SyncRunHandle[Receipt])
    assert_type(handle.result(timeout=timedelta(seconds=30)), Receipt)
    assert_type(app.sync.run(tick), int)
    assert_type(app.sync.run(print_label, ["a", "b"], timeout=1), str)
    assert_type(app.sync.trigger_many(label, ["x"]), list[swf.SyncRunHandle[list[str]]])
    assert_type(app.sync.handle(key="order-1", workflow=pay), swf.SyncRunHandle[Receipt])
    assert_type(app.sync.handle(handle.id, pay), swf.SyncRunHandle[Receipt])
    assert_type(app.sync.signal("approved", order, key="order-1"), UUID)
    assert_type(app.sync.signal("approved", payload=order, key="order-1"), UUID)
    assert_type(app.sync.handle(key="order-1").get_value("progress", as_type=Receipt), Receipt | None)
    assert_type(app.sync.cancel(key="order-1"), swf.Run)
    assert_type(app.sync.runs(), Iterator[swf.Run])
    with app.sync.worker(name="inside"):
        assert_type(handle.get(), swf.Run)


class Thumbnail(swf.WorkflowExecutor):
    """The seed's spelling is typed too."""

    def execute(self, run: swf.WorkflowRun) -> dict[str, str]:
        run.heartbeat(30)
        return {"status": "cancelled" if run.is_cancelled() else "completed"}


class Bank:
    """Decorated methods keep their types."""

    @swf.step(retry=swf.Retry(max_attempts=3))
    async def pay(self, cents: int, *, currency: str = "EUR") -> str:
        return f"{cents} {currency}"

    @swf.step
    def weigh(self, parcel: Order) -> int:
        return parcel.cents

    async def pay_twice(self) -> list[str]:
        return [await self.pay(1), await self.pay(2)]

    @staticmethod
    @swf.step
    async def rate(currency: str) -> float:
        return float(len(currency))


@swf.step
async def charge(cents: int) -> str:
    return str(cents)


@app.workflow("orders.bank.v1")
async def bank(ctx: swf.Context) -> str:
    one = Bank()
    assert_type(await one.pay(1, currency="CHF"), str)
    assert_type(await one.pay.options(key="k", timeout="3s")(1), str)
    assert_type(await ctx.step(one.pay, 1, currency="CHF"), str)
    assert_type(await ctx.step("pays", one.pay, 1), str)
    assert_type(await ctx.step(one.weigh, Order("7", 100)), int)
    assert_type(one.weigh(Order("7", 100)), int)
    assert_type(await Bank.pay(one, 1), str)
    assert_type(await Bank.rate("EUR"), float)
    assert_type(await ctx.step(Bank.rate, "EUR"), float)
    assert_type(await charge(1), str)
    return await ctx.step(charge, 1)


async def others(app: swf.App) -> None:
    handle = app.handle(uuid4(), pay)
    assert_type(await handle.get_value("progress", Receipt), Receipt | None)
    assert_type(await handle.get_value("progress"), Any)
    assert_type(await app.handle(key="order-4711").get_value("progress", Receipt), Receipt | None)
    assert_type(await app.handle(key="order-4711").get_value("progress", as_type=Receipt), Receipt | None)
    assert_type(await handle.get_value("progress", int), int | None)
    assert_type(await handle.get_value("progress", list[int] | None), Any)
    store = await pgqrs.open_store("x.db")
    assert_type(await pgqrs.workflow("zip_files").trigger({}).execute(store), str)
    async with swf.testing.env(app) as env:
        assert_type(env.now, datetime)


def others_blocking(app: swf.App) -> None:
    assert_type(app.sync.handle(uuid4()).get_value("progress", Receipt), Receipt | None)
    assert_type(app.sync.handle(uuid4()).get_value("progress", str), str | None)


def seed() -> None:
    poller = swf.IntentPoller(db_url="x.db", type_prefixes=["content.%"], worker_id="w", lease_duration=30)
    poller.register_executor("content.thumbnail.v1", Thumbnail())
    assert_type(swf.Client("x.db").create(swf.Intent(type="content.thumbnail.v1", payload={})), str)
