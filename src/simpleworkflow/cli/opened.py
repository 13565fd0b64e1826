"""The App of a command, opened for it and closed after it, however it ends.

Closing matters on SQLite: the last connection tidies the write-ahead log.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
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
    """A polite stop ends like Ctrl-C: a live screen gives the terminal back as it was, and what was made is removed."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        on_ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(on_ctrl_c):  # a job in the background has none
            raise KeyboardInterrupt
        # A running event loop cancels its task. To raise here would break into a driver's C code, and may break it.
        on_ctrl_c(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_in_a_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """asyncio.run for commands that a signal interrupts: half an event loop could not be closed, and would complain."""
    import asyncio  # here: most commands need none, and start without it

    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with asyncio.Runner() as runner:
        try:
            runner.get_loop()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return runner.run(work())
