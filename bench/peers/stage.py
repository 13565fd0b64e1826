"""What every driver shares: the command line, the payload and the clock. Standard library only, so it runs everywhere.

A driver is one process that is the worker. The clock starts when the first handler starts and stops when the database
says that all jobs are complete, so starting a process costs nobody anything and a peer that acknowledges late pays for
it. Asking the database is work for the database, so nobody asks before the last handler has started; after that it is
asked every few milliseconds.

The danger is a figure from a run that did not do the work: the number of handler starts is reported with it, and a run
that is not complete in time ends with an error instead of a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

STEPS = 10
POLL_SECONDS = 0.005
DEADLINE_SECONDS = 600.0


class TooSlow(Exception):
    """The jobs were not complete in time: there is no figure."""


class Clock:
    """Counts handler starts, in any thread, and times one drain."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.deadline = time.perf_counter() + DEADLINE_SECONDS
        self._turns = itertools.count(1)  # next() is atomic where += is not
        self._all_started = threading.Event()
        self._began = self._cpu_began = 0.0
        self._handlers = 0

    def tick(self) -> None:
        """A handler starts."""
        turn = next(self._turns)
        if turn == 1:
            self._began, self._cpu_began = time.perf_counter(), time.process_time()
        self._handlers = turn
        if turn == self.jobs:
            self._all_started.set()

    def wait(self, done: Callable[[], int]) -> dict[str, Any]:
        """Block until the database counts all jobs as done, and return the figures."""
        if not self._all_started.wait(self._left()):
            raise TooSlow(f"{self._handlers} of {self.jobs} handlers started in {DEADLINE_SECONDS:.0f} s")
        while (complete := done()) < self.jobs:
            self._go_on(complete)
            time.sleep(POLL_SECONDS)
        return self._figures()

    async def wait_async(self, done: Callable[[], Awaitable[int]]) -> dict[str, Any]:
        """The same for a driver that lives in an event loop; waiting must not occupy that loop."""
        started = await asyncio.get_running_loop().run_in_executor(None, self._all_started.wait, self._left())
        if not started:
            raise TooSlow(f"{self._handlers} of {self.jobs} handlers started in {DEADLINE_SECONDS:.0f} s")
        while (complete := await done()) < self.jobs:
            self._go_on(complete)
            await asyncio.sleep(POLL_SECONDS)
        return self._figures()

    def _left(self) -> float:
        return max(0.0, self.deadline - time.perf_counter())

    def _go_on(self, complete: int) -> None:
        if not self._left():
            raise TooSlow(f"{complete} of {self.jobs} jobs were complete after {DEADLINE_SECONDS:.0f} s")

    def _figures(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "seconds": time.perf_counter() - self._began,
            "cpu_seconds": time.process_time() - self._cpu_began,
            "handlers": self._handlers,
        }


def payloads(jobs: int) -> list[dict[str, Any]]:
    """About 110 bytes of JSON each."""
    return [{"order": number, "note": "x" * 80} for number in range(jobs)]


def play(
    *,
    prepare: Callable[[str], None],
    enqueue: Callable[[str, int], None],
    drain: Callable[[str, int], dict[str, Any]],
    steps: Callable[[str, int], dict[str, Any]] | None = None,
) -> None:
    """The command line of a driver: prepare URL, enqueue URL N, drain URL N, steps URL N."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["prepare", "enqueue", "drain", *(["steps"] if steps else [])])
    parser.add_argument("url")
    parser.add_argument("jobs", type=int, nargs="?")
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options.url)
        return
    if not options.jobs or options.jobs < 1:
        parser.error(f"{options.command} needs a number of jobs")
    if options.command == "enqueue":
        enqueue(options.url, options.jobs)
        return
    work = drain if options.command == "drain" or steps is None else steps
    print(json.dumps(work(options.url, options.jobs)))
    sys.stdout.flush()
