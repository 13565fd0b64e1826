"""What a doctor looks at in schedules: those whose slot has come and whom nobody started, those that cannot go on,
those that wait for a slot which is not theirs, and those that start what nobody would do.

The zones of the host where the doctor runs may be other ones than the workers': what a worker wrote down comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...model.errors import InvalidSchedule
from ...model.schedule import GRACE, Schedule, after, is_astray
from ...store.operations import schedules, workers
from .findings import Finding, Level, Look, ago, amount, names

MOST = 1_000
"""Schedules that are looked at."""
MOST_TOLD = 5


async def late_or_broken(look: Look) -> list[Finding]:
    rows = await look.ask(schedules.page(limit=MOST))
    going = [(one, now) for one, now in rows if not one.is_paused]
    broken = {one.name: (one, trouble) for one, now in going if (trouble := _trouble(one, now)) is not None}
    sound = [(one, now) for one, now in going if one.name not in broken]
    found = [_broken(look, *pair) for pair in list(broken.values())[:MOST_TOLD]]
    found += await _late(look, sound)
    found += [_astray(look, one, now) for one, now in sound if is_astray(one, one.next_at, now)][:MOST_TOLD]
    found += await _in_vain(look, [one for one, _ in sound])
    return found or [Finding("schedules", Level.OK, f"{amount(len(rows), 'schedule', MOST)}, none late or broken")]


def _trouble(one: Schedule, now: datetime) -> str | None:
    if one.trouble is not None:
        return one.trouble
    try:
        after(one, now)
    except InvalidSchedule as error:
        return f"{error} (said by this host; workers on others may go on)"
    return None


def _broken(look: Look, one: Schedule, trouble: str) -> Finding:
    fix = (
        f"write it anew: simpleworkflow schedule add {one.name} {one.type} CRON --tz ZONE {look.at}; "
        "for a zone that a host does not know, update its tzdata"
    )
    return Finding("schedules", Level.PROBLEM, f"schedule {one.name} stands still: {trouble}", fix, subject=one.name)


async def _late(look: Look, sound: Sequence[tuple[Schedule, datetime]]) -> list[Finding]:
    behind = {one.name: now - one.next_at for one, now in sound if one.next_at is not None}
    late = {name: by for name, by in behind.items() if by > GRACE}
    if not late:
        return []
    oldest = ago(max(late.values()).total_seconds())
    seen = f"{amount(len(late), 'schedule')} late by up to {oldest}: {names(sorted(late))}"
    if await look.alive():
        fix = "look into the workers' logs (simpleworkflow.schedule); with --no-schedules they start no slots"
        return [Finding("schedules", Level.WARNING, seen, fix)]
    fix = f"start a worker, any one starts slots for all: simpleworkflow worker MODULE:APP {look.at}"
    return [Finding("schedules", Level.PROBLEM, seen, fix)]


def _astray(look: Look, one: Schedule, now: datetime) -> Finding:
    waits = one.next_at.isoformat() if one.next_at is not None else ""
    seen = (
        f"schedule {one.name} waits for {waits}, although {one.rhythm} is due at {after(one, now).isoformat()}: the "
        "database's clock was ahead once, or plain SQL changed its rhythm"
    )
    fix = f"write it down again, which computes its slot anew: simpleworkflow schedule add {one.name} … {look.at}"
    return Finding("schedules", Level.WARNING, seen, fix, subject=one.name)


async def _in_vain(look: Look, going: Sequence[Schedule]) -> list[Finding]:
    """Types that are disabled, so that their slots are skipped, or that no live worker serves, so that their runs wait.
    Where nobody lives at all, other checks say so."""
    types = sorted({one.type for one in going})
    known = await look.ask(workers.definitions(types)) if types else []
    disabled = {one.name for one in known if not one.is_enabled}
    crew = await look.alive()
    found = []
    for type in types:
        mine = names([one.name for one in going if one.type == type])
        if type in disabled:
            seen, fix = (
                f"{type} is disabled: slots of {mine} are skipped",
                f"when it may go on: app.definitions.enable({type!r})",
            )
            found.append(Finding("schedules", Level.NOTE, seen, fix, subject=type))
        elif crew and not any(one.serves(type) for one in crew):
            seen = f"no live worker serves {type}, which is started by {mine}: its runs will wait"
            fix = f"correct its type, or start a worker whose App has it: simpleworkflow worker MODULE:APP {look.at}"
            found.append(Finding("schedules", Level.WARNING, seen, fix, subject=type))
    return found[:MOST_TOLD]
