"""The only place that reads time.

Three clocks, never mixed: `wall` dates things on SQLite, where the host's clock is the store's clock and tests may own
it (PostgreSQL uses its own now()); `monotonic` measures how long something took and fences leases locally;
`new_id` needs milliseconds for time-ordered identities.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

monotonic = time.monotonic


class Clock(Protocol):
    def wall(self) -> int:
        """Microseconds since 1970, UTC."""
        ...


class SystemClock:
    def wall(self) -> int:
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that a test owns: it moves only when told to."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = to_micros(start)

    def wall(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000)


def to_us(seconds: float) -> int:
    """A duration as the store counts it."""
    return round(seconds * 1_000_000)


def to_micros(instant: datetime) -> int:
    """Microseconds since 1970 of an aware datetime; naive ones are refused because their meaning is a guess."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone; write datetime(..., tzinfo=UTC) or .astimezone()")
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


_last_id = 0
_id_guard = threading.Lock()


def new_id() -> UUID:
    """A UUIDv7: time-ordered, so that new rows land at the right edge of every index.

    Identities made in one millisecond by one process still grow, so that runs triggered together keep their order.
    """
    global _last_id
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10)) >> 6
    with _id_guard:
        fresh = (milliseconds << 74) | random
        if fresh <= _last_id:
            fresh = _last_id + 1 + (random & 0xFFFFFFFF)
        _last_id = fresh
    head, tail = fresh >> 62, fresh & 0x3FFFFFFFFFFFFFFF
    return UUID(int=((head >> 12) << 80) | 0x7 << 76 | (head & 0xFFF) << 64 | 0x2 << 62 | tail)


def _renew_guard() -> None:
    global _id_guard
    _id_guard = threading.Lock()


os.register_at_fork(after_in_child=_renew_guard)
