"""The audit trail, read a page at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ...model.records import Event
from ...model.states import EventType
from ..protocol import Row, Steps, query, reading

OVERLAP = timedelta(minutes=10)
"""No transaction of ours lasts this long, so no event of interest has a smaller id than one this much older."""


@reading
def of_run(run_id: UUID, *, after: int = 0, limit: int = 1000) -> Steps[list[Event]]:
    return [_event(row) for row in (yield query("events_of_run", run_id=run_id, after=after, limit=limit))]


@reading
def since(instant: datetime, *, after: int = 0, limit: int = 1000) -> Steps[list[Event]]:
    """One page; the first one looks up where to start, the next ones go on from the last id seen."""
    if after <= 0:
        (row,) = yield query("first_event_since", floor=instant - OVERLAP)
        after = row["id"] - 1
    return [_event(row) for row in (yield query("events_since", since=instant, after=after, limit=limit))]


def _event(row: Row) -> Event:
    return Event(**event_fields(row))


def event_fields(row: Row) -> dict[str, Any]:
    """What every record of an event begins with."""
    return {
        "id": row["id"],
        "run_id": row["workflow_id"],
        "type": EventType(row["event_type"]),
        "epoch": row["lease_epoch"],
        "data_json": row["data_json"],
        "created_at": row["created_at"],
    }
