"""What an operator's screens ask: one run's children and steps, the workers, the events of all runs, and how fast
things move.

Screens ask again and again, so every operation here costs what it shows and not what the tables hold: children and
events come by the page, rates are counted from the newest events by id, lateness is looked up lane by lane. The one
count that reads a whole table is `runs.count`; a screen decides how often it is worth that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from ...clock import to_us
from ...model.names import EVERYTHING, Span
from ...model.records import EventLine, EventPage, Pulse, Run, Step, WorkerState
from ...model.states import EventType
from ..protocol import Row, Steps, query, reading
from .events import OVERLAP, event_fields
from .explain import MOST_WAITS, step_of
from .runs import run_of
from .workers import introduction

MOST_LANES = 1_000
"""Lanes (types and priorities) whose lateness one look considers."""
MOST_EVENTS = 100_000
"""Events that one look counts; a busier second is told as such."""


@reading
def worker_states(*, silence: float) -> Steps[list[WorkerState]]:
    return [
        WorkerState(**introduction(row), stopped_at=row["stopped_at"], runs=row["runs"], is_alive=bool(row["alive"]))
        for row in (yield query("worker_states", silence=to_us(silence)))
    ]


@reading
def children(run_id: UUID, *, after: UUID | None, limit: int) -> Steps[list[Run]]:
    return [run_of(row) for row in (yield query("children_of_run", run_id=run_id, after=after, limit=limit))]


@reading
def steps_of(run_id: UUID) -> Steps[list[Step]]:
    return [step_of(row) for row in (yield query("steps_of_run", run_id=run_id))]


@reading
def waits_of(run_ids: Sequence[UUID]) -> Steps[dict[UUID, list[Step]]]:
    """A few open pieces of each of these runs, the oldest first."""
    found: dict[UUID, list[Step]] = {}
    looks = [(run_id, None) for run_id in sorted(set(run_ids))]
    for row in (yield query("explain_waits", b=looks, most=MOST_WAITS)):
        found.setdefault(row["run_id"], []).append(step_of(row))
    return found


@reading
def feed(
    instant: datetime, *, after: int, limit: int, span: Span | None, events: Collection[EventType]
) -> Steps[EventPage]:
    """One window of so many events, those that fit the filters; the first one looks up where to start."""
    if after <= 0:
        (row,) = yield query("first_event_since", floor=instant - OVERLAP)
        after = row["id"] - 1
    (window,) = yield query("feed_window", after=after, limit=limit)
    if not window["events"]:
        return EventPage([], max(after, 0), True)
    rows = yield query(
        "feed",
        t=[(event,) for event in events],
        any_event=0 if events else 1,
        since=instant,
        after=after,
        upto=window["last_id"],
        low=span.low if span else None,
        high=span.high if span else None,
    )
    return EventPage([_line(row) for row in rows], window["last_id"], window["events"] < limit)


@reading
def pulse(after: int | None) -> Steps[Pulse]:
    """What happened after a place in the trail, and how late the latest due run is. None: only find the place."""
    events: dict[EventType, int] = {}
    partial = False
    if after is None:
        (row,) = yield query("newest_event")
        last = row["last_id"]
    else:
        rows = yield query("activity", after=after, limit=MOST_EVENTS)
        events = {EventType(row["event_type"]): row["events"] for row in rows}
        last = max((row["last_id"] for row in rows), default=after)
        partial = sum(events.values()) >= MOST_EVENTS
        if partial:
            (row,) = yield query("newest_event")
            last = row["last_id"]
    late = yield from _latest()
    return Pulse(last, events, partial, *late)


def _latest() -> Steps[tuple[float | None, str | None]]:
    """By how many seconds the most overdue run is late, and its type. Held runs and disabled types wait on purpose."""
    spans = [(EVERYTHING.low, -1, EVERYTHING.high)]
    rows = [*(yield query("find_lanes", span=spans, limit=MOST_LANES))]
    rows += yield query("find_suspect_lanes", span=spans, limit=MOST_LANES)
    due = [(row["due_in"], row["type"]) for row in rows if row["due"]]
    if not due:
        return None, None
    due_in, type = min(due)
    return max(0.0, -due_in / 1_000_000), type


def _line(row: Row) -> EventLine:
    return EventLine(**event_fields(row), run_type=row["run_type"])
