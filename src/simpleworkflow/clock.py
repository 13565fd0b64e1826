"""The only place that reads time.

Three clocks, never mixed: `wall` dates things on SQLite, where the host's clock is the store's clock and tests may own
it (PostgreSQL uses its own now()); `monotonic` measures how long something took and fences leases locally;
`new_id` needs milliseconds for time-ordered identities.

Durable waits that stay in memory ask a `Clock` too, for their timers and for how much has passed: a test that owns the
clock owns them with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

monotonic = time.monotonic


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def wall(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def passed(self) -> float:
        """Seconds since some fixed moment; only differences mean anything."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back in the running event loop when so much time has passed."""
        ...


class SystemClock:
    def wall(self) -> int:
        return time.time_ns() // 1_000

    passed = staticmethod(monotonic)  # asked twice for every step

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        # In a context of its own: a timer of ours is none of the code that it is set for.
        return asyncio.get_running_loop().call_later(seconds, callback, context=contextvars.Context())


class ManualClock:
    """A clock that a test owns: it moves only when told to, and timers ring when it does."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = to_micros(start)
        self._timers: set[_ManualTimer] = set()
        self._guard = threading.Lock()

    def wall(self) -> int:
        return self._now

    def passed(self) -> float:
        return self._now / 1_000_000

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        timer = _ManualTimer(self, self._now + to_us(seconds), callback, asyncio.get_running_loop())
        with self._guard:
            self._timers.add(timer)
        if seconds <= 0:
            self.advance(0)
        return timer

    def advance(self, seconds: float) -> None:
        self._now += to_us(seconds)
        with self._guard:
            due = sorted((timer for timer in self._timers if timer.due <= self._now), key=lambda timer: timer.due)
            self._timers.difference_update(due)
        for timer in due:
            timer.ring()

    def next_timer(self) -> int | None:
        """When the next timer rings, in microseconds since 1970."""
        with self._guard:
            return min((timer.due for timer in self._timers), default=None)

    def forget(self, timer: _ManualTimer) -> None:
        with self._guard:
            self._timers.discard(timer)


class _ManualTimer:
    def __init__(
        self, clock: ManualClock, due: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.due = due
        self._clock = clock
        self._callback: Callable[[], object] | None = callback
        self._loop = loop

    def cancel(self) -> None:
        self._callback = None
        self._clock.forget(self)

    def ring(self) -> None:
        """From any thread: the callback runs in the loop that asked for it."""
        try:
            self._loop.call_soon_threadsafe(self._call)
        except RuntimeError:
            pass  # that loop has ended

    def _call(self) -> None:
        if self._callback is not None:
            self._callback()


def to_us(seconds: float) -> int:
    """A duration as the store counts it."""
    return round(seconds * 1_000_000)


def to_micros(instant: datetime) -> int:
    """Microseconds since 1970 of an aware datetime; naive ones are refused because their meaning is a guess."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone; write datetime(..., tzinfo=UTC) or .astimezone()")
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """What a stranger may have written beyond the calendar becomes its first or its last instant."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return (datetime.min if micros < 0 else datetime.max).replace(tzinfo=UTC)


_last_id = 0
_id_guard = threading.Lock()
_chances: list[bytes] = []
"""Random bytes in store: a call to the system for every identity would hand the interpreter to other threads."""
_CHANCE_BYTES = 10


def new_id() -> UUID:
    """A UUIDv7: time-ordered, so that new rows land at the right edge of every index.

    Identities made in one millisecond by one process still grow, so that runs triggered together keep their order.
    """
    global _last_id
    milliseconds = time.time_ns() // 1_000_000
    with _id_guard:
        if not _chances:
            many = os.urandom(400 * _CHANCE_BYTES)
            _chances.extend(many[start : start + _CHANCE_BYTES] for start in range(0, len(many), _CHANCE_BYTES))
        random = int.from_bytes(_chances.pop()) >> 6
        fresh = (milliseconds << 74) | random
        if fresh <= _last_id:
            fresh = _last_id + 1 + (random & 0xFFFFFFFF)
        _last_id = fresh
    head, tail = fresh >> 62, fresh & 0x3FFFFFFFFFFFFFFF
    return UUID(int=((head >> 12) << 80) | 0x7 << 76 | (head & 0xFFF) << 64 | 0x2 << 62 | tail)


def _start_anew() -> None:
    """In a forked child: the parent has the same bytes in store, and its lock may have been held."""
    global _id_guard
    _id_guard = threading.Lock()
    _chances.clear()


os.register_at_fork(after_in_child=_start_anew)
