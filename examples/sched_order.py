"""sched's order in Python: activities, a durable timer, a signal, and the history that tells of them.

    python examples/sched_order.py            the order waits to be paid; kill it there, and start it again
    python examples/sched_order.py pay        pays, from another process, before or while it waits
    python examples/sched_order.py history    prints what has happened so far

Runs are kept in ./simpleworkflow.db, or where SIMPLEWORKFLOW_URL says.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import UUID

import simpleworkflow as swf

app = swf.App()
ORDER = UUID("00000000-0000-4000-8000-000000000001")


@swf.step(retry=swf.Retry(max_attempts=3, initial="100ms", jitter=0.0))
async def reserve(item: str) -> str:
    if swf.step_info().attempt == 0:
        raise ConnectionError("the warehouse does not answer")
    return f"one {item}, reserved"


@app.workflow("sched.order.v1", timeout="1h")
async def order(ctx: swf.Context, item: str) -> str:
    reserved = await ctx.step(reserve, item)
    await ctx.sleep("1500ms")
    cents = await ctx.wait_for_signal("paid", int, timeout="30m")
    return f"{reserved} for {cents} cents"


async def show() -> None:
    for line in await app.handle(ORDER).history():
        print(line.idx, line.type, line.details_json or "")


async def main(what: str) -> None:
    if what == "history":
        await show()
        return
    handle = await app.trigger(order, "book", id=ORDER)
    if what == "pay":
        await handle.signal("paid", 4200)
        return
    async with app.worker():
        print(await handle.result())
    await show()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "work"))
