"""An order that is charged, approved by a signal, labelled by child runs and announced: the README's second example.

    python examples/order.py

Everything happens in one process here. The labels could as well be made by another service: then this program would
write `label = app.declare("media.label.v1", input=str, output=str)`, and a worker over there would have its code.
"""

import asyncio
from dataclasses import dataclass

import simpleworkflow as swf

app = swf.App()


@dataclass
class Order:
    id: str
    cents: int
    parcels: list[str]


@dataclass
class Approval:
    by: str


@app.workflow("media.label.v1")
async def label(ctx: swf.Context, parcel: str) -> str:
    return f"label for {parcel}"


@swf.step(retry=swf.Retry(max_attempts=5), timeout="30s")
async def charge(order: Order, *, currency: str) -> str:
    """A bank would get swf.step_info().idempotency_key, so that a repeated call charges once."""
    return f"{order.cents / 100:.2f} {currency}"


@swf.step()
async def refund(payment: str) -> None: ...


@app.workflow("orders.fulfil.v1", timeout="30 days")
async def fulfil(ctx: swf.Context, order: Order) -> list[str]:
    payment = await ctx.step(charge, order, currency="EUR")
    await ctx.set_value("state", f"{payment} charged, waiting for approval")
    try:
        ok = await ctx.wait_for_signal("approved", Approval, timeout="7 days")
    except swf.SignalTimeout:
        await ctx.step(refund, payment)
        raise swf.PermanentError("nobody approved") from None
    labels = await asyncio.gather(*(ctx.run(label, parcel, key=parcel) for parcel in order.parcels))
    await ctx.emit("order.fulfilled", {"id": order.id, "by": ok.by})
    return labels


async def main() -> None:
    order = Order("4711", 1999, ["a lamp", "two books"])
    async with app.worker():
        handle = await app.trigger(fulfil, order, idempotency_key=order.id, priority=50)
        if handle.is_new:
            await handle.signal("approved", Approval(by="ada"))
        print(await handle.result(timeout="30s"))
        print(await handle.get_value("state"))
        for line in await handle.history():
            print(f"{line.idx:3} {line.type}")
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
