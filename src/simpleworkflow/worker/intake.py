"""Taking runs in: claim what there is room for, and start it a few at a time.

Two things would waste time here. Claims of one or two runs: a claim costs the database about as much as twelve runs in
it, so while claimed runs still wait for their turn to start, the next claim waits until it is worth it. And standing
still while a claim is under way: what ends at once makes room for the next claim while the others are being started.

Nothing is claimed that has no slot: a run that waits in this process's memory could have run in another one. The
exception are runs that end as soon as they start: they take no slot, and a few milliseconds' worth of them is claimed
ahead. When one of them begins to wait after all, those that find no slot any more are handed back.

Runs whose last execution took their process down (suspects) come first and one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any
from uuid import UUID

from ..clock import monotonic
from ..config import Settings
from ..model.errors import StoreUnavailable
from ..model.records import History, Lease
from ..runtime.journal import Journal
from ..store import Ledger
from ..store.operations import steps
from .claim import Claimer
from .holdings import Holdings
from .loop import pause_unless
from .slots import Slots

log = logging.getLogger("simpleworkflow.worker")

Rest = Coroutine[Any, Any, None] | None
"""What is left of a run's code that has begun to wait."""

TURN = 0.003
"""Seconds of starting runs in one turn of the event loop."""
AHEAD = 0.02
"""Seconds of work that may wait here without a slot, as long as no run waits for anything."""
MOST_AHEAD = 600
GATHER = 0.002
"""A moment's patience when nearly all slots are taken: at a high rate more will be free, and one claim serves them."""
CLAIM_GRACE = 1.0
CLAIM_SLACK = 0.002


class Intake:
    """`needs_slot` says whether a run is known to wait; `start` gets a lease and its history; `give_back` gets what
    cannot be started, and for how long to leave it."""

    def __init__(
        self,
        ledger: Ledger,
        claimer: Claimer,
        settings: Settings,
        *,
        slots: Slots,
        journal: Journal,
        holdings: Holdings,
        needs_slot: Callable[[Lease], bool],
        start: Callable[[Lease, History | None], Rest],
        give_back: Callable[[Lease, float], None],
    ) -> None:
        self._ledger = ledger
        self._claimer = claimer
        self._settings = settings
        self._slots = slots
        self._journal = journal
        self._holdings = holdings
        self._needs_slot = needs_slot
        self._start = start
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._stopping = False
        self._claiming: asyncio.Task[list[Lease]] | None = None
        self._suspects_after = 0.0
        self._histories: dict[UUID, History] = {}
        self._unstarted: deque[tuple[Lease, float]] = deque()
        self._carriers: set[asyncio.Task[None]] = set()
        self._started = 0
        self._pace: float | None = None
        """Seconds per run among the last that were started, if none of them began to wait."""
        self._lacks_room = False
        self._is_woken = False
        self._looks_on = False
        """Something was claimed where work had been before; there may be more elsewhere."""
        journal.on_room = self._has_room

    def look(self) -> None:
        """Look for work now instead of at the next poll."""
        self._wake.set()

    def _has_room(self) -> None:
        """The journal has written something; if claiming waited for that, it goes on."""
        if self._lacks_room:
            self._wake.set()

    def stop(self) -> None:
        """Claim nothing more; a claim that the database does not answer must not hold up the stop."""
        self._stopping = True
        self._wake.set()
        if self._claiming is not None:
            self._loop.call_later(CLAIM_GRACE, self._claiming.cancel)

    async def run(self) -> None:
        """Take runs in until stopped."""
        while not self._stopping:
            self._wake.clear()
            self._slots.make_room()
            free = self._free()
            taken: list[Lease] = []
            if 0 < free < self._settings.concurrency // 10 and not self._looks_on:
                await asyncio.sleep(GATHER)
                free = self._free()
            if free > 0:
                sent = monotonic()
                self._holdings.claiming = True
                self._claiming = self._loop.create_task(self._claim(free))
                await asyncio.wait({self._claiming})
                taken = [] if self._claiming.cancelled() else self._claiming.result()
                self._receive(taken, sent)
                self._holdings.claiming = False
            if self._looks_on and free > 0:
                continue
            if len(taken) < free or free <= 0:
                pause = min(self._settings.poll_every, self._claimer.next_due + CLAIM_SLACK)
                self._is_woken = await pause_unless(self._wake, pause)

    def _free(self) -> int:
        """How many runs may be claimed now."""
        waiting, ahead = len(self._unstarted), self._ahead()
        slots = self._slots.free + ahead - waiting
        free = min(slots, self._journal.room - waiting)
        self._lacks_room = free < slots
        if waiting and free < (self._settings.concurrency + ahead) // 2:
            return 0  # those that wait will have started, and some of them ended, in a moment
        return free

    def _ahead(self) -> int:
        """How many runs more than there are slots for. With several lanes, or caps, each takes its turn instead."""
        if self._pace is None or not self._claimer.is_simple:
            return 0
        return min(int(AHEAD / self._pace), MOST_AHEAD)

    def _receive(self, taken: list[Lease], sent: float) -> None:
        for lease in taken:
            self._holdings.add(lease, sent)
            if lease.is_suspect:
                self._start_one(lease, sent)  # at once: there is one at a time, and it must be seen
            else:
                self._unstarted.append((lease, sent))
        if taken and not self._carriers:
            self._carry_on()

    def _carry_on(self) -> None:
        carrier = self._loop.create_task(self._carry(), name="simpleworkflow-carrier", context=Context())
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    async def _carry(self) -> None:
        """Start a few runs. One that begins to wait keeps this task, and the others go on in a new one."""
        task, rest = asyncio.current_task(), None
        assert task is not None
        began, before, busy = monotonic(), self._started, len(self._slots)
        while self._unstarted and rest is None and not task.cancelling():
            rest = self._start_one(*self._unstarted.popleft())
            if monotonic() - began >= TURN:
                break
        if len(self._slots) > busy:
            self._pace = None
        elif self._started > before:
            self._pace = (monotonic() - began) / (self._started - before)
        self._carriers.discard(task)
        if self._unstarted:
            self._carry_on()
        else:
            self._wake.set()
        if rest is not None:
            await rest

    def _start_one(self, lease: Lease, sent: float) -> Rest:
        history = self._histories.pop(lease.id, None)
        late = monotonic() - sent >= lease.lease_seconds  # a blocked loop, a slow database: others may have it
        if late or self._stopping or (self._needs_slot(lease) and self._slots.free <= 0):
            self._give_back(lease, 0.0)
            return None
        self._started += 1
        return self._start(lease, history)

    async def _claim(self, free: int) -> list[Lease]:
        """Whatever goes wrong is said and tried again at the next poll; what was taken before is kept."""
        taken: list[Lease] = []
        waiting = [lease for lease, _ in self._unstarted]
        try:
            if self._is_woken and not self._looks_on:
                room = self._slots.room_by_type(self._claimer.routed(), waiting)
                taken += await self._claimer.claim_where_work_was(free, room)
                self._looks_on = bool(taken)
                if taken:
                    return await self._with_histories(taken)
            self._looks_on = False
            # Suspects first, one at a time: behind a backlog that fills every slot they would wait for ever.
            if self._slots.suspect is None and monotonic() >= self._suspects_after:
                room = self._slots.room_by_type(self._claimer.routed(), waiting)
                taken += await self._claimer.claim_suspect(room)
                self._suspects_after = 0.0 if taken else monotonic() + self._settings.poll_every / 2
            if free > len(taken):
                room = self._slots.room_by_type(self._claimer.routed(), [*waiting, *taken])
                taken += await self._claimer.claim(free - len(taken), room)
        except StoreUnavailable as error:
            log.warning("nothing can be claimed: %s", error)
        except Exception:
            log.exception("claiming went wrong and will be tried again")
        return await self._with_histories(taken)

    async def _with_histories(self, taken: list[Lease]) -> list[Lease]:
        """What was claimed before has a history, read later than the claim; without it the run is handed back."""
        resumed = [lease for lease in taken if not lease.is_fresh]
        if not resumed:
            return taken
        try:
            self._histories.update(await self._ledger.run(steps.load([lease.id for lease in resumed])))
            return taken
        except Exception as error:
            log.warning("%d runs are handed back, their histories cannot be read: %s", len(resumed), error)
            for lease in resumed:
                self._give_back(lease, 1.0)
            return [lease for lease in taken if lease.is_fresh]
