"""Where a run stands in a listing, newest first by creation, so that the next page goes on exactly behind it.

An id that was made for a run tells when: a UUIDv7 begins with the milliseconds. The id of a child (a UUIDv8) is derived
and carries its parent's time, and a stranger's may tell nothing; such a run is displaced, and its place is the
smallest id of the millisecond in which it was created. PostgreSQL lists by these places (`below`), SQLite by creation
alone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LATEST = 0x0400_0000_0000
"""The year 2109: ids that begin higher are random, and would all stand in the way of the newest ones."""


class Place(NamedTuple):
    below: UUID
    at: datetime
    id: UUID


def place_of(run_id: UUID, created_at: datetime | None) -> Place:
    """The place of a run; without `created_at`, of one that is gone, as far as its id tells."""
    if created_at is None:
        created_at = min(_EPOCH + _MILLISECOND * min(run_id.int >> 80, 10**14), _LAST)
    is_displaced = run_id.int >> 80 >= _LATEST or (run_id.int >> 76) & 0xF != 7
    return Place(_first_of(created_at) if is_displaced else run_id, created_at, run_id)


def _first_of(instant: datetime) -> UUID:
    within = min(max(instant, _EPOCH), _LAST)
    return UUID(int=((within - _EPOCH) // _MILLISECOND) << 80)
