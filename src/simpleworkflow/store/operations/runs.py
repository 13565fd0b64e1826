"""Runs: create, control, look. Every operation takes and returns many; batches are sorted, so that any two take
their locks in the same order. What a worker does to its leases is in leases.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from ...clock import to_us
from ...model import payload as json
from ...model.errors import IdempotencyConflict, NotRunnable, SimpleWorkflowError
from ...model.failure import doubtful_call, steps_of
from ...model.names import child_of
from ...model.place import Place, place_of
from ...model.records import Count, Created, Definition, NewRun, Run
from ...model.states import EventType, Status, StepKind, StepStatus
from ...model.step_places import as_new
from ..protocol import Row, Steps, query, reading, scanning, statements, transaction
from .workers import definition_rows

_CREATE_TRIES = 5


class Controlled(NamedTuple):
    """The answer to one control call: whether it moved the run, and the run as it stands now (None: no such run)."""

    moved: bool
    run: Run | None


@statements
def create(
    runs: Sequence[NewRun], *, telling: bool = False, repeated: bool = False
) -> Steps[list[Created | SimpleWorkflowError]]:
    """Create what is new and find what is not; one answer per request, so that a bad one harms no neighbour.
    `telling`: with a hint to those who look for work."""
    return (yield from create_rows(runs, repeated, telling=telling))


def create_rows(
    runs: Sequence[NewRun], repeated: bool = False, *, telling: bool = False
) -> Steps[list[Created | SimpleWorkflowError]]:
    """The same inside a transaction of the caller."""
    answers: dict[int, Created | SimpleWorkflowError] = {}
    for _ in range(_CREATE_TRIES):
        todo = [(index, run) for index, run in enumerate(runs) if index not in answers]
        if not todo:
            break
        todo.sort(key=lambda item: (item[1].idempotency_key or "", item[1].id.int))
        answers |= yield from _create_once(todo, repeated, telling)
    busy = IdempotencyConflict(
        "its idempotency key is being changed by others, or by a transaction that yours cannot see"
    )
    return [answers.get(index, busy) for index in range(len(runs))]


def _create_once(
    todo: Sequence[tuple[int, NewRun]], repeated: bool, telling: bool
) -> Steps[dict[int, Created | SimpleWorkflowError]]:
    """Insert; look at what was there before; look at what may not be there. The rest is tried again."""
    answers: dict[int, Created | SimpleWorkflowError] = {}
    rows = yield query("insert_runs", n=[_new_row(run) for _, run in todo], telling=telling)
    if len(rows) == len(todo):
        return {index: Created(run.id, True) for index, run in todo}
    made = {row["id"] for row in rows}
    for index, run in todo:
        if run.id in made:
            made.discard(run.id)
            answers[index] = Created(run.id, True)
    left = [item for item in todo if item[0] not in answers]
    if left:
        found = yield query("runs_like", n=[(run.id, run.idempotency_key) for _, run in left])
        answers |= {index: answer for index, run in left if (answer := _existing(run, found, repeated)) is not None}
        left = [item for item in left if item[0] not in answers]
    if left:
        rows = yield query("get_definitions", d=sorted({(run.type,) for _, run in left}))
        disabled = {row["workflow_name"] for row in rows if not row["is_enabled"]}
        answers |= {index: _disabled(run.type) for index, run in left if run.type in disabled}
    return answers


def _disabled(type: str) -> NotRunnable:
    return NotRunnable(f"{type} is disabled (workflow_registry.is_enabled is false); nothing was created")


def _new_row(run: NewRun) -> tuple[Any, ...]:
    within = None if run.start_within is None else to_us(run.start_within)
    return (
        run.id,
        run.type,
        run.payload,
        run.priority,
        run.run_at,
        to_us(run.delay),
        run.idempotency_key,
        run.max_attempts,
        within,
        run.parent_id,
        run.traceparent,
    )


def _existing(run: NewRun, found: Sequence[Row], repeated: bool) -> Created | SimpleWorkflowError | None:
    for row in found:
        by_key = run.idempotency_key is not None and row["idempotency_key"] == run.idempotency_key
        if not by_key and row["id"] != run.id:
            continue
        what = f"idempotency key {run.idempotency_key!r}" if by_key else f"run id {run.id}"
        if row["type"] != run.type:
            return IdempotencyConflict(f"{what} belongs to run {row['id']} of type {row['type']}, not {run.type}")
        if not json.same_json(row["payload_json"], run.payload):
            return IdempotencyConflict(f"{what} belongs to run {row['id']}, which has another payload")
        return Created(row["id"], repeated and row["id"] == run.id)  # made by the try whose answer was lost
    return None


@transaction
def cancel(
    run_ids: Sequence[UUID], reason: str | None = None, known: Sequence[Definition] = ()
) -> Steps[list[Controlled]]:
    """`known`: definitions that the database must have, so that what they owe to a cancelled run is started."""
    if known:
        yield query("introduce_definitions", d=definition_rows(known))
    return (yield from cancel_rows(run_ids, reason))


def cancel_rows(run_ids: Sequence[UUID], reason: str | None = None) -> Steps[list[Controlled]]:
    """The same inside a transaction of the caller."""
    return (yield from _control("cancel_runs", EventType.CANCELLED, run_ids, {"reason": reason}))


@transaction
def hold(run_ids: Sequence[UUID], reason: str | None = None) -> Steps[list[Controlled]]:
    return (yield from _control("hold_runs", EventType.HELD, run_ids, {"reason": reason}))


@transaction
def resume(run_ids: Sequence[UUID], run_new: bool = False) -> Steps[list[Controlled]]:
    """`run_new`: the call because of which a run is held is new, whatever else is on record. That goes on record, so
    that the run is not held again because of it; other calls are looked at as before."""
    if run_new:
        batch = sorted({(run_id,) for run_id in run_ids})
        yield query("lock_runs", b=batch)
        rows = yield query("get_runs", b=batch)
        doubtful = [(row, doubtful_call(row["error_json"], row["hold_reason"])) for row in rows]
        said = [_said_to_be_new(row, place) for row, place in doubtful if place is not None]
        if said:
            yield query("next_in_sequence")
            yield query("record_steps", b=said)
    return (yield from _control("resume_runs", EventType.RESUMED, run_ids, {}))


def _said_to_be_new(row: Row, place: str) -> tuple[Any, ...]:
    details = (as_new(place), StepKind.VALUE, StepStatus.SUCCEEDED, 0, 0, None, None, None, None)
    return (row["id"], row["lease_epoch"], *details)


@transaction
def revive(run_ids: Sequence[UUID]) -> Steps[list[Controlled]]:
    """Open finished runs again. The failed steps that ended them are done anew, and so are failed children that the
    parent's failure came from, and children that its end took along; everything that succeeded is kept."""
    culprits: set[UUID] = set()
    locked: set[UUID] = set()
    while not (wanted := {*run_ids, *culprits}) <= locked:
        # What ends while we wait for a lock is seen only afterwards: look when the locks are held.
        yield query("lock_runs", b=sorted((run_id,) for run_id in wanted))
        locked = wanted
        culprits = yield from _ended_below(run_ids)
    rows = yield query("get_runs", b=sorted({(run_id,) for run_id in (*run_ids, *culprits)}))
    steps = [(row["id"], step) for row in rows if _is_failed(row) for step in steps_of(row["error_json"])]
    if steps:
        yield query("clear_steps", b=steps)
    children = [row["id"] for row in rows if row["id"] in culprits and row["parent_id"] and _is_failed(row)]
    if children:
        yield from _control("revive_runs", EventType.RETRIED, children, {})
    return (yield from _control("revive_runs", EventType.RETRIED, run_ids, {}))


def _ended_below(run_ids: Sequence[UUID]) -> Steps[set[UUID]]:
    """The children, and theirs, whose failure ended these runs, or that ended with them."""
    found: set[UUID] = set()
    level = list(run_ids)
    while level:
        rows = yield query("get_runs", b=sorted({(run_id,) for run_id in level}))
        rows = [row for row in rows if _can_open(row)]
        waits = [step for row in rows if _is_failed(row) for step in steps_of(row["error_json"])]
        below = {child for step in waits if (child := child_of(step)) is not None}
        ended = sorted((row["id"],) for row in rows)
        below |= {row["id"] for row in (yield query("cancelled_with_parent", b=ended))} if ended else set()
        level = sorted(below - found)
        found |= below
    return found


def _can_open(row: Row) -> bool:
    return row["finished_at"] is not None and row["deleted_at"] is None


def _is_failed(row: Row) -> bool:
    return _can_open(row) and row["status"] != Status.SUCCEEDED


@transaction
def delete(
    run_ids: Sequence[UUID], reason: str | None = None, known: Sequence[Definition] = ()
) -> Steps[list[Controlled]]:
    if known:
        yield query("introduce_definitions", d=definition_rows(known))
    yield from cancel_rows(run_ids, reason)
    rows = yield query("get_runs", b=sorted({(run_id,) for run_id in run_ids}))
    keys = {row["id"]: row["idempotency_key"] for row in rows if row["idempotency_key"] is not None}
    return (yield from _control("delete_runs", EventType.DELETED, run_ids, {"reason": reason}, keys))


def _control(
    statement: str,
    event: EventType,
    run_ids: Sequence[UUID],
    extra: dict[str, Any],
    keys: Mapping[UUID, str] | None = None,
) -> Steps[list[Controlled]]:
    """Lock, move, tell the audit trail, read back: the reply matches the state because the lock is still held.
    `keys`: idempotency keys that the move frees, for the trail."""
    batch = sorted({(run_id,) for run_id in run_ids})
    yield query("lock_runs", b=batch)
    moved = yield query(statement, b=batch, **extra)
    if moved:
        reason, freed = extra.get("reason"), keys or {}
        told = [_told(reason, freed.get(row["id"])) for row in moved]
        yield query(
            "log_events",
            e=[(row["id"], event, row["lease_epoch"], data) for row, data in zip(moved, told, strict=True)],
        )
    rows = yield query("get_runs", b=batch)
    runs = {row["id"]: run_of(row) for row in rows}
    ids = {row["id"] for row in moved}
    return [Controlled(run_id in ids, runs.get(run_id)) for run_id in run_ids]


def _told(reason: str | None, key: str | None) -> str | None:
    """What the trail says of a control call."""
    data = {"reason": reason, "idempotency_key": key}
    known = {name: value for name, value in data.items() if value is not None}
    return json.encode(known, what="reason") if known else None


@reading
def get(run_ids: Sequence[UUID]) -> Steps[list[Run | None]]:
    rows = yield query("get_runs", b=[(run_id,) for run_id in set(run_ids)])
    runs = {row["id"]: run_of(row) for row in rows}
    return [runs.get(run_id) for run_id in run_ids]


@reading
def with_key(key: str) -> Steps[UUID | None]:
    """The run that has this idempotency key now."""
    rows = yield query("run_with_key", idempotency_key=key)
    return rows[0]["id"] if rows else None


class Standing(NamedTuple):
    """An open run, as far as it matters for what happens to it next."""

    id: UUID
    type: str
    status: Status
    run_at: datetime | None
    deadline_at: datetime | None
    start_by: datetime | None
    is_held: bool
    wakes: int


@reading
def standing() -> Steps[list[Standing]]:
    """All open runs of a small database, such as a test's."""
    return [
        Standing(
            row["id"],
            row["type"],
            Status(row["status"]),
            row["run_at"],
            row["deadline_at"],
            row["start_by"] if row["started_at"] is None else None,
            row["held_at"] is not None,
            row["wakes"],
        )
        for row in (yield query("open_runs"))
    ]


@reading
def finished_among(run_ids: Sequence[UUID]) -> Steps[list[Run]]:
    return [run_of(row) for row in (yield query("finished_among", b=[(run_id,) for run_id in run_ids]))]


@scanning
def list_page(
    *,
    statuses: Sequence[Status],
    type: str | None,
    span: tuple[str, str] | None,
    since: Any,
    until: Any,
    idempotency_key: str | None,
    with_deleted: bool,
    held: bool,
    before: UUID | Run | None,
    limit: int,
) -> Steps[list[Run]]:
    """Newest first by creation. `before`: the last run seen, or its id, which has to be looked at first."""
    seen: Place | None = None
    if isinstance(before, UUID):
        found = yield query("run_places", b=[(before,)])
        seen = place_of(before, found[0]["created_at"] if found else None)
    elif before is not None:
        seen = place_of(before.id, before.created_at)
    rows = yield query(
        "list_runs",
        s=[(status,) for status in statuses],
        any_status=0 if statuses else 1,
        type=type,
        low=span[0] if span else None,
        high=span[1] if span else None,
        since=since,
        until=until,
        idempotency_key=idempotency_key,
        with_deleted=1 if with_deleted else 0,
        held=1 if held else 0,
        below=seen and seen.below,
        at=seen and seen.at,
        last=seen and seen.id,
        limit=limit,
    )
    return [run_of(row) for row in rows]


@scanning
def count() -> Steps[list[Count]]:
    return [Count(row["type"], Status(row["status"]), row["runs"]) for row in (yield query("count_runs"))]


def run_of(row: Row) -> Run:
    values = dict(row)
    values["status"] = Status(values["status"])
    return Run(**values)
