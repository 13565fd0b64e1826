"""SIGTERM and Ctrl-C: both end a command by KeyboardInterrupt, so that everything it opened is closed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends like Ctrl-C: a live screen restores the terminal, and what the command made is removed.

    An event loop inside this must run by `run_in_a_loop`.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_in_a_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """asyncio.run for commands that a signal interrupts.

    The first signal cancels the task. To raise in the middle of a loop would interrupt C code of a driver, which has
    broken it, and leave a loop that cannot be closed.
    """
    import asyncio  # here: most commands do not need it

    running: list[asyncio.Task[Any]] = []
    asked = 0

    def stop(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt  # the task does not react: blocked by a pipe that nobody reads, for example
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
