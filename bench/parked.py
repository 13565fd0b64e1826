"""One worker process full of runs that wait, and how much its memory grew for them.

`parked.py asleep URL N` parks N runs in the database: each sleeps for an hour, is unwound and leaves the process.
`parked.py resident URL N` keeps them in memory: each also waits for an asyncio.Event, which nobody can write down, so
its code stays where it is. (Without a durable wait beside it such a run would be at work, in a slot, not parked.) N may
be 0: as many as fit before the worker begins to send the oldest back.

Memory is what the system counts as resident, and it grows for many reasons: first imports, first plans, arenas of the
allocator, which together look like a leak until they level off. So two thousand runs are put to sleep first,
unmeasured; the runs are made by one INSERT inside the server, so that the
process holds nothing of them but what its worker does; and garbage is collected before each look.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import asyncpg

import simpleworkflow as swf
from simpleworkflow.worker.slots import MOST_RESIDENT

WARM = 2_000
POLL_SECONDS = 0.05
DEADLINE_SECONDS = 300.0
HOUR = 3600
INSERT = """
INSERT INTO workflow.workflow_run (type, payload)
SELECT $1::text, json_build_object('order', n, 'note', repeat('x', 80)) FROM generate_series(1, $2::int) AS n
"""
PARKED = {
    "asleep": "SELECT count(*) FROM workflow.workflow_run WHERE status = 'paused'",
    "resident": "SELECT count(*) FROM workflow.workflow_step s JOIN workflow.workflow_run r ON r.id = s.run_id"
    " WHERE s.status = 'waiting' AND r.status = 'leased'",
}
"""A resident run is at rest when its durable wait has been put on record while it is still leased."""

app = swf.App()
released = asyncio.Event()


@app.workflow("bench.asleep.v1")
async def asleep(ctx: swf.Context, order: dict[str, Any]) -> None:
    await ctx.sleep(HOUR)


@app.workflow("bench.resident.v1")
async def resident(ctx: swf.Context, order: dict[str, Any]) -> None:
    await asyncio.gather(ctx.sleep(HOUR), released.wait())


async def grown(kind: str, url: str, runs: int) -> dict[str, Any]:
    app._client.use(url)
    await app.doctor.check()
    worker = app._make_worker(process_ends=True)
    running = asyncio.create_task(worker.run())
    connection = await asyncpg.connect(url)
    try:
        await park(connection, "asleep", WARM, WARM)
        before = memory()
        await park(connection, kind, runs, runs + WARM if kind == "asleep" else runs)
        after = memory()
    finally:
        released.set()
        worker.stop()
        await running
        await connection.close()
        await app.close()
    return {"jobs": runs, "warm_up": WARM, "before_bytes": before, "after_bytes": after}


async def park(connection: asyncpg.Connection[Any], kind: str, runs: int, expected: int) -> None:
    """Make so many more runs and wait until so many are parked in all."""
    await connection.execute(INSERT, f"bench.{kind}.v1", runs)
    found = 0
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (found := await connection.fetchval(PARKED[kind])) < expected:
            await asyncio.sleep(POLL_SECONDS)
    if found != expected:
        raise SystemExit(f"{expected} runs were to be {kind}, and {found} are")


def memory() -> int:
    """Resident bytes of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_resident() -> int:
    """One more, and the worker would send the oldest back."""
    return MOST_RESIDENT * app.settings.concurrency - 1


if __name__ == "__main__":
    how, where, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    print(json.dumps(asyncio.run(grown(how, where, number or most_resident()))))
