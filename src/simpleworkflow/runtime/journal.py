"""The journal: every durable write of a worker goes through here.

Entries gather while a flush is in flight and share its commit. Two flushers, sharded by run id, overlap one batch's
commit with the next one's work while all entries of a run stay in order. Each entry has its own outcome: *done*, or
*lost* when the run was no longer this worker's. The journal is patient: while the database is away entries wait, and
`room` tells the claim loop to stop taking more.

A row that a stranger's transaction has locked must not hold up the rest: after half a second the batch goes on without
it, and the entry is tried again apart from the others until the lock is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..model.errors import StoreBusy
from ..model.moves import Ending, Outcome
from ..model.states import Status
from ..store import Ledger
from ..store.operations import leases
from .batch import Batcher
from .hints import Hint, Hinter

FLUSHERS = 2
BATCH = 200
LOCKED_PAUSE = 0.2


class Journal:
    def __init__(self, ledger: Ledger, hinter: Hinter, *, capacity: int, on_room: Callable[[], None]) -> None:
        self._ledger = ledger
        self._hinter = hinter
        self._capacity = capacity
        self._on_room = on_room
        self._pending = 0
        self._shards = [
            Batcher(self._flush, limit=BATCH, patient=True, name=f"journal-{shard}", weigh=_weight)
            for shard in range(FLUSHERS)
        ]
        self._locked = Batcher(self._flush_free, limit=BATCH, patient=True, name="journal-locked", weigh=_weight)

    @property
    def room(self) -> int:
        """How many more entries may come before claiming should pause."""
        return self._capacity - self._pending

    def settle(self, ending: Ending) -> asyncio.Future[Outcome]:
        """The future ends when the entry is durable, or known not to be ours any more."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._pending += 1
        self._submit(self._shards[ending.run_id.int % FLUSHERS], ending, outcome)
        return outcome

    def _submit(self, batcher: Batcher[Ending, Outcome], ending: Ending, outcome: asyncio.Future[Outcome]) -> None:
        batcher.submit(ending).add_done_callback(lambda done: self._flushed(ending, outcome, done))

    def _flushed(self, ending: Ending, outcome: asyncio.Future[Outcome], done: asyncio.Future[Outcome]) -> None:
        if not done.cancelled() and done.exception() is None and done.result() is Outcome.BUSY:
            loop = asyncio.get_running_loop()
            loop.call_later(LOCKED_PAUSE, self._submit, self._locked, ending, outcome)
            return
        self._pending -= 1
        if done.cancelled():
            outcome.cancel()
        elif (error := done.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())
        self._on_room()

    async def drain(self, timeout: float) -> bool:
        """Flush everything; False when the database did not let us in time."""
        deadline = asyncio.get_running_loop().time() + timeout
        for batcher in (*self._shards, self._locked):
            await batcher.drain(max(deadline - asyncio.get_running_loop().time(), 0.0))
        return self._pending == 0

    def abandon(self) -> None:
        for batcher in (*self._shards, self._locked):
            batcher.abandon()

    async def _flush(self, endings: list[Ending], repeated: bool) -> list[Outcome]:
        operation = leases.settle(endings)
        operation.repeated, operation.impatient = repeated, True
        try:
            outcomes = await self._ledger.run(operation)
        except StoreBusy:
            return await self._flush_free(endings, True)
        self._tell(endings)
        return outcomes

    async def _flush_free(self, endings: list[Ending], repeated: bool) -> list[Outcome]:
        operation = leases.settle_free(endings)
        operation.impatient = True
        try:
            outcomes = await self._ledger.run(operation)
        except StoreBusy:
            # A parent or a child is locked: find out whose, one by one.
            if len(endings) == 1:
                return [Outcome.BUSY]
            return [outcome for one in endings for outcome in await self._flush_free([one], True)]
        self._tell(endings)
        return outcomes

    def _tell(self, endings: list[Ending]) -> None:
        if any(ending.status != Status.PENDING for ending in endings):
            self._hinter.tell(Hint.FINISHED)
        if any(ending.status == Status.PENDING and ending.delay == 0 for ending in endings):
            self._hinter.tell(Hint.READY)


def _weight(ending: Ending) -> int:
    return len(ending.result or "") + len(ending.error or "")
