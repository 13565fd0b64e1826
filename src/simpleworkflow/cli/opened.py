"""The App of a command, opened for it and closed after it, however it ends.

Closing matters on SQLite: the last connection tidies the write-ahead log.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from .common import open_app

if TYPE_CHECKING:
    from ..app import App

T = TypeVar("T")


@contextmanager
def opened(url: str | None) -> Iterator[App]:
    app = open_app(url)
    try:
        yield app
    finally:
        app.sync.close()


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """A polite stop ends like Ctrl-C: a live screen gives the terminal back as it was, and what was made is removed.
    Whatever runs an event loop inside this must do so by `run_in_a_loop`."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_in_a_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """asyncio.run for commands that a signal interrupts. To raise in the middle of a loop would break into a driver's C
    code, and did break it: the task is cancelled instead, as asyncio does at Ctrl-C where that is not ignored. And half
    an event loop could not be closed, and would complain."""
    import asyncio  # here: most commands need none, and start without it

    running: list[asyncio.Task[Any]] = []
    asked = 0

    def stop(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt  # it does not listen: blocked by a pipe that nobody reads, say
        if running and not running[0].done():
            running[0].get_loop().call_soon_threadsafe(running[0].cancel)

    async def stoppable() -> T:
        if (task := asyncio.current_task()) is not None:
            running.append(task)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        if asked:
            raise asyncio.CancelledError
        return await work()

    before = signal.signal(signal.SIGTERM, stop)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with asyncio.Runner() as runner:
            done = runner.run(stoppable())
        if asked:
            raise KeyboardInterrupt  # while the loop was being closed
        return done
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
