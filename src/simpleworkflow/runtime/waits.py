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
from collections.abc import Callable, Collection, Iterable
from types import CoroutineType
from typing import Any
from uuid import UUID

from ..model.moves import Record
from ..model.records import History, Signal
from .branches import IN_STEP
from .driven import code_behind
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
        """The waiting row; None when whoever waits has written one of its own."""
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
    futures: set[asyncio.Future[Any]] = {wait.future for wait in waits}
    alive = {task for task in tasks if not task.done()}
    inside = futures | alive
    return (
        bool(futures) and all(_is_blocked(task, inside) for task in alive) and not _has_timer(loop, owner or object())
    )


def _is_blocked(task: asyncio.Task[Any], inside: set[asyncio.Future[Any]]) -> bool:
    """A waiter that is done already has news on their way to the task: unwinding now would lose them."""
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None or waiter.done():
        return False
    return _stays_inside(waiter, inside) or _awaits_memory(task, inside)


def _stays_inside(waiter: Any, inside: set[asyncio.Future[Any]]) -> bool:
    if waiter in inside:
        return True
    children = set(getattr(waiter, "_children", ()))  # gather, perhaps of gathers
    if not children or _has_news(children, "nfinished", lambda counted: counted):
        return False
    return all(child.done() or _stays_inside(child, inside) for child in children)


def _has_news(futures: Collection[Any], counter: str, counted: Callable[[int], int]) -> bool:
    """Whether some of these are done and whoever waits for them has not counted them yet.

    The counter lives in the closure of the callback that hangs on those who are not done. When nobody is left to ask,
    everyone is done, and that is news in itself.
    """
    done = sum(bool(future.done()) for future in futures)
    for future in futures:
        for callback, _ in () if future.done() else (getattr(future, "_callbacks", None) or ()):
            function = getattr(callback, "__code__", None)
            if function is not None and counter in function.co_freevars:
                cell = callback.__closure__[function.co_freevars.index(counter)]
                return bool(counted(cell.cell_contents) != done)
    return done > 0


def _awaits_memory(task: asyncio.Task[Any], inside: set[asyncio.Future[Any]]) -> bool:
    """Whether the innermost await is asyncio.wait or a TaskGroup on our own."""
    innermost: Any = task.get_coro()
    while isinstance(innermost, CoroutineType) and (awaited := code_behind(innermost.cr_await)) is not None:
        innermost = awaited
    if not isinstance(innermost, CoroutineType) or innermost.cr_frame is None:
        return False
    module = innermost.cr_frame.f_globals.get("__name__", "")
    if module == "asyncio.tasks" and innermost.cr_code.co_name == "_wait":
        local = innermost.cr_frame.f_locals
        waited: Collection[asyncio.Future[Any]] = local.get("fs") or ()
        if local.get("timeout") is not None or _has_news(waited, "counter", lambda left: len(waited) - left):
            return False
        return all(f.done() or _stays_inside(f, inside) for f in waited)
    if module == "asyncio.taskgroups":
        group = innermost.cr_frame.f_locals.get("self")
        return not any(task.done() for task in getattr(group, "_tasks", ()))
    return False


def _has_timer(loop: asyncio.AbstractEventLoop, owner: object) -> bool:
    """Whether the code has set a timer (asyncio.timeout, call_later): it exists in memory only and must not be lost.

    Timers of ours live in contexts of their own, and those that step bodies left behind are none of the workflow's.
    """
    # A loop that was held up has moved what is due among the ready ones.
    for handle in (*getattr(loop, "_scheduled", ()), *getattr(loop, "_ready", ())):
        context = getattr(handle, "_context", None)
        if context is None or handle.cancelled() or context.get(CURRENT) is not owner:
            continue
        if context.get(IN_STEP) is None:
            return True
    return False
