"""Where triggers from every event loop come in: they cross into the engine room together, and their answers go back so.

A hop between threads is a system call and a wake-up each way, several times what a run in a batch costs. So whoever
comes while the bell is still ringing comes along, and the answers of one flush go back in one hop per loop.

The danger is a caller that is never answered: whoever is inside or at the door when the room closes is told so.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from ..model.errors import StoreUnavailable
from ..runtime.batch import Reply, resolve

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Doorway(Generic[Item, Answer]):
    """`take` gets each item, in the engine's loop, with the reply to call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Item, Reply[Answer]], None]) -> None:
        self._loop = loop
        self._take = take
        self._guard = threading.Lock()
        self._closed: StoreUnavailable | None = None
        self._coming: deque[tuple[Item, asyncio.AbstractEventLoop, asyncio.Future[Answer]]] = deque()
        self._knocking: set[asyncio.AbstractEventLoop] = set()
        """Loops that will ring the bell for those who have come."""
        self._inside: dict[asyncio.Future[Answer], asyncio.AbstractEventLoop] = {}
        self._leaving: dict[asyncio.AbstractEventLoop, list[Callable[[], object]]] = {}

    def enter(self, item: Item) -> asyncio.Future[Answer]:
        """From any loop but the engine's own; the future belongs to the caller's."""
        caller = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = caller.create_future()
        with self._guard:
            if self._closed is not None:
                raise self._closed
            self._coming.append((item, caller, answer))
            if caller not in self._knocking:
                # Not at once: those who were waiting for one flush all come again in the same turn of their loop.
                # Each loop knocks for itself; another one may be blocked, or gone.
                self._knocking.add(caller)
                caller.call_soon(self._knock)
        return answer

    def _knock(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._let_in)
        except RuntimeError:
            pass  # the room is closed, and whoever stood at the door has been told

    def _let_in(self) -> None:
        with self._guard:
            coming, self._coming = self._coming, deque()
            self._knocking.clear()
        for item, caller, answer in coming:
            self._inside[answer] = caller
            self._take(item, partial(self._answer, answer))

    def _answer(self, future: asyncio.Future[Answer], answer: Answer | None, error: Exception | None) -> None:
        caller = self._inside.pop(future, None)
        if caller is None:
            return  # told already, when the room closed
        if not self._leaving:
            self._loop.call_soon(self._see_off)
        self._leaving.setdefault(caller, []).append(partial(resolve, future, answer, error))

    def _see_off(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for caller, answers in leaving.items():
            try:
                caller.call_soon_threadsafe(_all, answers)
            except RuntimeError:
                pass  # that loop has ended, and nobody waits there any more

    def refuse(self, error: StoreUnavailable) -> None:
        """From any thread: nobody comes in any more."""
        with self._guard:
            self._closed = error

    def clear(self, error: StoreUnavailable) -> None:
        """In the engine's loop: whoever is still inside, or at the door, is told to go."""
        with self._guard:
            coming, self._coming = self._coming, deque()
        self._inside.update({answer: caller for _, caller, answer in coming})
        for future in list(self._inside):
            self._answer(future, None, error)
        self._see_off()


def _all(answers: list[Callable[[], object]]) -> None:
    for answer in answers:
        answer()
