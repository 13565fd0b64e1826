"""The workflows of the demo: charge, reserve, wait for an approval, make a label per parcel in a child run, notify.

The worker processes import this module. Steps only sleep: there is nothing outside to charge. Each step writes to the
effects log when its body starts and ends.

Leases are 2 s instead of 30 s: where the death of a process cannot be noticed at once, its runs come back sooner.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..app import App
from ..config import Settings
from ..model.retry import Retry
from ..runtime.context import Context
from ..runtime.step import step, step_info
from .effects_log import effect

DATABASE = "demo.db"
APPROVED = "approved"

app = App(DATABASE, settings=Settings(lease=2, sweep_every=1, concurrency=4))


@dataclass(frozen=True)
class Order:
    number: int
    parcels: list[str]
    stumbles: bool
    """Whether its first reservation fails on purpose."""

    @property
    def seconds(self) -> float:
        """How long each of its steps takes."""
        return 0.4 + self.number * 7 % 11 / 20


@dataclass(frozen=True)
class Parcel:
    order: int
    name: str


@step()
async def charge(order: Order) -> str:
    with effect(order.number):
        await asyncio.sleep(order.seconds)
        return f"receipt-{order.number:02}"


@step(retry=Retry(max_attempts=3, initial="300ms", max_delay="1s"))
async def reserve(order: Order) -> str:
    with effect(order.number):
        await asyncio.sleep(order.seconds)
        if order.stumbles and step_info().attempt == 0:
            raise ConnectionError(f"the stock did not answer for order {order.number}")
        return f"shelf-{order.number:02}"


@step()
async def make_label(parcel: Parcel) -> str:
    with effect(parcel.order):
        await asyncio.sleep(0.4 + parcel.order % 5 / 10)
        return f"label-{parcel.name}"


@step()
async def notify(order: Order, labels: list[str]) -> None:
    with effect(order.number):
        await asyncio.sleep(order.seconds)


@app.workflow("orders.label.v1")
async def label(ctx: Context, parcel: Parcel) -> str:
    return await ctx.step(make_label, parcel)


@app.workflow("orders.fulfil.v1")
async def fulfil(ctx: Context, order: Order) -> list[str]:
    await ctx.step(charge, order)
    await ctx.step(reserve, order)
    await ctx.wait_for_signal(APPROVED, str, timeout="10m")
    labels = await asyncio.gather(*(ctx.run(label, Parcel(order.number, p), key=p) for p in order.parcels))
    await ctx.step(notify, order, labels)
    return labels
