"""Deliveries: order per run, marks that prove their epoch, dead letters that hold back only their own run, operators
who pass them, and rows that go when they are old.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from support.ledger import Raw, create, flush, held_up, leased
from support.outbox import LEASE, emitting, kill_event, mark, offered, put, rows, statuses, take, told

from simpleworkflow.clock import EPOCH, new_id
from simpleworkflow.model.outbox import LANES, lane_of
from simpleworkflow.store import Ledger
from simpleworkflow.store.catalog import statements
from simpleworkflow.store.drivers.postgres import _PLANNER
from simpleworkflow.store.operations import outbox

ME, YOU = "me", "you"
WEEK = 7 * 24 * 3600.0


def numbers(events: list[Any], run_id: UUID) -> list[int]:
    return [event.sequence for event in events if event.run_id == run_id]


async def test_events_are_offered_in_order_per_run_with_the_type_of_the_run(ledger: Ledger) -> None:
    first, second = await leased(ledger), await leased(ledger, "other.v1")
    await flush(ledger, emitting(first, 0), emitting(second, 0), emitting(first, 1))
    await flush(ledger, emitting(first, 2), emitting(second, 1))
    found = await offered(ledger)
    assert numbers(found, first.id) == [1, 2, 3]
    assert numbers(found, second.id) == [1, 2]
    assert {event.workflow_type for event in found} == {"test.work.v1", "other.v1"}
    assert [event.payload_json for event in found if event.run_id == second.id] == ["0", "1"]
    assert {event.lane for event in found} == {lane_of(first.id), lane_of(second.id)}


async def test_events_of_a_run_that_was_removed_are_still_offered(ledger: Ledger, raw: Raw) -> None:
    put(raw, new_id(), 1)
    (event,) = await offered(ledger)
    assert (event.workflow_type, event.traceparent) == ("", None)


async def test_only_the_lanes_that_are_asked_for_are_read_and_only_so_many_of_each(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 5)
    lane = lane_of(run_id)
    assert await offered(ledger, [one for one in LANES if one != lane]) == []
    assert numbers(await offered(ledger, [lane], per_lane=3), run_id) == [1, 2, 3]


async def test_what_is_published_is_offered_no_more(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 3)
    mine = await take(ledger, ME)
    first, second, _ = await offered(ledger)
    assert await mark(ledger, mine, published=[first, second]) == set()
    assert numbers(await offered(ledger), run_id) == [3]
    assert statuses(raw, run_id) == ["published", "published", "waiting"]


async def test_a_dispatcher_that_lost_its_lanes_marks_nothing(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 2)
    mine = await take(ledger, ME)
    frozen = await offered(ledger)
    raw.sql(f"UPDATE workflow.outbox_lane SET lease_until = {raw.now} {raw.back(1)}")
    raw.sql("DELETE FROM workflow.outbox_dispatcher")
    yours = await take(ledger, YOU)
    assert set(yours) == set(LANES)
    for marks in ({"published": frozen[:1]}, {"dead": frozen[:1]}, {"refused": frozen[:1]}):
        assert await mark(ledger, mine, **marks) == {lane_of(run_id)}
    assert statuses(raw, run_id) == ["waiting", "waiting"]
    assert numbers(await offered(ledger), run_id) == [1, 2]
    assert await mark(ledger, yours, me=YOU, published=frozen) == set()


async def test_marks_of_lanes_that_are_still_ours_land_beside_lost_ones(ledger: Ledger, raw: Raw) -> None:
    kept, lost = UUID(int=1 << 64), UUID(int=(1 << 64) + 1)
    put(raw, kept, 1)
    put(raw, lost, 1)
    mine = await take(ledger, ME)
    raw.sql("UPDATE workflow.outbox_lane SET epoch = epoch + 1 WHERE lane = '1'")
    assert await mark(ledger, mine, published=await offered(ledger)) == {"1"}
    assert (statuses(raw, kept), statuses(raw, lost)) == (["published"], ["waiting"])


async def test_a_mark_that_waited_for_the_lane_looks_at_the_epoch_again(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    run_id = new_id()
    put(raw, run_id, 1)
    mine = await take(ledger, ME)
    other.execute("UPDATE workflow.outbox_lane SET owner = 'you', epoch = epoch + 1 WHERE lane = %s", [lane_of(run_id)])
    marking = await held_up(raw, other, mark(ledger, mine, published=await offered(ledger)))
    other.commit()
    assert await marking == {lane_of(run_id)}
    assert statuses(raw, run_id) == ["waiting"]


async def test_a_refused_event_holds_back_only_its_own_run(ledger: Ledger, raw: Raw) -> None:
    bad, good = new_id(), new_id()
    put(raw, bad, 3)
    put(raw, good, 2)
    mine = await take(ledger, ME)
    head = next(event for event in await offered(ledger) if event.run_id == bad)
    await mark(ledger, mine, refused=[head])
    batch = await ledger.run(outbox.next_batch(LANES, per_lane=100))
    assert (numbers(batch.offered, bad), numbers(batch.offered, good)) == ([], [1, 2])
    await mark(ledger, mine, behind=batch.behind, published=batch.offered)
    assert statuses(raw, bad) == ["retrying", "behind", "behind"]
    put(raw, bad, 1, start=4)  # what comes later is found out once, and then out of the way
    batch = await ledger.run(outbox.next_batch(LANES, per_lane=100))
    assert (batch.offered, len(batch.behind)) == ([], 1)
    await mark(ledger, mine, behind=batch.behind)
    assert await ledger.run(outbox.next_batch(LANES, per_lane=100)) == outbox.Batch([], [])

    raw.sql(f"UPDATE workflow.outbox_event SET due_at = {raw.now} {raw.back(1)} WHERE status = 'retrying'")
    (again,) = await offered(ledger)
    assert (again.sequence, again.attempt) == (1, 1)
    await mark(ledger, mine, published=[again])
    assert numbers(await offered(ledger), bad) == [2, 3, 4]


async def test_a_dead_event_waits_for_an_operator_and_skipping_it_lets_the_rest_go(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 3)
    mine = await take(ledger, ME)
    await kill_event(ledger, mine, run_id)
    assert statuses(raw, run_id) == ["dead", "behind", "behind"]
    (dead,), _ = await ledger.run(outbox.dead(after=0, limit=10))
    assert (dead.run_id, dead.sequence, dead.attempt, dead.last_error) == (run_id, 1, 1, "no")

    skipped = await ledger.run(outbox.skip(run_id, 1, by="ada@desk", reason="wrong address"))
    assert skipped is not None
    assert (skipped.status, skipped.skipped_by, skipped.skip_reason) == ("skipped", "ada@desk", "wrong address")
    assert skipped.skipped_at is not None
    assert numbers(await offered(ledger), run_id) == [2, 3]
    assert await ledger.run(outbox.skip(run_id, 1, by="bob", reason=None)) == skipped, "the first word stands"


async def test_an_event_that_is_not_stuck_cannot_be_skipped(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 1)
    event = await ledger.run(outbox.skip(run_id, 1, by="ada", reason=None))
    assert event is not None
    assert event.status == "waiting"
    assert await ledger.run(outbox.skip(run_id, 2, by="ada", reason=None)) is None


async def test_what_was_read_behind_a_dead_event_is_not_put_aside_after_it_was_skipped(
    ledger: Ledger, raw: Raw
) -> None:
    run_id = new_id()
    put(raw, run_id, 2)
    mine = await take(ledger, ME)
    head = next(iter(await offered(ledger)))
    await mark(ledger, mine, dead=[head])
    batch = await ledger.run(outbox.next_batch(LANES, per_lane=100))
    assert len(batch.behind) == 1
    await ledger.run(outbox.skip(run_id, 1, by="ada", reason=None))
    await mark(ledger, mine, behind=batch.behind)
    assert numbers(await offered(ledger), run_id) == [2]


async def test_a_late_answer_for_a_skipped_event_changes_nothing(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 1)
    mine = await take(ledger, ME)
    (event,) = await offered(ledger)
    await mark(ledger, mine, refused=[event])
    await ledger.run(outbox.skip(run_id, 1, by="ada", reason=None))
    for answer in ({"published": [event]}, {"refused": [event]}, {"dead": [event]}):
        await mark(ledger, mine, **answer)
        assert statuses(raw, run_id) == ["skipped"]


async def test_a_retried_event_behind_one_that_was_offered_again_is_not_in_the_way_of_others(
    ledger: Ledger, raw: Raw
) -> None:
    """Event 2 is retrying, event 1 is offered again and dies: what is due in the lane after that must be found."""
    run_id, other_run = UUID(int=1 << 64), UUID(int=(1 << 64) + 16)
    put(raw, run_id, 3)
    put(raw, other_run, 1)
    mine = await take(ledger, ME)
    first, second = (await offered(ledger))[:2]
    await mark(ledger, mine, published=[first], refused=[second])
    await mark(ledger, mine, refused=[event for event in await offered(ledger) if event.run_id == other_run])
    until = await ledger.run(outbox.instant())
    assert await ledger.run(outbox.replay_published(EPOCH, until, limit=10)) == 1
    await mark(ledger, mine, dead=[event for event in await offered(ledger) if event.sequence == 1])
    raw.sql(f"UPDATE workflow.outbox_event SET due_at = {raw.now} {raw.back(60)} WHERE sequence = 2")
    raw.sql(f"UPDATE workflow.outbox_event SET due_at = {raw.now} {raw.back(5)} WHERE aggregate_id = ?", other_run)
    batch = await ledger.run(outbox.next_batch(["0"], per_lane=1))
    await mark(ledger, mine, behind=batch.behind)
    assert [event.run_id for event in await offered(ledger, ["0"], per_lane=1)] == [other_run]
    assert statuses(raw, run_id) == ["dead", "behind", "behind"]
    await ledger.run(outbox.skip(run_id, 1, by="ada", reason=None))
    assert numbers(await offered(ledger), run_id) == [2, 3]


async def test_a_runs_events_are_offered_again_from_a_number_on(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 4)
    mine = await take(ledger, ME)
    await mark(ledger, mine, published=(await offered(ledger))[:2])
    assert await ledger.run(outbox.replay_run(run_id, first=2)) == 1
    assert numbers(await offered(ledger), run_id) == [2, 3, 4]
    assert await ledger.run(outbox.replay_run(run_id, first=1)) == 1
    assert numbers(await offered(ledger), run_id) == [1, 2, 3, 4]


async def test_dead_events_are_offered_again_and_carry_on_with_what_stood_behind(ledger: Ledger, raw: Raw) -> None:
    runs = [new_id() for _ in range(3)]
    for run_id in runs:
        put(raw, run_id, 2)
    mine = await take(ledger, ME)
    for run_id in runs:
        await kill_event(ledger, mine, run_id)
    last = await ledger.run(outbox.last_dead())
    assert await ledger.run(outbox.replay_dead(after=0, until=last, limit=2)) == (2, rows(raw, runs[1])[0]["id"])
    assert await ledger.run(outbox.replay_dead(after=0, until=last, limit=2)) == (1, last)
    again = await offered(ledger)
    assert [(event.sequence, event.attempt) for event in again] == [(1, 0)] * 3
    await mark(ledger, mine, published=again)
    assert [event.sequence for event in await offered(ledger)] == [2, 2, 2]


async def test_what_was_published_since_an_instant_is_offered_again_once(ledger: Ledger, raw: Raw) -> None:
    old, young = new_id(), new_id()
    put(raw, old, 1)
    put(raw, young, 2)
    mine = await take(ledger, ME)
    await mark(ledger, mine, published=await offered(ledger))
    text = f"UPDATE workflow.outbox_event SET published_at = published_at {raw.back(3600)} WHERE aggregate_id = ?"
    raw.sql(text, old)
    until = await ledger.run(outbox.instant())
    since = until - timedelta(minutes=30)
    assert await ledger.run(outbox.replay_published(since, until, limit=10)) == 2
    await mark(ledger, mine, published=await offered(ledger))
    assert await ledger.run(outbox.replay_published(since, until, limit=10)) == 0
    assert numbers(await offered(ledger), old) == []


async def test_old_rows_go_but_a_number_is_never_given_twice(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, emitting(lease, 0), emitting(lease, 1))
    gone = new_id()
    put(raw, gone, 2)
    mine = await take(ledger, ME)
    await mark(ledger, mine, published=await offered(ledger))
    start = (EPOCH, 0)
    assert (await ledger.run(outbox.prune(start, age=WEEK, limit=10))).deleted == 0
    raw.sql(f"UPDATE workflow.outbox_event SET published_at = published_at {raw.back(WEEK + 60)}")
    assert await ledger.run(outbox.prune(start, age=WEEK, limit=10)) == outbox.PruneResult(2 + 1, None)
    assert told(raw, lease.id) == [(2, "told")], "it holds the number that the next one counts from"
    await flush(ledger, emitting(lease, 2))
    assert told(raw, lease.id) == [(2, "told"), (3, "told")]
    assert await ledger.run(outbox.prune(start, age=WEEK, limit=10)) == outbox.PruneResult(1, None)
    assert told(raw, lease.id) == [(3, "told")]


async def test_pruning_goes_on_behind_what_it_must_keep(ledger: Ledger, raw: Raw) -> None:
    for _ in range(3):
        (kept,) = await create(ledger)
        put(raw, kept, 1)
    gone = new_id()
    put(raw, gone, 2)
    mine = await take(ledger, ME)
    await mark(ledger, mine, published=await offered(ledger))
    raw.sql(f"UPDATE workflow.outbox_event SET published_at = {raw.now} {raw.back(2 * WEEK)}")
    place, deleted, looks = (EPOCH, 0), 0, 0
    while place is not None:
        done = await ledger.run(outbox.prune(place, age=WEEK, limit=2))
        place, deleted, looks = done.place, deleted + done.deleted, looks + 1
    assert (deleted, looks) == (2, 3)


async def test_unpublished_and_stuck_rows_are_never_pruned(ledger: Ledger, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 2)
    mine = await take(ledger, ME)
    await kill_event(ledger, mine, run_id)
    raw.sql(f"UPDATE workflow.outbox_event SET created_at = created_at {raw.back(10 * WEEK)}")
    assert await ledger.run(outbox.prune((EPOCH, 0), age=0, limit=10)) == outbox.PruneResult(0, None)
    await ledger.run(outbox.skip(run_id, 1, by="ada", reason=None))
    assert (await ledger.run(outbox.prune((EPOCH, 0), age=0, limit=10))).deleted == 1


# How it stands


async def test_the_status_tells_counts_age_and_owners(ledger: Ledger, raw: Raw) -> None:
    stuck, fresh = new_id(), new_id()
    put(raw, stuck, 3)
    mine = await take(ledger, ME)
    await kill_event(ledger, mine, stuck)
    put(raw, fresh, 2)
    raw.sql(f"UPDATE workflow.outbox_event SET created_at = created_at {raw.back(90)} WHERE aggregate_id = ?", fresh)
    raw.sql(f"UPDATE workflow.outbox_event SET created_at = created_at {raw.back(900)} WHERE aggregate_id = ?", stuck)
    status = await ledger.run(outbox.status(silence=LEASE))
    assert (status.waiting, status.retrying, status.behind, status.dead) == (2, 0, 2, 1)
    assert 89 < status.lag < 150, "what is dead, or behind it, is no lag"
    assert status.dispatchers == (ME,)
    assert [(lane.lane, lane.owner, lane.is_held) for lane in status.lanes] == [(lane, ME, True) for lane in LANES]
    (head,) = [event for event in await offered(ledger, [lane_of(fresh)]) if event.sequence == 1]
    await mark(ledger, mine, refused=[head])
    assert 89 < (await ledger.run(outbox.status(silence=LEASE))).lag < 150


async def test_an_empty_outbox_has_no_lag(ledger: Ledger) -> None:
    status = await ledger.run(outbox.status(silence=LEASE))
    assert (status.waiting, status.lag, status.dispatchers) == (0, 0.0, ())


# What it costs


async def test_reading_costs_the_same_however_much_is_published_or_held_back(pg: tuple[Ledger, Raw]) -> None:
    """Thousands of published events, and thousands that stand behind dead ones, in the lane that is read."""
    ledger, raw = pg
    insert = """INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload, status, published_at)
        SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n / 4 * 16), 12, '0'))::uuid, n % 4 + 1, 'x', '1',
               CASE WHEN n < 8000 THEN 'published' WHEN n % 4 = 0 THEN 'dead' ELSE 'behind' END,
               CASE WHEN n < 8000 THEN now() END
        FROM generate_series(0, 15999) n"""
    raw.sql(insert)
    raw.sql("VACUUM ANALYZE workflow.outbox_event")
    run_id = UUID(int=1 << 64)
    put(raw, run_id, 3)
    statement = statements("postgres")["outbox_waiting"]
    text = statement.text.replace("$1::text[]", "ARRAY['0']").replace("$2::integer", "100")
    for name, value in _PLANNER.items():
        raw.sql(f"SET {name} = '{value}'")
    plan = [row["QUERY PLAN"] for row in raw.sql(f"EXPLAIN (ANALYZE, BUFFERS) {text}")]
    assert "outbox_event_waiting" in "\n".join(plan)
    assert "Seq Scan" not in "\n".join(plan)
    (hit,) = re.findall(r"shared hit=(\d+)", plan[1])
    assert int(hit) < 60, "\n".join(plan)
    assert numbers(await offered(ledger), run_id) == [1, 2, 3]
