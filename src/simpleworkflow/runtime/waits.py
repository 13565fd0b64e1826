"""Durable waits, and knowing when a run does nothing but wait.

A run that only waits gives up its slot and its memory: its code is unwound and started again, from its history, when
something happens. That is allowed only when no step body and no durable write is in flight and every one of its tasks
is blocked on a durable wait or on other tasks of the same run. Anything else that is awaited, a socket, a real timer,
keeps the run resident: unwinding it would lose what it waits for. So does a lock or a queue, since nobody can tell
whether it is shared with other runs.

The danger is news on their way. A task that is done tells its parent by a callback, a turn of the loop later; who looks
in between sees a parent that waits and a child that is over, and would put a decided run to sleep. So asyncio's own
counters are asked: as long as gather, wait or a TaskGroup has not counted everyone who is done, nobody is blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from .. import python_internals
from ..model.moves import Record
from ..model.records import History, Signal
from ..python_internals import Awaited
from .branches import IN_STEP
from .tasks import CURRENT


def resolve(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


class Wait:
    """One durable wait of one branch."""

    __slots__ = ("child_id", "due", "future", "is_known", "is_told", "record", "signal", "step_id")

    def __init__(
        self,
        future: asyncio.Future[Any],
        step_id: str,
        *,
        record: Record | None,
        is_known: bool,
        due: float | None,
        signal: str | None = None,
        child_id: UUID | None = None,
    ) -> None:
        self.future = future
        self.step_id = step_id
        self.record = record
        """The waiting row; None when the waiting code has written one of its own."""
        self.is_known = is_known
        """There is a row already: it need not be written with a pause."""
        self.is_told = False
        """The row says that this very execution waits."""
        self.due = due
        """By the clock of the execution; None: only an event ends it."""
        self.signal = signal
        self.child_id = child_id


class Post:
    """The signals of a resident run: who waits for which, and which were taken by somebody already."""

    def __init__(self, wakes: int, signals: list[Signal], waits: dict[Wait, None]) -> None:
        self.wakes = wakes
        """The wake counter as it was when the latest news was read."""
        self._signals = signals
        self._waits = waits
        self._taken: set[UUID] = set()

    def hear(self, wakes: int, history: History) -> None:
        """News: hand signals to those who wait for them, in order; who waits for a child looks again."""
        if wakes < self.wakes:
            return
        self.wakes = wakes
        self._signals[:] = history.signals
        self._taken &= {signal.id for signal in history.signals}
        for wait in list(self._waits):
            if wait.child_id is not None and not wait.future.done():
                wait.future.set_result(None)
        self._deliver()

    def take(self, name: str) -> Signal | None:
        """The next signal of that name; it is consumed when the record that says so is written."""
        waiting = (signal for signal in self._signals if signal.name == name and signal.id not in self._taken)
        signal = next(waiting, None)
        if signal is not None:
            self._taken.add(signal.id)
        return signal

    def give_back(self, signal: Signal) -> None:
        """It was taken by a wait that was cancelled before it could say so; it keeps its place in the order."""
        self._taken.discard(signal.id)
        self._deliver()

    def _deliver(self) -> None:
        for wait in list(self._waits):
            if wait.signal is not None and not wait.future.done():
                signal = self.take(wait.signal)
                if signal is not None:
                    wait.future.set_result(signal)


def soonest(dues: Iterable[float | None]) -> float | None:
    """Seconds until the first of them is due; None when only events can end them."""
    return min((due for due in dues if due is not None), default=None)


def only_waits(
    tasks: Collection[asyncio.Task[Any]],
    waits: Collection[Wait],
    loop: asyncio.AbstractEventLoop,
    owner: object = None,
) -> bool:
    """Whether every one of these tasks is blocked on a durable wait or on the others."""
    if not python_internals.understands_waiting:
        return False
    futures: set[asyncio.Future[Any]] = {wait.future for wait in waits}
    alive = {task for task in tasks if not task.done()}
    inside = futures | alive
    return (
        bool(futures) and all(_is_blocked(task, inside) for task in alive) and not _has_timer(loop, owner or object())
    )


def _is_blocked(task: asyncio.Task[Any], inside: set[asyncio.Future[Any]]) -> bool:
    """A waiter that is done already has news on their way to the task: unwinding now would lose them."""
    waiter = python_internals.waiter_of(task)
    if waiter is None or waiter.done():
        return False
    if _stays_inside(waiter, inside):
        return True
    awaited = python_internals.innermost_of(task)  # asyncio.wait, or a TaskGroup
    return awaited is not None and _all_inside(awaited, inside)


def _stays_inside(waiter: asyncio.Future[Any], inside: set[asyncio.Future[Any]]) -> bool:
    if waiter in inside:
        return True
    gathered = python_internals.gathered_by(waiter)
    return gathered is not None and _all_inside(gathered, inside)


def _all_inside(awaited: Awaited, inside: set[asyncio.Future[Any]]) -> bool:
    return not awaited.has_news and all(one.done() or _stays_inside(one, inside) for one in awaited.futures)


def _has_timer(loop: asyncio.AbstractEventLoop, owner: object) -> bool:
    """Whether the code has set a timer (asyncio.timeout, call_later): it exists in memory only and must not be lost.

    Timers of ours have contexts of their own, and those that step bodies left behind do not belong to the workflow.
    """
    contexts = python_internals.contexts_of_timers(loop)
    return any(context.get(CURRENT) is owner and context.get(IN_STEP) is None for context in contexts)
