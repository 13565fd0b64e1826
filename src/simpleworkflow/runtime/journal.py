"""The journal: every durable write of a worker goes through here.

Entries gather while a flush is in flight and share its commit. Two flushers, sharded by run id, overlap one batch's
commit with the next one's work while all entries of a run stay in order. Each entry has its own outcome: *done*,
*woken* when a pause must look again, *lost* when the run was no longer this worker's. The journal is patient: while the
database is away entries wait, and `room` tells the claim loop to stop taking more.

A row that a stranger's transaction has locked must not hold up the rest: after half a second the batch goes on without
it, and the entry is tried again apart from the others until the lock is gone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

from ..model.errors import StoreBusy
from ..model.moves import Ending, Outcome, Pause, Record
from ..model.states import Status
from ..store import Ledger
from ..store.operations import leases, steps
from ..store.operations.steps import Entry
from .batch import Batcher
from .hints import Hint, Hinter

FLUSHERS = 2
BATCH = 200
LOCKED_PAUSE = 0.2


class Journal:
    def __init__(self, ledger: Ledger, hinter: Hinter, *, capacity: int, on_room: Callable[[], None]) -> None:
        self._ledger = ledger
        self._hinter = hinter
        self._fuses = ledger.has_lateral
        """Whether a fence and what it guards can be one statement."""
        self._capacity = capacity
        self._on_room = on_room
        self._pending = 0
        self._lines: dict[UUID, deque[int]] = {}
        """Entries that met a locked row, and those of the same run behind them, in their order."""
        self._shards: list[Batcher[Entry, Outcome]] = [
            Batcher(self._flush, limit=BATCH, patient=True, name=f"journal-{shard}", weigh=_weight)
            for shard in range(FLUSHERS)
        ]
        self._locked: Batcher[Entry, Outcome] = Batcher(
            self._flush_free, limit=BATCH, patient=True, name="journal-locked", weigh=_weight
        )

    @property
    def room(self) -> int:
        """How many more entries may come before claiming should pause."""
        return self._capacity - self._pending

    def write(self, entry: Entry) -> asyncio.Future[Outcome]:
        """The future ends when the entry is durable, or known not to be ours any more."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._pending += 1
        if entry.run_id in self._lines:
            self._lines[entry.run_id].append(id(entry))  # behind what the same run could not write yet
            self._try_later(entry, outcome)
        else:
            self._submit(self._shards[entry.run_id.int % FLUSHERS], entry, outcome)
        return outcome

    def _submit(self, batcher: Batcher[Entry, Outcome], entry: Entry, outcome: asyncio.Future[Outcome]) -> None:
        batcher.submit(entry).add_done_callback(lambda done: self._flushed(entry, outcome, done))

    def _flushed(self, entry: Entry, outcome: asyncio.Future[Outcome], done: asyncio.Future[Outcome]) -> None:
        if not done.cancelled() and done.exception() is None and done.result() is Outcome.BUSY:
            self._try_later(entry, outcome)
            return
        self._pending -= 1
        self._leave_line(entry)
        if outcome.done():
            pass  # whoever waited for it was stopped; the entry is written all the same
        elif done.cancelled():
            outcome.cancel()
        elif (error := done.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())
        self._on_room()

    def _try_later(self, entry: Entry, outcome: asyncio.Future[Outcome]) -> None:
        loop, context = asyncio.get_running_loop(), contextvars.Context()
        loop.call_later(LOCKED_PAUSE, self._submit, self._locked, entry, outcome, context=context)

    def _stand_in_line(self, entries: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
        """At once, not when callers hear of it: the next batch may hold later entries of the same runs."""
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome is Outcome.BUSY:
                line = self._lines.setdefault(entry.run_id, deque())
                if id(entry) not in line:
                    line.append(id(entry))
            else:
                self._leave_line(entry)

    def _leave_line(self, entry: Entry) -> None:
        line = self._lines.get(entry.run_id)
        if line is not None and id(entry) in line:
            line.remove(id(entry))
            if not line:
                del self._lines[entry.run_id]

    def _is_next(self, entry: Entry) -> bool:
        """Whether no earlier entry of the same run is waiting for its row."""
        line = self._lines.get(entry.run_id)
        return line is None or line[0] == id(entry)

    async def drain(self, timeout: float) -> bool:
        """Flush everything; False when the database did not let us in time."""
        deadline = asyncio.get_running_loop().time() + timeout
        for batcher in (*self._shards, self._locked):
            await batcher.drain(max(deadline - asyncio.get_running_loop().time(), 0.0))
        return self._pending == 0

    def abandon(self) -> None:
        for batcher in (*self._shards, self._locked):
            batcher.abandon()

    async def _flush(self, entries: list[Entry], repeated: bool) -> list[Outcome]:
        if self._lines and not all(self._is_next(entry) for entry in entries):
            return await self._flush_each(entries)
        outcomes: dict[int, Outcome] = {}
        for part in self._parts(entries):
            for entry, outcome in zip(part, await self._flush_part(part, repeated), strict=True):
                outcomes[id(entry)] = outcome
        return [outcomes[id(entry)] for entry in entries]

    def _parts(self, entries: list[Entry]) -> list[list[Entry]]:
        """What one statement can write goes apart from the rest, as long as no run has a share in both."""
        if not self._fuses:
            return [entries]
        plain = [entry for entry in entries if steps.is_plain_record(entry)]
        endings = [entry for entry in entries if steps.is_plain_ending(entry)]
        fast = {id(entry) for entry in (*plain, *endings)}
        parts = [[entry for entry in entries if id(entry) not in fast], plain, endings]
        runs = [{entry.run_id for entry in part} for part in parts]
        if len(set().union(*runs)) < sum(map(len, runs)):
            return [entries]
        return [part for part in parts if part]

    async def _flush_part(self, entries: list[Entry], repeated: bool) -> list[Outcome]:
        operation = steps.flush(entries, fused=self._fuses)
        operation.repeated, operation.impatient = repeated, True
        try:
            outcomes = await self._ledger.run(operation)
        except StoreBusy:
            return await self._flush_free(entries, True)
        self._tell(entries)
        return outcomes

    async def _flush_free(self, entries: list[Entry], repeated: bool) -> list[Outcome]:
        """Without waiting for rows that somebody has locked: endings together, everything else one by one."""
        endings = [entry for entry in entries if isinstance(entry, Ending) and not entry.clears]
        if len(entries) > max(len(endings), 1) or not all(map(self._is_next, entries)):
            return await self._flush_each(entries)
        operation = leases.settle_free(endings) if endings else steps.flush(entries)
        operation.repeated, operation.impatient = True, True
        try:
            outcomes = await self._ledger.run(operation)
        except StoreBusy:
            # A parent or a child is locked: find out whose, one by one.
            if len(entries) > 1:
                return await self._flush_each(entries)
            outcomes = [Outcome.BUSY]
        self._stand_in_line(entries, outcomes)
        self._tell(entries)
        return outcomes

    async def _flush_each(self, entries: list[Entry]) -> list[Outcome]:
        """One by one; what follows a locked entry of the same run waits behind it."""
        outcomes: list[Outcome] = []
        for entry in entries:
            if self._is_next(entry):
                outcomes += await self._flush_free([entry], True)
            else:
                self._stand_in_line([entry], [Outcome.BUSY])
                outcomes.append(Outcome.BUSY)
        return outcomes

    def _tell(self, entries: list[Entry]) -> None:
        endings = [entry for entry in entries if isinstance(entry, Ending)]
        if any(ending.status != Status.PENDING for ending in endings):
            self._hinter.tell(Hint.FINISHED)
        if any(ending.status == Status.PENDING and ending.delay == 0 for ending in endings) or any(
            isinstance(entry, Record) and entry.child is not None for entry in entries
        ):
            self._hinter.tell(Hint.READY)
        if any(ending.has_parent for ending in endings):
            self._hinter.tell(Hint.CONTROL)
            self._hinter.tell(Hint.READY)


def _weight(entry: Entry) -> int:
    if isinstance(entry, Pause):
        return 0
    if isinstance(entry, Record):
        return len(entry.output or "") + len(entry.error or "")
    return len(entry.result or "") + len(entry.error or "")
