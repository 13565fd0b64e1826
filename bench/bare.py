"""The bare loop: what the driver alone allows, with our SQL and no engine around it.

One asyncpg connection claims a hundred runs and settles them, in turn; the rows are decoded and every payload is
parsed, nothing else. Run as a program of its own (`bare.py URL N`), so that its processor time is its own; it prints
the same figures as a driver. The event loop is asyncio's, without uvloop.

The danger is a loop that stops early and looks fast: anything but N settled runs is an error.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import asyncpg
from hot import SESSION, Moved, claim, claim_values, settle, settle_values


async def drain(url: str, runs: int) -> dict[str, Any]:
    connection = await asyncpg.connect(url, server_settings=SESSION)
    try:
        low = None
        began, cpu_began = time.perf_counter(), time.process_time()
        done = 0
        while done < runs:
            settled, low = await one_batch(connection, low)
            if not settled:
                raise SystemExit(f"{done} of {runs} runs were there to be claimed")
            done += settled
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    finally:
        await connection.close()
    if done != runs:
        raise SystemExit(f"{done} runs were settled instead of {runs}")
    return {"jobs": runs, "seconds": seconds, "cpu_seconds": cpu}


async def one_batch(connection: asyncpg.Connection[Any], low: Any) -> tuple[int, Any]:
    """How many there were, and when the last of them was due."""
    rows = await connection.fetch(claim().for_one, *claim_values(low))
    if rows and "payload" not in rows[0]:
        raise Moved(f"the claim brings no payload any more but {list(rows[0].keys())}")
    for row in rows:
        json.loads(row["payload"])
    taken = sorted((row["id"], row["epoch"]) for row in rows)
    arrays = settle_values([run_id for run_id, _ in taken], [epoch for _, epoch in taken])
    settled = await connection.fetchval(settle().text, *arrays)
    if settled != len(rows):
        raise SystemExit(f"{len(rows)} runs were claimed and {settled} settled")
    return len(rows), max((row["run_at"] for row in rows), default=None)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(drain(sys.argv[1], int(sys.argv[2])))))
