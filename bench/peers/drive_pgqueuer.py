"""pgqueuer: one QueueManager on asyncpg and uvloop, batches of 500.

Its documentation names asyncpg the fastest driver and batch_size the lever (default 10); 500 beat 100 in each of two
single trials. Finished jobs are deleted and logged. It has no checkpointed steps, so there is no `steps` here.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries
from stage import Clock, payloads, play

BATCH = 500
BULK = 1_000


async def _prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def _enqueue(url: str, jobs: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    bodies: list[bytes | None] = [json.dumps(one).encode() for one in payloads(jobs)]
    for start in range(0, jobs, BULK):
        chunk = bodies[start : start + BULK]
        await queries.enqueue(["noop"] * len(chunk), chunk, [0] * len(chunk))
    await connection.close()


async def _drain(url: str, jobs: int) -> dict[str, Any]:
    clock = Clock(jobs)
    connection, looking = await asyncpg.connect(url), await asyncpg.connect(url)
    pgq = PgQueuer(AsyncpgDriver(connection))

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
        await connection.close()
        await looking.close()


if __name__ == "__main__":
    uvloop.install()
    play(
        prepare=lambda url: asyncio.run(_prepare(url)),
        enqueue=lambda url, jobs: asyncio.run(_enqueue(url, jobs)),
        drain=lambda url, jobs: asyncio.run(_drain(url, jobs)),
    )
