"""One pass over all runs: page by page, batch by batch, without delaying others.

Deleting is work that can wait, beside work that cannot. So looks and batches are kept about as short as their AIM, with
fewer or more runs in them as the database turns out to be slow or quick. A batch has a bound of rows as well: runs of
ten thousand steps go one by one, whatever the light ones before them have taught. After each comes a rest, four times
as long as the work and once more as long as it had to wait for its turn: a pass takes at most a fifth of one
connection's time, and less while the database is busy. It may end anywhere: what it has removed is gone whole, and
`place` says where to go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from ..clock import monotonic
from ..model.retention import FIRST_ID, LAST_ID, PruneResult, Rule, stretches
from ..model.states import Status
from ..store.operations import prune
from ..store.operations.prune import Candidate
from ..store.protocol import Operation

T = TypeVar("T")
Counts = Counter[tuple[str, Status]]

PAGE = 2_000
"""Ids that one look examines at most."""
BATCH = 500
"""Runs that one transaction removes at most."""
ROWS = 4_000
"""Rows that one transaction removes at most, unless a single run has more: a run goes whole."""
FIRST_PAGE = 200
SMALLEST = 20
FEWEST_ROWS = 100
AIM = 0.002
"""Seconds that a removal should take. On SQLite everybody who writes waits so long for it, and other processes a little
longer. With twice as much, one claim in a hundred took more than twice its usual time there."""
AIM_LOOK = 0.02
"""A look keeps nobody from writing, but on SQLite the log cannot be emptied meanwhile."""
RESTS = 4.0
LONGEST_REST = 10.0
LONGEST_WAIT = 0.5
"""So much of the time that it waited for its turn is waited once more; an outage is not."""


class Ask(Protocol):
    """How a pass reaches the database."""

    def __call__(self, operation: Operation[T], /) -> Awaitable[T]: ...


class Pass:
    def __init__(
        self,
        ask: Ask,
        rules: Sequence[Rule],
        now: int,
        *,
        start: UUID | None = None,
        batch: int = BATCH,
        is_dry: bool = False,
        rest: Callable[[float], Awaitable[object]] = asyncio.sleep,
        tell: Callable[[Counts], object] = lambda _: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`tell` hears of each piece of work: what went with it, by type and status. `is_over` is asked between two."""
        self._ask = ask
        self._rules = rules
        self._page = _Size(PAGE, AIM_LOOK, first=FIRST_PAGE)
        self._batch = _Size(batch, AIM, first=SMALLEST)
        self._rows = _Size(ROWS, AIM, first=FEWEST_ROWS, least=FEWEST_ROWS)
        self._rest = rest
        self._tell = tell
        self._is_over = is_over
        self._left = _from(start or FIRST_ID, stretches(rules, now)) if rules else []
        self.done = PruneResult(is_dry=is_dry)

    @property
    def place(self) -> UUID | None:
        """The first id that has not been looked at; None when there is none left."""
        return self._left[0][0] if self._left else None

    async def go_on(self) -> bool:
        """Look at one page and remove what is to go; False when that was the end."""
        if not self._left:
            return False
        first, last = self._left[0]
        limit, began = self._page.now, monotonic()
        most = 0 if self.done.is_dry else ROWS
        page = await self._ask(prune.look(self._rules, first, last, limit=limit, most=most))
        self._page.learn(page.examined, page.took)
        await self._pause(page.took, monotonic() - began)
        self.done.examined += page.examined
        self.done.kept.update(one.kept for one in page.candidates if one.kept is not None)
        going = [one for one in page.candidates if one.kept is None]
        if self.done.is_dry:
            self._count(Counter((one.type, one.status) for one in going))
        else:
            self._count(Counter())
            if not await self._remove(going):
                return True  # the rest of the page is looked at again
        self._left = _from(_after(page.last) if page.examined == limit else _after(last), self._left)
        return bool(self._left)

    async def _remove(self, going: Sequence[Candidate]) -> bool:
        """False when it was over before all of them were dealt with."""
        start = 0
        while start < len(going):
            some, is_heavy = self._piece(going, start)
            began = monotonic()
            removed = await self._ask(prune.remove(self._rules, [one.id for one in some]))
            self.done.kept.update(removed.kept)
            self._count(removed.runs)
            start += len(some)
            self._batch.learn(len(some), removed.took)
            self._rows.learn(self._rows.now if is_heavy else 0, removed.took)
            await self._pause(removed.took, monotonic() - began)
            if start < len(going) and self._is_over():
                return False
        return True

    def _piece(self, going: Sequence[Candidate], start: int) -> tuple[Sequence[Candidate], bool]:
        """The next runs that go together, and whether their rows were what set the limit."""
        some = going[start : start + self._batch.now]
        rows = 0
        for count, one in enumerate(some):
            rows += one.rows
            if rows > self._rows.now and count:
                return some[:count], True
        return some, False

    def _count(self, runs: Counts) -> None:
        self.done.runs.update(runs)
        self._tell(runs)

    async def _pause(self, worked: float, took: float) -> None:
        waited = max(took - worked, 0.0)
        await self._rest(min(RESTS * worked, LONGEST_REST) + min(waited, LONGEST_WAIT))


class _Size:
    """How many go into one piece of work, so that it takes about as long as it should."""

    def __init__(self, most: int, aim: float, *, first: int, least: int = SMALLEST) -> None:
        self._most = most
        self._least = min(least, most)
        self._aim = aim
        self.now = min(first, most)

    def learn(self, count: int, took: float) -> None:
        if took > self._aim:
            self.now = max(self.now // 2, self._least)
        elif took < self._aim / 2 and count >= self.now:
            self.now = min(self.now * 2, self._most)


def _after(place: UUID | None) -> UUID | None:
    """The next id there could be; None beyond the last one."""
    return None if place is None or place == LAST_ID else UUID(int=place.int + 1)


def _from(place: UUID | None, ranges: Sequence[tuple[UUID, UUID]]) -> list[tuple[UUID, UUID]]:
    """What is left of the stretches from a place on."""
    if place is None:
        return []
    return [(max(first, place), last) for first, last in ranges if last >= place]
