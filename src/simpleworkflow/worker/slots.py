"""Which executions are under way, and how many more may start.

Runs that wait in memory (they cannot be unwound) take no slot, but there is an end to how many fit. A type may have a
cap of its own. A run whose process ended with it twice in a row is a suspect: one at a time, until it has lived long
enough or is over. The more often that has happened, the longer it is alone: what takes its time before it ends its
process is the last that was started there in the end, and no other one is blamed for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from ..model.records import Lease
from ..runtime.execute import Execution
from ..runtime.registry import Workflow
from ..runtime.stop import Stop
from .loop import pause_unless

MOST_RESIDENT = 10
"""Runs in memory, waiting ones included, for each slot."""

Key = tuple[UUID, int]

MOST_DOUBLED = 3
"""A longer trial would come too late: by then every crash counts, and others wait for this one to live."""


def trial(lease: Lease, seconds: float) -> float:
    """How long a suspect must live before the next one may start: twice as long after each further crash in a row."""
    return seconds * (1 << min(lease.crashes - 2, MOST_DOUBLED))


class Slots:
    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._executions: dict[Key, Execution] = {}
        self._by_type: Counter[str] = Counter()
        self.empty = asyncio.Event()
        self.empty.set()
        self.suspect: Key | None = None

    def take(self, execution: Execution) -> None:
        lease = execution.lease
        self._executions[key_of(lease)] = execution
        self._by_type[lease.type] += 1
        self.empty.clear()
        if lease.is_suspect:
            self.suspect = key_of(lease)

    def leave(self, execution: Execution) -> bool:
        """Whether it had taken a slot at all."""
        if not self._executions:
            return False  # the usual case while runs wait for nothing
        key = key_of(execution.lease)
        if self._executions.get(key) is not execution:
            return False
        del self._executions[key]
        self._by_type[execution.lease.type] -= 1
        if not self._executions:
            self.empty.set()
        return True

    def trust(self, key: Key) -> bool:
        """A suspect has lived long enough, or is over: the next one may start. False when it was no suspect."""
        if self.suspect != key:
            return False
        self.suspect = None
        return True

    @property
    def free(self) -> int:
        present = len(self._executions)
        if present < self._concurrency:
            return self._concurrency - present  # at least; who is resident is counted when it matters
        resident = sum(execution.is_resident for execution in list(self._executions.values()))
        return min(self._concurrency - present + resident, MOST_RESIDENT * self._concurrency - present)

    def make_room(self) -> None:
        """When waiting runs fill the memory, the oldest goes back: it may wait for one that needs a slot."""
        if len(self._executions) >= MOST_RESIDENT * self._concurrency:
            resident = (execution for execution in self._executions.values() if execution.is_resident)
            if (oldest := next(resident, None)) is not None:
                oldest.stop(Stop.CROWDED)

    def room_by_type(self, workflows: Iterable[Workflow[Any, Any]], taken: Sequence[Lease] = ()) -> dict[str, int]:
        """How many more runs of each capped type may start."""
        capped = [(w.name, w.concurrency) for w in workflows if w.concurrency is not None]
        if not capped:
            return {}
        busy = self._by_type + Counter(lease.type for lease in taken)
        return {name: max(cap - busy[name], 0) for name, cap in capped}

    def load(self, workflows: Iterable[Workflow[Any, Any]]) -> dict[str, object]:
        """How full it is, for people who ask; any thread may look."""
        caps = {w.name: [w.concurrency, self._by_type[w.name]] for w in workflows if w.concurrency is not None}
        told: dict[str, object] = {"slots": self._concurrency, "taken": self._concurrency - max(self.free, 0)}
        return told | {"caps": caps} if caps else told

    def find(self, run_id: UUID, epoch: int) -> Execution | None:
        return self._executions.get((run_id, epoch))

    def older(self, lease: Lease) -> list[Execution]:
        """Executions of the same run under leases that are no longer valid, now that this one exists."""
        return [e for e in self._executions.values() if e.lease.id == lease.id and e.lease.epoch < lease.epoch]

    def __iter__(self) -> Iterator[Execution]:
        return iter(list(self._executions.values()))

    def __len__(self) -> int:
        return len(self._executions)


def key_of(lease: Lease) -> Key:
    return lease.id, lease.epoch


async def drain(slots: Slots, hurry: asyncio.Event, patience: float) -> None:
    """Running code may finish; what only waits can do so elsewhere."""
    for execution in slots:
        if execution.is_idle():
            execution.stop(Stop.DRAIN)
    waits = [asyncio.ensure_future(slots.empty.wait()), asyncio.ensure_future(hurry.wait())]
    await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def stop_all(slots: Slots, patience: float) -> None:
    """Nobody has any more time; what does not stop now is left to itself."""
    for execution in slots:
        execution.stop(Stop.DRAIN)
    await pause_unless(slots.empty, patience)
