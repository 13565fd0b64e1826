"""The journal: every durable write of a worker goes through here.

Entries gather while a flush is in flight and share its commit. Where a database has round trips several flushes
overlap, one's commit with another's work; all entries of a run stay in order. A batch is what one plan can write where
that saves a transaction (store/operations/writing.py). Each entry has its own outcome: *done*, *woken*
when a pause must look again, *lost* when the run was no longer this worker's. The journal is patient: while the
database is away entries wait, and `room` tells the claim loop to stop taking more.

A row that a stranger's transaction has locked must not hold up the rest: after half a second the batch goes on without
it, and the entry is tried again apart from the others until the lock is gone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from operator import attrgetter
from uuid import UUID

from ..clock import monotonic
from ..model.errors import StoreBusy, StoreError
from ..model.moves import Ending, Outcome, Pause, Record
from ..model.states import Status
from ..store import Ledger
from ..store.operations import writing
from ..store.operations.writing import Entry, Kind
from .batch import Batcher, Reply, Sorter, Waiting, answer_all, resolve
from .hints import Hint, Hinter
from .meter import Meter

FLUSHERS = 3
BATCH = 1000
"""Entries of one flush. Fewer and larger ones leave more of two cores to the work itself."""
FLIGHTS: dict[Hashable, int] = {Kind.RESULT: 2}
"""How many batches of a kind may be under way. Code that waits for a step's record goes on afterwards, so two keep both
sides busy."""
CAPACITY = 5000
"""Entries that may wait for the database before a worker claims nothing more, unless it has very many slots."""
LOCKED_PAUSE = 0.2
SOON = 1.0
"""A retry that is due before anybody's next poll is announced when it is due."""

Flush = Callable[[list[Entry], bool], Awaitable[list[Outcome]]]


class Journal:
    def __init__(
        self, ledger: Ledger, hinter: Hinter, worker: str, *, capacity: int, meter: Meter | None = None
    ) -> None:
        self._ledger = ledger
        self._hinter = hinter
        self._worker = worker
        self._capacity = capacity
        self.on_room: Callable[[], object] = lambda: None
        """Called whenever entries have been written."""
        self._pending = 0
        if meter is not None:
            meter.unwritten = lambda: self._pending
        self._lines: dict[UUID, deque[int]] = {}
        """Entries that met a locked row, and those of the same run behind them, in their order."""
        self._entries: Batcher[Entry, Outcome] = Sorter(
            self._flush if meter is None else partial(self._measured, self._flush, meter),
            flushers=FLUSHERS if ledger.can.has_many_writers else 1,
            line=attrgetter("run_id"),
            # One transaction on SQLite, whatever is in it; a statement each where a transaction has round trips.
            kind=writing.kind_of if ledger.can.fuses_writes else lambda _: None,
            flights=FLIGHTS,
            limit=BATCH,
            patient=True,
            name="journal",
            weigh=_weight,
            answer=self._answer,
            refuse=self._refuse,
        )
        self._locked: Batcher[Entry, Outcome] = Batcher(
            self._flush_free if meter is None else partial(self._measured, self._flush_free, meter),
            limit=BATCH,
            patient=True,
            name="journal-locked",
            weigh=_weight,
            answer=self._answer,
            refuse=self._refuse,
        )

    @property
    def room(self) -> int:
        """How many more entries may come before claiming should pause."""
        return self._capacity - self._pending

    def write(self, entry: Entry) -> asyncio.Future[Outcome]:
        """The future ends when the entry is durable, or known not to be ours any more."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.post(entry, partial(resolve, outcome))
        return outcome

    def post(self, entry: Entry, heard: Reply[Outcome]) -> None:
        """The same with a callback, which must not raise."""
        self._pending += 1
        if self._lines and entry.run_id in self._lines:
            self._lines[entry.run_id].append(id(entry))  # behind what the same run could not write yet
            self._try_later(entry, heard)
        else:
            self._entries.post(entry, heard)

    def _answer(self, batch: Sequence[Waiting[Entry, Outcome]], outcomes: Sequence[Outcome]) -> None:
        busy = outcomes.count(Outcome.BUSY)
        self._pending -= len(batch) - busy
        if busy or self._lines:
            self._answer_free(batch, outcomes)
        else:
            answer_all(batch, outcomes)
        self.on_room()

    def _answer_free(self, batch: Sequence[Waiting[Entry, Outcome]], outcomes: Sequence[Outcome]) -> None:
        for (entry, heard, _), outcome in zip(batch, outcomes, strict=True):
            if outcome is Outcome.BUSY:
                self._try_later(entry, heard)
            else:
                self._leave_line(entry)
                heard(outcome, None)

    def _refuse(self, batch: Sequence[Waiting[Entry, Outcome]], error: Exception) -> None:
        self._pending -= len(batch)
        for entry, heard, _ in batch:
            self._leave_line(entry)
            heard(None, error)
        self.on_room()

    def _try_later(self, entry: Entry, heard: Reply[Outcome]) -> None:
        loop, context = asyncio.get_running_loop(), contextvars.Context()
        loop.call_later(LOCKED_PAUSE, self._locked.post, entry, heard, context=context)

    def _stand_in_line(self, batch: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
        """At once, not when callers hear of it: the next batch may hold later entries of the same runs."""
        for entry, outcome in zip(batch, outcomes, strict=True):
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
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            for batcher in (self._entries, self._locked):
                await batcher.drain(deadline - loop.time())
            if not self._pending or loop.time() >= deadline:
                return self._pending == 0
            await asyncio.sleep(min(LOCKED_PAUSE, deadline - loop.time()))  # some met a locked row, and come again

    def abandon(self) -> None:
        for batcher in (self._entries, self._locked):
            batcher.abandon()

    async def _measured(self, flush: Flush, meter: Meter, batch: list[Entry], repeated: bool) -> list[Outcome]:
        """The same flush, with its time and its outcomes counted."""
        began = monotonic()
        try:
            outcomes = await flush(batch, repeated)
        except Exception as error:
            meter.flush_failed(error)
            raise
        meter.flushed(batch, outcomes, monotonic() - began)
        return outcomes

    async def _flush(self, batch: list[Entry], repeated: bool) -> list[Outcome]:
        if self._lines and not all(map(self._is_next, batch)):
            return await self._flush_each(batch)
        sorted_by_kind = self._ledger.can.fuses_writes
        kind = writing.kind_of(batch[0]) if sorted_by_kind else None
        # A try that finds its work done tells nothing: what the first one did not say must be said apart.
        is_alone = kind is Kind.SUCCESS and len(batch) == 1 and not repeated
        telling = is_alone and self._hinter.may_tell_now()
        operation = writing.write(batch, self._worker, fused=sorted_by_kind, alike=sorted_by_kind, telling=telling)
        operation.repeated, operation.impatient = repeated, True
        try:
            outcomes = await self._ledger.run(operation)
        except StoreBusy:
            return await self._flush_free(batch, True)
        except StoreError as error:
            if not (telling and self._hinter.may_be_to_blame(error)):
                raise
            return await self._flush(batch, repeated)
        if not telling:
            self._tell(batch[:1] if kind in {Kind.SUCCESS, Kind.RESULT} else batch)
        return outcomes

    async def _flush_free(self, batch: list[Entry], repeated: bool) -> list[Outcome]:
        """Without waiting for rows that somebody has locked."""
        if not all(map(self._is_next, batch)):
            return await self._flush_each(batch)
        operation = writing.write(batch, self._worker, skip_locked=True)
        operation.repeated, operation.impatient = repeated, True
        try:
            outcomes = await self._ledger.run(operation)
        except StoreBusy:
            # A parent or a child is locked: find out whose, one by one.
            if len(batch) > 1:
                return await self._flush_each(batch)
            outcomes = [Outcome.BUSY]
        self._stand_in_line(batch, outcomes)
        self._tell(batch)
        return outcomes

    async def _flush_each(self, batch: list[Entry]) -> list[Outcome]:
        """One by one; what follows a locked entry of the same run waits behind it."""
        outcomes: list[Outcome] = []
        for entry in batch:
            if self._is_next(entry):
                outcomes += await self._flush_free([entry], True)
            else:
                self._stand_in_line([entry], [Outcome.BUSY])
                outcomes.append(Outcome.BUSY)
        return outcomes

    def _tell(self, batch: Sequence[Entry]) -> None:
        """Hints for those who wait: for a result, for work, for a child."""
        kinds: set[Hint] = set()
        for entry in batch:
            if isinstance(entry, Ending):
                if entry.status is not Status.PENDING:
                    kinds.add(Hint.FINISHED)
                elif entry.delay == 0:
                    kinds.add(Hint.READY)
                elif entry.delay < SOON:
                    loop, context = asyncio.get_running_loop(), contextvars.Context()
                    loop.call_later(entry.delay, self._hinter.tell, Hint.READY, context=context)
                if entry.has_parent:
                    kinds.update((Hint.CONTROL, Hint.READY))
            elif isinstance(entry, Record) and entry.child is not None:
                kinds.add(Hint.READY)
            elif isinstance(entry, Record) and entry.emits is not None:
                kinds.add(Hint.OUTBOX)
        for kind in kinds:
            self._hinter.tell(kind)


def _weight(entry: Entry) -> int:
    if isinstance(entry, Record):
        return len(entry.output or "") + len(entry.error or "")
    if isinstance(entry, Pause):
        return 0
    return len(entry.result or "") + len(entry.error or "")
