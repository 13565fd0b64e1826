"""simpleworkflow: one worker process at default settings, as `simpleworkflow worker` runs it; BENCH_POLL_EVERY makes it
ask that often instead of resting until it is told.

The worker runs in the main thread on its own event loop, made the way the command makes it; only the signal handlers
are left out. The runs are counted through the public door. The URL of a SQLite database is the path of its file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from stage import STEPS, Clock, make_clock, payloads, play

import simpleworkflow as swf

app = swf.App()
clock = Clock(1)


@app.workflow("bench.noop.v1")
async def noop(ctx: swf.Context, order: dict[str, Any]) -> None:
    clock.tick()


async def nothing() -> None:
    return None


@app.workflow("bench.ten_steps.v1")
async def ten_steps(ctx: swf.Context, order: dict[str, Any]) -> None:
    clock.tick()
    for _ in range(STEPS):
        await ctx.step(nothing)


class Door:
    async def one(self, payload: dict[str, Any]) -> swf.RunHandle[None]:
        return await app.trigger(noop, payload)

    async def many(self, everything: Sequence[dict[str, Any]]) -> None:
        await app.trigger_many(noop, everything)

    async def result(self, handle: swf.RunHandle[None]) -> None:
        await handle.result()


@asynccontextmanager
async def door(url: str) -> AsyncIterator[Door]:
    app._client.use(url)
    try:
        yield Door()
    finally:
        await app.close()


def prepare(url: str) -> None:
    app._client.use(url)
    app.sync.migrate()
    app.sync.close()


def drain(url: str, jobs: int) -> dict[str, Any]:
    app._client.use(url)
    return asyncio.run(work(jobs))


def steps(url: str, jobs: int) -> dict[str, Any]:
    app._client.use(url)
    return asyncio.run(work(jobs, first=ten_steps))


async def work(jobs: int, first: swf.Workflow[Any, Any] | None = None) -> dict[str, Any]:
    global clock
    if first is not None:
        await app.trigger_many(first, payloads(jobs))
    await app.doctor.check()
    clock = make_clock(jobs)
    poll_every = os.environ.get("BENCH_POLL_EVERY")
    choices: Any = {"poll_every": float(poll_every)} if poll_every else {}
    worker = app._make_worker(process_ends=True, **choices)
    running = asyncio.create_task(worker.run())
    try:
        return await clock.wait_async(succeeded)
    finally:
        worker.stop()
        await running
        await app.close()


async def succeeded() -> int:
    return sum(count.runs for count in await app.activity.counts() if count.status == "succeeded")


if __name__ == "__main__":
    play(prepare=prepare, door=door, drain=drain, steps=steps)
