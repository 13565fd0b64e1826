"""The clock of one worker process. Standard library only: it runs in every peer's environment.

It starts when the first handler starts and stops when the database says that all jobs are complete, so starting a
process costs nobody anything and a peer that acknowledges late pays for it. Asking the database is work for the
database, so nobody asks before the last handler has started; after that it is asked every few milliseconds.

The danger is a figure from a run that did not do the work: the number of handler starts is reported with it, and a run
that is not complete in time ends with an error instead of a figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

POLL_SECONDS = 0.005
DEADLINE_SECONDS = 600.0


class TooSlow(Exception):
    """The jobs were not complete in time: there is no figure."""


class Clock:
    """Counts handler starts, in any thread, and times one drain."""

    asks_the_database = True

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.deadline = time.perf_counter() + DEADLINE_SECONDS
        self._turns = itertools.count(1)  # next() is atomic where += is not
        self._all_started = threading.Event()
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()
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
        self.await_starts()
        while self.asks_the_database and (complete := done()) < self.jobs:
            self._go_on(complete)
            time.sleep(POLL_SECONDS)
        return self._figures()

    async def wait_async(self, done: Callable[[], Awaitable[int]]) -> dict[str, Any]:
        """The same for a driver that lives in an event loop; waiting must not occupy that loop."""
        await _in_a_thread(self.await_starts)
        while self.asks_the_database and (complete := await done()) < self.jobs:
            self._go_on(complete)
            await asyncio.sleep(POLL_SECONDS)
        return self._figures()

    def await_starts(self) -> None:
        """Block until it makes sense to ask the database."""
        if not self._all_started.wait(self._left()):
            raise TooSlow(f"{self._handlers} of {self.jobs} handlers started in {DEADLINE_SECONDS:.0f} s")

    def _left(self) -> float:
        return max(0.0, self.deadline - time.perf_counter())

    def _go_on(self, complete: int) -> None:
        if not self._left():
            raise TooSlow(f"{complete} of {self.jobs} jobs were complete after {DEADLINE_SECONDS:.0f} s")

    def _figures(self) -> dict[str, Any]:
        ended = time.perf_counter()
        return {
            "jobs": self.jobs,
            "seconds": ended - self._began,
            "cpu_seconds": time.process_time() - self._cpu_began,
            "handlers": self._handlers,
            "began": self._began,  # the clock is the machine's, so other processes can compare
            "ended": ended,
        }


async def _in_a_thread(block: Callable[[], None]) -> None:
    """Like asyncio.to_thread, but nobody waits for the thread when the loop ends: a failed run must end at once."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if over.done():  # cancelled meanwhile
            return
        if error is None:
            over.set_result(None)
        else:
            over.set_exception(error)

    def run() -> None:
        error = None
        try:
            block()
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, daemon=True).start()
    await over
