"""Mistakes that type checkers must find: each line that ends in `# error` and no other. Never run."""

# pyright: strict
from __future__ import annotations

from dataclasses import dataclass

import simpleworkflow as swf


@dataclass
class Order:
    id: str


app = swf.App("orders.db")


@app.workflow("orders.pay.v1")
async def pay(ctx: swf.Context, order: Order) -> int:
    return 1


@app.workflow("orders.tick.v1")
def tick(ctx: swf.SyncContext) -> str:
    return "tick"


label = app.declare("media.label.v1", input=str, output=list[str])


async def awaited(order: Order) -> None:
    await app.trigger(pay, "order-7")  # error: wrong input
    await app.trigger(pay, None)  # error: None is not an order
    await app.trigger(pay)  # error: missing input
    await app.trigger(tick, order)  # error: takes no input
    await app.trigger(pay, order, order)  # error: two inputs
    await app.trigger(label, 7)  # error: wrong input of a declaration
    await app.trigger(pay, order, colour="red")  # error: unknown option
    await app.trigger(pay, order, priority="high")  # error: wrong type of option
    await app.trigger(pay, order, run_at="tomorrow")  # error: not a datetime
    await app.trigger(pay, order, require="luck")  # error: not one of the two words
    await app.trigger(pay, order, timeout=3)  # error: trigger does not wait
    await app.trigger_many(pay, ["order-7"])  # error: wrong inputs
    await app.trigger(7)  # error: not a workflow
    await app.run(pay, "order-7")  # error: wrong input
    await app.run(pay)  # error: missing input
    await app.run(pay, order, timeout=[3])  # error: not a duration
    one: str = await app.run(pay, order)  # error: wrong result
    handle = await app.trigger(pay, order)
    two: str = await handle.result()  # error: wrong result
    three: swf.RunHandle[str] = await app.trigger(pay, order)  # error: wrong handle
    four: int = await app.run(label, "x")  # error: wrong result of a declaration
    five: str = app.run(tick)  # error: not awaited
    six: list[str] = await app.handle(handle.id, pay).result()  # error: wrong result
    await app.get(key=4711)  # error: not a key
    await app.signal("approved", order)  # error: neither id nor key
    app.worker(concurency=4)  # error: misspelt option
    print(one, two, three, four, five, six)


def blocking(order: Order) -> None:
    app.sync.trigger(pay, "order-7")  # error: wrong input
    app.sync.trigger(pay)  # error: missing input
    app.sync.trigger(tick, 1)  # error: takes no input
    app.sync.trigger(pay, order, colour="red")  # error: unknown option
    app.sync.trigger(pay, order, delay=[1])  # error: wrong type of option
    app.sync.trigger_many(label, [1])  # error: wrong inputs
    one: str = app.sync.run(pay, order)  # error: wrong result
    two: str = app.sync.trigger(pay, order).result()  # error: wrong result
    three: int = app.sync.run(tick, timeout="1s")  # error: wrong result
    app.sync.run(label, "x", timeout=None, priority="low")  # error: wrong type of option
    app.sync.worker(drain=["5s"])  # error: wrong type of option
    print(one, two, three)


swf.App(uri="x.db")  # error: unknown option
app.workflow("a.b.v1", retries=3)  # error: unknown option
app.workflow("a.b.v1", retry=3)  # error: wrong type of option
app.workflow("a.b.v1", on_cancel=3)  # error: wrong type of option


@app.workflow("orders.two.v1")  # error: two inputs
async def two_inputs(ctx: swf.Context, a: int, b: int) -> None: ...


@app.workflow("orders.none.v1")  # error: no ctx
async def no_ctx(order: Order) -> None: ...


class Bank:
    @swf.step
    async def pay(self, cents: int) -> str:
        return str(cents)


@app.workflow("orders.bank.v1")
async def bank(ctx: swf.Context) -> None:
    one = Bank()
    await one.pay("x")  # error: wrong argument
    await one.pay()  # error: missing argument
    await one.pay.options(key="k")("x")  # error: wrong argument
    await one.pay.options(kee="k")(1)  # error: unknown option
    first: int = await one.pay(1)  # error: wrong result
    await ctx.step(one.pay, "x")  # error: wrong argument
    await ctx.step("pays", one.pay, 1, 2)  # error: two arguments
    second: int = await ctx.step(one.pay, 1)  # error: wrong result
    await Bank.pay(1)  # error: no object
    print(first, second)
