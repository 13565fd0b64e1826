"""Schedules as rows of a table, and as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...model.errors import SimpleWorkflowError
from ...model.states import Status
from ..common.instants import now
from ..common.output import safe

if TYPE_CHECKING:
    from ...model.schedule import Schedule


def schedule_json(one: Schedule) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": one.type,
        "cron": one.cron,
        "every_seconds": None if one.every_us is None else one.every_us / 1_000_000,
        "tz": one.tz,
        "payload": one.payload,
        "overlap": one.overlap,
        "catch_up": one.catch_up,
        "window_seconds": None if one.window_us is None else one.window_us / 1_000_000,
        "next_at": one.next_at,
        "is_paused": one.is_paused,
        "pause_reason": one.pause_reason,
        "origin": one.origin,
        "last_slot_at": one.last_slot_at,
        "last_run_id": one.last_run_id,
        "last_skipped_at": one.last_skipped_at,
        "fired": one.fired,
        "skipped": one.skipped,
        "trouble": trouble_of(one),
    }


def trouble_of(one: Schedule) -> str | None:
    """What a worker has recorded, or what fails on this host: its time zones may differ."""
    if one.trouble is not None:
        return one.trouble
    from ...model.schedule import after

    try:
        after(one, now())
    except SimpleWorkflowError as error:
        return f"{error} (here)"
    return None


def shown(instant: datetime | None, one: Schedule) -> str:
    return "not computed yet" if instant is None else there(instant, one)


def there(instant: datetime | None, one: Schedule) -> str:
    """In the zone of the schedule with its offset from UTC; in UTC when the schedule has no zone."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from ..screen.text import when

    if instant is None or one.cron is None or one.tz == "UTC":
        return when(instant)
    try:
        return instant.astimezone(ZoneInfo(one.tz)).isoformat(" ", "seconds")
    except (ZoneInfoNotFoundError, ValueError, OverflowError):  # this host does not know the zone
        return when(instant)


def state_of(one: Schedule, moment: datetime) -> str:
    from ...model.schedule import GRACE

    if one.is_paused:
        return Status.PAUSED
    if trouble_of(one) is not None:
        return "broken"
    return "late" if one.next_at is not None and moment - one.next_at > GRACE else "active"


def print_schedules(found: list[Schedule]) -> None:
    from ..screen.table import Column, print_table
    from ..screen.text import say, screen

    columns = (
        Column("name", is_flexible=True),
        Column("when"),
        Column("zone"),
        Column("type", is_flexible=True),
        Column("state"),
        Column("next"),
        Column("last"),
        Column("fired", is_right=True),
        Column("skipped", is_right=True),
    )
    moment, out = now(), screen()
    rows = [
        [
            safe(one.name),
            safe(one.rhythm),
            safe(one.tz if one.cron is not None else ""),
            safe(one.type),
            state_of(one, moment),
            there(one.next_at, one),
            there(one.last_slot_at, one),
            str(one.fired),
            str(one.skipped),
        ]
        for one in found
    ]
    print_table(columns, rows, out)
    for one in found:
        trouble = trouble_of(one)
        if trouble is not None:
            say(out, f"{safe(one.name)}: {safe(trouble)}")
        if one.is_paused and one.pause_reason:
            say(out, f"{safe(one.name)} was paused: {safe(one.pause_reason)}")
