"""Schedules: which workflow to start at which slots, and what to do about slots that were missed or come too soon.

The law of time-driven runs, pure: what may be written into a schedule, which slots are due at a given moment, and how
the run of a slot is called. That name, `schedule:NAME:SLOT`, is the run's idempotency key, so that a slot has one run
however often somebody asks for it, and so that the handler can read which slot it was started for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from . import payload as _payload
from .cron import Timing, between, timing
from .duration import Duration, human, microseconds
from .errors import InvalidDuration, InvalidName, InvalidSchedule
from .names import check_type

SHORTEST = 1_000_000
"""Microseconds: what repeats faster is a loop, not a schedule."""
GRACE = timedelta(minutes=1)
"""So late a slot is still on time: a deploy or a busy database does not make it a missed one."""
MOST_SLOTS = 1_000
"""Slots that are started in one transaction."""
CODE, CALL = "code", "call"
"""Where a schedule was written down: beside a workflow, or by command or API."""
ASTRAY = timedelta(days=2)
"""No update of a zone's rules moves a slot so far."""
_INSTANT = timedelta(microseconds=1)
_STEPS = (("minute", 60), ("hour", 24))
_WHOLE = {"minute": "hour", "hour": "day"}
"""The first two fields of an expression: what they count, the longest step inside, and where it begins anew."""

E = TypeVar("E", bound=StrEnum)


class Overlap(StrEnum):
    """What to do at a slot while the run of the slot before is still open."""

    ALLOW = "allow"
    SKIP = "skip"
    CANCEL = "cancel"


class CatchUp(StrEnum):
    """Which slots to start of those that nobody started in time."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule as it is written down: beside the code, by command or by a call. Made by `new_schedule` only."""

    name: str
    type: str
    cron: str | None
    every_us: int | None
    tz: str
    payload_json: str = field(repr=False)
    overlap: Overlap
    catch_up: CatchUp
    window_us: int | None
    """Slots that were missed longer ago are not started any more."""

    @property
    def timing(self) -> Timing:
        return timing(self.cron, self.every_us, self.tz)


@dataclass(frozen=True, slots=True)
class Schedule(NewSchedule):
    """A schedule as the database had it when it was read."""

    next_at: datetime | None
    """The slot that comes next; None when nobody has computed it yet (a row written in plain SQL)."""
    paused_at: datetime | None
    pause_reason: str | None
    origin: str
    """`code` when a worker brought it along, `call` when somebody wrote it by command or API."""
    last_slot_at: datetime | None
    last_fired_at: datetime | None
    last_run_id: UUID | None
    extra_run_id: UUID | None
    """The newest run that was asked for between slots."""
    last_skipped_at: datetime | None
    """The newest slot that was skipped."""
    fired: int
    skipped: int
    trouble: str | None
    """Why it cannot go on, and on which host."""
    created_at: datetime
    updated_at: datetime

    @property
    def payload(self) -> Any:
        return _payload.decode(self.payload_json)

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def rhythm(self) -> str:
        """When it is due, as people wrote it."""
        return self.cron if self.cron is not None else f"every {human((self.every_us or 0) / 1_000_000)}"


class ScheduledSlot(NamedTuple):
    """What a run that was started by a schedule knows of it."""

    name: str
    at: datetime
    """The slot, in UTC; for an extra run the instant at which somebody asked for it."""
    is_extra: bool = False
    """Asked for between slots, with run-now."""


class Due(NamedTuple):
    """What is to be done about a schedule whose next slot has come."""

    slots: list[datetime]
    """To be started, oldest first."""
    next_at: datetime


def new_schedule(
    name: str,
    type: str,
    cron: str | None,
    *,
    every: Duration | None,
    tz: str,
    payload_json: str,
    overlap: str,
    catch_up: str,
    window: Duration | None,
) -> NewSchedule:
    """Check what somebody wrote; InvalidSchedule says what is wrong with it, and nothing has been stored."""
    try:
        label = f"schedule {check_type(name, 'schedule name')}"
        new = NewSchedule(
            name=name,
            type=check_type(type),
            cron=None if cron is None else cron.strip() if isinstance(cron, str) else cron,
            every_us=None if every is None else _every(every, label),
            tz=tz,
            payload_json=payload_json,
            overlap=_choice(Overlap, "overlap", overlap, label),
            catch_up=_choice(CatchUp, "catch_up", catch_up, label),
            window_us=None if window is None else microseconds(window, what=f"window of {label}"),
        )
    except (InvalidName, InvalidDuration) as error:
        raise InvalidSchedule(str(error)) from None
    if (new.cron is None) == (new.every_us is None):
        raise InvalidSchedule(f'{label}: give a cron expression or every="15m", one of the two')
    if new.every_us is not None and tz != "UTC":
        raise InvalidSchedule(f"{label}: an interval is the same in every time zone; leave out tz={tz!r}")
    if new.window_us is not None and new.catch_up is CatchUp.NONE:
        raise InvalidSchedule(f"{label}: catch_up='none' starts nothing late, so a window means nothing; leave it out")
    _check_steps(new.cron, label)
    try:
        if new.timing.following(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise InvalidSchedule(f"cron expression {cron!a} names no date that exists: it would never be due")
    except InvalidSchedule as error:
        raise InvalidSchedule(f"{label}: {error}") from None
    return new


def _every(value: Duration, label: str) -> int:
    every = microseconds(value, what=f"every of {label}")
    if every < SHORTEST:
        raise InvalidSchedule(f"{label}: every={value!r} is shorter than a second; a run that loops does that better")
    return every


def _check_steps(cron: Any, label: str) -> None:
    """`*/90` in the minutes is due every hour, on the hour, and nobody who writes it means that."""
    for part, (unit, most) in zip(cron.split() if isinstance(cron, str) else (), _STEPS, strict=False):
        for step in re.findall(r"/([0-9]{1,9})", part):
            if int(step) > most:
                raise InvalidSchedule(
                    f"{label}: {part!a} cannot be due every {step} {unit}s, since each {_WHOLE[unit]} begins anew; "
                    f'use an interval: every="{step}{unit[0]}"'
                )


def _choice(kind: type[E], option: str, value: Any, label: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise InvalidSchedule(f"{label}: {option} must be one of {', '.join(kind)}, not {value!r}") from None


def is_due_as(one: NewSchedule, other: NewSchedule) -> bool:
    """Whether two schedules have the same slots."""
    return (one.cron, one.every_us, one.tz) == (other.cron, other.every_us, other.tz)


def due(schedule: Schedule, now: datetime, most: int = MOST_SLOTS) -> Due:
    """The slots to start at this moment, and the slot that comes after them.

    As long as the oldest of them is on time, none was missed, and all are started: catching up is for those that were.
    The stored next slot counts as one whatever the rules of its zone say today: it was promised. InvalidSchedule when
    there is no slot any more, or when this host cannot tell.
    """
    times, first = schedule.timing, schedule.next_at
    if first is None or first > now:
        return Due([], first or after(schedule, now))
    limit = _limit(schedule)
    if schedule.catch_up is CatchUp.ALL or now - first <= GRACE:
        return _all_due(schedule, first, now, limit, most)
    last = max(first, times.latest(now) or first)
    return Due([last] if limit is None or now - last <= limit else [], after(schedule, now))


def _all_due(schedule: Schedule, first: datetime, now: datetime, limit: timedelta | None, most: int) -> Due:
    oldest = first if limit is None or now - first <= limit else now - limit
    slots = [first] if oldest == first else []
    for slot in between(schedule.timing, max(oldest, first + _INSTANT), now + _INSTANT):
        if len(slots) == most:
            return Due(slots, slot)
        slots.append(slot)
    return Due(slots, after(schedule, now))


def _limit(schedule: Schedule) -> timedelta | None:
    """How late a slot may be started; never less than what is on time, or a short window would let none through."""
    if schedule.catch_up is CatchUp.NONE:
        return GRACE
    return None if schedule.window_us is None else max(GRACE, timedelta(microseconds=schedule.window_us))


def after(schedule: NewSchedule, instant: datetime) -> datetime:
    """The slot after an instant; InvalidSchedule when there is none."""
    slot = schedule.timing.following(instant)
    if slot is None:
        raise InvalidSchedule(f"schedule {schedule.name} has no slot after {instant.isoformat()}")
    return slot


def is_astray(schedule: NewSchedule, next_at: datetime | None, now: datetime) -> bool:
    """Whether it waits for a slot much later than its next one, and would be due no sooner: the clock was ahead when
    that slot was computed, or plain SQL has changed the rhythm since."""
    return next_at is not None and next_at - after(schedule, now) > ASTRAY


_KEY = "schedule"
_EXTRA = "now"


def key_of(slot: ScheduledSlot) -> str:
    """The idempotency key of the run that a slot starts."""
    at = slot.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return ":".join([_KEY, slot.name, *([_EXTRA] if slot.is_extra else []), at])


def slot_of(key: str | None) -> ScheduledSlot | None:
    """The slot that a run was started for; None for every other run."""
    kind, _, rest = (key or "").partition(":")
    name, _, at = rest.partition(":")
    if kind != _KEY or not name:
        return None
    is_extra = at.startswith(f"{_EXTRA}:")
    try:
        instant = datetime.fromisoformat(at.removeprefix(f"{_EXTRA}:"))
    except ValueError:
        return None
    return None if instant.tzinfo is None else ScheduledSlot(name, instant.astimezone(UTC), is_extra)
