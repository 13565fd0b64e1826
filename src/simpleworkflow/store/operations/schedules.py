"""Schedules: starting the slots that have come, and everything that people do to a schedule.

There is no leader. `fire` locks some schedules whose slot has come, starts the runs and moves each schedule on by
compare-and-set, all in one transaction: the process that commits has fired the slot, one that is killed before has done
nothing. Two workers never have the same row (PostgreSQL passes over locked ones, SQLite has one writer). The following
slot is computed here, between reading and writing, from the row and the database's clock alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ...clock import new_id
from ...model import payload as json
from ...model.errors import IdempotencyConflict, InvalidSchedule, SimpleWorkflowError, StoreError
from ...model.records import Created, NewRun
from ...model.schedule import (
    MOST_SLOTS,
    CatchUp,
    NewSchedule,
    Overlap,
    Schedule,
    ScheduledSlot,
    after,
    due,
    is_astray,
    is_due_as,
    key_of,
)
from ..protocol import Row, Steps, query, reading, transaction
from .runs import cancel_rows, create_rows

_PUT_TRIES = 5
_NOW_TRIES = 1_000
CANCEL_REASON = "the next slot of its schedule has come"
UNCHANGED, CHANGED, ADDED = "unchanged", "changed", "added"


@dataclass(slots=True)
class Fired:
    """What became of one schedule whose slot had come."""

    schedule: Schedule
    now: datetime
    next_at: datetime | None = None
    slots: list[datetime] = field(default_factory=list)
    """To be started; in the end, those that were."""
    is_behind: bool = False
    """The slot that was promised is not among them: it was missed, and the catch-up policy leaves it out."""
    run_ids: list[UUID] = field(default_factory=list)
    skipped: list[datetime] = field(default_factory=list)
    cancelled: list[UUID] = field(default_factory=list)
    trouble: str | None = None

    @property
    def lateness(self) -> list[float]:
        return [(self.now - slot).total_seconds() for slot in self.slots]


class Put(NamedTuple):
    """What became of a schedule that somebody wrote down."""

    name: str
    change: str


@reading
def until_next(but: Sequence[str] = ()) -> Steps[float | None]:
    """Seconds until the next slot of all, by the database's clock; zero or less when it has come, None without any."""
    for row in (yield query("next_schedule", but=_names(but))):
        return 0.0 if row["next_at"] is None else float((row["next_at"] - row["judged_at"]).total_seconds())
    return None


@reading
def due_names(but: Sequence[str], *, limit: int) -> Steps[list[str]]:
    return [row["name"] for row in (yield query("due_schedules", but=_names(but), limit=limit))]


@transaction
def fire(*, host: str, limit: int, but: Sequence[str] = (), only: str | None = None) -> Steps[list[Fired]]:
    """Start slots that have come, of at most so many schedules. Less than all when there are many; ask again."""
    rows = yield query("take_schedules", but=_names(but), limit=limit, only=only)
    share = max(1, MOST_SLOTS // max(len(rows), 1))
    every = [_planned(schedule_of(row), row["judged_at"], share, host) for row in rows]
    sound = [one for one in every if one.trouble is None]
    yield from _mind_overlap([one for one in sound if one.slots and one.schedule.overlap is not Overlap.ALLOW])
    yield from _start(sound)
    cancelled = [run_id for one in sound if one.slots for run_id in one.cancelled]
    if cancelled:
        yield from cancel_rows(cancelled, CANCEL_REASON)
    yield from _advance(sound)
    blamed = sorted((one.schedule.name, one.trouble) for one in every if one.trouble is not None)
    if blamed:
        yield query("blame_schedules", b=blamed)
    return every


@transaction
def blame(name: str, trouble: str) -> Steps[None]:
    yield query("blame_schedules", b=[(name, trouble)])


def _planned(schedule: Schedule, now: datetime, share: int, host: str) -> Fired:
    try:
        slots, next_at = due(schedule, now, share)
    except InvalidSchedule as error:
        return Fired(schedule, now, trouble=f"{error} (said by a worker on {host})")
    is_behind = schedule.next_at is not None and schedule.next_at <= now and schedule.next_at not in slots[:1]
    return Fired(schedule, now, next_at, slots, is_behind)


def _mind_overlap(careful: Sequence[Fired]) -> Steps[None]:
    """Of several slots that are due together, only one can be without overlapping the next. When more of them are due
    than are looked at here, the last one of all is not among these."""
    before = sorted({(run_id,) for one in careful for run_id in _runs_before(one.schedule)})
    still_open = {row["id"] for row in (yield query("open_among", b=before))} if before else set()
    for one in careful:
        in_the_way = [run_id for run_id in _runs_before(one.schedule) if run_id in still_open]
        if one.schedule.overlap is Overlap.CANCEL and one.next_at is not None and one.next_at <= one.now:
            one.skipped, one.slots = one.slots, []
        elif one.schedule.overlap is Overlap.CANCEL:
            one.cancelled, one.skipped, one.slots = in_the_way, one.slots[:-1], one.slots[-1:]
        elif in_the_way:
            one.skipped, one.slots = one.slots, []
        else:
            one.skipped, one.slots = one.slots[1:], one.slots[:1]


def _runs_before(schedule: Schedule) -> list[UUID]:
    return [run_id for run_id in (schedule.last_run_id, schedule.extra_run_id) if run_id is not None]


def _start(every: Sequence[Fired]) -> Steps[None]:
    """A slot that has a run already is over; one whose type is disabled is skipped, and that is recorded."""
    wanted = [(one, slot) for one in every for slot in one.slots]
    answers = yield from create_rows([_run_of(one.schedule, slot) for one, slot in wanted]) if wanted else _nothing()
    for one in every:
        one.slots = []
    for (one, slot), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, Created) and answer.is_new:
            one.slots.append(slot)
            one.run_ids.append(answer.id)
        elif not isinstance(answer, Created | IdempotencyConflict):
            one.skipped.append(slot)


def _nothing() -> Steps[list[Created | SimpleWorkflowError]]:
    yield from ()
    return []


def _run_of(schedule: NewSchedule, slot: datetime) -> NewRun:
    key = key_of(ScheduledSlot(schedule.name, slot))
    return NewRun(new_id(), schedule.type, schedule.payload_json, idempotency_key=key)


def _advance(every: Sequence[Fired]) -> Steps[None]:
    rows = [
        (
            one.schedule.name,
            one.schedule.next_at,
            one.next_at,
            one.slots[-1] if one.slots else None,
            one.run_ids[-1] if one.run_ids else None,
            len(one.slots),
            len(one.skipped),
            max(one.skipped, default=None),
        )
        for one in every
    ]
    moved = (yield query("advance_schedules", b=sorted(rows, key=lambda row: row[0]))) if rows else []
    if len(moved) != len(rows):
        raise StoreError("a schedule was moved on by somebody else under our lock; nothing was started")


@transaction
def put(wanted: Sequence[NewSchedule], *, origin: str) -> Steps[list[Put]]:
    """Write schedules down by name. One that says the same already is left as it is; a changed rhythm begins anew, any
    other change keeps the next slot, unless it went astray; what is paused stays paused."""
    changes: dict[str, str] = {}
    for _ in range(_PUT_TRIES):
        todo = sorted((one for one in wanted if one.name not in changes), key=lambda one: one.name)
        if not todo:
            break
        rows = yield query("lock_schedules", b=[(one.name,) for one in todo])
        known = {row["name"]: schedule_of(row) for row in rows}
        (row,) = yield query("what_time")
        now = row["judged_at"]
        for one in todo:
            if one.name in known:
                changes[one.name] = yield from _change(known[one.name], one, now, origin)
        fresh = [_new_row(one, after(one, now), origin) for one in todo if one.name not in known]
        if fresh:  # one that somebody else inserts at the same time is looked at again
            changes |= {row["name"]: ADDED for row in (yield query("insert_schedules", n=fresh))}
    return [Put(one.name, changes.get(one.name, UNCHANGED)) for one in wanted]


@reading
def unsaid(wanted: Sequence[NewSchedule], *, origin: str) -> Steps[list[NewSchedule]]:
    """Those of them that are not written down just so. Without locks: where nothing is to be changed, nobody's open
    transaction is in the way."""
    (row,) = yield query("what_time")
    left = []
    for one in wanted:
        known = yield from _found(one.name)
        if known is None or not _stands(known, one, row["judged_at"], origin):
            left.append(one)
    return left


def _stands(known: Schedule, new: NewSchedule, now: datetime, origin: str) -> bool:
    return known.origin == origin and _says_the_same(known, new) and not is_astray(new, known.next_at, now)


def _change(known: Schedule, new: NewSchedule, now: datetime, origin: str) -> Steps[str]:
    if _stands(known, new, now, origin):
        return UNCHANGED
    keeps = is_due_as(known, new) and known.next_at is not None and not is_astray(new, known.next_at, now)
    yield query("change_schedules", n=[_new_row(new, known.next_at if keeps else after(new, now), origin)])
    return CHANGED


def _says_the_same(known: Schedule, new: NewSchedule) -> bool:
    def rest(one: NewSchedule) -> tuple[Any, ...]:
        return one.type, one.overlap, one.catch_up, one.window_us

    same_payload = json.same_json(known.payload_json, new.payload_json)
    return same_payload and is_due_as(known, new) and rest(known) == rest(new)


def _new_row(new: NewSchedule, next_at: datetime | None, origin: str) -> tuple[Any, ...]:
    return (
        new.name,
        new.type,
        new.cron,
        new.every_us,
        new.tz,
        new.payload_json,
        new.overlap,
        new.catch_up,
        new.window_us,
        next_at,
        origin,
    )


@reading
def get(name: str) -> Steps[Schedule | None]:
    return (yield from _found(name))


@reading
def page(*, after: str = "", limit: int) -> Steps[list[tuple[Schedule, datetime]]]:
    """Some schedules in order of their names, and the database's time."""
    rows = yield query("list_schedules", after=after, limit=limit)
    return [(schedule_of(row), row["judged_at"]) for row in rows]


@reading
def database_time() -> Steps[datetime]:
    (row,) = yield query("what_time")
    now: datetime = row["judged_at"]
    return now


@transaction
def pause(name: str, reason: str | None) -> Steps[Schedule | None]:
    yield query("pause_schedule", name=name, reason=reason)
    return (yield from _found(name))


@transaction
def resume(name: str) -> Steps[Schedule | None]:
    yield query("resume_schedule", name=name)
    return (yield from _found(name))


@transaction
def delete(name: str) -> Steps[Schedule | None]:
    found = yield from _found(name)
    yield query("delete_schedule", name=name)
    return found


@transaction
def run_now(name: str, run_id: UUID) -> Steps[Created | SimpleWorkflowError | None]:
    """Start one run between slots; None without such a schedule."""
    rows = yield query("lock_schedules", b=[(name,)])
    if not rows:
        return None
    schedule = schedule_of(rows[0])
    (row,) = yield query("what_time")
    for later in range(_NOW_TRIES):  # a clock that stands still, as in tests, gives two the same name
        at = row["judged_at"] + later * timedelta(microseconds=1)
        key = key_of(ScheduledSlot(name, at, is_extra=True))
        (answer,) = yield from create_rows([NewRun(run_id, schedule.type, schedule.payload_json, idempotency_key=key)])
        if isinstance(answer, Created) and answer.id == run_id:
            yield query("note_extra_run", name=name, run_id=run_id)
            return answer
        if not isinstance(answer, Created | IdempotencyConflict):
            return answer
    return answer


@transaction
def start_slots(schedule: NewSchedule, slots: Sequence[datetime]) -> Steps[int]:
    """Start these slots unless they have been; how many were new. The schedule itself does not move."""
    answers = yield from create_rows([_run_of(schedule, slot) for slot in slots])
    for answer in answers:
        if not isinstance(answer, Created | IdempotencyConflict):
            raise answer
    return sum(isinstance(answer, Created) and answer.is_new for answer in answers)


def _found(name: str) -> Steps[Schedule | None]:
    for row in (yield query("get_schedule", name=name)):
        return schedule_of(row)
    return None


def _names(names: Iterable[str]) -> list[tuple[str]]:
    return [(name,) for name in names]


def schedule_of(row: Row) -> Schedule:
    values = dict(row)
    values.pop("judged_at", None)
    values["overlap"], values["catch_up"] = Overlap(values["overlap"]), CatchUp(values["catch_up"])
    return Schedule(**values)
