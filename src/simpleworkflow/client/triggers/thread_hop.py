"""From the caller's event loop to the engine's thread and back, many triggers with one hop.

A hop between threads is a system call and a wake-up each way, several times what a run in a batch costs. So the
triggers of one turn of a loop cross together, and the answers of one flush go back in one hop per loop.

The danger is a caller that is never answered: closing answers every trigger that is still queued or under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from ...model.errors import StoreUnavailable
from ...model.records import NewRun
from ...runtime.batch import Reply, resolve
from .batcher import Answer


class ThreadHop:
    """`take` gets each trigger, in the engine's loop, with the reply to call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[NewRun, Reply[Answer]], None]) -> None:
        self._loop = loop
        self._take = take
        self._guard = threading.Lock()
        self._closed: StoreUnavailable | None = None
        self._queue: deque[tuple[NewRun, asyncio.AbstractEventLoop, asyncio.Future[Answer]]] = deque()
        self._hopping: set[asyncio.AbstractEventLoop] = set()
        """Loops that will wake the engine in their next turn."""
        self._under_way: dict[asyncio.Future[Answer], asyncio.AbstractEventLoop] = {}
        self._answers: dict[asyncio.AbstractEventLoop, list[Callable[[], object]]] = {}

    def create(self, new: NewRun) -> asyncio.Future[Answer]:
        """From any loop but the engine's own; the future belongs to the caller's."""
        caller = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = caller.create_future()
        with self._guard:
            if self._closed is not None:
                raise self._closed
            self._queue.append((new, caller, answer))
            if caller not in self._hopping:
                # Not at once: callers that waited for the same flush all trigger again in the same turn of their loop.
                # Each loop wakes the engine for itself; another one may be blocked, or gone.
                self._hopping.add(caller)
                caller.call_soon(self._wake_engine)
        return answer

    def _wake_engine(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take_all)
        except RuntimeError:
            pass  # the engine is closed, and everything that was queued has been answered

    def _take_all(self) -> None:
        """In the engine's loop."""
        with self._guard:
            queue, self._queue = self._queue, deque()
            self._hopping.clear()
        for new, caller, answer in queue:
            self._under_way[answer] = caller
            self._take(new, partial(self._answer, answer))

    def _answer(self, future: asyncio.Future[Answer], answer: Answer | None, error: Exception | None) -> None:
        caller = self._under_way.pop(future, None)
        if caller is None:
            return  # answered already, when the engine was closed
        if not self._answers:
            self._loop.call_soon(self._send_answers)
        self._answers.setdefault(caller, []).append(partial(resolve, future, answer, error))

    def _send_answers(self) -> None:
        answers, self._answers = self._answers, {}
        for caller, calls in answers.items():
            try:
                caller.call_soon_threadsafe(_call_all, calls)
            except RuntimeError:
                pass  # that loop has ended, and nothing waits there any more

    def refuse(self, error: StoreUnavailable) -> None:
        """From any thread: take no further trigger."""
        with self._guard:
            self._closed = error

    def clear(self, error: StoreUnavailable) -> None:
        """In the engine's loop: answer everything that is queued or under way with this error."""
        with self._guard:
            queue, self._queue = self._queue, deque()
        self._under_way.update({answer: caller for _, caller, answer in queue})
        for future in list(self._under_way):
            self._answer(future, None, error)
        self._send_answers()


def _call_all(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        call()
