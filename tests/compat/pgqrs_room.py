"""What the tests of pgqrs's spelling share: quick stores, and consumers that poll while a test looks on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.compat.pgqrs import Consumer, RunRecord, RunStatus, Store, consumer, poll_all, workflow

QUICK = swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.2, drain=0.0)


@asynccontextmanager
async def polling(*consumers: Consumer) -> AsyncIterator[None]:
    task = asyncio.create_task(poll_all(*consumers))
    try:
        yield
    finally:
        for one in consumers:
            one.stop()
        await asyncio.wait_for(task, 30)


async def serve(store: Store, name: str, handler: Any, **options: Any) -> Consumer:
    return await consumer("worker-1", 8080, name).handler(handler, **options).create(store)


async def until(store: Store, run_id: str, status: RunStatus) -> RunRecord:
    """The run, once it has that status."""
    run = RunRecord(await store.app.get(run_id))

    async def is_there() -> bool:
        nonlocal run
        run = await workflow(run.workflow).get_run(run_id, store)
        return run.status is status

    await eventually(is_there, f"run {run_id} becomes {status}")
    return run
