"""Deliveries of the outbox: what may be offered, and what became of it.

The dangers are a dispatcher that was frozen, lost its lanes and wakes up, and an operator who skips an event while it
is being offered. So every change of an event's delivery, by whomever, is made under the row lock of its lane; a relay
also proves there that it owns the lane with that epoch, in the same transaction, and where that fails it marks nothing.
Reading takes no lock at all: what it saw is looked at again when it is marked.

There is no cursor: on PostgreSQL a smaller id may commit later. What is waiting is found by an index of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from ...clock import to_us
from ...model.outbox import Delivery, Marks, Offered, OutboxEvent, OutboxStatus, Refused, lane_of
from ..protocol import Row, Steps, query, reading, transaction
from .outbox_lanes import lane_states

COUNTED = 10_000
"""Events of each kind that a status counts; more are told as "at least so many"."""


class Batch(NamedTuple):
    offered: list[Offered]
    """In order per run."""
    behind: list[tuple[int, str]]
    """Row and lane of events that an earlier one of their run keeps back."""


@reading
def next_batch(lanes: Sequence[str], *, per_lane: int) -> Steps[Batch]:
    """What may be offered now from these lanes."""
    wanted = [(lane,) for lane in lanes]
    again = yield query("outbox_retrying", l=wanted, limit=per_lane)
    fresh = yield query("outbox_waiting", l=wanted, limit=per_lane)
    due = [_offered(row) for row in again if not row["is_behind"]]
    stuck = {event.run_id for event in due}
    """Offered alone: what follows comes when it has gone."""
    offered = due + [_offered(row) for row in fresh if not row["is_behind"] and row["run_id"] not in stuck]
    behind = [(row["id"], row["lane"]) for row in (*again, *fresh) if row["is_behind"]]
    return Batch(offered, behind)


def _offered(row: Row) -> Offered:
    return Offered(
        id=row["id"],
        run_id=row["run_id"],
        sequence=row["sequence"],
        event_type=row["event_type"],
        created_at=row["created_at"],
        attempt=row["attempt"],
        payload_json=row["payload_json"],
        workflow_type=row["workflow_type"] or "",
        traceparent=row["traceparent"],
        lane=row["lane"],
    )


@transaction
def mark(owner: str, epochs: Mapping[str, int], marks: Mapping[str, Marks]) -> Steps[set[str]]:
    """Write down what became of a batch, lane by lane, where the lane is still held; says which lanes were lost."""
    held = yield query("lock_lanes", l=sorted((lane, epochs[lane]) for lane in marks), owner=owner)
    mine = {row["lane"] for row in held}
    kept = [marks[lane] for lane in sorted(mine)]
    published = sorted(one for some in kept for one in some.published)
    refused = sorted((one for some in kept for one in some.refused), key=lambda one: one.id)
    behind = sorted(row for some in kept for row in some.behind)
    if published:
        yield query("mark_published", b=[(row,) for row, _ in published])
    if refused:
        yield query("mark_refused", b=[_refused(one) for one in refused])
    if behind:
        yield query("mark_behind", b=[(row,) for row in behind])
    if published:
        yield query("release_behind", b=[(run_id,) for run_id in sorted({run_id for _, run_id in published})])
    return set(marks) - mine


def _refused(one: Refused) -> tuple[Any, ...]:
    return one.id, str(one.status), one.attempt, None if one.delay is None else to_us(one.delay), one.reason


@reading
def events_of(run_id: UUID, *, after: int, limit: int) -> Steps[list[OutboxEvent]]:
    rows = yield query("outbox_of_run", run_id=run_id, after=after, limit=limit)
    return [_event(row) for row in rows]


@reading
def stuck_of(run_id: UUID) -> Steps[OutboxEvent | None]:
    """The event of this run that keeps the others back, or the first that has not gone out."""
    rows = yield query("outbox_head", run_id=run_id)
    return _event(rows[0]) if rows else None


@reading
def dead(*, after: int, limit: int) -> Steps[tuple[list[OutboxEvent], int]]:
    """A page of what was given up, and the place to go on from."""
    rows = yield query("dead_events", after=after, limit=limit)
    return [_event(row) for row in rows], rows[-1]["id"] if rows else after


def _event(row: Row) -> OutboxEvent:
    return OutboxEvent(
        run_id=row["run_id"],
        sequence=row["sequence"],
        type=row["event_type"],
        status=Delivery(row["status"]),
        attempt=row["attempt"],
        created_at=row["created_at"],
        published_at=row["published_at"],
        due_at=row["due_at"],
        last_error=row["last_error"],
        skipped_at=row["skipped_at"],
        skipped_by=row["skipped_by"],
        skip_reason=row["skip_reason"],
    )


@transaction
def skip(run_id: UUID, sequence: int, *, by: str, reason: str | None) -> Steps[OutboxEvent | None]:
    """Let a run's later events pass this one. The event as it is now; None when there is none with that number."""
    yield query("lock_lanes_of", r=[(lane_of(run_id),)])
    skipped = yield query("skip_event", run_id=run_id, sequence=sequence, by=by, reason=reason)
    if skipped:
        yield query("release_behind", b=[(run_id,)])
    rows = yield query("outbox_of_run", run_id=run_id, after=sequence - 1, limit=1)
    return _event(rows[0]) if rows and rows[0]["sequence"] == sequence else None


@transaction
def replay_run(run_id: UUID, *, first: int) -> Steps[int]:
    """Offer the run's events from this number on again; how many they were."""
    yield query("lock_lanes_of", r=[(lane_of(run_id),)])
    rows = yield query("replay_run", run_id=run_id, **{"from": first})
    return len(rows)


@reading
def last_dead() -> Steps[int]:
    """The newest of what was given up: what dies later is not meant by who asks now."""
    rows = yield query("last_dead_event")
    return rows[0]["id"] if rows else 0


@transaction
def replay_dead(*, after: int, until: int, limit: int) -> Steps[tuple[int, int]]:
    """Offer a batch of what was given up again: how many they were, and the place to go on from."""
    found = yield query("dead_events", after=after, limit=limit)
    rows = [row for row in found if row["id"] <= until]
    if not rows:
        return 0, until
    done = yield from _offer_again(rows)
    return done, rows[-1]["id"]


@reading
def instant() -> Steps[datetime]:
    """The store's own time."""
    (row,) = yield query("store_time")
    now: datetime = row["judged_at"]
    return now


@transaction
def replay_published(since: datetime, until: datetime, *, limit: int) -> Steps[int]:
    """Offer a batch of what was published in that time again; 0 when none is left."""
    rows = yield query("published_events", since=since, until=until, limit=limit)
    return (yield from _offer_again(rows)) if rows else 0


def _offer_again(rows: Sequence[Row]) -> Steps[int]:
    yield query("lock_lanes_of", r=sorted({(row["lane"],) for row in rows}))
    done = yield query("replay_events", b=sorted((row["id"],) for row in rows))
    return len(done)


@reading
def status(*, silence: float) -> Steps[OutboxStatus]:
    """How it stands: counts up to COUNTED, the age of the oldest, lanes and who serves them."""
    (counts,) = yield query("outbox_counts", most=COUNTED)
    lag = yield from oldest()
    lanes = yield from lane_states()
    rows = yield query("live_dispatchers", silence=to_us(silence))
    return OutboxStatus(
        waiting=counts["waiting"],
        retrying=counts["retrying"],
        behind=counts["behind"],
        dead=counts["dead"],
        lag=lag,
        most=COUNTED,
        lanes=tuple(lanes),
        dispatchers=tuple(row["dispatcher"] for row in rows),
    )


def oldest() -> Steps[float]:
    (row,) = yield query("outbox_oldest", most=COUNTED)
    if row["created_at"] is None:
        return 0.0
    waited: float = (row["judged_at"] - row["created_at"]).total_seconds()
    return max(waited, 0.0)


class PruneResult(NamedTuple):
    deleted: int
    place: tuple[datetime, int] | None
    """Where to go on; None: everything old enough has been looked at."""


@transaction
def prune(place: tuple[datetime, int], *, age: float, limit: int) -> Steps[PruneResult]:
    """Look at a batch of what left the outbox long ago and delete it, but for the newest event of each run that still
    exists: it holds the number that the next one counts from."""
    instant, after = place
    rows = yield query("prunable_events", age=to_us(age), instant=instant, after=after, limit=limit)
    gone = sorted((row["id"],) for row in rows if not row["is_kept"])
    deleted = (yield query("forget_events", b=gone)) if gone else []
    last = (rows[-1]["happened_at"], rows[-1]["id"]) if len(rows) == limit else None
    return PruneResult(len(deleted), last)
