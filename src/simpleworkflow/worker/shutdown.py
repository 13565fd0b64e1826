"""How a worker parts with its runs: what has ended is written down, what has not is given back, and the rest is told.

Nothing here may hold up a stop or break it. A database that is away, locked or unwilling finds out by itself when the
leases run out; the worker says which runs that concerns, so that nobody has to guess why they rest for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..model import moves
from ..model.moves import Ending
from ..runtime.journal import Journal
from ..store import Ledger
from ..store.operations import writing
from .held_leases import HeldLeases
from .slots import Slots

log = logging.getLogger("simpleworkflow.worker")

GRACE = 3.0
"""Seconds for each thing that the database is asked to write."""


class Shutdown:
    """`followups` are tasks whose outcome may still go to the journal."""

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        slots: Slots,
        held_leases: HeldLeases,
        followups: set[asyncio.Task[None]],
        worker_id: str,
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._slots = slots
        self._held = held_leases
        self._followups = followups
        self._worker_id = worker_id
        self._has_looked = False
        self._has_handed_back = False

    async def from_all(self, *, process_ends: bool) -> None:
        """Code that goes on regardless keeps its runs, unless its process ends."""
        drained = await self._journal.drain(GRACE)
        if drained and self._followups:  # pauses that were refused because something had happened, for one
            await asyncio.wait(self._followups, timeout=GRACE)
            drained = await self._journal.drain(GRACE)
        if drained:
            self._has_looked = await hand_back_strangers(self._ledger, self._worker_id, self._held)
        else:
            self._journal.abandon()
        if process_ends:
            running = [moves.release(e.lease, elapsed=e.elapsed) for e in self._slots]
            self._has_handed_back = await hand_back(self._ledger, self._worker_id, running)

    def stays_behind(self) -> str | None:
        """What is not in order, and what will become of it; None if nothing is."""
        told = []
        running = {execution.lease.id for execution in self._slots}
        if running:
            fate = "were handed back" if self._has_handed_back else "are taken over when leases end"
            told.append(f"code was still running at the drain deadline (runs: {len(running)}); its runs {fate}")
        if unsettled := {lease.id for lease in self._held.all()} - running:
            told.append(f"the database did not confirm the end of {len(unsettled)} runs; open ones are taken over")
        if self._held.is_unsure and not self._has_looked:
            told.append("what the last claim took is not known; it is taken over when leases end")
        return "; ".join(told) or None


async def hand_back(ledger: Ledger, worker: str, endings: Sequence[Ending]) -> bool:
    """Release what this worker will not finish."""
    try:
        if endings:
            await ledger.run(writing.write(endings, worker), timeout=GRACE)
        return True
    except Exception as error:
        log.warning("%d runs could not be handed back; their leases will run out: %s", len(endings), error)
        return False


async def hand_back_strangers(ledger: Ledger, worker_id: str, held_leases: HeldLeases) -> bool:
    """A claim that was cut off by a stop may have leased runs that nobody here knows."""
    try:
        await ledger.run(writing.release_strangers(worker_id, held_leases), timeout=GRACE)
        return True
    except Exception as error:
        log.warning("what is leased to this worker could not be looked at; such leases will run out: %s", error)
        return False
