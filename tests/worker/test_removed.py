"""A row that is deleted under a worker: its code stops, and not at the next renewal only."""

from __future__ import annotations

import asyncio

from support.ledger import Raw

import simpleworkflow as swf


async def test_the_code_of_a_run_stops_when_its_row_is_deleted(url: str, raw: Raw) -> None:
    app = swf.App(url, settings=swf.Settings(lease=600.0))
    began, stopped = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.workflow("test.removed.v1")
    async def removed(ctx: swf.Context) -> None:
        loop.call_soon_threadsafe(began.set)
        try:
            await asyncio.Event().wait()
        finally:
            loop.call_soon_threadsafe(stopped.set)

    async with app.worker():
        run = await app.trigger(removed)
        await asyncio.wait_for(began.wait(), 20)
        raw.sql("DELETE FROM workflow.workflow_run WHERE id = ?", run.id)
        await asyncio.wait_for(stopped.wait(), 20)
    await app.close()
