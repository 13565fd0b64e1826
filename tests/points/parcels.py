"""The App of the crash-point suite: one workflow with steps, a retry, branches, a timer, signals, a child and an event.

Every body leaves one line in an effects log before it does anything else: one O_APPEND write, which survives any death
of the process and knows nothing of the database. A line names the run, the step, the epoch, the attempt, the process
and a token of its own; the token is also the step's output, so that a checkpoint can be traced to the very execution
that made it. Bodies await nothing, so that branches reach the journal in the same order every time and a round trip has
the same number in every execution. Only the child takes a moment: its parent has then paused, as a rule.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from typing import Any

import simpleworkflow as swf

LOG = "POINTS_EFFECTS"
EMITS = hasattr(swf.Context, "emit")
EVENT = "points.parcelled"

app = swf.App(
    settings=swf.Settings(
        lease=2.0, sweep_every=0.5, poll_every=0.2, local_check_every=0.2, drain=0.0, suspect_seconds=0.5
    )
)


def lines() -> list[dict[str, Any]]:
    try:
        with open(os.environ[LOG]) as log:
            return [json.loads(line) for line in log]
    except FileNotFoundError:
        return []


def leave() -> str:
    """Say that the body of this step starts; returns the token of this execution."""
    info, token = swf.step_info(), uuid.uuid4().hex
    step = info.idempotency_key.partition(":")[2]
    line = {"run": str(info.run_id), "step": step, "epoch": info.epoch, "attempt": info.attempt, "token": token}
    handle = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (json.dumps({**line, "pid": os.getpid(), "at": time.time()}) + "\n").encode())
    finally:
        os.close(handle)
    return token


@swf.step(retry=swf.Retry(max_attempts=3, initial="10ms"))
async def charge() -> str:
    """Fails the first time that anybody tries it; what was tried is read from the log, not from memory."""
    run_id = str(swf.step_info().run_id)
    is_first = not [line for line in lines() if line["run"] == run_id]
    token = leave()
    if is_first:
        raise ConnectionError("the bank hung up")
    return token


async def weigh() -> str:
    return leave()


async def pack() -> str:
    return leave()


async def close() -> str:
    return leave()


async def print_label() -> str:
    await asyncio.sleep(0.05)
    return leave()


@app.workflow("points.label.v1")
async def label(ctx: swf.Context, number: int) -> str:
    return f"{number} {await ctx.step(print_label)}"


async def parcel(ctx: swf.Context) -> list[str]:
    return [await ctx.step(weigh), await ctx.step(pack)]


@app.workflow("points.order.v1")
async def order(ctx: swf.Context, number: int) -> dict[str, Any]:
    charged = await ctx.step(charge)
    early = await ctx.wait_for_signal("early")
    parcels = await asyncio.gather(parcel(ctx), parcel(ctx))
    await ctx.sleep("1010ms")
    late = await ctx.wait_for_signal("late")
    printed = await ctx.run(label, number)
    if EMITS:
        await ctx.emit(EVENT, {"number": number})
    closed = await ctx.step(close)
    return {
        "charge": charged,
        "early": early,
        "parcels": parcels,
        "late": late,
        "label": printed,
        "close": closed,
    }
