"""Where races are run: two sides, two drivers, one database; and a tally that fails when an interleaving stays away.

A race that was only slept for proves nothing: perhaps the two sides never met. So here each race is run in batches of
many runs at a time, one side starts beside a stage of the other that is drawn by lot (plus a few turns of the loop,
drawn too), and what happened is read off the answers, never off the clock. A race whose tally lacks an interleaving
fails even when nothing went wrong.

The lots only steer; the database decides. On PostgreSQL the two sides have eight sessions each, so statements truly
meet on row locks. On SQLite a file has one writer at a time, whoever it is, so the race is the order of transactions
and of the reads between them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from support.ledger import Raw, claim, offer

from simpleworkflow.model.records import Lease
from simpleworkflow.store import Ledger

LEAST_SHARE = 0.01
GROUPS_AT_ONCE = 24
LARGEST_GROUP = 8
MOST_TURNS = 12
LETS_OTHERS_FIRST = 0.25

Figure = Callable[[str, float], None]


@dataclass
class Tally:
    """How often each interleaving happened."""

    race: str
    interleavings: Sequence[str]
    seen: Counter[str] = field(default_factory=Counter)

    def saw(self, interleaving: str) -> None:
        assert interleaving in self.interleavings, interleaving
        self.seen[interleaving] += 1

    def wants_more(self, done: int, wanted: int, most: int) -> bool:
        """Whether to go on: a small sample on a busy machine may need a few rounds more to meet every interleaving."""
        return done < wanted or (done < most and any(self.seen[name] == 0 for name in self.interleavings))

    def close(self, at_least: int, figure: Figure, iterations: int | None = None) -> None:
        """Write the figures down, then judge. `iterations` when one of them can count in two ways."""
        total = self.seen.total() if iterations is None else iterations
        figure(f"{self.race}: iterations", total)
        for name in self.interleavings:
            figure(f"{self.race}: {name}", self.seen[name])
        assert total >= at_least, f"{self.race}: only {total} iterations"
        for name in self.interleavings:
            share = self.seen[name] / total
            assert share >= LEAST_SHARE, f"{self.race}: {name!r} happened in {share:.2%} only: {dict(self.seen)}"


@dataclass
class Ring:
    """Both sides' way to the database, and the dice."""

    ours: Ledger
    theirs: Ledger
    raw: Raw
    dice: random.Random
    _serial: itertools.count[int] = field(default_factory=itertools.count)

    def name(self, what: str) -> str:
        """A type or worker name that no other group has, so that a group claims its own runs."""
        return f"race.{what}.g{next(self._serial)}"

    async def stagger(self) -> None:
        for _ in range(self.dice.randrange(MOST_TURNS)):
            await asyncio.sleep(0)

    async def rounds(self, iterations: int, group: Callable[[Ring, int], Awaitable[None]]) -> None:
        """Race that many times, in groups that one side serves together, many groups at once."""
        while iterations > 0:
            sizes: list[int] = []
            while iterations > 0 and len(sizes) < GROUPS_AT_ONCE:
                sizes.append(min(self.dice.randint(1, LARGEST_GROUP), iterations))
                iterations -= sizes[-1]
            async with asyncio.TaskGroup() as together:
                for size in sizes:
                    together.create_task(group(self, size))

    async def claim_all(self, ledger: Ledger, type: str, size: int, worker: str = "w1", **rest: bool) -> list[Lease]:
        """Claim a whole group. A claim passes over rows that the other side has locked; they come with the next."""
        taken: list[Lease] = []
        deadline = time.monotonic() + 30.0
        while len(taken) < size:
            assert time.monotonic() < deadline, f"only {len(taken)} of {size} runs of {type} could ever be claimed"
            taken += await claim(ledger, offer(type), limit=size - len(taken), worker=worker, **rest)
        return taken

    def rows(self, table: str, column: str, ids: Sequence[UUID]) -> list[dict[str, object]]:
        marks = ", ".join("?" for _ in ids)
        return self.raw.sql(f"SELECT * FROM workflow.workflow_{table} WHERE {column} IN ({marks})", *ids)

    def statuses(self, ids: Sequence[UUID]) -> dict[UUID, str]:
        return {UUID(str(row["id"])): str(row["status"]) for row in self.rows("run", "id", ids)}


class Stages:
    """The stages of one side, in order. The other side starts beside one of them, drawn by lot.

    A stage that always hurries on would leave some orders to luck (a read is much faster than a queue of commits), so
    now and then it lets those beside it go first.
    """

    def __init__(self, ring: Ring, *names: str) -> None:
        self._ring = ring
        self._begun = {name: asyncio.Event() for name in names}
        self._tickets: dict[str, list[asyncio.Event]] = {name: [] for name in names}

    async def begin(self, name: str) -> None:
        self._begun[name].set()
        if self._ring.dice.random() < LETS_OTHERS_FIRST:
            for ticket in self._tickets[name]:
                await ticket.wait()
        await self._ring.stagger()

    def _draw(self, act: Callable[[], Awaitable[object]]) -> Awaitable[None]:
        """The other side's act, to be started beside a stage; drawn now, before the stages begin."""
        name, ticket = self._ring.dice.choice(list(self._begun)), asyncio.Event()
        self._tickets[name].append(ticket)
        return self._beside(name, ticket, act)

    async def _beside(self, name: str, ticket: asyncio.Event, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._begun[name].wait()
            await self._ring.stagger()
            await act()
        finally:
            ticket.set()

    async def race(self, ours: Awaitable[object], *theirs: Callable[[], Awaitable[object]]) -> None:
        """Both sides to their ends; the failure of one stops all."""
        others = [self._draw(act) for act in theirs]
        async with asyncio.TaskGroup() as both:
            for side in (ours, *others):
                both.create_task(_run(side))


async def _run(side: Awaitable[object]) -> None:
    await side
