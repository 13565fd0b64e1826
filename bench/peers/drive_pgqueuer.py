"""pgqueuer: one QueueManager on asyncpg and uvloop, batches of 500, a pool of four connections to drain.

Its documentation names asyncpg the fastest driver and batch_size the lever (default 10): 100, 250 and 1,000 ran at
0.85, 0.97 and 0.85 of the pace of 500 (six pairs each). In bulk, 5,000 and 10,000 jobs to a call were not faster than
1,000 (medians of 0.99 and 0.93), and all at once was slower. A pool of four drained at 1.06 of the pace of one
connection (nine pairs), pools of two and ten at 0.97 and 1.02 (five); for the latency, one connection was quicker. An
idle worker listens for notifications, whatever the batch. Finished jobs are deleted and logged. It has no checkpointed
steps, so there is no `steps` here.

Callers borrow single connections, because the pool driver resets a connection after every statement, which costs a
round trip. Twenty connections were not faster than a few: every insert notifies, and notifying commits stand in line.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Job, PgQueuer, Queries
from stage import make_clock, play

BATCH = 500
BULK = 1_000
CONNECTIONS = 4
POOL = 4


class Door:
    def __init__(self, connections: Sequence[asyncpg.Connection]) -> None:
        self._free: asyncio.LifoQueue[Queries] = asyncio.LifoQueue()
        for connection in connections:
            self._free.put_nowait(Queries(AsyncpgDriver(connection)))

    async def one(self, payload: dict[str, Any]) -> None:
        queries = await self._free.get()
        try:
            await queries.enqueue("noop", json.dumps(payload).encode())
        finally:
            self._free.put_nowait(queries)

    async def many(self, everything: Sequence[dict[str, Any]]) -> None:
        queries = await self._free.get()
        for start in range(0, len(everything), BULK):
            chunk: list[bytes | None] = [json.dumps(one).encode() for one in everything[start : start + BULK]]
            await queries.enqueue(["noop"] * len(chunk), chunk, [0] * len(chunk))
        self._free.put_nowait(queries)


@asynccontextmanager
async def door(url: str) -> AsyncIterator[Door]:
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    try:
        yield Door(connections)
    finally:
        for connection in connections:
            await connection.close()


async def _prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def _drain(url: str, jobs: int) -> dict[str, Any]:
    async with asyncpg.create_pool(url, min_size=POOL, max_size=POOL) as pool:
        return await _work(AsyncpgPoolDriver(pool), url, jobs)


async def _serve(url: str, jobs: int) -> dict[str, Any]:
    connection = await asyncpg.connect(url)
    try:
        return await _work(AsyncpgDriver(connection), url, jobs)
    finally:
        await connection.close()


async def _work(driver: AsyncpgDriver | AsyncpgPoolDriver, url: str, jobs: int) -> dict[str, Any]:
    looking = await asyncpg.connect(url)
    pgq = PgQueuer(driver)
    clock = make_clock(jobs)

    @pgq.entrypoint("noop")
    async def noop(job: Job) -> None:
        clock.tick()

    async def done() -> int:
        return jobs - int(await looking.fetchval("SELECT count(*) FROM pgqueuer"))

    working = asyncio.create_task(pgq.run(batch_size=BATCH))
    try:
        return await clock.wait_async(done)
    finally:
        pgq.shutdown.set()
        await working
        await looking.close()


if __name__ == "__main__":
    uvloop.install()
    play(
        prepare=lambda url: asyncio.run(_prepare(url)),
        door=door,
        drain=lambda url, jobs: asyncio.run(_drain(url, jobs)),
        serve=lambda url, jobs: asyncio.run(_serve(url, jobs)),
    )
