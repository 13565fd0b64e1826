"""Renewal: a thread and a connection of its own, so that a handler that blocks the event loop keeps its lease.

The same thread tells the database that the worker is alive, and looks at the leases whenever a hint says that someone
cancelled or held something. News goes back to the worker's loop; this thread never touches user code.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from ..clock import monotonic
from ..model import moves
from ..model.names import Span
from ..model.records import BEAT, Renewal
from ..store import Ledger
from ..store.operations import leases, workers, writing
from .held_leases import HeldLeases
from .loop import forever, pause_unless
from .process import Identity

log = logging.getLogger("simpleworkflow.renew")

ANNOUNCE_EVERY = BEAT
LOOK_PAUSE = 0.02
GOODBYE = 2.0  # seconds for what is under way to end, and as many for the goodbye itself
PARTING = 1.0  # seconds for what was cut off to let go of its connection, and as many to close the others
LEAVING = 2 * (GOODBYE + PARTING)


class Renewer(threading.Thread):
    def __init__(
        self,
        ledger: Ledger,
        held_leases: HeldLeases,
        *,
        identity: Identity,
        spans: Callable[[], Sequence[Span]],
        load: Callable[[], Mapping[str, object]],
        every: float,
        tell: Callable[[list[Renewal]], None],
    ) -> None:
        super().__init__(name="simpleworkflow-renewer", daemon=True)
        self._ledger = ledger
        self._held = held_leases
        self._identity = identity
        self._spans = spans
        self._load = load
        self._every = every
        """A sixth of the shortest lease."""
        self._timeout = max(every * 2, 1.0)
        self._tell = tell
        self._loop = asyncio.new_event_loop()
        self._strangers: dict[tuple[UUID, int], float] = {}
        """What is leased to us and not known here, and since when that has been seen."""
        self._look = asyncio.Event()
        self._stopping = asyncio.Event()
        self._withdrawing = asyncio.Event()

    # Called from the worker's loop.

    def look(self) -> None:
        """Someone may have cancelled or held one of our runs."""
        self._call(self._look.set)

    def withdraw(self) -> None:
        """The worker claims nothing more: nobody shall count on it from now on, however long its runs take to end."""
        self._spans = tuple
        self._call(self._withdrawing.set)

    def stop(self) -> None:
        self._call(self._stopping.set)
        self._call(self._look.set)

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # the thread has ended

    # Runs in this thread.

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # which waits for whatever it cuts off
            runner.run(self._work())

    async def _work(self) -> None:
        roles = [
            forever("renewal", self._every, self._renew, self._stopping, longest=self._every),
            forever("announcement", ANNOUNCE_EVERY, self._announce, self._stopping),
            forever("reconciliation", self._every * 2, self._reconcile, self._stopping),
            self._watch(),
            self._say_that_it_withdraws(),
        ]
        *tasks, withdrawal = [self._loop.create_task(role) for role in roles]
        await self._stopping.wait()
        if not self._withdrawing.is_set():
            withdrawal.cancel()
        # An announcement cut off half way may still reach the table, after the goodbye: it is heard out first.
        _, late = await asyncio.wait([*tasks, withdrawal], timeout=GOODBYE)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=PARTING)
        try:
            await self._ledger.run(workers.retire(self._identity.id), timeout=GOODBYE)
        except Exception as error:
            log.debug("could not say goodbye: %s", error)
        await self._ledger.close()

    async def _renew(self) -> None:
        due = [(lease.id, lease.epoch, lease.lease_seconds) for lease in self._held.due()]
        due += await self._unheard_of()
        if not due:
            return
        sent = monotonic()
        news = await self._ledger.run(leases.renew(due, self._identity.id), timeout=self._timeout)
        for renewal in news:
            if renewal.renewed:
                self._held.renewed(renewal.id, sent)
        self._tell(news)

    async def _unheard_of(self) -> list[tuple[UUID, int, float]]:
        """What a claim has leased to us while its answer waits behind user code that blocks the worker's loop."""
        since = self._held.claiming_since
        if since is None or monotonic() - since < self._every * 2:
            return []
        leased = await self._ledger.run(leases.leased_by(self._identity.id), timeout=self._timeout)
        return [(run_id, epoch, self._every * 6) for run_id, epoch in leased if run_id not in self._held]

    async def _watch(self) -> None:
        while True:
            await self._look.wait()
            if self._stopping.is_set():
                return
            self._look.clear()
            held = self._held.all()
            if held:
                try:
                    keys = [(h.id, h.epoch) for h in held]
                    self._tell(await self._ledger.run(leases.check_leases(keys, self._identity.id)))
                except Exception as error:
                    log.debug("could not look at the leases: %s", error)
            await pause_unless(self._stopping, LOOK_PAUSE)

    async def _announce(self) -> None:
        me = self._identity
        await self._ledger.run(workers.announce(me.id, me.name, me.host, me.pid, self._spans(), self._load()))

    async def _say_that_it_withdraws(self) -> None:
        await self._withdrawing.wait()
        try:
            await self._announce()
        except Exception as error:
            log.debug("could not withdraw: %s", error)  # the next announcement says so too

    async def _reconcile(self) -> None:
        """Hand back what a claim with a lost answer left leased to us. The claim under way may explain a stranger, but
        none that was seen before it began."""
        leased = await self._ledger.run(leases.leased_by(self._identity.id))
        under_way = self._held.claiming_since  # asked first: what it brings is known here before it is over
        unknown = [one for one in leased if one[0] not in self._held]
        orphans = [one for one in unknown if one in self._strangers]
        if under_way is not None:
            orphans = [one for one in orphans if self._strangers[one] < under_way]
        now = monotonic()
        self._strangers = {one: self._strangers.get(one, now) for one in unknown}
        if orphans:
            log.warning("%d runs were leased to this worker without its knowing; they are handed back", len(orphans))
            endings = [moves.release_stranger(*one) for one in orphans]
            await self._ledger.run(writing.write(endings, self._identity.id))
