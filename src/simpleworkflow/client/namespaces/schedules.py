"""Schedules by call: write, look, pause, resume, delete, one run now, all runs of a time that has passed.

What stands beside the code (`@app.schedule`) is written by workers when they start, under the same names and by the
same statements. Everything is checked before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from ...clock import new_id
from ...model.cron import between
from ...model.duration import Duration
from ...model.errors import InvalidInput, InvalidSchedule, PayloadError, ScheduleNotFound, SimpleWorkflowError
from ...model.schedule import CALL, NewSchedule, Schedule, new_schedule
from ...runtime.hints import Hint
from ...runtime.registry import Workflow
from ...store.operations import schedules
from ..client import Client
from ..request import aware, reason_text, target_of

MOST_BACKFILLED = 100_000
"""Slots that one call starts at most."""
CHUNK = 500
PAGE = 1_000
EARLIEST, LATEST = 1970, 9000
"""Years; outside of them calendars, zones and databases stop agreeing with each other."""


class Backfill(NamedTuple):
    """What a backfill did: how many slots there were, and how many of them had no run yet."""

    slots: int
    started: int


class Schedules:
    """Schedules by call: `await app.schedules.put("nightly", report, "0 3 * * *")`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def put(
        self,
        name: str,
        workflow: Workflow[Any, Any] | str,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        tz: str = "UTC",
        payload: Any = None,
        overlap: str = "allow",
        catch_up: str = "one",
        window: Duration | None = None,
    ) -> Schedule:
        """Write a schedule down, or change the one of that name; see App.schedule for what the options mean.

        A changed rhythm begins with the next slot from now on; any other change leaves the next slot as it is, and what
        is paused stays paused. A schedule that also stands beside the code is written anew by the next worker's start.
        """
        target = target_of(workflow, self._client.registry)
        new = make_schedule(
            name,
            target,
            cron,
            every=every,
            tz=tz,
            payload=payload,
            overlap=overlap,
            catch_up=catch_up,
            window=window,
            limit=self._client.settings.max_payload,
        )
        await self._client.run(schedules.put([new], origin=CALL))
        await self._client.tell(Hint.SCHEDULES)
        return await self.get(name)

    async def get(self, name: str) -> Schedule:
        """One schedule, as it stands now."""
        return _found(name, await self._client.run(schedules.get(_asked(name))))

    async def all(self) -> list[Schedule]:
        """Every schedule, in order of their names."""
        found: list[Schedule] = []
        while True:
            after = found[-1].name if found else ""
            page = await self._client.run(schedules.page(after=after, limit=PAGE))
            found += [schedule for schedule, _ in page]
            if len(page) < PAGE:
                return found

    async def pause(self, name: str, *, reason: str | None = None) -> Schedule:
        """Start no slot until it is resumed. Pausing twice is fine."""
        return _found(name, await self._client.run(schedules.pause(_asked(name), reason_text(reason))))

    async def resume(self, name: str) -> Schedule:
        """Go on. Slots that were missed meanwhile follow the schedule's catch-up policy."""
        schedule = _found(name, await self._client.run(schedules.resume(_asked(name))))
        await self._client.tell(Hint.SCHEDULES)
        return schedule

    async def delete(self, name: str) -> Schedule:
        """Forget it; its runs stay. One that stands beside the code comes back with the next worker's start."""
        return _found(name, await self._client.run(schedules.delete(_asked(name))))

    async def run_now(self, name: str) -> UUID:
        """Start one run more, at once, whatever the overlap policy says; slots stay as they are. Returns its id."""
        answer = await self._client.run(schedules.run_now(_asked(name), new_id()))
        if answer is None:
            raise _missing(name)
        if isinstance(answer, SimpleWorkflowError):
            raise answer
        await self._client.tell(Hint.READY)
        return answer.id

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime | None = None,
        *,
        tell: Callable[[int, int], object] | None = None,
        dry_run: bool = False,
    ) -> Backfill:
        """Start every slot from `start` on and before `end` (now) that has no run yet, oldest first.

        Asking again starts nothing twice, as long as the runs are kept: a slot is known by its run's idempotency key.
        Neither the overlap policy nor a pause is minded. In chunks: when the database fails in between, some slots are
        started, and asking again goes on. `tell` is called with how many slots are done and how many there are. A dry
        run checks and counts the same and starts nothing.
        """
        first, last = _instant("start", start), None if end is None else _instant("end", end)
        schedule = await self.get(name)
        now = await self._client.run(schedules.database_time())
        last = now if last is None else last
        if last > now:
            raise InvalidSchedule(f"end={last.isoformat()} is still to come, and so are its slots; backfill looks back")
        slots = list(islice(between(schedule.timing, first, last), MOST_BACKFILLED + 1))
        if len(slots) > MOST_BACKFILLED:
            raise InvalidSchedule(
                f"schedule {name} has more than {MOST_BACKFILLED:,} slots there; take it in several pieces"
            )
        started = 0
        for place in range(0, 0 if dry_run else len(slots), CHUNK):
            chunk = slots[place : place + CHUNK]
            started += await self._client.run(schedules.start_slots(schedule, chunk))
            await self._client.tell(Hint.READY)
            if tell is not None:
                tell(place + len(chunk), len(slots))
        return Backfill(len(slots), started)


def make_schedule(
    name: str, target: Workflow[Any, Any], cron: str | None, *, payload: Any, limit: int, **rest: Any
) -> NewSchedule:
    """What somebody wrote, checked; also the payload, as the handler will read it."""
    try:
        text = target.encode_input(payload, limit=limit)
    except (PayloadError, InvalidInput) as error:
        raise InvalidSchedule(f"schedule {name}: {error}") from None
    return new_schedule(name, target.name, cron, payload_json=text, **rest)


def _asked(name: str) -> str:
    """What no schedule can be called, none is; not every database would understand the question."""
    if not isinstance(name, str) or not (name.isascii() and name.isprintable()):
        raise _missing(name)
    return name


def _found(name: str, schedule: Schedule | None) -> Schedule:
    if schedule is None:
        raise _missing(name)
    return schedule


def _missing(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"there is no schedule {str(name)[:200]!a}")


def _instant(which: str, value: Any) -> datetime:
    instant = aware(which, value, InvalidInput)
    if not EARLIEST <= instant.year <= LATEST:
        raise InvalidInput(f"{which}={value!r} is not between the years {EARLIEST} and {LATEST}")
    return instant
