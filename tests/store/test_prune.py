"""Pruning: what is old enough goes whole, and nothing else is touched.

Written on both databases. Runs that ended long ago are made by plain SQL (support/old_runs.py). A bystander that was
heard of last stands in every test: on SQLite the run with the newest event stays, which has tests of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any
from uuid import UUID, uuid1, uuid4

import psycopg
import pytest
from support.ledger import Raw, create, get, new
from support.old_runs import DAY, OWNED, a_pass, ended, id_of_then, left, no_rest, orphans, owned, prune, still_open
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.clock import ManualClock
from simpleworkflow.model.retention import FIRST_ID, LAST_ID, Kept, Retention, rules_of
from simpleworkflow.model.states import Status
from simpleworkflow.runtime import pruning
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import prune as operations
from simpleworkflow.store.operations import runs

MONTH = Retention("*", "30 days")


def bystander(raw: Raw) -> UUID:
    """The last to be heard of: pending, and none of pruning's business."""
    return still_open(raw, 0.0)


async def test_a_run_goes_when_its_age_has_passed_and_not_before(ledger: Ledger, raw: Raw) -> None:
    older, younger = ended(raw, 30 * DAY + 1), ended(raw, 30 * DAY - 30)
    last = bystander(raw)
    done = await prune(ledger, MONTH)
    assert left(raw) == {younger, last}
    assert done.runs == {("test.work.v1", Status.SUCCEEDED): 1}
    assert older not in left(raw)


async def test_the_age_is_exact_to_the_microsecond(tmp_path: Any) -> None:
    """On SQLite, where the test owns the clock."""
    clock = ManualClock()
    ledger = open_ledger(str(tmp_path / "exact.db"), clock=clock)
    await ledger.check()
    raw = Raw(str(tmp_path / "exact.db"))
    run_id = ended(raw, 0)
    bystander(raw)
    raw.put(run_id, finished_at=clock.wall() - 60_000_000)
    bystander(raw)
    clock.advance(-0.000001)
    assert (await prune(ledger, Retention("*", "60s"))).total == 0
    clock.advance(0.000001)
    assert (await prune(ledger, Retention("*", "60s"))).total == 1
    raw.close()
    await ledger.close()


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", "timed_out"])
async def test_each_end_has_its_own_age(ledger: Ledger, raw: Raw, status: str) -> None:
    others = {one: ended(raw, 5 * DAY, status=one) for one in ("succeeded", "failed", "cancelled", "timed_out")}
    last = bystander(raw)
    await prune(ledger, Retention("*", "30 days", **{status: "1 day"}))
    assert left(raw) == set(others.values()) - {others[status]} | {last}


async def test_the_most_specific_prefix_decides(ledger: Ledger, raw: Raw) -> None:
    types = ["billing.pay.v1", "billing.audit.v1", "billing", "billings.v1", "media.cut.v1"]
    made = {type: ended(raw, 5 * DAY, type=type) for type in types}
    last = bystander(raw)
    await prune(ledger, Retention("billing.*", "1 day"), Retention("billing.audit.*"), Retention("*", "30 days"))
    assert left(raw) == set(made.values()) - {made["billing.pay.v1"]} | {last}


async def test_open_runs_never_go_however_old(ledger: Ledger, raw: Raw) -> None:
    made = [still_open(raw, 400 * DAY) for _ in range(4)]
    raw.sql(
        f"UPDATE workflow.workflow_run SET status = 'leased', leased_by = 'w1', lease_until = {raw.now}, "
        "lease_epoch = lease_epoch + 1, version = version + 1 WHERE id = ?",
        made[0],
    )
    raw.sql("UPDATE workflow.workflow_run SET status = 'paused', version = version + 1 WHERE id = ?", made[1])
    raw.sql(f"UPDATE workflow.workflow_run SET held_at = {raw.now} WHERE id = ?", made[2])
    done = await prune(ledger, Retention("*", "0s", deleted="0s"))
    assert done.examined == 4
    assert left(raw) == set(made)


async def test_everything_of_a_run_goes_with_it_and_nothing_of_others(ledger: Ledger, raw: Raw) -> None:
    going, staying = ended(raw, 40 * DAY), ended(raw, 4 * DAY)
    bystander(raw)
    before = owned(raw, staying)
    assert min(before.values()) == 1
    await prune(ledger, MONTH)
    assert set(owned(raw, going).values()) == {0}
    assert owned(raw, staying) == before
    assert orphans(raw) == {}
    assert not mentions(raw, going)


def mentions(raw: Raw, run_id: UUID) -> list[str]:
    """Tables of ours that hold this id in any column."""
    if raw.is_sqlite:
        tables = [row["name"] for row in raw.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]
    else:
        text = "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'workflow'"
        tables = [row["name"] for row in raw.sql(f"{text} AND table_type = 'BASE TABLE'")]
    assert len(tables) >= 8
    return [
        table
        for table in tables
        if any(str(run_id) in map(str, row.values()) for row in raw.sql(f"SELECT * FROM workflow.{table}"))
    ]


async def test_a_child_stays_while_its_parent_is_open_and_goes_afterwards(ledger: Ledger, raw: Raw) -> None:
    parent = still_open(raw, 50 * DAY)
    child = ended(raw, 40 * DAY, parent_id=parent)
    last = bystander(raw)
    done = await prune(ledger, MONTH)
    assert done.kept == {Kept.PARENT: 1}
    assert left(raw) == {parent, child, last}
    raw.sql(
        f"UPDATE workflow.workflow_run SET status = 'succeeded', version = version + 1, finished_at = {raw.now} "
        "WHERE id = ?",
        parent,
    )
    await prune(ledger, MONTH)
    assert left(raw) == {parent, last}, "its own age has long passed, its parent's has not"
    raw.age(parent, 31 * DAY, "finished_at")
    await prune(ledger, MONTH)
    assert left(raw) == {last}


async def test_only_the_direct_parent_keeps_a_child(ledger: Ledger, raw: Raw) -> None:
    """A grandparent asks for its own children, which stay; what those once asked for, they have on record."""
    top = still_open(raw, 50 * DAY)
    middle = ended(raw, 45 * DAY, parent_id=top)
    bottom = ended(raw, 44 * DAY, parent_id=middle)
    last = bystander(raw)
    await prune(ledger, MONTH)
    assert left(raw) == {top, middle, last}
    assert bottom not in left(raw)


async def test_a_child_whose_parent_is_gone_goes_and_an_open_one_lives_on(ledger: Ledger, raw: Raw) -> None:
    parent = ended(raw, 40 * DAY)
    child, lasting = ended(raw, 39 * DAY, parent_id=parent), still_open(raw, 39 * DAY, parent_id=parent)
    last = bystander(raw)
    await prune(ledger, MONTH)
    assert left(raw) == {lasting, last}
    await ledger.run(runs.cancel([lasting]))
    assert raw.row(lasting)["status"] == "cancelled"
    assert child not in left(raw)


async def test_a_run_with_events_that_are_not_out_waits_for_them(ledger: Ledger, raw: Raw) -> None:
    waiting, told = ended(raw, 40 * DAY, outbox="waiting"), ended(raw, 40 * DAY)
    last = bystander(raw)
    done = await prune(ledger, MONTH)
    assert done.kept == {Kept.OUTBOX: 1}
    assert left(raw) == {waiting, last}
    assert owned(raw, waiting)["outbox_event"] == 1
    raw.sql(f"UPDATE workflow.outbox_event SET published_at = {raw.now} WHERE aggregate_id = ?", waiting)
    await prune(ledger, MONTH)
    assert left(raw) == {last}
    assert told not in left(raw)
    assert orphans(raw) == {}


async def test_deleted_runs_have_an_age_of_their_own(ledger: Ledger, raw: Raw) -> None:
    fresh, old = ended(raw, 20 * DAY, deleted=1 * DAY), ended(raw, 20 * DAY, deleted=8 * DAY)
    plain, lately = ended(raw, 20 * DAY), ended(raw, 60 * DAY, deleted=1 * DAY)
    last = bystander(raw)
    await prune(ledger, Retention("*", "30 days", deleted="7 days"))
    assert left(raw) == {fresh, plain, lately, last}
    await prune(ledger, Retention("*", "15 days"))
    assert left(raw) == {fresh, lately, last}, "without one, that of its end, counted from the deletion"
    assert old not in left(raw)


async def test_ids_of_every_kind_are_walked(ledger: Ledger, raw: Raw) -> None:
    """Clients choose ids too: random ones, counted ones, ones of a clock that is a year ahead."""
    kinds = [FIRST_ID, UUID(int=1), uuid4(), uuid1(), id_of_then(-400 * DAY), LAST_ID]
    for run_id in kinds:
        ended(raw, 40 * DAY, id=run_id)
    last = bystander(raw)
    assert (await prune(ledger, MONTH)).total == len(kinds)
    assert left(raw) == {last}


async def test_an_id_that_looks_young_waits_until_the_walk_comes_by(ledger: Ledger, raw: Raw) -> None:
    """Such as a random one that begins like one of these days."""
    run_id = ended(raw, 40 * DAY, id=id_of_then(10 * DAY))
    bystander(raw)
    done = await prune(ledger, MONTH)
    assert done.examined <= 1
    assert run_id in left(raw)
    assert (await prune(ledger, MONTH, later=21 * DAY)).total == 1


async def test_young_runs_are_not_even_looked_at(ledger: Ledger, raw: Raw) -> None:
    for days in range(1, 29):
        ended(raw, days * DAY)
    old = ended(raw, 40 * DAY)
    bystander(raw)
    done = await prune(ledger, MONTH)
    assert done.examined <= 2
    assert old not in left(raw)


async def test_a_pass_walks_in_pages_and_removes_in_batches(
    ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PAGE", 7)
    made = [ended(raw, 40 * DAY + n) for n in range(24)] + [
        ended(raw, 35 * DAY + n, status="failed") for n in range(11)
    ]
    last = bystander(raw)
    pieces: list[int] = []
    done = await prune(
        ledger, Retention("*", succeeded="30 days"), batch=3, tell=lambda runs: pieces.append(runs.total())
    )
    assert done.examined in {35, 36}
    assert done.total == 24
    assert max(pieces) == 3
    assert left(raw) == {*made[24:], last}


async def test_a_pass_can_be_left_and_taken_up_again_at_its_place(
    ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PAGE", 5)
    for n in range(20):
        ended(raw, 40 * DAY + n)
    last = bystander(raw)
    walk, examined = a_pass(ledger, [MONTH]), 0
    while True:
        more = await walk.go_on()
        examined += walk.done.examined
        if not more:
            break
        walk = a_pass(ledger, [MONTH], start=walk.place)
    assert left(raw) == {last}
    assert examined in {20, 21}, "nothing is looked at twice"


async def test_a_dry_run_counts_right_and_deletes_nothing(ledger: Ledger, raw: Raw) -> None:
    for n in range(5):
        ended(raw, 40 * DAY, type=f"test.t{n % 2}.v1")
    ended(raw, 40 * DAY, outbox="waiting")
    ended(raw, 4 * DAY)
    bystander(raw)
    before = raw.everything()
    dry = await prune(ledger, MONTH, is_dry=True)
    assert raw.everything() == before
    real = await prune(ledger, MONTH)
    assert dry.runs == real.runs == {("test.t0.v1", "succeeded"): 3, ("test.t1.v1", "succeeded"): 2}
    assert dry.kept == real.kept == {Kept.OUTBOX: 1}


async def test_a_run_that_was_retried_since_it_was_found_stays(ledger: Ledger, raw: Raw) -> None:
    revived, other = ended(raw, 40 * DAY, status="failed"), ended(raw, 40 * DAY)
    bystander(raw)
    rules = rules_of([MONTH])
    page = await ledger.run(operations.look(rules, FIRST_ID, LAST_ID, limit=100))
    assert {one.id for one in page.candidates} == {revived, other}
    await ledger.run(runs.revive([revived]))
    removed = await ledger.run(operations.remove(rules, [one.id for one in page.candidates]))
    assert removed.runs == {("test.work.v1", Status.SUCCEEDED): 1}
    assert raw.row(revived)["status"] == "pending"
    assert owned(raw, revived)["workflow_step"] == 1


async def test_a_child_whose_parent_was_retried_since_it_was_found_stays(ledger: Ledger, raw: Raw) -> None:
    parent = ended(raw, 5 * DAY, status="failed")
    child = ended(raw, 40 * DAY, parent_id=parent)
    bystander(raw)
    rules = rules_of([MONTH])
    page = await ledger.run(operations.look(rules, FIRST_ID, LAST_ID, limit=100))
    assert [one.id for one in page.candidates if one.kept is None] == [child]
    await ledger.run(runs.revive([parent]))
    removed = await ledger.run(operations.remove(rules, [child]))
    assert removed.kept == {Kept.PARENT: 1}
    assert child in left(raw)


async def test_a_run_that_somebody_has_locked_is_left_for_the_next_pass(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    """And pruning does not wait: here a session would wait for a minute. SQLite has no locks on rows."""
    ledger, raw = pg
    locked, free = ended(raw, 40 * DAY), ended(raw, 40 * DAY)
    other.execute("SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR NO KEY UPDATE", [locked])
    done = await asyncio.wait_for(prune(ledger, MONTH), 10)
    assert done.kept == {Kept.LOCKED: 1}
    assert left(raw) == {locked}
    assert min(owned(raw, locked).values()) == 1
    other.rollback()
    assert (await prune(ledger, MONTH)).total == 1
    assert free not in left(raw)


async def test_several_pruners_remove_each_run_once(ledger: Ledger, url: str, raw: Raw) -> None:
    for n in range(150):
        ended(raw, 40 * DAY + n)
    last = bystander(raw)
    twins = [ledger, *(open_ledger(url) for _ in range(3))]
    done = await asyncio.gather(*(prune(one, MONTH, batch=10) for one in twins))
    assert sum(one.total for one in done) == 150
    assert left(raw) == {last}
    assert orphans(raw) == {}
    for one in twins[1:]:
        await one.close()


async def test_pruning_frees_the_idempotency_key(ledger: Ledger, raw: Raw) -> None:
    old = ended(raw, 40 * DAY, idempotency_key="order-7")
    bystander(raw)
    assert await create(ledger, new(idempotency_key="order-7")) == [old]
    await prune(ledger, MONTH)
    (again,) = await create(ledger, new(idempotency_key="order-7"))
    assert again != old
    assert (await get(ledger, again)).status is Status.PENDING


async def test_numbers_of_the_audit_trail_are_never_given_twice(ledger: Ledger, raw: Raw) -> None:
    """A follower that has read up to a number would miss what comes with a lower one."""
    for n in range(5):
        ended(raw, 40 * DAY - n)

    def newest() -> int:
        return int(raw.sql("SELECT max(id) AS n FROM workflow.workflow_event")[0]["n"] or 0)

    before = newest()
    done = await prune(ledger, MONTH)
    assert done.kept == ({Kept.NEWEST: 1} if raw.is_sqlite else {})
    (run_id,) = await create(ledger, new())
    assert newest() > before
    await prune(ledger, MONTH)
    assert left(raw) == {run_id}


async def test_whoever_meets_a_run_that_is_being_pruned_finds_it_gone(
    pg: tuple[Ledger, Raw], postgres_url: str, other: psycopg.Connection[Any]
) -> None:
    """They wait for the short transaction; then there is no such run, and its key is free. SQLite has no between."""
    _, raw = pg
    run_id = ended(raw, 40 * DAY, status="failed", idempotency_key="order-7", payload="null")
    child = still_open(raw, 1 * DAY, parent_id=run_id)
    app = swf.App(postgres_url)
    await app.doctor.check()
    other.execute("SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE", [run_id])
    other.execute("DELETE FROM workflow.workflow_run WHERE id = %s", [run_id])
    retried = asyncio.create_task(app.retry(run_id))
    deleted = asyncio.create_task(app.delete(run_id))
    again = asyncio.create_task(app.trigger("test.work.v1", idempotency_key="order-7"))
    ended_child = asyncio.create_task(app.cancel(child))
    waiting = "SELECT count(*) AS n FROM pg_locks WHERE NOT granted"
    await eventually(lambda: raw.sql(waiting)[0]["n"] >= 3, "they wait")
    other.commit()
    for asked in (retried, deleted):
        with pytest.raises(swf.RunNotFound, match=str(run_id)):
            await asked
    assert (await again).id != run_id
    await ended_child
    assert raw.row(child)["status"] == "cancelled"
    await app.close()


# The pace.


class Slow:
    """A database that takes so long for a run, on a clock of its own."""

    def __init__(self, ledger: Ledger, per_run: float) -> None:
        self._ledger, self._per_run = ledger, per_run
        self.now = 0.0
        self.batches: list[int] = []
        self.rests: list[float] = []
        self.due: list[float] = []

    async def ask(self, operation: Any) -> Any:
        answer = await self._ledger.run(operation)
        took, waited = 0.001, 0.0
        if operation.name == "remove":
            count = sum(answer.runs.values())
            self.batches.append(count)
            took, waited = count * self._per_run, 0.03
        self.now += took + waited
        self.due.append(4 * took + waited)
        return answer._replace(took=took)

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)


@pytest.mark.parametrize(("per_run", "settles"), [(0.000001, 100), (0.00003, 40), (0.01, 20)])
async def test_batches_grow_on_a_quick_database_and_shrink_on_a_slow_one(
    ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch, per_run: float, settles: int
) -> None:
    fill(raw, 900)
    bystander(raw)
    slow = Slow(ledger, per_run)
    monkeypatch.setattr(pruning, "monotonic", lambda: slow.now)
    walk = pruning.Pass(slow.ask, rules_of([MONTH]), ledger.clock.wall(), batch=100, rest=slow.rest)
    while await walk.go_on():
        pass
    assert sum(slow.batches) == 900
    assert max(slow.batches) == settles, "as many as fit into a few milliseconds, within bounds"
    assert slow.rests == pytest.approx(slow.due), "four times the work, and as long again as it waited"


async def test_a_batch_is_bounded_by_rows_too(ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Light runs have taught it large batches; then come heavy ones, and on SQLite everybody waits for each batch."""
    monkeypatch.setattr(pruning, "ROWS", 400)
    monkeypatch.setattr(pruning, "PAGE", 200)
    fill(raw, 200)
    heavy = [ended(raw, 35 * DAY - n) for n in range(12)]
    for run_id in heavy[:10]:
        add_steps(raw, run_id, 150)
    for run_id in heavy[10:]:
        add_steps(raw, run_id, 1000)
    last = bystander(raw)
    rows: list[int] = []

    async def ask(operation: Any) -> Any:
        before = everything_of_runs(raw)
        answer = await ledger.run(operation)
        rows.append(before - everything_of_runs(raw))
        return answer._replace(took=0.0)

    walk = pruning.Pass(ask, rules_of([MONTH]), ledger.clock.wall(), rest=no_rest)
    while await walk.go_on():
        pass
    assert left(raw) == {last}
    assert walk.done.total == 212
    large = [count for count in rows if count > 400]
    assert len(large) == 2, "those that have more by themselves go alone"
    assert max(large) < 1100
    assert max(set(rows) - set(large)) > 200, "the others share"


def everything_of_runs(raw: Raw) -> int:
    tables = ("workflow_run", *OWNED)
    return sum(raw.sql(f"SELECT count(*) AS n FROM workflow.{table}")[0]["n"] for table in tables)


def add_steps(raw: Raw, run_id: UUID, count: int) -> None:
    numbers = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?)"
    raw.sql(
        f"{numbers} INSERT INTO workflow.workflow_step (run_id, seq, lease_epoch, kind, status, step_id, completed_at) "
        f"SELECT r.id, c.n, 1, 'step', 'succeeded', 'many#' || c.n, {raw.now} FROM c, workflow.workflow_run r "
        "WHERE r.id = ?",
        count,
        run_id,
    )


def fill(raw: Raw, count: int, ago: float = 40 * DAY) -> None:
    """Many at once, each with its `created` event."""
    raw.sql("BEGIN")
    for n in range(count):
        run_id = id_of_then(ago + n)
        raw.sql(
            "INSERT INTO workflow.workflow_run (id, type, status, finished_at) VALUES (?, 'test.work.v1', 'succeeded', "
            f"{raw.now} {raw.back(ago)})",
            run_id,
        )
    raw.sql("COMMIT")


# Turns.


async def test_one_worker_at_a_time_has_the_turn(ledger: Ledger) -> None:
    first = await ledger.run(operations.take_turn("p", "w1", lease=60))
    assert first is not None
    assert first.place is None
    assert await ledger.run(operations.take_turn("p", "w2", lease=60)) is None
    assert await ledger.run(operations.take_turn("another", "w2", lease=60)) is not None


async def test_many_workers_that_ask_together_give_one_turn(ledger: Ledger) -> None:
    answers = await asyncio.gather(
        *(ledger.run(operations.take_turn("p", f"w{n}", lease=60)) for n in range(20)), return_exceptions=False
    )
    assert sum(answer is not None for answer in answers) == 1


async def test_a_turn_goes_on_elsewhere_at_its_place_when_its_worker_died(ledger: Ledger, raw: Raw) -> None:
    place = uuid4()
    await ledger.run(operations.take_turn("p", "w1", lease=60))
    assert await ledger.run(operations.save_turn("p", "w1", place, more=3, lease=60))
    raw.sql(f"UPDATE workflow.workflow_pruning SET held_until = held_until {raw.back(61)}")
    taken = await ledger.run(operations.take_turn("p", "w2", lease=60))
    assert taken is not None
    assert taken.place == place
    assert not await ledger.run(operations.save_turn("p", "w1", uuid4(), more=1, lease=60)), "that turn was lost"
    assert not await ledger.run(operations.end_pass("p", "w1", more=0, rest=1, forget_after=DAY))
    (state,) = await ledger.run(operations.pruning_state())
    assert (state.removed, state.last_removed, state.is_under_way, state.ended) == (3, 0, True, None)


async def test_a_turn_that_is_handed_on_can_be_taken_at_once(ledger: Ledger) -> None:
    place = uuid4()
    await ledger.run(operations.take_turn("p", "w1", lease=60))
    await ledger.run(operations.save_turn("p", "w1", place, more=0, lease=0))
    taken = await ledger.run(operations.take_turn("p", "w2", lease=60))
    assert taken is not None
    assert taken.place == place


async def test_after_a_pass_there_is_a_rest_for_everybody(ledger: Ledger, raw: Raw) -> None:
    await ledger.run(operations.take_turn("p", "w1", lease=60))
    await ledger.run(operations.save_turn("p", "w1", uuid4(), more=3, lease=60))
    assert await ledger.run(operations.end_pass("p", "w1", more=4, rest=300, forget_after=DAY))
    for worker in ("w1", "w2"):
        assert await ledger.run(operations.take_turn("p", worker, lease=60)) is None
    (state,) = await ledger.run(operations.pruning_state())
    assert (state.removed, state.last_removed, state.is_under_way) == (0, 7, False)
    assert state.ended is not None
    raw.sql(f"UPDATE workflow.workflow_pruning SET held_until = held_until {raw.back(301)}")
    again = await ledger.run(operations.take_turn("p", "w2", lease=60))
    assert again is not None
    assert again.place is None


async def test_policies_that_nobody_has_any_more_are_forgotten(ledger: Ledger, raw: Raw) -> None:
    for policy in ("old", "new"):
        await ledger.run(operations.take_turn(policy, "w1", lease=60))
    raw.sql(f"UPDATE workflow.workflow_pruning SET held_until = held_until {raw.back(DAY + 100)} WHERE policy = 'old'")
    await ledger.run(operations.end_pass("new", "w1", more=0, rest=300, forget_after=DAY))
    assert [state.policy for state in await ledger.run(operations.pruning_state())] == ["new"]


# What callers see.


async def test_a_pruned_run_is_told_to_be_none(url: str, ledger: Ledger, raw: Raw) -> None:
    run_id = ended(raw, 40 * DAY)
    bystander(raw)
    app = swf.App(url, keep=[MONTH])
    done = await app.retention.prune()
    assert done.runs == Counter({("test.work.v1", Status.SUCCEEDED): 1})
    handle: swf.RunHandle[Any] = app.handle(run_id)
    for ask in (handle.get, lambda: app.explain(run_id), lambda: handle.result("5s"), lambda: app.cancel(run_id)):
        with pytest.raises(swf.RunNotFound, match=str(run_id)):
            await ask()
    await app.close()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        ({}, swf.InvalidPolicy, "no keep="),
        ({"older_than": 30}, swf.InvalidPolicy, "'30 days'"),
        ({"older_than": "30"}, swf.InvalidDuration, "no unit"),
        ({"prefix": "a.*"}, swf.InvalidPolicy, "older_than"),
        ({"older_than": "1d", "prefix": "a b"}, swf.InvalidName, "a b"),
        ({"older_than": "1d", "status": "done"}, swf.InvalidFilter, "done"),
        ({"older_than": "1d", "status": "pending"}, swf.InvalidPolicy, "open"),
        ({"older_than": "1d", "batch": 0}, swf.InvalidInput, "batch"),
        ({"older_than": "1d", "batch": True}, swf.InvalidInput, "batch"),
    ],
)
async def test_a_call_that_makes_no_sense_deletes_nothing(
    url: str, ledger: Ledger, raw: Raw, call: dict[str, Any], error: type[Exception], says: str
) -> None:
    ended(raw, 400 * DAY)
    bystander(raw)
    before = raw.everything()
    app = swf.App(url)
    with pytest.raises(error, match=says):
        await app.retention.prune(**call)
    assert raw.everything() == before
    await app.close()


async def test_the_blocking_twin_prunes_too_and_tells_how_far_it_is(url: str, ledger: Ledger, raw: Raw) -> None:
    for _ in range(3):
        ended(raw, 40 * DAY)
    last = bystander(raw)
    heard: list[int] = []
    app = swf.App(url)
    done = await asyncio.to_thread(
        lambda: app.sync.retention.prune(older_than="30 days", batch=1, tell=lambda so_far: heard.append(so_far.total))
    )
    assert done.total == 3
    assert [count for count, _ in itertools.groupby(heard)] == [0, 1, 2, 3]
    assert left(raw) == {last}
    await app.close()
