"""Sinks that refuse, raise, hang or mumble: nothing is lost, others go on, and the log stays short."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from support.ledger import Raw
from support.outbox import Heap, put, rows, statuses, take
from support.relay import Stage

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.errors import InvalidPolicy
from simpleworkflow.model.outbox import Delivery
from simpleworkflow.sinks.protocol import CloudEvent, Refusal, SinkGone
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import outbox
from simpleworkflow.worker.relay_answers import SinkTrouble
from simpleworkflow.worker.relay_options import RelayOptions
from simpleworkflow.worker.relay_role import RelayRole


@pytest.fixture
def stage(ledger: Ledger, raw: Raw, url: str) -> Stage:
    return Stage(url, raw)


async def test_a_reason_that_no_database_takes_is_stored_as_sound_text(stage: Stage) -> None:
    bad, good, heap = new_id(), new_id(), Heap()
    heap.refusing[bad] = Refusal("no \x00 and \ud800", is_permanent=True)
    put(stage.raw, bad, 1)
    put(stage.raw, good, 1)
    await stage.relay(heap).run_once()
    assert rows(stage.raw, bad)[0]["last_error"] == "no \\0 and ?"
    assert (statuses(stage.raw, bad), statuses(stage.raw, good), heap.calls) == (["dead"], ["published"], 1)


async def test_a_batch_that_cannot_be_marked_is_offered_one_by_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or everything in it would be published again and again."""
    monkeypatch.setattr("simpleworkflow.worker.relay.FIRST_PAUSE", 0.01)
    runs, heap = [UUID(int=(1 << 64) + lane) for lane in range(4)], Heap()
    for run_id in runs:
        put(stage.raw, run_id, 1)
    write = outbox.mark

    def stumble(owner: str, epochs: Any, marks: Any) -> Any:
        if any(run_id == runs[0] for one in marks.values() for _, run_id in one.published):
            raise ValueError("cannot be written")
        return write(owner, epochs, marks)

    monkeypatch.setattr("simpleworkflow.store.operations.outbox.mark", stumble)
    async with stage.running(heap):
        await stage.until(
            lambda: all(statuses(stage.raw, one) == ["published"] for one in runs[1:]), "others are marked"
        )
    assert all(len(heap.of(run_id)) == 2 for run_id in runs[1:])


async def test_a_slow_sink_gets_fewer_events_at_once_and_none_of_them_dies(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("simpleworkflow.worker.relay.monotonic", lambda: now)

    class Slow(Heap):
        """Four seconds for each event, and no time for more than ten of them."""

        def __init__(self) -> None:
            super().__init__()
            self.sizes: list[int] = []

        async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
            nonlocal now
            now += 4.0 * min(len(events), 10)
            self.sizes.append(len(events))
            self.got += events[:10]
            return [None if place < 10 else Refusal("no time") for place in range(len(events))]

    for number in range(96):
        put(stage.raw, UUID(int=(1 << 64) + number), 1)
    sink = Slow()
    relay = stage.relay(sink, batch=64, retry=swf.Retry(max_attempts=8, initial=0, max_delay=0, jitter=0.0))
    await relay.run_once()
    assert sink.sizes[:9] == [64, 32, 16, 8, 4, 2, 3, 4, 2]
    assert len(sink.got) == relay.counts[Delivery.PUBLISHED] == 96
    assert relay.counts[Delivery.DEAD] == 0, "a sink that is slow has refused nothing"


async def test_large_events_are_handed_over_a_few_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simpleworkflow.worker.relay.LARGE", 1000)
    sizes: list[int] = []

    class Measuring(Heap):
        async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
            sizes.append(len(events))
            return await super().publish(events)

    runs, sink = [UUID(int=(1 << 64) + number) for number in range(20)], Measuring()
    for run_id in runs:
        put(stage.raw, run_id, 2)
    long = json.dumps("x" * 400)
    stage.raw.sql("UPDATE workflow.outbox_event SET payload = ? WHERE aggregate_id <> ?", long, runs[0])
    longer = json.dumps("x" * 4000)
    stage.raw.sql("UPDATE workflow.outbox_event SET payload = ? WHERE aggregate_id = ?", longer, runs[0])
    await stage.relay(sink).run_once()
    assert all(sink.of(run_id) == [1, 2] for run_id in runs)
    assert max(sizes) == 2


async def test_refusals_of_many_runs_are_told_in_a_few_lines(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    heap = Heap()
    for number in range(60):
        run_id = UUID(int=(1 << 64) + number)
        heap.refusing[run_id] = Refusal("busy", is_permanent=number >= 30)
        put(stage.raw, run_id, 1)
    with caplog.at_level("INFO", "simpleworkflow.relay"):
        await stage.relay(heap, retry=swf.Retry(max_attempts=9, initial="1h", max_delay="1h")).run_once()
    told = [record for record in caplog.records if "event 1 (told)" in record.message]
    assert [record.levelname for record in told] == ["ERROR", "INFO"]
    assert "holds back" in told[0].message
    assert "and 29 of other runs: simpleworkflow outbox list" in told[0].message
    assert told[1].message.endswith("busy (and 29 more)")


class Poisoned(Heap):
    """Breaks with one run's events in the batch, whatever else is in it."""

    def __init__(self, poison: UUID) -> None:
        super().__init__()
        self.poison = poison

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        if any(event.run_id == self.poison for event in events):
            raise ValueError("cannot be written: password=hunter2")
        return await super().publish(events)


async def test_an_event_that_breaks_the_sink_is_found_and_the_others_arrive(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simpleworkflow.worker.relay.FIRST_PAUSE", 0.01)
    runs = [new_id() for _ in range(6)]
    for run_id in runs:
        put(stage.raw, run_id, 2)
    heap = Poisoned(runs[0])
    async with stage.running(heap, retry=swf.Retry(max_attempts=2, initial="10ms", max_delay="10ms")):
        await stage.until(lambda: statuses(stage.raw, runs[0]) == ["dead", "behind"], "the poison was given up")
        await stage.until(lambda: all(heap.of(run_id) == [1, 2] for run_id in runs[1:]), "the others arrived")
    reason = rows(stage.raw, runs[0])[0]["last_error"]
    assert reason.startswith("ValueError: cannot be written")
    assert "hunter2" not in reason


class Nonsense(Heap):
    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        self.calls += 1
        return []


class Hanging(Heap):
    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        self.calls += 1
        await asyncio.Event().wait()
        return []


class Mumbling(Heap):
    async def publish(self, events: Sequence[CloudEvent]) -> Any:
        return [True for _ in events]


class Cancelled(Heap):
    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        raise asyncio.CancelledError("a client of the sink's gave up its own future")


class Exits(Heap):
    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        raise SystemExit("broker gone")


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError


class Unreadable(Heap):
    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        raise UnreadableError


class Impatient(Heap):
    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        raise TimeoutError("the broker was silent for 10 ms")


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        (Nonsense, "gave 0 answers to 1"),
        (Hanging, "no answer within 0.05 s"),
        (Mumbling, "answered with a bool"),
        (Cancelled, "CancelledError: a client"),
        (Exits, "SystemExit: broker gone"),
        (Unreadable, "UnreadableError"),
        (Impatient, "TimeoutError: the broker was silent"),
    ],
)
async def test_answers_that_cannot_be_and_answers_that_never_come_are_refusals(
    stage: Stage, sink: type[Heap], says: str
) -> None:
    run_id = new_id()
    put(stage.raw, run_id, 1)
    async with stage.running(sink(), timeout=0.05, retry=swf.Retry(max_attempts=1)):
        await stage.until(lambda: statuses(stage.raw, run_id) == ["dead"], "it was given up")
    assert says in rows(stage.raw, run_id)[0]["last_error"]


async def test_a_sink_that_is_gone_ends_the_relay_of_a_worker_and_blames_no_event(
    stage: Stage, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    class Gone(Heap):
        async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
            raise SinkGone("nobody listens")

    run_id, sink = new_id(), Gone()
    put(stage.raw, run_id, 1)
    own = open_ledger(stage.url)
    (task,) = RelayRole(sink, RelayOptions(), "relay-a").start(own, asyncio.Event())
    await asyncio.wait_for(task, 20)
    await own.close()
    assert "delivers no more events: nobody listens" in caplog.text
    assert sink.is_closed
    assert rows(stage.raw, run_id)[0]["attempt"] == 0
    assert len(await take(ledger, "heir")) == 16


async def test_an_event_that_was_not_tried_has_nothing_counted_against_it(stage: Stage) -> None:
    run_id, heap = new_id(), Heap()
    heap.refusing[run_id] = Refusal("no time left", is_untried=True)
    put(stage.raw, run_id, 2)
    async with stage.running(heap) as relay:
        await stage.until(lambda: relay.counts[Delivery.RETRYING] > 4, "it came more often than its attempts")
        assert rows(stage.raw, run_id)[0]["attempt"] == 0
        del heap.refusing[run_id]
        await stage.until(lambda: heap.of(run_id) == [1, 2], "both arrived")


@pytest.mark.parametrize("given", [{"reason": ValueError("no")}, {"reason": "no", "retry_after": "30s"}])
def test_a_refusal_is_checked_where_it_is_made(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        Refusal(**given)


async def test_a_sink_that_is_down_costs_no_attempts_of_most_events(stage: Stage) -> None:
    """It raises for everything: at most the few events that were tried alone have been refused."""

    class Down(Heap):
        async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
            self.calls += 1
            raise OSError("no route")

    for _ in range(20):
        put(stage.raw, new_id(), 1)
    relay = stage.relay(Down())
    with pytest.raises(SinkTrouble, match="nothing is lost"):
        await relay.run_once()
    refused = stage.raw.sql("SELECT sum(attempt) AS n FROM workflow.outbox_event")[0]["n"]
    assert refused <= 2
    assert stage.raw.sql("SELECT count(*) AS n FROM workflow.outbox_event WHERE status = 'dead'")[0]["n"] == 0
