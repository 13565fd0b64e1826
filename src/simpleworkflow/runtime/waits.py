"""Durable waits, and knowing when a run does nothing but wait.

A run that only waits gives up its slot and its memory: its code is unwound and started again, from its history, when
something happens. That is allowed only when no step body and no durable write is in flight and every one of its tasks
is blocked on a durable wait or on other tasks of the same run. Anything else that is awaited, a socket, a real timer,
keeps the run resident: unwinding it would lose what it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from types import CoroutineType
from typing import Any
from uuid import UUID

from ..clock import monotonic
from ..model.moves import Record

_MEMORY_ONLY = ("asyncio.locks", "asyncio.queues", "asyncio.taskgroups")


class Wait:
    """One durable wait of one branch."""

    __slots__ = ("child_id", "due", "future", "record", "signal")

    def __init__(
        self,
        future: asyncio.Future[Any],
        *,
        record: Record | None,
        seconds: float | None,
        signal: str | None = None,
        child_id: UUID | None = None,
    ) -> None:
        self.future = future
        self.record = record
        """The waiting row to write with a pause; None when one is on record already."""
        self.due = None if seconds is None else monotonic() + seconds
        self.signal = signal
        self.child_id = child_id

    @property
    def seconds(self) -> float | None:
        return None if self.due is None else max(self.due - monotonic(), 0.0)


def soonest(waits: Iterable[Wait]) -> float | None:
    """Seconds until the first of them is due; None when only events can end them."""
    dues = [wait.seconds for wait in waits if wait.seconds is not None]
    return min(dues, default=None)


def only_waits(tasks: Collection[asyncio.Task[Any]], waits: Collection[Wait], loop: asyncio.AbstractEventLoop) -> bool:
    """Whether every one of these tasks is blocked on a durable wait or on the others."""
    futures = {wait.future for wait in waits}
    alive = {task for task in tasks if not task.done()}
    return bool(futures) and all(_is_blocked(task, futures, alive) for task in alive) and not _has_timer(loop, alive)


def _is_blocked(task: asyncio.Task[Any], futures: set[asyncio.Future[Any]], family: set[asyncio.Task[Any]]) -> bool:
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None:
        return False
    if waiter in futures or waiter in family:
        return True
    children = getattr(waiter, "_children", None)
    if children is not None:  # gather
        return all(child.done() or child in family or child in futures for child in children)
    return _awaits_memory(task)


def _awaits_memory(task: asyncio.Task[Any]) -> bool:
    """Whether the innermost await is one of asyncio's own in-memory meeting places (or asyncio.wait, untimed)."""
    innermost: Any = task.get_coro()
    while isinstance(innermost, CoroutineType) and isinstance(innermost.cr_await, CoroutineType):
        innermost = innermost.cr_await
    if not isinstance(innermost, CoroutineType) or innermost.cr_frame is None:
        return False
    module = innermost.cr_frame.f_globals.get("__name__", "")
    if module == "asyncio.tasks" and innermost.cr_code.co_name == "_wait":
        return innermost.cr_frame.f_locals.get("timeout") is None
    return module in _MEMORY_ONLY


def _has_timer(loop: asyncio.AbstractEventLoop, family: set[asyncio.Task[Any]]) -> bool:
    """Whether an `asyncio.timeout` runs for one of the tasks: it exists in memory only and must not be lost."""
    for handle in getattr(loop, "_scheduled", ()):
        owner = getattr(getattr(handle, "_callback", None), "__self__", None)
        if not handle.cancelled() and isinstance(owner, asyncio.Timeout) and getattr(owner, "_task", None) in family:
            return True
    return False
