"""procrastinate: one async worker, ten jobs at a time.

It fetches one job per statement, and a hundred at a time was no faster than ten when both were measured. LISTEN/NOTIFY
is on (its default), so an idle worker is woken. It has no checkpointed steps, so there is no `steps` here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector
from stage import Clock, make_clock, play

CONCURRENCY = 10
CONNECTIONS = 20
BULK = 1_000


def _app(url: str, clock: Clock, connections: int) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=connections, max_size=connections))

    @app.task(name="noop")
    async def noop(order: int, note: str) -> None:
        clock.tick()

    return app


class Door:
    def __init__(self, app: App) -> None:
        self._task = app.tasks["noop"]

    async def one(self, payload: dict[str, Any]) -> None:
        await self._task.defer_async(**payload)

    async def many(self, everything: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(everything), BULK):
            await self._task.batch_defer_async(*everything[start : start + BULK])


@asynccontextmanager
async def door(url: str) -> AsyncIterator[Door]:
    async with _app(url, Clock(1), CONNECTIONS).open_async() as app:
        yield Door(app)


async def _prepare(url: str) -> None:
    async with _app(url, Clock(1), 1).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def _drain(url: str, jobs: int) -> dict[str, Any]:
    looking = await psycopg.AsyncConnection.connect(url, autocommit=True)
    clock = make_clock(jobs)

    async def done() -> int:
        cursor = await looking.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
        row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async with looking, _app(url, clock, CONCURRENCY + 2).open_async() as app:
        working = asyncio.create_task(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False))
        try:
            return await clock.wait_async(done)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


if __name__ == "__main__":
    play(
        prepare=lambda url: asyncio.run(_prepare(url)),
        door=door,
        drain=lambda url, jobs: asyncio.run(_drain(url, jobs)),
    )
