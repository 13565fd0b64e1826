"""The journal: every durable write of a worker goes through here.

Entries gather while a flush is in flight and share its commit. Two flushers, sharded by run id, overlap one batch's
commit with the next one's work while all entries of a run stay in order. Each entry has its own outcome: *done*,
*woken* when a pause must look again, *lost* when the run was no longer this worker's. The journal is patient: while the
database is away entries wait, and `room` tells the claim loop to stop taking more.
"""

from __future__ import annotations

import asyncio

from ..model.moves import Ending, Outcome, Pause, Record
from ..model.states import Status
from ..store import Ledger
from ..store.operations import steps
from ..store.operations.steps import Entry
from .batch import Batcher
from .hints import Hint, Hinter

FLUSHERS = 2
BATCH = 200


class Journal:
    def __init__(self, ledger: Ledger, hinter: Hinter, *, capacity: int) -> None:
        self._ledger = ledger
        self._hinter = hinter
        self._capacity = capacity
        self._shards = [
            Batcher(self._flush, limit=BATCH, patient=True, name=f"journal-{shard}", weigh=_weight)
            for shard in range(FLUSHERS)
        ]

    @property
    def room(self) -> int:
        """How many more entries may come before claiming should pause."""
        return self._capacity - sum(shard.backlog for shard in self._shards)

    def write(self, entry: Entry) -> asyncio.Future[Outcome]:
        """The future ends when the entry is durable, or known not to be."""
        return self._shards[entry.run_id.int % FLUSHERS].submit(entry)

    async def drain(self, timeout: float) -> bool:
        """Flush everything; False when the database did not let us in time."""
        drained = await asyncio.gather(*(shard.drain(timeout) for shard in self._shards))
        return all(drained)

    def abandon(self) -> None:
        for shard in self._shards:
            shard.abandon()

    async def _flush(self, entries: list[Entry]) -> list[Outcome]:
        outcomes = await self._ledger.run(steps.flush(entries))
        endings = [entry for entry in entries if isinstance(entry, Ending)]
        if any(ending.status != Status.PENDING for ending in endings):
            self._hinter.tell(Hint.FINISHED)
        if any(ending.status == Status.PENDING and ending.delay == 0 for ending in endings) or any(
            isinstance(entry, Record) and entry.child is not None for entry in entries
        ):
            self._hinter.tell(Hint.READY)
        if any(ending.has_parent for ending in endings):
            self._hinter.tell(Hint.CONTROL)
        return outcomes


def _weight(entry: Entry) -> int:
    if isinstance(entry, Pause):
        return 0
    if isinstance(entry, Record):
        return len(entry.output or "") + len(entry.error or "")
    return len(entry.result or "") + len(entry.error or "")
