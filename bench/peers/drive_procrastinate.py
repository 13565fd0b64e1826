"""procrastinate: one async worker, ten jobs at a time.

It fetches one job per statement, and a hundred at a time was no faster than ten when both were measured. LISTEN/NOTIFY
is on (its default). It has no checkpointed steps, so there is no `steps` here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector
from stage import Clock, payloads, play

CONCURRENCY = 10
BULK = 1_000


def _app(url: str, clock: Clock) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, max_size=CONCURRENCY + 2))

    @app.task(name="noop")
    async def noop(order: int, note: str) -> None:
        clock.tick()

    return app


async def _prepare(url: str) -> None:
    async with _app(url, Clock(1)).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def _enqueue(url: str, jobs: int) -> None:
    everything = payloads(jobs)
    async with _app(url, Clock(1)).open_async() as app:
        for start in range(0, jobs, BULK):
            await app.tasks["noop"].batch_defer_async(*everything[start : start + BULK])


async def _drain(url: str, jobs: int) -> dict[str, Any]:
    clock = Clock(jobs)
    looking = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def done() -> int:
        cursor = await looking.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
        row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async with looking, _app(url, clock).open_async() as app:
        working = asyncio.create_task(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False))
        try:
            return await clock.wait_async(done)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


if __name__ == "__main__":
    play(
        prepare=lambda url: asyncio.run(_prepare(url)),
        enqueue=lambda url, jobs: asyncio.run(_enqueue(url, jobs)),
        drain=lambda url, jobs: asyncio.run(_drain(url, jobs)),
    )
