"""The App that crash tests run in real worker processes. Every execution leaves lines in an effects log.

The log is the outside witness: one O_APPEND write per line survives any kill of the process, and it knows nothing of
the database. Lines are: what, run id, epoch, pid, and the host's clock.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time

import simpleworkflow as swf
from simpleworkflow.store.operations import schedules
from simpleworkflow.worker import process

if "CRASH_HOST" in os.environ:
    # As if this process ran on another machine: nobody can look at its pid.
    process.host_token = lambda: os.environ["CRASH_HOST"]  # type: ignore[assignment]

if "CRASH_SLOTS" in os.environ:
    # Many small transactions: more of them are under way when the process is killed.
    schedules.MOST_SLOTS = int(os.environ["CRASH_SLOTS"])

app = swf.App(
    settings=swf.Settings(
        lease=float(os.environ.get("CRASH_LEASE", "30")),
        sweep_every=float(os.environ.get("CRASH_SWEEP", "5")),
        poll_every=float(os.environ.get("CRASH_POLL", "1")),
    )
)


def leave(what: str, ctx: swf.Context | swf.SyncContext) -> None:
    line = f"{what} {ctx.run_id} {ctx.epoch} {os.getpid()} {time.time():.6f}\n"
    handle = os.open(os.environ["CRASH_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


@app.workflow("crash.slow.v1")
async def slow(ctx: swf.Context, seconds: float) -> str:
    """Ticks until its time is up; says so when it is stopped."""
    leave("start", ctx)
    try:
        for _ in range(max(round(seconds / 0.1), 1)):
            await asyncio.sleep(0.1)
            leave("tick", ctx)
    except asyncio.CancelledError:
        leave("stopped", ctx)
        raise
    leave("end", ctx)
    return str(ctx.epoch)


@app.workflow("crash.quick.v1")
async def quick(ctx: swf.Context, number: int) -> int:
    leave("start", ctx)
    await asyncio.sleep(0.02)
    leave("end", ctx)
    return number


@app.workflow("crash.poison.v1")
async def poison(ctx: swf.Context) -> None:
    leave("start", ctx)
    os._exit(13)


@app.workflow("crash.slow_poison.v1")
async def slow_poison(ctx: swf.Context, seconds: float) -> None:
    """As if its memory grew until the kernel ends the process."""
    leave("start", ctx)
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


@app.workflow("crash.block.v1")
async def block(ctx: swf.Context, seconds: float) -> str:
    """A bad citizen: it blocks the event loop."""
    leave("start", ctx)
    time.sleep(seconds)
    leave("end", ctx)
    return "kept"


@app.workflow("crash.thread.v1")
def thread(ctx: swf.SyncContext, seconds: float) -> str:
    leave("start", ctx)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ctx.is_cancelled():
        time.sleep(0.05)
    leave("end", ctx)
    return "done"


@app.workflow("crash.order.v1")
async def order(ctx: swf.Context) -> list[str]:
    """Six steps, a branch, a sleep and a signal; each body says when it starts."""

    async def do(name: str) -> str:
        async def body() -> str:
            leave(name, ctx)
            await asyncio.sleep(0.05)
            return f"{name} {ctx.run_id}"

        return await ctx.step(name, body)

    done = [await do("charge"), await do("reserve")]
    done += await asyncio.gather(do("pack"), do("label"))
    await ctx.sleep("1100ms")
    done.append(await do("send"))
    done.append(await ctx.wait_for_signal("approved"))
    return [*done, await do("notify")]


@app.workflow("crash.signed.v1")
async def signed(ctx: swf.Context) -> str:
    """Each record and the result name the process, the epoch and the execution that wrote them."""
    signature = f"{os.getpid()} {ctx.epoch} {secrets.token_hex(8)}"
    leave("start", ctx)

    async def sign() -> str:
        await asyncio.sleep(0.15)
        return signature

    for number in range(4):
        await ctx.step(f"part-{number}", sign)
    return signature


@app.workflow("crash.sleep.v1")
async def sleep(ctx: swf.Context, ballast: str) -> str:
    await ctx.sleep("1 day")
    return ballast
