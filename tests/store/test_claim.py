"""Claiming: who gets which run, in what order, and what a first claim fixes for good.

Lanes (type, priority) are found inside spans of types and walked in the order in which the worker lists them; inside
a lane the longest-due run comes first. What is not due, held, overdue or suspect is not handed out. No run is ever
handed to two claimers.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from support.ledger import (
    START,
    TYPE,
    Raw,
    claim,
    create,
    failed,
    get,
    lanes,
    leased,
    new,
    offer,
    released,
    retried,
    settle,
    sweep,
)

from simpleworkflow.model.names import EVERYTHING, Span, parse_prefixes, span_of_prefix, span_of_type
from simpleworkflow.model.records import Definition, Lane
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs, workers


async def test_the_longest_due_run_of_a_lane_comes_first(ledger: Ledger, raw: Raw) -> None:
    late, early, middle = await create(ledger, new(), new(), new())
    for run_id, seconds in ((late, 10), (early, 30), (middle, 20)):
        raw.age(run_id, seconds, "run_at")
    taken = [(await claim(ledger, limit=1))[0].id for _ in range(3)]
    assert taken == [early, middle, late]


async def test_equally_due_runs_come_by_id(ledger: Ledger) -> None:
    made = await create(ledger, *(new() for _ in range(5)))
    taken = [(await claim(ledger, limit=1))[0].id for _ in range(5)]
    assert taken == sorted(made)


async def test_lower_priority_numbers_are_served_first_when_offered_first(ledger: Ledger) -> None:
    low, high = await create(ledger, new(priority=200), new(priority=1))
    (first,) = await claim(ledger, offer(priority=1), offer(priority=200), limit=1)
    (second,) = await claim(ledger, offer(priority=1), offer(priority=200), limit=1)
    assert (first.id, second.id) == (high, low)


async def test_lanes_are_served_in_the_order_of_the_offers(ledger: Ledger) -> None:
    types = ["test.c.v1", "test.a.v1", "test.b.v1"]
    made = dict(zip(types, await create(ledger, *(new(type=name) for name in types)), strict=True))
    for name in types:
        order = sorted(types, key=lambda other, first=name: other != first)
        (lease,) = await claim(ledger, *(offer(one) for one in order), limit=1)
        assert lease.id == made[name]


async def test_the_limit_holds_across_lanes(ledger: Ledger) -> None:
    await create(ledger, *(new(type=f"test.{letter}.v1") for letter in "aaabbbccc"))
    offers = [offer(f"test.{letter}.v1") for letter in "abc"]
    batches = [[lease.type[5] for lease in await claim(ledger, *offers, limit=4)] for _ in range(4)]
    assert [sorted(batch) for batch in batches] == [list("aaab"), list("bbcc"), ["c"], []]


async def test_a_batch_comes_back_by_priority(ledger: Ledger) -> None:
    await create(ledger, new(priority=200), new(priority=1), new(priority=100))
    taken = await claim(ledger, offer(priority=200), offer(priority=1), offer(priority=100))
    assert [lease.priority for lease in taken] == [1, 100, 200]


async def test_a_run_is_not_claimed_before_its_time(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, delay=60)
    assert await lanes(ledger) == []
    assert await claim(ledger) == []
    raw.age(run_id, 61)
    assert await lanes(ledger) == [Lane(TYPE, 100)]
    assert [lease.id for lease in await claim(ledger)] == [run_id]


async def test_a_future_run_does_not_hide_a_due_one(ledger: Ledger, raw: Raw) -> None:
    future, due = await create(ledger, new(delay=60), new())
    assert [lease.id for lease in await claim(ledger, limit=1)] == [due]
    assert raw.row(future)["status"] == "pending"


async def test_a_held_run_is_not_claimed(ledger: Ledger) -> None:
    (run_id,) = await create(ledger)
    await ledger.run(runs.hold([run_id]))
    assert await lanes(ledger) == []
    assert await claim(ledger) == []
    await ledger.run(runs.resume([run_id]))
    assert [lease.id for lease in await claim(ledger)] == [run_id]


async def test_an_overdue_run_is_not_claimed(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(1)} WHERE id = ?", run_id)
    assert await claim(ledger) == []


async def test_start_by_limits_only_the_first_claim(ledger: Ledger, raw: Raw) -> None:
    late, in_time = await create(ledger, new(start_within=5), new(start_within=60))
    raw.age(late, 10)
    (lease,) = await claim(ledger)
    assert lease.id == in_time
    await settle(ledger, released(lease))
    raw.age(in_time, 120)
    assert [again.id for again in await claim(ledger)] == [in_time]


async def test_a_paused_run_with_no_wake_time_waits(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    raw.pause(lease.id)
    assert await claim(ledger) == []
    raw.sql(f"UPDATE workflow.workflow_run SET run_at = {raw.now} WHERE id = ?", lease.id)
    (again,) = await claim(ledger)
    assert (again.id, again.epoch) == (lease.id, 2)


async def test_the_policy_is_fixed_at_the_first_claim(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    (first,) = await claim(ledger, offer(attempts=5, timeout=100))
    assert (first.max_attempts, first.lease_seconds) == (5, 30.0)
    assert first.deadline_in == pytest.approx(100, abs=0.001)
    deadline = (await get(ledger, run_id)).deadline_at
    await settle(ledger, retried(first))
    (second,) = await claim(ledger, offer(attempts=9, timeout=5000))
    assert second.max_attempts == 5
    assert second.deadline_in is not None
    assert second.deadline_in <= 100
    assert (await get(ledger, run_id)).deadline_at == deadline


async def test_what_the_request_says_wins_over_the_policy(ledger: Ledger) -> None:
    await create(ledger, max_attempts=7)
    (lease,) = await claim(ledger, offer(attempts=2))
    assert lease.max_attempts == 7


async def test_each_lane_gets_its_own_policy(ledger: Ledger) -> None:
    await create(ledger, new(type="test.a.v1"), new(type="test.b.v1"))
    offers = [
        leases.Offer("test.a.v1", 100, 2, 10_000_000, None),
        leases.Offer("test.b.v1", 100, 6, 20_000_000, 60_000_000),
    ]
    a, b = sorted(await claim(ledger, *offers), key=lambda lease: lease.type)
    assert (a.max_attempts, a.lease_seconds, a.deadline_in) == (2, 10.0, None)
    assert (b.max_attempts, b.lease_seconds, b.deadline_in) == (6, 20.0, pytest.approx(60, abs=0.001))
    run = await get(ledger, b.id)
    assert run.lease_until is not None
    assert run.started_at is not None
    assert (run.lease_until - run.started_at).total_seconds() == 20


async def test_the_epoch_grows_by_one_at_each_claim_and_never_starts_over(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    epochs = [lease.epoch]
    for ending in (released, retried, failed):
        await settle(ledger, ending(lease))
        if ending is failed:
            await ledger.run(runs.revive([lease.id]))
        (lease,) = await claim(ledger)
        epochs.append(lease.epoch)
    raw.age(lease.id, 60)
    await sweep(ledger)
    (lease,) = await claim(ledger, suspects=True)
    assert [*epochs, lease.epoch] == [1, 2, 3, 4, 5]


async def test_a_lease_tells_what_execution_needs(ledger: Ledger) -> None:
    parent = (await create(ledger, type="test.parent.v1"))[0]
    lease = await leased(ledger, payload="[1]", idempotency_key="k", priority=100, parent_id=parent)
    assert (lease.payload, lease.idempotency_key, lease.parent_id) == ("[1]", "k", parent)
    assert (lease.attempt, lease.crashes, lease.wakes, lease.is_suspect) == (0, 0, 0, False)


@pytest.mark.parametrize(("crashes", "is_suspect"), [(1, False), (2, True)])
async def test_what_has_crashed_is_claimed_only_when_asked_for(
    ledger: Ledger, raw: Raw, crashes: int, is_suspect: bool
) -> None:
    lease = await leased(ledger)
    for crash in range(crashes):
        if crash:
            await claim(ledger, suspects=True)
        raw.age(lease.id, 60)
        await sweep(ledger)
    raw.age(lease.id, 60, "run_at")
    (fresh,) = await create(ledger)
    assert await lanes(ledger) == [Lane(TYPE, 100)]
    assert await lanes(ledger, suspects=True) == [Lane(TYPE, 100)]
    assert [one.id for one in await claim(ledger)] == [fresh]
    (crashed,) = await claim(ledger, suspects=True)
    assert (crashed.id, crashed.crashes) == (lease.id, crashes)
    assert crashed.is_suspect is is_suspect


@pytest.mark.parametrize(("crashes", "among"), [(1, leases.ONCE), (2, leases.AGAIN)])
async def test_a_claim_takes_first_crashes_apart_from_suspects(
    ledger: Ledger, raw: Raw, crashes: int, among: leases.Crashes
) -> None:
    (run_id,) = await create(ledger)
    raw.put(run_id, crashes=crashes)
    (other,) = {leases.ONCE, leases.AGAIN} - {among}
    assert await claim(ledger, crashes=other) == []
    assert [one.id for one in await claim(ledger, crashes=among)] == [run_id]


async def test_no_lane_has_suspects_when_nothing_crashed(ledger: Ledger) -> None:
    await create(ledger)
    assert await lanes(ledger, suspects=True) == []


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("billing.", ["billing.a.v1", "billing.b.v1"]),
        ("billing.*", ["billing.a.v1", "billing.b.v1"]),
        ("billing.a.v1", ["billing.a.v1"]),
        ("billing", ["billing"]),
        ("*", ["billing", "billing-x.v1", "billing.a.v1", "billing.b.v1", "billingx.v1", "media.v1"]),
        ("Billing.", []),
    ],
)
async def test_spans_choose_types_by_prefix(ledger: Ledger, prefix: str, expected: list[str]) -> None:
    names = ["media.v1", "billing", "billing.b.v1", "billing.a.v1", "billingx.v1", "billing-x.v1"]
    await create(ledger, *(new(type=name) for name in names))
    assert [lane.type for lane in await lanes(ledger, span_of_prefix(prefix))] == expected


async def every_lane(ledger: Ledger, spans: list[Span], limit: int) -> list[Lane]:
    """Walk all pages, as a worker does poll after poll."""
    found: list[Lane] = []
    after: Lane | None = START
    while after is not None:
        page, after, _ = await ledger.run(leases.find_lanes(spans, after, limit))
        found += page
    return found


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
@pytest.mark.parametrize("prefixes", ["*", "a.,b.", "b.t03.v1,a.,b.t01.v1"])
async def test_paging_visits_every_lane_once_and_in_order(ledger: Ledger, prefixes: str, limit: int) -> None:
    wanted = [(f"{letter}.t{n:02}.v1", priority) for letter in "ab" for n in range(5) for priority in (1, 100)]
    await create(ledger, *(new(type=type, priority=priority) for type, priority in wanted))
    spans = parse_prefixes(prefixes)
    inside = [lane for lane in wanted if any(span.low <= lane[0] < span.high for span in spans)]
    assert await every_lane(ledger, spans, limit) == sorted(inside)


async def test_lanes_without_due_runs_still_move_the_cursor(ledger: Ledger) -> None:
    await create(ledger, *(new(type=f"a.t{n}.v1", delay=60) for n in range(4)), new(type="b.due.v1"))
    assert await every_lane(ledger, [EVERYTHING], 2) == [Lane("b.due.v1", 100)]


async def test_one_type_alone_is_a_span(ledger: Ledger) -> None:
    await create(ledger, new(type="a.b"), new(type="a.b.c"), new(type="a.b-c"))
    assert await lanes(ledger, span_of_type("a.b")) == [Lane("a.b", 100)]


async def test_concurrent_claimers_never_share_a_run(ledger: Ledger, raw: Raw) -> None:
    made = set(await create(ledger, *(new(type=f"test.{n % 3}.v1") for n in range(300))))
    offers = [offer(f"test.{n}.v1") for n in range(3)]

    async def claimer(name: str) -> list[UUID]:
        mine: list[UUID] = []
        while taken := await claim(ledger, *offers, limit=7, worker=name):
            mine += [lease.id for lease in taken]
        return mine

    shares = await asyncio.gather(*(claimer(f"w{n}") for n in range(12)))
    taken = [run_id for share in shares for run_id in share]
    assert len(taken) == 300
    assert set(taken) == made
    assert {row["lease_epoch"] for row in raw.rows("1 = 1")} == {1}


async def test_a_worker_can_ask_what_it_holds(ledger: Ledger) -> None:
    mine = await leased(ledger)
    await create(ledger)
    await claim(ledger, worker="someone else")
    assert await ledger.run(leases.leased_by("w1")) == [(mine.id, 1)]


async def test_a_claim_names_its_worker(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    assert raw.row(lease.id)["leased_by"] == "w1"
    assert raw.events(lease.id) == ["created", "leased"]


async def test_a_disabled_type_is_not_claimed_by_a_worker_that_remembers_its_lane(ledger: Ledger) -> None:
    (run_id,) = await create(ledger)
    await ledger.run(workers.define([Definition(TYPE)]))
    await ledger.run(workers.enable(TYPE, False))
    assert await claim(ledger, offer()) == []
    await ledger.run(workers.enable(TYPE, True))
    assert [lease.id for lease in await claim(ledger, offer())] == [run_id]


async def test_a_claim_that_goes_on_where_the_last_one_stopped_finds_what_comes_after_it(ledger: Ledger) -> None:
    made = [(await create(ledger, delay=-10.0 + n))[0] for n in range(6)]
    first = await claim(ledger, offer(), limit=3)
    assert [lease.id for lease in first] == made[:3]
    await settle(ledger, *(released(lease) for lease in first[:1]))  # due again, behind the others
    low = first[-1].run_at
    rest = await claim(ledger, offer()._replace(low=low))
    assert [lease.id for lease in rest] == [*made[3:], made[0]]
    await settle(ledger, *(released(lease) for lease in rest[:1]))
    assert [lease.id for lease in await claim(ledger, offer()._replace(low=None))] == made[3:4]
