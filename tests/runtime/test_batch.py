"""Natural batching: shared flushes, an answer per item, one bad item harms nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from simpleworkflow.model.errors import StoreError, StoreSlow, StoreUnavailable
from simpleworkflow.runtime.batch import Batcher


class Sink:
    """Records batches; a flush waits until the test opens the gate."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.repeated: list[bool] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.bad: set[int] = set()
        self.away = 0
        self.most: int | None = None
        """More than so many take too long."""

    async def flush(self, items: list[int], repeated: bool) -> Sequence[int]:
        self.batches.append(list(items))
        self.repeated.append(repeated)
        await self.gate.wait()
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        if self.most is not None and len(items) > self.most:
            raise StoreSlow("no answer in time")
        if self.bad & set(items):
            raise StoreError("refused")
        return [item * 10 for item in items]


def batcher(sink: Sink, *, limit: int = 100, patient: bool = True) -> Batcher[int, int]:
    return Batcher(sink.flush, limit=limit, patient=patient, name="test")


async def test_an_idle_batcher_flushes_at_once() -> None:
    sink = Sink()
    assert await batcher(sink).submit(7) == 70
    assert sink.batches == [[7]]


async def test_what_arrives_during_a_flush_shares_the_next_one() -> None:
    sink = Sink()
    sink.gate.clear()
    under_test = batcher(sink)
    first = under_test.submit(0)
    await asyncio.sleep(0)
    rest = [under_test.submit(n) for n in range(1, 50)]
    assert under_test.backlog == 50
    sink.gate.set()
    assert await first == 0
    assert await asyncio.gather(*rest) == [n * 10 for n in range(1, 50)]
    assert sink.batches == [[0], list(range(1, 50))]
    assert under_test.backlog == 0


async def test_a_batch_never_exceeds_its_limit() -> None:
    sink = Sink()
    under_test = batcher(sink, limit=8)
    await asyncio.gather(*(under_test.submit(n) for n in range(20)))
    assert [len(batch) for batch in sink.batches] == [8, 8, 4]


async def test_a_batch_is_bounded_by_weight_too() -> None:
    sink = Sink()
    heavy = Batcher(sink.flush, limit=100, patient=True, name="test", weigh=lambda item: item * 1024 * 1024)
    await asyncio.gather(*(heavy.submit(n) for n in (1, 1, 1, 3, 9, 1)))
    assert sink.batches == [[1, 1, 1], [3], [9], [1]], "a single item always goes, however heavy"


@pytest.mark.parametrize("bad", [{0}, {13}, {31}, {3, 4}, {0, 31}, set(range(32))])
async def test_one_bad_item_cannot_strand_its_batch(bad: set[int]) -> None:
    sink = Sink()
    sink.bad = bad
    under_test = batcher(sink)
    answers = await asyncio.gather(*(under_test.submit(n) for n in range(32)), return_exceptions=True)
    for n, answer in enumerate(answers):
        assert isinstance(answer, StoreError) if n in bad else answer == n * 10


async def test_a_patient_batcher_waits_for_the_database() -> None:
    sink = Sink()
    sink.away = 2
    assert await batcher(sink).submit(1) == 10
    assert sink.repeated == [False, True, True], "an unanswered flush may have committed: the next one knows"


async def test_an_impatient_batcher_tells_its_callers() -> None:
    sink = Sink()
    sink.away = 1
    under_test = batcher(sink, patient=False)
    with pytest.raises(StoreUnavailable):
        await under_test.submit(1)
    assert await under_test.submit(2) == 20, "the next one is tried afresh"


async def test_drain_says_whether_everything_was_flushed() -> None:
    sink = Sink()
    under_test = batcher(sink)
    assert await under_test.drain(0.01)
    sink.gate.clear()
    waiting = under_test.submit(1)
    assert not await under_test.drain(0.01)
    sink.gate.set()
    assert await under_test.drain(5)
    assert await waiting == 10


async def test_a_patient_batcher_that_was_abandoned_flushes_nothing_more() -> None:
    """Its owner is gone, and so may be the database: what comes late, a timer's post for instance, stays unwritten."""
    sink = Sink()
    under_test = batcher(sink)
    assert await under_test.submit(1) == 10
    under_test.abandon()
    late = under_test.submit(2)
    await asyncio.sleep(0)
    assert sink.batches == [[1]]
    assert not late.done()


async def test_a_caller_that_gave_up_does_not_disturb_the_flush() -> None:
    sink = Sink()
    sink.gate.clear()
    under_test = batcher(sink)
    gone, there = under_test.submit(1), under_test.submit(2)
    await asyncio.sleep(0)
    gone.cancel()
    sink.gate.set()
    assert await there == 20


async def test_a_flush_that_takes_too_long_is_halved_and_the_next_ones_are_smaller() -> None:
    sink = Sink()
    sink.most = 3
    under_test = batcher(sink, limit=16)
    answers = await asyncio.gather(*(under_test.submit(n) for n in range(64)))
    assert answers == [n * 10 for n in range(64)]
    too_large = [batch for batch in sink.batches if len(batch) > 3]
    assert [len(batch) for batch in too_large[:3]] == [16, 8, 4]
    assert len(too_large) < 8, "every batch was tried at its full size"
    assert all(sink.repeated[1:3]), "the first try may have committed"
    sink.most = None
    sink.batches.clear()
    for _ in range(40):
        await asyncio.gather(*(under_test.submit(n) for n in range(16)))
    assert max(map(len, sink.batches)) == 16, "it never dared more again"


async def test_a_single_item_that_takes_too_long_is_waited_for_and_its_neighbours_are_not() -> None:
    sink = Sink()
    sink.most = 0
    under_test = batcher(sink)
    slow = under_test.submit(1)
    while len(sink.batches) < 2:
        await asyncio.sleep(0.01)
    assert not slow.done()
    sink.most = None
    assert await slow == 10


async def test_callers_who_do_not_wait_for_the_database_are_told_that_it_is_slow() -> None:
    sink = Sink()
    sink.most = 1
    under_test = batcher(sink, patient=False)
    answers = await asyncio.gather(*(under_test.submit(n) for n in range(4)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreSlow] * 4


async def test_halves_of_a_refused_batch_may_have_been_written_before() -> None:
    sink = Sink()
    sink.bad = {3}
    under_test = batcher(sink)
    answers = await asyncio.gather(*(under_test.submit(n) for n in range(4)), return_exceptions=True)
    assert [isinstance(answer, StoreError) for answer in answers] == [False, False, False, True]
    assert sink.repeated == [False, *[True] * (len(sink.batches) - 1)]
