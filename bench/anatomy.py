"""Where the milliseconds between a trigger and its handler's start go, on a machine that was asleep before.

    python bench/anatomy.py client URL RUNS

The same path as the latency measure takes: this process triggers, 25 to 60 ms apart; a worker in a process of its own
is idle until each run comes. Both note when they pass the seams of the way (the clock is the machine's, so instants of
the two can be compared), and the difference of two seams is a part of the whole. The last line printed is JSON: the
median of each part in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import simpleworkflow as swf
from simpleworkflow.store.drivers.postgres import PostgresDriver
from simpleworkflow.store.protocol import Operation
from simpleworkflow.worker.worker import Worker

Mark = tuple[str, float]
WARM_UP = 30
PAUSE = (0.025, 0.060)
SEAMS = ("triggered", "insert sent", "insert answered", "heard", "claim sent", "claim answered", "started")
PARTS = {
    "prepare": ("triggered", "insert sent"),
    "insert": ("insert sent", "insert answered"),
    "notice": ("insert answered", "heard"),
    "ask": ("heard", "claim sent"),
    "claim": ("claim sent", "claim answered"),
    "start": ("claim answered", "started"),
    "whole": ("triggered", "started"),
}
"""The parts of the way, by the seams at which they begin and end; they add up to the whole."""
OPERATIONS = {"create": "insert", "claim": "claim", "claim_known": "claim"}

app = swf.App()
marks: list[Mark] = []


def mark(seam: str) -> None:
    marks.append((seam, time.monotonic()))


@app.workflow("bench.noop.v1")
async def noop(ctx: swf.Context, order: dict[str, Any]) -> None:
    mark("started")


def watch_the_driver() -> None:
    real = PostgresDriver._drive

    async def drive(self: PostgresDriver, connection: Any, operation: Operation[Any], repeated: bool) -> Any:
        name = OPERATIONS.get(operation.name)
        if name is None:
            return await real(self, connection, operation, repeated)
        mark(f"{name} sent")
        answer = await real(self, connection, operation, repeated)
        mark(f"{name} answered")
        return answer

    PostgresDriver._drive = drive  # type: ignore[method-assign]


def watch_the_worker() -> None:
    real = Worker._hear

    def hear(self: Worker, kind: str) -> None:
        mark("heard")
        real(self, kind)

    Worker._hear = hear  # type: ignore[method-assign]


async def work() -> None:
    """Until somebody writes a line; then all marks are printed."""
    worker = app._make_worker(process_ends=True)
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    worker.stop()
    await running
    print(json.dumps(marks))


async def trigger(url: str, runs: int) -> None:
    command = [sys.executable, __file__, "worker", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        for number in range(WARM_UP + runs):
            await asyncio.sleep(random.uniform(*PAUSE))
            mark("triggered")
            await app.trigger(noop, {"number": number, "text": "x" * 80})
        await asyncio.sleep(0.5)
        told, _ = worker.communicate("\n", timeout=60)
    await app.close()
    theirs = [(seam, instant) for seam, instant in json.loads(told.splitlines()[-1])]
    print(json.dumps(parts([*marks, *theirs])))


def parts(noted: Iterable[Mark]) -> dict[str, Any]:
    """The median of each part, over the runs that passed every seam in order."""
    ways: list[dict[str, float]] = []
    for seam, instant in sorted(noted, key=lambda one: one[1]):
        if seam == SEAMS[0]:
            ways.append({})
        if ways:
            ways[-1].setdefault(seam, instant)
    whole = [way for way in ways[WARM_UP:] if all(seam in way for seam in SEAMS)]
    figures = {
        name: statistics.median(way[end] - way[begin] for way in whole) * 1_000 for name, (begin, end) in PARTS.items()
    }
    return {"jobs": len(whole), "milliseconds": figures}


if __name__ == "__main__":
    role, url = sys.argv[1:3]
    app._client.use(url)
    watch_the_driver()
    if role == "worker":
        watch_the_worker()
        asyncio.run(work())
    else:
        asyncio.run(trigger(url, int(sys.argv[3])))
