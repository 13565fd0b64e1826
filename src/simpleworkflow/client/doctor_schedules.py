"""What a doctor looks at in schedules: those whose slot has come and whom nobody started, and those that cannot go on.

The zones of the host where the doctor runs may be other ones than the workers': what a worker wrote down comes first.
"""

from __future__ import annotations

from ..model.errors import InvalidSchedule
from ..model.schedule import GRACE, Schedule
from ..store.operations import schedules
from .findings import Finding, Level, Look, ago, amount, names

MOST = 1_000
"""Schedules that are looked at."""


async def late_or_broken(look: Look) -> list[Finding]:
    rows = await look.ask(schedules.page(limit=MOST))
    broken = [(one, trouble) for one, _ in rows if not one.is_paused and (trouble := _trouble(one)) is not None]
    found = [
        Finding(
            "schedules",
            Level.PROBLEM,
            f"schedule {one.name} stands still: {trouble}",
            f"write it anew: simpleworkflow schedule add {one.name} {one.type} CRON --tz ZONE {look.at}; "
            "for a zone that a host does not know, update its tzdata",
            subject=one.name,
        )
        for one, trouble in broken[:5]
    ]
    behind = {one.name: now - one.next_at for one, now in rows if not one.is_paused and one.next_at is not None}
    late = {name: by for name, by in behind.items() if by > GRACE and name not in {one.name for one, _ in broken}}
    if late:
        oldest = ago(max(late.values()).total_seconds())
        seen = f"{amount(len(late), 'schedule')} late by up to {oldest}: {names(sorted(late))}"
        if await look.alive():
            fix = "look into the workers' logs (simpleworkflow.schedule); with schedules=False they start no slots"
            found.append(Finding("schedules", Level.WARNING, seen, fix))
        else:
            fix = f"start a worker, any one starts slots for all: simpleworkflow worker MODULE:APP {look.at}"
            found.append(Finding("schedules", Level.PROBLEM, seen, fix))
    return found or [Finding("schedules", Level.OK, f"{amount(len(rows), 'schedule', MOST)}, none late or broken")]


def _trouble(one: Schedule) -> str | None:
    if one.trouble is not None:
        return one.trouble
    try:
        _ = one.timing
    except InvalidSchedule as error:
        return f"{error} (said by this host; workers on others may go on)"
    return None
