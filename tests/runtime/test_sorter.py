"""The journal's batcher: lines stay in order, a batch holds one kind, several are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from support.waiting import eventually

from simpleworkflow.model.errors import StoreError
from simpleworkflow.runtime.batch import SHARE, Sorter


class Entry(NamedTuple):
    line: str
    kind: str
    number: int


class Database:
    """Takes batches; each flush waits until the test lets it go."""

    def __init__(self) -> None:
        self.under_way: list[tuple[list[Entry], asyncio.Future[None]]] = []
        self.written: list[Entry] = []
        self.most = 0

    async def flush(self, entries: list[Entry], repeated: bool) -> Sequence[int]:
        gate = asyncio.get_running_loop().create_future()
        flight = (list(entries), gate)
        self.under_way.append(flight)
        self.most = max(self.most, len(self.under_way))
        try:
            await gate
        finally:
            self.under_way.remove(flight)
        self.written += entries
        return [entry.number for entry in entries]

    def let_go(self, index: int = 0) -> None:
        self.under_way[index][1].set_result(None)


def sorter(database: Database, *, flushers: int = 3) -> Sorter[Entry, int]:
    return Sorter(
        database.flush,
        flushers=flushers,
        line=lambda entry: entry.line,
        kind=lambda entry: entry.kind,
        flights={"record": 2},
        limit=200,
        patient=True,
        name="test",
        weigh=lambda _: 1,
    )


async def turns(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_a_batch_holds_one_kind_and_the_others_keep_their_order() -> None:
    database = Database()
    under_test = sorter(database, flushers=1)
    entries = [Entry("a", "record", 1), Entry("b", "end", 2), Entry("c", "record", 3), Entry("d", "end", 4)]
    answers = [under_test.submit(entry) for entry in entries]
    await turns()
    assert [entry.number for entry in database.under_way[0][0]] == [1, 3]
    database.let_go()
    await turns()
    assert [entry.number for entry in database.under_way[0][0]] == [2, 4]
    database.let_go()
    assert await asyncio.gather(*answers) == [1, 2, 3, 4]


async def test_an_entry_never_overtakes_an_earlier_one_of_its_line() -> None:
    """The end of a run must not be written before the record that came first, whatever their kinds."""
    database = Database()
    under_test = sorter(database)
    under_test.submit(Entry("a", "record", 1))
    await turns()
    ending = under_test.submit(Entry("a", "end", 2))
    others = [under_test.submit(Entry(f"x{n}", "end", n)) for n in range(SHARE)]
    await turns()
    assert len(database.under_way) == 2, "the others need not wait"
    assert all(entry.line != "a" for entry in database.under_way[1][0])
    database.let_go(1)
    await asyncio.gather(*others)
    assert not ending.done()
    database.let_go()
    await turns()
    database.let_go()
    assert await ending == 2


async def test_records_share_two_flights_and_ends_take_one() -> None:
    database = Database()
    under_test = sorter(database)
    records = [under_test.submit(Entry(f"r{n}", "record", n)) for n in range(2 * SHARE)]
    await turns()
    ends = [under_test.submit(Entry(f"e{n}", "end", n)) for n in range(2 * SHARE)]
    await turns()
    assert sorted(flight[0][0].kind for flight in database.under_way) == ["end", "record", "record"]
    assert sum(len(flight[0]) for flight in database.under_way if flight[0][0].kind == "record") == 2 * SHARE
    while database.under_way:
        database.let_go()
        await turns()
    assert all(answer.done() for answer in (*records, *ends))


async def test_whatever_the_order_in_which_flights_land_every_line_is_in_order() -> None:
    database = Database()
    under_test = sorter(database)
    kinds = ("record", "record", "end", "more")
    answers = [under_test.submit(Entry(f"l{n % 7}", kinds[(n * 5) % 4], n)) for n in range(400)]
    turn = 0
    while not all(answer.done() for answer in answers):
        await turns()
        if database.under_way:
            turn += 1
            database.let_go(turn % len(database.under_way))
    assert database.most > 1, "nothing overlapped: the test shows nothing"
    for line in {entry.line for entry in database.written}:
        numbers = [entry.number for entry in database.written if entry.line == line]
        assert numbers == sorted(numbers)


async def test_what_is_posted_as_the_last_flight_lands_is_not_forgotten() -> None:
    database = Database()
    under_test = sorter(database)
    first = under_test.submit(Entry("a", "record", 1))
    second: list[asyncio.Future[int]] = []
    first.add_done_callback(lambda _: second.append(under_test.submit(Entry("a", "record", 2))))
    await turns()
    database.let_go()
    await turns()
    database.let_go()
    assert await second[0] == 2
    assert under_test.backlog == 0


async def test_one_refused_entry_does_not_take_its_neighbours_along() -> None:
    async def flush(entries: list[Entry], repeated: bool) -> Sequence[int]:
        if any(entry.number == 13 for entry in entries):
            raise StoreError("refused")
        return [entry.number for entry in entries]

    under_test = sorter(Database())
    under_test._flush = flush
    answers = [under_test.submit(Entry(f"l{n}", "record", n)) for n in range(40)]
    done = await asyncio.gather(*answers, return_exceptions=True)
    assert [answer for n, answer in enumerate(done) if n != 13] == [n for n in range(40) if n != 13]
    with pytest.raises(StoreError):
        await answers[13]


async def test_what_waits_behind_a_flush_that_is_held_up_goes_without_it_and_needs_no_company() -> None:
    database = Database()
    under_test = sorter(database)
    first = under_test.submit(Entry("a", "record", 1))
    await turns()
    second = under_test.submit(Entry("b", "record", 2))
    await eventually(lambda: len(database.under_way) == 2, "a flight of its own")
    database.let_go(1)
    assert await second == 2
    database.let_go()
    assert await first == 1


async def test_what_must_wait_for_a_flight_of_its_kind_is_not_looked_at_again_and_again() -> None:
    database = Database()
    under_test = sorter(database)
    first = under_test.submit(Entry("a", "end", 1))
    await turns()
    second = under_test.submit(Entry("b", "end", 2))
    assert under_test._alarm is None
    while database.under_way:
        database.let_go()
        await turns()
    assert await asyncio.gather(first, second) == [1, 2]
