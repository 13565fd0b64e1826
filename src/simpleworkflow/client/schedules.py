"""Schedules by call: write, look, pause, resume, delete, one run now, all runs of a time that has passed.

What stands beside the code (`@app.schedule`) is written by workers when they start, under the same names and through
the same door. Everything is checked before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID

from ..clock import new_id
from ..model.cron import between
from ..model.duration import Duration
from ..model.errors import InvalidInput, InvalidSchedule, PayloadError, ScheduleNotFound, SimpleWorkflowError
from ..model.schedule import CALL, NewSchedule, Schedule, new_schedule
from ..runtime.hints import Hint
from ..runtime.registry import Registry, Workflow
from ..store.operations import schedules
from .pruning import Pruning
from .request import aware, reason_text, target_of

MOST_BACKFILLED = 100_000
"""Slots that one call starts at most."""
CHUNK = 500
W = TypeVar("W", bound=Workflow[Any, Any])
PAGE = 1_000
EARLIEST, LATEST = 1970, 9000
"""Years; outside of them calendars, zones and databases stop agreeing with each other."""


class Backfill(NamedTuple):
    """What a backfill did: how many slots there were, and how many of them had no run yet."""

    slots: int
    started: int


class Schedules(Pruning):
    _registry: Registry

    def schedule(
        self,
        cron: str | None = None,
        /,
        *,
        every: Duration | None = None,
        tz: str = "UTC",
        payload: Any = None,
        name: str | None = None,
        overlap: Literal["allow", "skip", "cancel"] = "allow",
        catch_up: Literal["none", "one", "all"] = "one",
        window: Duration | None = None,
    ) -> Callable[[W], W]:
        """Start a workflow by the clock: write it above @app.workflow, as often as the workflow has schedules.

        cron: five fields such as "0 9 * * MON-FRI", or @hourly, @daily, @midnight, @weekly, @monthly, @yearly.
        every: an interval instead, such as "15m"; its slots are the multiples of it since 1970, in UTC.
        tz: the zone whose clocks the expression means, such as "Europe/Berlin".
        payload: the input of every run. Which slot it is for, the handler reads from ctx.schedule.
        name: how the schedule is called for good; the workflow's name unless given.
        overlap: when the run of the slot before is still open, start this one too, skip it, or cancel the other.
        catch_up: of the slots that were missed (nobody was there, or it was paused), start none, the last one, or all.
        window: slots that were missed longer ago are not started any more.

        Workers write it down by this name when they start; see docs/schedules.md.
        """
        options = {"every": every, "tz": tz, "overlap": overlap, "catch_up": catch_up, "window": window}

        def decorate(workflow: W) -> W:
            if not isinstance(workflow, Workflow):
                raise InvalidSchedule("write @app.schedule(...) above @app.workflow(...), not below it")
            known = self._registry.find(workflow.name)
            if known is None or known.handler is None:
                raise InvalidSchedule(
                    f"{workflow.name} has no handler in this App, so that none of its workers would write it down; "
                    "write @app.schedule(...) where the handler is, or call app.put_schedule(...)"
                )
            limit = self.settings.max_payload
            made = make_schedule(name or workflow.name, workflow, cron, payload=payload, limit=limit, **options)
            self._registry.add_schedule(made)
            return workflow

        if cron is not None and not isinstance(cron, str):
            raise InvalidSchedule(f'write @app.schedule("0 9 * * *") with a cron expression, not with {cron!r}')
        return decorate

    async def put_schedule(
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
        target = target_of(workflow, self._registry)
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
            limit=self.settings.max_payload,
        )
        await self._engine.run(schedules.put([new], origin=CALL))
        await self._engine.tell(Hint.SCHEDULES)
        return await self.get_schedule(name)

    async def get_schedule(self, name: str) -> Schedule:
        """One schedule, as it stands now."""
        return _found(name, await self._engine.run(schedules.get(_asked(name))))

    async def schedules(self) -> list[Schedule]:
        """Every schedule, in order of their names."""
        found: list[Schedule] = []
        while True:
            after = found[-1].name if found else ""
            page = await self._engine.run(schedules.page(after=after, limit=PAGE))
            found += [schedule for schedule, _ in page]
            if len(page) < PAGE:
                return found

    async def pause_schedule(self, name: str, *, reason: str | None = None) -> Schedule:
        """Start no slot until it is resumed. Pausing twice is fine."""
        return _found(name, await self._engine.run(schedules.pause(_asked(name), reason_text(reason))))

    async def resume_schedule(self, name: str) -> Schedule:
        """Go on. Slots that were missed meanwhile follow the schedule's catch-up policy."""
        schedule = _found(name, await self._engine.run(schedules.resume(_asked(name))))
        await self._engine.tell(Hint.SCHEDULES)
        return schedule

    async def delete_schedule(self, name: str) -> Schedule:
        """Forget it; its runs stay. One that stands beside the code comes back with the next worker's start."""
        return _found(name, await self._engine.run(schedules.delete(_asked(name))))

    async def run_schedule_now(self, name: str) -> UUID:
        """Start one run more, at once, whatever the overlap policy says; slots stay as they are. Returns its id."""
        answer = await self._engine.run(schedules.run_now(_asked(name), new_id()))
        if answer is None:
            raise _missing(name)
        if isinstance(answer, SimpleWorkflowError):
            raise answer
        await self._engine.tell(Hint.READY)
        return answer.id

    async def backfill_schedule(
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
        schedule = await self.get_schedule(name)
        now = await self._engine.run(schedules.database_time())
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
            started += await self._engine.run(schedules.start_slots(schedule, chunk))
            await self._engine.tell(Hint.READY)
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
