"""How many runs the next claim asks for. Nothing here has a clock or a database: it is told what happened.

Three things would waste time. Claims of one or two runs: a claim costs the database about as much as twelve runs in it,
so while claimed runs still wait for their turn to start, the next claim waits until it is worth it. Claims of all that
may be held: everything has been started long before the next answer comes, so none is larger than half of it. And a
claim that was too large to be answered: an answer holds payloads, so it is as large as they allow, and after one that
failed the next asks for half.

Nothing is claimed that has no slot: a run that waits in this process could have run in another one. The exception are
runs that end as soon as they start: they take no slot, and some hundredths of a second of them is claimed ahead.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.records import Lease
from ..runtime.batch import MAX_WEIGHT

AHEAD = 0.04
"""Seconds of work that may wait here without a slot, as long as no run waits for anything."""
MOST_AHEAD = 2000
FASTEST = 1e-6
"""Seconds for a run. Where the clock is coarse, many runs may start and end within one of its ticks."""
WORTH = 500
"""So many runs are worth a claim while others still wait to be started."""
MOST = 1000
"""Runs in one claim."""


class ClaimSize:
    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._most = MOST
        """Runs in the next claim, at most."""
        self._weight = 0.0
        """Characters of payload of a run, on average, in the last claim."""
        self._pace: tuple[str, float] | None = None
        """The type of the last runs that were started and the seconds for each, if none of them took a slot."""
        self.lacks_room = False
        """Whether the journal, and not the slots, was what there was too little of."""

    def next(self, slots: int, waiting: int, journal: int, only_type: str | None) -> int:
        """`slots` are free, `waiting` runs wait to be started, the `journal` has room for so many entries; `only_type`
        is the type of the only lane that is served now."""
        ahead = self._ahead(only_type)
        room = slots + ahead - waiting
        free = min(room, journal - waiting)
        self.lacks_room = free < room
        if waiting and free < min((self._concurrency + ahead) // 2, WORTH):
            return 0  # those that wait will have started, and some of them ended, in a moment
        return min(free, self._most, self._carried())

    def claimed(self, taken: Sequence[Lease]) -> None:
        if taken:
            self._most = min(self._most * 2, MOST)
            self._weight = sum(len(lease.payload) for lease in taken) / len(taken)

    def failed(self) -> None:
        self._pace = None
        self._most = max(self._most // 2, 1)

    def started(self, type: str, seconds: float) -> None:
        """The last runs were of this type, took so many seconds each, and took no slot."""
        self._pace = type, seconds

    def took_slots(self) -> None:
        """Runs wait for something, or have waited too long to be started: claim nothing ahead."""
        self._pace = None

    def _carried(self) -> int:
        """How many runs such as the last ones one answer can carry."""
        return max(int(MAX_WEIGHT / self._weight), 1) if self._weight else MOST

    def _ahead(self, only_type: str | None) -> int:
        """How many runs more than there are slots for. With several lanes, or caps, each takes its turn instead."""
        if self._pace is None or self._pace[0] != only_type:
            return 0
        return min(int(AHEAD / max(self._pace[1], FASTEST)), MOST_AHEAD, self._carried())
