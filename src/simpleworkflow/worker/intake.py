"""Taking runs in: claim what there is room for, and start it a few at a time, while the next claim is under way.

claim_size.py says how much there is room for, claim.py which lanes. A run that ends as soon as it starts takes no slot.
When one of those that were claimed ahead begins to wait after all, or when they take longer than those before them,
those that find no slot any more are handed back.

Runs whose process ended with them come first, and suspects, to which that happened again, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Coroutine
from contextvars import Context
from typing import Any
from uuid import UUID

from ..clock import monotonic
from ..config import Settings
from ..model.errors import StoreUnavailable
from ..model.records import History, Lease
from ..poll_backoff import PollBackoff
from ..runtime import tracing
from ..runtime.journal import Journal
from ..runtime.labels import about
from ..runtime.meter import Meter
from ..store import Ledger
from ..store.outage import level
from .claim import Claimer
from .claim_size import ClaimSize
from .held_leases import HeldLeases
from .histories import read_histories
from .loop import pause_unless
from .slots import Key, Slots, key_of

log = logging.getLogger("simpleworkflow.worker")

Rest = Coroutine[Any, Any, None] | None
"""What is left of a run's code that has begun to wait."""

TURN = 0.003
"""Seconds of starting runs in one turn of the event loop."""
LATE = 0.5
"""Seconds that a run may wait here for its turn before others may have it."""
GATHER = 0.002
"""A moment's patience when nearly all slots are taken: at a high rate more will be free, and one claim serves them."""
SOONEST = 0.01
"""Seconds until a worker that has just had work looks again: a hint may be lost, behind a pooler there is none, and who
has just looked is awake when one comes."""
SUSPECTS_PAUSE = 0.5
"""Seconds between two looks for suspects that found none, however often a worker polls."""
CLAIM_GRACE = 1.0
CLAIM_SLACK = 0.002


class Intake:
    """`start` gets a lease, its history, and whether to try it at once in the calling task; `give_back` gets what
    cannot be started, and for how long to leave it; `lose` stops what is executed under this very lease already."""

    def __init__(
        self,
        ledger: Ledger,
        claimer: Claimer,
        settings: Settings,
        *,
        slots: Slots,
        journal: Journal,
        held_leases: HeldLeases,
        start: Callable[[Lease, History | None, bool], Rest],
        give_back: Callable[[Lease, float], None],
        lose: Callable[[Lease], None],
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter
        self._ledger = ledger
        self._claimer = claimer
        self._settings = settings
        self._slots = slots
        self._journal = journal
        self._held = held_leases
        self._start = start
        self._give_back = give_back
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._stopping = False
        self._patience: asyncio.Timeout | None = None
        """With the claim under way, if there is one."""
        self._suspects_after = 0.0
        self._looks = PollBackoff(SOONEST)
        self._histories: dict[UUID, History] = {}
        self._unstarted: deque[tuple[Lease, float]] = deque()
        """What waits here to be started, and since when."""
        self._size = ClaimSize(settings.concurrency)
        self._waiting_types: set[str] = set()
        """Types whose runs have been seen to wait: they get tasks of their own, and slots."""
        self._quick_types: set[str] = set()
        """Types whose runs have been seen to end without waiting, and never to wait."""
        self._carriers: set[asyncio.Task[None]] = set()
        self._started = 0
        self._is_woken = False
        self._looks_on = False
        """Something was claimed where work had been before; there may be more elsewhere."""
        journal.on_room = self._has_room

    def look(self, after_work: bool = False) -> None:
        """Look for work now instead of at the next poll. After work: who waited for a run may trigger the next."""
        if after_work:
            self._looks.happened()
        self._wake.set()

    def look_for_suspects(self) -> None:
        """The next one may start."""
        self._suspects_after = 0.0
        self._wake.set()

    def _has_room(self) -> None:
        """The journal has written something; if claiming waited for that, it goes on."""
        if self._size.lacks_room:
            self._wake.set()

    def stop(self) -> None:
        """Claim nothing more; a claim that the database does not answer must not hold up the stop."""
        if self._patience is not None and not self._stopping:
            self._patience.reschedule(self._loop.time() + CLAIM_GRACE)
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Take runs in until stopped."""
        while not self._stopping:
            self._wake.clear()
            self._slots.make_room()
            free = self._free()
            taken: list[Lease] = []
            if 0 < free < self._settings.concurrency // 10 and not self._looks_on:
                await asyncio.sleep(GATHER)
                if self._stopping:
                    return
                free = self._free()
            took = 0.0
            if free > 0:
                sent = self._held.claiming_since = monotonic()
                taken = await self._claim_until_stopped(free)
                self._receive(taken, sent)
                self._held.claiming_since = None
                took = monotonic() - sent
                if taken:
                    self._looks.happened()
            elif self._meter is not None and not self._size.lacks_room:
                self._meter.polled()  # it has all that it can take
            if self._looks_on and free > 0:
                await asyncio.sleep(0)  # what was taken starts first,
                await asyncio.sleep(0)  # and if it has ended by then, its end is sent before the next question
                continue
            if len(taken) < free or free <= 0:
                self._is_woken = await pause_unless(self._wake, self._pause(free > 0, took))

    def _pause(self, has_room: bool, took: float) -> float:
        """Until the next look, if nothing calls for one before; room that comes up does."""
        if not has_room:
            return self._settings.poll_every
        return min(self._looks.pause(self._settings.poll_every, took), self._claimer.next_due + CLAIM_SLACK)

    def _free(self) -> int:
        """How many runs may be claimed now."""
        return self._size.next(self._slots.free, len(self._unstarted), self._journal.room, self._claimer.only_type)

    def _receive(self, taken: list[Lease], sent: float) -> None:
        tracing.look()  # once per claim: a program may set its provider after it has started its worker
        now = monotonic()
        for lease in taken:
            if lease.id in self._held and self._is_known(lease):
                continue
            self._held.add(lease, sent)
            if lease.is_suspect:
                self._start_one(lease)  # at once: there is one at a time, and it must be seen
            else:
                self._unstarted.append((lease, now))
        if taken and not self._carriers:
            self._carry_on()

    def _is_known(self, lease: Lease) -> bool:
        """Whether it has come before with the same epoch: the database has lost the first claim. What was begun is
        stopped, and the next claim gives the run an epoch that only one execution has."""
        known = self._held.find(lease.id)
        if known is None or known.epoch != lease.epoch:
            return False
        log.warning("run %s was claimed again under the lease that it has here", lease.id, extra=about(lease))
        self._histories.pop(lease.id, None)
        self.drop({key_of(lease)})
        self._lose(lease)
        self._give_back(lease, 0.0)
        return True

    def drop(self, refused: Container[Key]) -> list[Lease]:
        """Those of these that wait to be started; they will not be."""
        dropped = [lease for lease, _ in self._unstarted if key_of(lease) in refused]
        if dropped:
            self._unstarted = deque(one for one in self._unstarted if key_of(one[0]) not in refused)
            for lease in dropped:
                self._histories.pop(lease.id, None)
        return dropped

    def _hand_back_what_waits_long(self) -> None:
        """What comes first has waited so long that what comes last, and has no slot, had better go elsewhere."""
        if not self._unstarted or monotonic() - self._unstarted[0][1] < LATE:
            return
        self._size.took_slots()
        room = max(self._slots.free, 1)
        while len(self._unstarted) > room:
            lease, _ = self._unstarted.pop()
            self._histories.pop(lease.id, None)
            self._give_back(lease, 0.0)

    def _carry_on(self) -> None:
        carrier = self._loop.create_task(self._carry(), name="simpleworkflow-carrier", context=Context())
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    async def _carry(self) -> None:
        """Start a few runs. One that begins to wait keeps this task, and the others go on in a new one."""
        task, rest = asyncio.current_task(), None
        assert task is not None
        self._hand_back_what_waits_long()
        began, before, busy = monotonic(), self._started, len(self._slots)
        while self._unstarted and rest is None and not task.cancelling():
            lease, _ = self._unstarted.popleft()
            rest = self._start_one(lease)
            if self._next_is_unproven() or monotonic() - began >= TURN:
                break
        if len(self._slots) > busy:
            self._size.took_slots()
        elif self._started > before:
            self._size.started(lease.type, (monotonic() - began) / (self._started - before))
        self._carriers.discard(task)
        if self._unstarted:
            self._loop.call_soon(self._carry_on)
        else:
            self._wake.set()
        if rest is not None:
            await rest

    def _next_is_unproven(self) -> bool:
        """Whether nobody knows yet if the next run waits for something: then nobody has been in its task before it."""
        if not self._unstarted or (type := self._unstarted[0][0].type) in self._quick_types:
            return False
        return type not in self._waiting_types and self._claimer.is_async(type)

    def _start_one(self, lease: Lease) -> Rest:
        """Whatever goes wrong concerns this run alone; it is handed back for a moment."""
        try:
            return self._start_or_give_back(lease)
        except Exception:
            told = "run %s (%s) could not be started and is handed back"
            log.exception(told, lease.id, lease.type, extra=about(lease))
            self._give_back(lease, 1.0)
            return None

    def _start_or_give_back(self, lease: Lease) -> Rest:
        history = self._histories.pop(lease.id, None) if self._histories else None
        type = lease.type
        at_once = not lease.is_suspect and (
            type in self._quick_types or (type not in self._waiting_types and self._claimer.is_async(type))
        )
        # A blocked loop, a slow database: others may have it by now.
        is_late = not self._held.is_fresh(lease)
        if is_late or self._stopping or not (at_once or lease.is_suspect or self._slots.free > 0):
            self._give_back(lease, 0.0)
            return None
        self._started += 1
        rest = self._start(lease, history, at_once)
        if rest is not None:
            self._waiting_types.add(type)
            self._quick_types.discard(type)
        elif at_once:
            self._quick_types.add(type)
        return rest

    async def _claim_until_stopped(self, free: int) -> list[Lease]:
        """Not in a task of its own: that is three turns of the loop, which is much for a worker woken from its rest."""
        try:
            async with asyncio.timeout(None) as self._patience:
                return await self._claim(free)
        except TimeoutError:
            self._held.is_unsure = True
            return []
        finally:
            self._patience = None

    async def _claim(self, free: int) -> list[Lease]:
        began = monotonic()
        taken, trouble = await self._take(free)
        self._learn(taken, trouble)
        if self._meter is not None:
            self._meter.polled(trouble)
            self._meter.claimed(taken, monotonic() - began)
        return await self._with_histories(taken)

    def _learn(self, taken: list[Lease], trouble: Exception | None) -> None:
        """How much to ask for the next time."""
        if trouble is not None:
            self._looks.failed()
            self._claimer.next_due = float("inf")
            self._size.failed()
        else:
            self._size.claimed(taken)

    async def _take(self, free: int) -> tuple[list[Lease], Exception | None]:
        """Whatever goes wrong is said and tried again at the next poll; what was taken before is kept."""
        taken: list[Lease] = []
        waiting = [lease for lease, _ in self._unstarted]
        try:
            if self._is_woken and not self._looks_on and not len(self._slots) and not waiting:
                room = self._slots.room_by_type(self._claimer.routed(), waiting)
                # Half of the slots at most: something more urgent may have come, where no work was before.
                taken += await self._claimer.claim_where_work_was(max(free // 2, 1), room)
                self._looks_on = bool(taken)
                if taken:
                    return taken, None
            self._looks_on = False
            # These first: behind a backlog that fills every slot they would wait for ever.
            if monotonic() >= self._suspects_after:
                room = self._slots.room_by_type(self._claimer.routed(), waiting)
                taken += await self._claimer.claim_crashed(free, room, suspect=self._slots.suspect is None)
                self._suspects_after = 0.0 if taken else monotonic() + SUSPECTS_PAUSE
            if free > len(taken):
                room = self._slots.room_by_type(self._claimer.routed(), [*waiting, *taken])
                taken += await self._claimer.claim(free - len(taken), room)
        except StoreUnavailable as error:
            log.log(level(error), "nothing can be claimed: %s", error)
            return taken, error
        except Exception as error:
            log.exception("claiming went wrong and will be tried again")
            return taken, error
        return taken, None

    async def _with_histories(self, taken: list[Lease]) -> list[Lease]:
        """What was claimed before has a history, read later than the claim; without it the run is handed back."""
        resumed = [lease for lease in taken if not lease.is_fresh]
        if not resumed:
            return taken
        found = await read_histories(self._ledger, resumed)
        self._histories.update(found)
        unread = [lease for lease in resumed if lease.id not in found]
        for lease in unread:
            self._give_back(lease, 1.0)
        if unread and self._meter is not None:
            self._meter.gave_back(unread)
        return [lease for lease in taken if lease not in unread] if unread else taken
