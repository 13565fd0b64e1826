"""The schedule's role: every worker starts the slots that have come, and none of them is the leader.

It asks the database when the next slot comes, sleeps until then (never longer than a poll, so that a lost hint costs no
more), and fires what is due in transactions of their own (store/operations/schedules.py). Any number of workers may do
the same at the same moment: each slot is started by the one whose transaction commits first.

The dangers: a schedule that cannot be computed on this host (a zone that its tzdata does not know) must stop itself
alone, so it is named, left out for a while and tried again; a row that the database refuses to fire, or whose run
before is locked by somebody's open transaction and cannot be cancelled, must not hold up the others, so after a refusal
they are fired one by one. Outages and everything else are survived by `forever`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ..clock import monotonic
from ..config import Settings
from ..model.duration import human
from ..model.errors import StoreBusy, StoreUnavailable
from ..model.schedule import CODE, NewSchedule, Schedule
from ..runtime.hints import Hint, Hinter
from ..runtime.meter import Meter
from ..store import Ledger
from ..store.operations import schedules
from ..store.operations.schedules import Fired
from ..store.outage import level
from ..store.protocol import Operation
from .loop import forever, pause_unless

log = logging.getLogger("simpleworkflow.schedule")

BATCH = 100
"""Schedules that are fired in one transaction."""
BETWEEN = 0.01
"""Seconds between two turns; also what a failing one's growing pauses begin with."""
TAKEN = 0.1
"""Seconds until the next look when others have in hand, or a stranger has locked, all that is due."""
QUIET = 10
"""So many polls pass between two looks where there is no schedule at all."""
AGAIN_AFTER = 60.0
"""Seconds until a broken schedule is tried again."""
BUSY_AGAIN = 5.0
"""Seconds until one is tried again that somebody's transaction was in the way of."""


class Scheduler:
    def __init__(
        self,
        ledger: Ledger,
        hinter: Hinter,
        settings: Settings,
        own: Sequence[NewSchedule] | None,
        on_started: Callable[[], None],
        meter: Meter | None,
    ) -> None:
        self._own = own
        """The schedules beside the code; None when this worker has nothing to do with schedules."""
        self._host = ""
        self._ledger = ledger
        self._hinter = hinter
        self._poll = settings.poll_every
        self._on_started = on_started
        self._meter = meter
        self._wake = asyncio.Event()
        self._look_at = 0.0
        self._looked = float("-inf")
        self._broken: dict[str, float] = {}
        """Schedules that are left alone on this host, and until when."""

    def hear(self, kind: str) -> None:
        """A hint. That something was committed, as SQLite tells of other processes, is no reason to look at once."""
        if kind == Hint.SCHEDULES:
            self._broken.clear()  # somebody may have mended one
            self._no_later_than(0.0)
        elif kind == Hint.CHANGED:
            self._no_later_than(self._looked + self._poll)

    async def introduce(self, stopping: asyncio.Event) -> None:
        """Write down the schedules beside the code, by name. Now and never again: of two deploys that say different
        things, the one that started last is heard, and they do not take turns."""
        while self._own and not stopping.is_set():
            try:
                new = await self._ledger.run(schedules.unsaid(self._own, origin=CODE))
                puts = await self._ledger.run(schedules.put(new, origin=CODE)) if new else []
            except StoreUnavailable as error:
                log.log(level(error), "the worker's schedules wait for its database: %s", error)
                await pause_unless(stopping, 1.0)
                continue
            for put in puts:
                if put.change != schedules.UNCHANGED:
                    log.info("schedule %s was %s, as it stands beside the code", put.name, put.change)
            return

    def start(self, stopping: asyncio.Event, host: str) -> list[asyncio.Task[None]]:
        """The role at work, until it is told to stop."""
        self._host = host
        if self._own is None:
            return []
        work = forever("schedule", BETWEEN, self.turn, stopping)
        return [asyncio.get_running_loop().create_task(work)]

    def _no_later_than(self, moment: float) -> None:
        if moment < self._look_at:
            self._look_at = moment
            self._wake.set()

    async def turn(self) -> None:
        """Wait until there may be something to do, and do it."""
        while (left := self._look_at - monotonic()) > 0:
            self._wake.clear()
            await pause_unless(self._wake, left)  # a hint may only have brought the next look nearer
        but = self._left_alone()
        self._look_at = float("inf")  # hints that come from here on may tell of what this look does not see
        try:
            wait = await self._ledger.run(schedules.until_next(but))
            self._looked = monotonic()
            if wait is not None and wait <= 0:
                wait = 0.0 if await self._fire(but) else TAKEN
        except BaseException:
            self._look_at = 0.0
            raise
        self._no_later_than(self._looked + (self._poll * QUIET if wait is None else min(wait, self._poll)))

    async def _fire(self, but: Sequence[str]) -> bool:
        """Whether there was anything that nobody else had under way."""
        try:
            fired = await self._ledger.run(_impatient(schedules.fire(host=self._host, limit=BATCH, but=but)))
        except StoreBusy:
            await self._fire_one_by_one(but)
            return True
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("%s", "slots that have come could not be started together; they are started one by one")
            await self._fire_one_by_one(but)
            return True
        self._tell(fired)
        return bool(fired)

    async def _fire_one_by_one(self, but: Sequence[str]) -> None:
        for name in await self._ledger.run(schedules.due_names(but, limit=BATCH)):
            try:
                fired = await self._ledger.run(_impatient(schedules.fire(host=self._host, limit=1, only=name)))
            except StoreBusy as error:
                self._leave_alone(name, str(error), BUSY_AGAIN)
                continue
            except StoreUnavailable:
                raise
            except Exception as error:
                self._leave_alone(name, f"the database refuses to start its slots: {error}")
                await self._ledger.run(schedules.blame(name, f"its slots cannot be started: {error}"[:1000]))
                continue
            self._tell(fired)

    def _left_alone(self) -> list[str]:
        now = monotonic()
        self._broken = {name: until for name, until in self._broken.items() if until > now}
        return sorted(self._broken)

    def _leave_alone(self, name: str, trouble: str, again_after: float = AGAIN_AFTER) -> None:
        self._broken[name] = monotonic() + again_after
        log.error("schedule %s stands still here: %s", name, trouble, extra={"schedule": name})

    def _tell(self, fired: Sequence[Fired]) -> None:
        """What was done: to the log, to the metrics, and to those who wait for work or lose some."""
        for one in fired:
            if one.trouble is not None:
                self._leave_alone(one.schedule.name, one.trouble)
            elif one.is_behind or one.skipped:
                _say_what_was_not_started(one.schedule, one)
        if any(one.slots for one in fired):
            self._on_started()
            self._hinter.tell(Hint.READY)
        if any(one.slots and one.cancelled for one in fired):
            self._hinter.tell(Hint.CONTROL)
            self._hinter.tell(Hint.CHANGED)
        if self._meter is not None:
            self._meter.scheduled(
                [(one.schedule.type, one.lateness, len(one.skipped)) for one in fired if one.trouble is None]
            )


def _impatient(operation: Operation[list[Fired]]) -> Operation[list[Fired]]:
    operation.impatient = True
    return operation


def _say_what_was_not_started(schedule: Schedule, one: Fired) -> None:
    about = {"schedule": schedule.name}
    if one.is_behind and schedule.next_at is not None:
        within = "" if schedule.window_us is None else f", window={human(schedule.window_us / 1_000_000)}"
        policy = f"catch_up={schedule.catch_up.value}{within}"
        text = "schedule %s missed its slot %s, and maybe later ones; not all of them are made up for (%s)"
        log.warning(text, schedule.name, schedule.next_at.isoformat(), policy, extra=about)
    if one.skipped:
        first, last = min(one.skipped).isoformat(), max(one.skipped).isoformat()
        what = f"slot {first}" if len(one.skipped) == 1 else f"{len(one.skipped)} slots from {first} to {last}"
        log.info("schedule %s skipped %s", schedule.name, what, extra=about)
