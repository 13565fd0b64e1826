"""The App that the restart tests run in real worker processes: one small workflow for each of sched's scenarios.

An activity that is to be interrupted waits for a file, the gate. The outside witness of what ran is another file with
one line per execution: it knows nothing of the database and survives any kill.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import simpleworkflow as swf

app = swf.App(
    settings=swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.1, drain=0.0),
)


def leave(line: str) -> None:
    with Path(os.environ["SCHED_EFFECTS"]).open("a") as effects:
        effects.write(f"{line}\n")


async def gate() -> None:
    while not Path(os.environ["SCHED_GATE"]).exists():
        await asyncio.sleep(0.01)


@swf.step(retry=swf.Retry(max_attempts=3, initial="20ms", jitter=0.0))
async def ship(order: dict[str, Any]) -> list[Any]:
    """Fails once, then is interrupted: input, attempt and policy must outlive the worker."""
    attempt = swf.step_info().attempt
    leave(f"ship {attempt}")
    if attempt == 0:
        raise ConnectionError("the first one fails")
    await gate()
    if attempt == 1:
        raise ConnectionError("so does the second")
    return [order, attempt]


@app.workflow("sched.activity.v1")
async def activity(ctx: swf.Context, order: dict[str, Any]) -> list[Any]:
    await ctx.step("reserve", lambda: leave("reserve"))
    return await ctx.step(ship, order)


@swf.step(retry=swf.Retry(max_attempts=2, initial="3s", jitter=0.0))
async def charge() -> str:
    attempt = swf.step_info().attempt
    leave(f"charge {attempt}")
    if attempt == 0:
        raise ConnectionError("no line")
    return "paid"


@app.workflow("sched.retry.v1")
async def retry(ctx: swf.Context) -> str:
    return await ctx.step(charge)


@app.workflow("sched.sleep.v1")
async def sleep(ctx: swf.Context) -> str:
    await ctx.step("before", lambda: leave("before"))
    await ctx.sleep("3s")
    await ctx.step("after", lambda: leave("after"))
    return "slept"


@app.workflow("sched.signal.v1")
async def signal(ctx: swf.Context) -> list[Any]:
    first = await ctx.wait_for_signal("first")
    second = await ctx.wait_for_signal("second")
    return [first, second]


@app.workflow("sched.unheard.v1")
async def unheard(ctx: swf.Context) -> str:
    try:
        await ctx.wait_for_signal("go", timeout="3s")
    except swf.SignalTimeout:
        return "nobody came"
    return "somebody came"


@app.workflow("sched.limit.v1", timeout="3s")
async def limit(ctx: swf.Context) -> None:
    await ctx.wait_for_signal("never")


@app.workflow("sched.cancel.v1")
async def cancel(ctx: swf.Context) -> None:
    await ctx.wait_for_signal("never")
    leave("went on although cancelled")


@app.workflow("sched.quick.v1")
async def quick(ctx: swf.Context, number: int) -> int:
    return number


@app.workflow("sched.child.v1")
async def child(ctx: swf.Context, number: int) -> int:
    await ctx.wait_for_signal("answer")
    return number * 2


@app.workflow("sched.parent.v1")
async def parent(ctx: swf.Context) -> int:
    return await ctx.run(child, 21)
