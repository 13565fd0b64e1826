"""Taking runs in: claim what there is room for, and start it a few at a time.

Two things would waste time here. Claims of one or two runs: a claim costs the database about as much as twelve runs in
it, so while claimed runs still wait for their turn to start, the next claim waits until it is worth it. And standing
still while a claim is under way: what ends at once makes room for the next claim while the others are being started.

Nothing is claimed that has no slot: a run that waits in this process's memory could have run in another one. Runs whose
last execution took their process down (suspects) come first and one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
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

AT_ONCE = 25
"""Runs started in one turn of the event loop."""
CLAIM_GRACE = 1.0
CLAIM_SLACK = 0.002


class Intake:
    """`start` gets a lease and its history; `give_back` gets what cannot be started, and for how long to leave it."""

    def __init__(
        self,
        ledger: Ledger,
        claimer: Claimer,
        settings: Settings,
        *,
        slots: Slots,
        journal: Journal,
        holdings: Holdings,
        start: Callable[[Lease, History | None], None],
        give_back: Callable[[Lease, float], None],
    ) -> None:
        self._ledger = ledger
        self._claimer = claimer
        self._settings = settings
        self._slots = slots
        self._journal = journal
        self._holdings = holdings
        self._start = start
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._stopping = False
        self._claiming: asyncio.Task[list[Lease]] | None = None
        self._suspects_after = 0.0
        self._histories: dict[UUID, History] = {}
        self._unstarted: deque[tuple[Lease, float]] = deque()
        self._lacks_room = False
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
            if free > 0:
                sent = monotonic()
                self._holdings.claiming = True
                self._claiming = self._loop.create_task(self._claim(free))
                await asyncio.wait({self._claiming})
                taken = [] if self._claiming.cancelled() else self._claiming.result()
                self._receive(taken, sent)
                self._holdings.claiming = False
            if len(taken) < free or free <= 0:
                await pause_unless(self._wake, min(self._settings.poll_every, self._claimer.next_due + CLAIM_SLACK))

    def _free(self) -> int:
        """How many runs may be claimed now."""
        waiting = len(self._unstarted)
        slots = self._slots.free - waiting
        free = min(slots, self._journal.room - waiting)
        self._lacks_room = free < slots
        if waiting and free < self._settings.concurrency // 2:
            return 0  # those that wait will have started, and some of them ended, in a moment
        return free

    def _receive(self, taken: list[Lease], sent: float) -> None:
        for lease in taken:
            self._holdings.add(lease, sent)
            if lease.is_suspect:
                self._start_one(lease, sent)  # at once: there is one at a time, and it must be seen
            else:
                self._unstarted.append((lease, sent))
        if taken:
            self._start_some()

    def _start_some(self) -> None:
        for _ in range(min(AT_ONCE, len(self._unstarted))):
            self._start_one(*self._unstarted.popleft())
        if self._unstarted:
            self._loop.call_soon(self._start_some)

    def _start_one(self, lease: Lease, sent: float) -> None:
        history = self._histories.pop(lease.id, None)
        if self._stopping or monotonic() - sent >= lease.lease_seconds:
            # Or the answer took longer than the lease lasts (a blocked loop, a slow database): others may have it.
            self._give_back(lease, 0.0)
        else:
            self._start(lease, history)
        if not self._unstarted:
            self._wake.set()

    async def _claim(self, free: int) -> list[Lease]:
        """Whatever goes wrong is said and tried again at the next poll; what was taken before is kept."""
        taken: list[Lease] = []
        waiting = [lease for lease, _ in self._unstarted]
        try:
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
