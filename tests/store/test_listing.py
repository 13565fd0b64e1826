"""Looking: filters, pages that miss nothing and repeat nothing, and an audit trail that is a path through the law."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from support.ledger import (
    Raw,
    check_path,
    claim,
    create,
    failed,
    get,
    leased,
    new,
    offer,
    overran,
    released,
    retried,
    settle,
    stub,
    succeeded,
    sweep,
)

from simpleworkflow.model.names import span_of_prefix
from simpleworkflow.model.records import Count, Event
from simpleworkflow.model.states import EventType, Status
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import events, leases, runs

EVERY: dict[str, Any] = {
    "statuses": (),
    "type": None,
    "span": None,
    "since": None,
    "until": None,
    "idempotency_key": None,
    "with_deleted": False,
    "held": False,
    "before": None,
    "limit": 100,
}


async def page(ledger: Ledger, **wanted: Any) -> list[UUID]:
    return [run.id for run in await ledger.run(runs.list_page(**{**EVERY, **wanted}))]


async def test_the_newest_run_comes_first(ledger: Ledger) -> None:
    made = await create(ledger, *(new() for _ in range(5)))
    assert await page(ledger) == sorted(made, reverse=True)
    assert await page(ledger, limit=2) == sorted(made, reverse=True)[:2]


async def test_runs_are_found_by_type_and_prefix(ledger: Ledger) -> None:
    a, b, c = await create(ledger, new(type="bill.a.v1"), new(type="bill.b.v1"), new(type="billing.v1"))
    assert await page(ledger, type="bill.a.v1") == [a]
    assert await page(ledger, span=span_of_prefix("bill.")) == sorted([a, b], reverse=True)
    assert set(await page(ledger, span=span_of_prefix("bill*"))) == {a, b, c}


async def test_runs_are_found_by_status(ledger: Ledger) -> None:
    done, going = await leased(ledger), await leased(ledger)
    (waiting,) = await create(ledger)
    await settle(ledger, succeeded(done))
    assert await page(ledger, statuses=[Status.SUCCEEDED]) == [done.id]
    assert set(await page(ledger, statuses=[Status.LEASED, Status.PENDING])) == {going.id, waiting}
    assert await page(ledger, statuses=[Status.FAILED]) == []


async def test_runs_are_found_by_time_and_key(ledger: Ledger, raw: Raw) -> None:
    old, recent = await create(ledger, new(idempotency_key="old"), new(idempotency_key="recent"))
    raw.age(old, 3600, "created_at")
    moment = (await get(ledger, recent)).created_at
    assert await page(ledger, since=moment) == [recent]
    assert await page(ledger, until=moment) == [old]
    assert set(await page(ledger, since=moment - timedelta(hours=2), until=moment + timedelta(hours=1))) == {
        recent,
        old,
    }
    assert await page(ledger, idempotency_key="old") == [old]


async def test_deleted_runs_are_shown_only_when_asked_for(ledger: Ledger) -> None:
    gone, kept = await create(ledger, new(), new())
    await ledger.run(runs.delete([gone]))
    assert await page(ledger) == [kept]
    assert set(await page(ledger, with_deleted=True)) == {gone, kept}
    (found,) = await ledger.run(runs.get([gone]))
    assert found is not None


async def test_pages_are_complete_and_without_duplicates_while_rows_come(ledger: Ledger) -> None:
    made = await create(ledger, *(new() for _ in range(50)))
    seen: list[UUID] = []
    before = None
    while found := await page(ledger, before=before, limit=7):
        seen += found
        before = found[-1]
        await create(ledger, *(new() for _ in range(3)))
    assert seen == sorted(made, reverse=True)


async def test_runs_are_counted_by_type_and_status(ledger: Ledger) -> None:
    await create(ledger, *(new(type="a.v1") for _ in range(3)), new(type="b.v1"))
    (lease,) = await claim(ledger, offer("a.v1"), limit=1)
    (gone,) = await create(ledger, type="b.v1")
    await ledger.run(runs.delete([gone]))
    assert await ledger.run(runs.count()) == [
        Count("a.v1", Status.LEASED, 1),
        Count("a.v1", Status.PENDING, 2),
        Count("b.v1", Status.PENDING, 1),
    ]
    assert lease.type == "a.v1"


async def test_get_answers_in_the_order_asked(ledger: Ledger) -> None:
    a, b = await create(ledger, new(), new())
    unknown = new().id
    found = await ledger.run(runs.get([b, unknown, a, b]))
    assert [run and run.id for run in found] == [b, None, a, b]


async def test_a_finished_run_reads_as_it_was_written(ledger: Ledger) -> None:
    good, bad = await leased(ledger), await leased(ledger)
    await settle(ledger, succeeded(good), failed(bad))
    won, lost = await get(ledger, good.id), await get(ledger, bad.id)
    assert (won.result, won.error, won.is_finished) == (42, None, True)
    assert (lost.error, lost.last_error, lost.attempt) == ({"type": "Boom", "message": "boom"}, "boom", 1)
    assert won.created_at.utcoffset() == timedelta(0)


# The audit trail


async def test_events_come_in_order_and_by_page(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await settle(ledger, retried(lease, delay=1.5))
    story = await ledger.run(events.of_run(lease.id))
    assert [event.type for event in story] == ["created", "leased", "started", "retried"]
    assert [event.epoch for event in story] == [None, 1, 1, 1]
    assert story[1].data == {"worker": "w1"}
    assert story[3].data == {"error": "boom", "delay": 1.5}
    assert story[2].created_at < story[3].created_at
    rest = await ledger.run(events.of_run(lease.id, after=story[1].id, limit=1))
    assert rest == [story[2]]


async def test_events_since_a_time(ledger: Ledger, raw: Raw) -> None:
    old, recent = await create(ledger, new(), new())
    raw.rewrite_events(f"created_at = created_at {raw.back(3600)}", "workflow_id = ?", old)
    moment = (await get(ledger, recent)).created_at - timedelta(minutes=1)
    found = await ledger.run(events.since(moment))
    assert [event.run_id for event in found] == [recent]
    assert await ledger.run(events.since(moment, after=found[-1].id)) == []


async def step(ledger: Ledger, raw: Raw, run_id: UUID, dice: random.Random) -> None:
    """Try any move on the run, lawful or not."""
    row = raw.row(run_id)
    moves = [
        lambda: claim(ledger, suspects=row["crashes"] > 0),
        lambda: ledger.run(runs.cancel([run_id], "chance")),
        lambda: ledger.run(runs.hold([run_id])),
        lambda: ledger.run(runs.resume([run_id])),
        lambda: ledger.run(runs.revive([run_id])),
        lambda: ledger.run(leases.heartbeat(run_id, row["lease_epoch"], "w1", 30.0)),
        lambda: sweep(ledger, "w1"),
        lambda: ledger.run(leases.expire(limit=10)),
    ]
    moves += [
        lambda ending=ending: settle(ledger, ending(stub(run_id, row["lease_epoch"])))  # type: ignore[misc]
        for ending in (succeeded, failed, retried, released, overran)
    ]
    weights = [8, 1, 1, 6, 6, 2, 1, 1, 1, 1, 3, 3, 1]
    raw.age(run_id, 1000, "run_at")
    await dice.choices(moves, weights)[0]()


@pytest.mark.parametrize("seed", range(6))
async def test_the_events_of_a_run_are_a_path_through_the_law(ledger: Ledger, raw: Raw, seed: int) -> None:
    dice = random.Random(seed)
    (run_id,) = await create(ledger, max_attempts=5)
    for _ in range(100):
        await step(ledger, raw, run_id, dice)
    story = await ledger.run(events.of_run(run_id))
    assert check_path(event.type for event in story) == raw.row(run_id)["status"]
    epochs = [event.epoch for event in story if event.type is EventType.LEASED]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > 3


async def test_reading_since_a_time_starts_by_search_and_misses_nothing(ledger: Ledger, raw: Raw) -> None:
    """Ids and instants are in step only roughly; whatever the instant asked for, every later event is found."""
    await create(ledger, *(new() for _ in range(40)))
    everything = await all_since(ledger, datetime(2020, 1, 1, tzinfo=UTC), limit=7)
    assert len(everything) == 40
    for index, event in enumerate(everything):
        age = (39 - index) * 1800 + (300 if index % 7 == 3 else 0)  # an id may run ahead of its instant a little
        raw.rewrite_events(f"created_at = created_at {raw.back(age)}", "id = ?", event.id)
    now = datetime.now(UTC)
    for hours in (0.1, 1, 5.2, 11, 25, 1000):
        instant = now - timedelta(hours=hours)
        found = await all_since(ledger, instant, limit=7)
        known = await all_since(ledger, datetime(2020, 1, 1, tzinfo=UTC), limit=100)
        assert [event.id for event in found] == [event.id for event in known if event.created_at >= instant]


async def all_since(ledger: Ledger, instant: datetime, *, limit: int) -> list[Event]:
    found: list[Event] = []
    while True:
        page = await ledger.run(events.since(instant, after=found[-1].id if found else 0, limit=limit))
        found += page
        if len(page) < limit:
            return found
