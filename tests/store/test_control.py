"""Control tells the truth (P8), and every end of a run pays what it owes to others.

A reply is the state in which the call left the run, read under the same lock. What an end owes, whoever ends the run:
the parent is woken (the last open child at once, the others within a second), open children are cancelled unless the
run succeeded, an undo run starts after a cancel and a dead-letter run after a failure, all in the same transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
from support.ledger import (
    TYPE,
    Raw,
    check_invariants,
    check_path,
    claim,
    create,
    define,
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

from simpleworkflow.model.moves import Ending, Outcome
from simpleworkflow.model.records import Lease
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs

PARENT, CHILD = "test.parent.v1", "test.child.v1"


async def control(ledger: Ledger, operation: Any) -> tuple[bool, Any]:
    (answer,) = await ledger.run(operation)
    return answer.moved, answer.run


# Replies


async def test_cancel_replies_with_the_cancelled_run(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    moved, run = await control(ledger, runs.cancel([lease.id], "not needed"))
    assert moved
    assert (run.status, run.last_error, run.leased_by) == (Status.CANCELLED, "not needed", None)
    check_invariants(raw.row(lease.id))


async def test_cancelling_a_finished_run_changes_nothing_and_says_so(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    before = raw.row(lease.id)
    moved, run = await control(ledger, runs.cancel([lease.id], "too late"))
    assert not moved
    assert (run.status, run.result) == (Status.SUCCEEDED, 42)
    assert raw.row(lease.id) == before


@pytest.mark.parametrize("operation", [runs.cancel, runs.hold, runs.resume, runs.revive, runs.delete])
async def test_an_unknown_run_is_answered_with_none(ledger: Ledger, operation: Any) -> None:
    assert await control(ledger, operation([new().id])) == (False, None)


async def test_each_run_of_a_batch_gets_its_own_reply(ledger: Ledger) -> None:
    done = await leased(ledger)
    await settle(ledger, succeeded(done))
    waiting, unknown = (await create(ledger))[0], new().id
    answers = await ledger.run(runs.cancel([unknown, waiting, done.id, waiting]))
    assert [answer.moved for answer in answers] == [False, True, False, True]
    assert [answer.run and answer.run.status for answer in answers] == [None, "cancelled", "succeeded", "cancelled"]


async def test_a_held_run_keeps_its_time(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, delay=60)
    due = raw.row(run_id)["run_at"]
    moved, run = await control(ledger, runs.hold([run_id], "look first"))
    assert moved
    assert (run.is_held, run.hold_reason, run.status) == (True, "look first", Status.PENDING)
    assert (await control(ledger, runs.hold([run_id])))[0] is False
    moved, run = await control(ledger, runs.resume([run_id]))
    assert moved
    assert (run.is_held, run.hold_reason) == (False, None)
    assert raw.row(run_id)["run_at"] == due
    assert (await control(ledger, runs.resume([run_id])))[0] is False
    assert raw.events(run_id) == ["created", "held", "resumed"]


async def test_a_held_lease_is_handed_back_and_waits(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await ledger.run(runs.hold([lease.id]))
    assert await settle(ledger, released(lease)) == [Outcome.DONE]
    assert await claim(ledger) == []
    _, run = await control(ledger, runs.resume([lease.id]))
    assert run.attempt == 0
    assert [again.id for again in await claim(ledger)] == [lease.id]


async def test_a_revived_run_starts_anew(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, start_within=100)
    (lease,) = await claim(ledger, offer(timeout=100))
    await settle(ledger, failed(lease))
    moved, run = await control(ledger, runs.revive([run_id]))
    assert moved
    assert (run.status, run.attempt, run.crashes, run.lease_epoch) == (Status.PENDING, 0, 0, 1)
    assert (run.deadline_at, run.start_by, run.finished_at) == (None, None, None)
    (again,) = await claim(ledger, offer(timeout=500))
    assert again.deadline_in == pytest.approx(500, abs=0.001)
    assert check_path(raw.events(run_id)) is Status.LEASED


async def test_an_open_run_cannot_be_revived(ledger: Ledger) -> None:
    lease = await leased(ledger)
    moved, run = await control(ledger, runs.revive([lease.id]))
    assert not moved
    assert run.status is Status.LEASED


async def test_deleting_an_open_run_cancels_it_first(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, idempotency_key="k")
    moved, run = await control(ledger, runs.delete([lease.id], "a mistake"))
    assert moved
    assert (run.status, run.delete_reason) == (Status.CANCELLED, "a mistake")
    assert run.deleted_at is not None
    assert raw.events(lease.id) == ["created", "leased", "cancelled", "deleted"]
    assert (await control(ledger, runs.delete([lease.id])))[0] is False
    assert (await control(ledger, runs.revive([lease.id])))[0] is False


async def test_deleting_a_finished_run_keeps_its_outcome(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    _, run = await control(ledger, runs.delete([lease.id]))
    assert run.status is Status.SUCCEEDED
    assert raw.events(lease.id)[-2:] == ["succeeded", "deleted"]


async def test_finished_among_tells_the_finished_ones(ledger: Ledger) -> None:
    done = await leased(ledger)
    await settle(ledger, succeeded(done))
    (waiting,) = await create(ledger)
    assert await ledger.run(runs.finished_among([done.id, waiting, new().id])) == [await get(ledger, done.id)]


# Undo and dead letter


async def test_a_cancelled_pending_run_starts_its_undo_at_once(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, TYPE, on_cancel="test.undo.v1")
    (run_id,) = await create(ledger, payload='{"order":7}', priority=5)
    await ledger.run(runs.cancel([run_id]))
    (undo,) = await claim(ledger, offer("test.undo.v1", priority=5))
    assert raw.events(undo.id) == ["created", "leased"]
    told = (await ledger.run(runs.get([undo.id])))[0]
    assert told is not None
    assert told.payload == {"run_id": str(run_id), "type": TYPE, "payload": {"order": 7}}


async def test_the_undo_of_a_leased_run_waits_for_the_lease_to_end(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, TYPE, on_cancel="test.undo.v1")
    lease = await leased(ledger)
    until = raw.row(lease.id)["lease_until"]
    await ledger.run(runs.cancel([lease.id]))
    (undo,) = raw.rows("type = 'test.undo.v1'")
    assert undo["run_at"] == until
    assert await claim(ledger, offer("test.undo.v1")) == []


async def test_the_worker_hastens_the_undo_when_it_has_stopped(ledger: Ledger) -> None:
    await define(ledger, TYPE, on_cancel="test.undo.v1")
    lease = await leased(ledger)
    await ledger.run(runs.cancel([lease.id]))
    assert await ledger.run(leases.hasten_undo(lease.id, lease.epoch, "w1")) is True
    assert len(await claim(ledger, offer("test.undo.v1"))) == 1
    assert await ledger.run(leases.hasten_undo(lease.id, lease.epoch, "w1")) is False


async def test_a_stale_worker_does_not_hasten(ledger: Ledger) -> None:
    await define(ledger, TYPE, on_cancel="test.undo.v1")
    lease = await leased(ledger)
    await settle(ledger, released(lease))
    await claim(ledger)
    await ledger.run(runs.cancel([lease.id]))
    assert await ledger.run(leases.hasten_undo(lease.id, lease.epoch, "w1")) is False


async def test_a_run_without_definition_needs_no_undo(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    await ledger.run(runs.cancel([run_id]))
    assert len(raw.rows("1 = 1")) == 1


async def test_a_failure_starts_the_dead_letter_run(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, TYPE, dead_letter="test.dead.v1")
    lease = await leased(ledger, payload="[1]")
    await settle(ledger, failed(lease))
    (dead,) = await claim(ledger, offer("test.dead.v1"))
    (told,) = await ledger.run(runs.get([dead.id]))
    assert told is not None
    assert told.payload == {
        "run_id": str(lease.id),
        "type": TYPE,
        "payload": [1],
        "attempt": 1,
        "last_error": "boom",
        "error": {"type": "Boom", "message": "boom"},
    }


async def test_giving_up_after_crashes_starts_the_dead_letter_run(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, TYPE, dead_letter="test.dead.v1")
    lease = await leased(ledger, max_attempts=1)
    raw.age(lease.id, 60, "lease_until")
    assert await sweep(ledger) == {lease.id: Status.FAILED}
    (dead,) = raw.rows("type = 'test.dead.v1'")
    assert "WorkerCrashed" in str(dead["payload"])


@pytest.mark.parametrize("ending", [succeeded, retried, released, overran], ids=lambda ending: ending.__name__)
async def test_only_a_failure_starts_a_dead_letter_run(ledger: Ledger, raw: Raw, ending: Any) -> None:
    await define(ledger, TYPE, dead_letter="test.dead.v1", on_cancel="test.undo.v1")
    await settle(ledger, ending(await leased(ledger)))
    assert len(raw.rows("1 = 1")) == 1


# Parents and children


async def waiting_parent(ledger: Ledger, raw: Raw) -> UUID:
    """A parent that only its children can wake."""
    parent = await leased(ledger, PARENT)
    raw.pause(parent.id)
    return parent.id


async def _by_settling(ending: Callable[[Any], Ending], ledger: Ledger, raw: Raw, child: Lease) -> None:
    assert await settle(ledger, ending(child)) == [Outcome.DONE]


async def _by_cancel(ledger: Ledger, raw: Raw, child: Lease) -> None:
    await ledger.run(runs.cancel([child.id]))


async def _by_deadline(ledger: Ledger, raw: Raw, child: Lease) -> None:
    raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(1)} WHERE id = ?", child.id)
    assert child.id in await ledger.run(leases.expire(limit=10))


async def _by_crashes(ledger: Ledger, raw: Raw, child: Lease) -> None:
    raw.put(child.id, max_attempts=1)
    raw.age(child.id, 60, "lease_until")
    assert (await sweep(ledger))[child.id] is Status.FAILED


async def _by_sql(ledger: Ledger, raw: Raw, child: Lease) -> None:
    raw.put(child.id, status="cancelled")


async def _by_delete(ledger: Ledger, raw: Raw, child: Lease) -> None:
    await ledger.run(runs.delete([child.id]))


ROADS: dict[str, Callable[[Ledger, Raw, Lease], Awaitable[None]]] = {
    "succeed": lambda *args: _by_settling(succeeded, *args),
    "fail": lambda *args: _by_settling(failed, *args),
    "overrun": lambda *args: _by_settling(overran, *args),
    "cancel": _by_cancel,
    "delete": _by_delete,
    "expire": _by_deadline,
    "give up": _by_crashes,
    "foreign UPDATE": _by_sql,
}


@pytest.mark.parametrize("road", ROADS)
async def test_every_end_of_a_child_wakes_its_parent(ledger: Ledger, raw: Raw, road: str) -> None:
    parent = await waiting_parent(ledger, raw)
    first = await leased(ledger, CHILD, parent_id=parent)
    last = await leased(ledger, CHILD, parent_id=parent)
    await ROADS[road](ledger, raw, first)
    assert raw.row(parent)["wakes"] == 1
    assert raw.delay(parent) == 1.0
    await ROADS[road](ledger, raw, last)
    assert raw.row(parent)["wakes"] == 2
    assert raw.delay(parent) <= 0
    (woken,) = await claim(ledger, offer(PARENT))
    assert (woken.id, woken.wakes) == (parent, 2)


@pytest.mark.parametrize("ending", [retried, released], ids=lambda ending: ending.__name__)
async def test_a_child_that_goes_on_wakes_nobody(ledger: Ledger, raw: Raw, ending: Any) -> None:
    parent = await waiting_parent(ledger, raw)
    await settle(ledger, ending(await leased(ledger, CHILD, parent_id=parent)))
    assert raw.row(parent)["wakes"] == 0
    assert raw.row(parent)["run_at"] is None


async def test_an_earlier_wake_time_is_kept(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger, PARENT)
    raw.pause(parent.id, due=True)
    due = raw.row(parent.id)["run_at"]
    await create(ledger, type=CHILD, parent_id=parent.id, delay=60)
    await settle(ledger, succeeded(await leased(ledger, CHILD, parent_id=parent.id)))
    assert raw.row(parent.id)["run_at"] == due


async def test_a_leased_parent_is_told_without_being_moved(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger, PARENT)
    due = raw.row(parent.id)["run_at"]
    await settle(ledger, succeeded(await leased(ledger, CHILD, parent_id=parent.id)))
    row = raw.row(parent.id)
    assert (row["status"], row["wakes"], row["run_at"]) == ("leased", 1, due)
    assert await settle(ledger, succeeded(parent)) == [Outcome.DONE]


async def test_a_finished_parent_stays_finished(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger, PARENT)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    await settle(ledger, succeeded(parent))
    before = raw.row(parent.id)
    await settle(ledger, succeeded(child))
    assert raw.row(parent.id) == before


async def family(ledger: Ledger) -> tuple[Lease, list[UUID], list[Lease]]:
    """A leased parent, with a pending child and two leased ones, one of them with a pending and a leased child."""
    parent = await leased(ledger, PARENT)
    (waiting,) = await create(ledger, type=CHILD, parent_id=parent.id, delay=60)
    running = [await leased(ledger, CHILD, parent_id=parent.id) for _ in range(2)]
    (grand_waiting,) = await create(ledger, type=CHILD, parent_id=running[0].id, delay=60)
    grand_running = await leased(ledger, CHILD, parent_id=running[0].id)
    return parent, [waiting, grand_waiting], [*running, grand_running]


@pytest.mark.parametrize("road", [road for road in ROADS if road != "succeed"])
async def test_an_unhappy_end_takes_the_whole_family_along(ledger: Ledger, raw: Raw, road: str) -> None:
    parent, waiting, running = await family(ledger)
    await ROADS[road](ledger, raw, parent)
    for run_id in [*waiting, *(lease.id for lease in running)]:
        row = raw.row(run_id)
        check_invariants(row)
        assert row["status"] == "cancelled"
        assert row["last_error"].startswith("its parent ended")
        assert raw.events(run_id).count("cancelled") == 1
        assert check_path(raw.events(run_id)) is Status.CANCELLED
    assert await settle(ledger, *(succeeded(lease) for lease in running)) == [Outcome.LOST] * 3


async def test_success_leaves_the_children_alone(ledger: Ledger, raw: Raw) -> None:
    parent, waiting, running = await family(ledger)
    await settle(ledger, succeeded(parent))
    assert {raw.row(run_id)["status"] for run_id in waiting} == {"pending"}
    assert {raw.row(lease.id)["status"] for lease in running} == {"leased"}


async def test_a_cancelled_child_starts_its_own_undo(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, CHILD, on_cancel="test.undo.v1")
    parent, waiting, running = await family(ledger)
    await ledger.run(runs.cancel([parent.id]))
    assert len(raw.rows("type = 'test.undo.v1'")) == len(waiting) + len(running)


# Families in one batch: whatever the order of their ids, the outcome is lawful and told once


def ids_in_order(order: tuple[int, ...]) -> list[UUID]:
    made = sorted(new().id for _ in order)
    return [made[place] for place in order]


async def three_generations(ledger: Ledger, order: tuple[int, ...]) -> list[Lease]:
    ids = ids_in_order(order)
    parents = [None, ids[0], ids[1]]
    return [
        await leased(ledger, f"test.g{n}.v1", id=ids[n], parent_id=parents[n], max_attempts=1 if n == 0 else None)
        for n in range(3)
    ]


def lawful(raw: Raw, family: list[Lease]) -> list[str]:
    states = []
    for lease in family:
        row = raw.row(lease.id)
        check_invariants(row)
        assert check_path(raw.events(lease.id)) == row["status"], raw.events(lease.id)
        states.append(row["status"])
    return states


ORDERS = list(permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(
    "endings", [(failed, succeeded, retried), (failed, retried, succeeded), (succeeded, released, failed)]
)
async def test_a_family_settled_in_one_batch_ends_lawfully(
    ledger: Ledger, raw: Raw, order: tuple[int, ...], endings: tuple[Any, ...]
) -> None:
    family = await three_generations(ledger, order)
    outcomes = await settle(ledger, *(ending(lease) for ending, lease in zip(endings, family, strict=True)))
    states = lawful(raw, family)
    for outcome, lease, ending in zip(outcomes, family, endings, strict=True):
        wanted = ending(stub(lease)).event
        assert (wanted in raw.events(lease.id)) is (outcome is Outcome.DONE)
    assert states[0] == endings[0](stub(family[0])).status


@pytest.mark.parametrize("order", ORDERS, ids=str)
async def test_a_family_swept_in_one_batch_ends_lawfully(ledger: Ledger, raw: Raw, order: tuple[int, ...]) -> None:
    family = await three_generations(ledger, order)
    raw.sql(f"UPDATE workflow.workflow_run SET lease_until = lease_until {raw.back(60)}")
    await sweep(ledger)
    assert lawful(raw, family) == ["failed", "cancelled", "cancelled"]


@pytest.mark.parametrize("order", ORDERS, ids=str)
async def test_a_family_that_expires_together_ends_lawfully(ledger: Ledger, raw: Raw, order: tuple[int, ...]) -> None:
    family = await three_generations(ledger, order)
    raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(1)}")
    await ledger.run(leases.expire(limit=10))
    states = lawful(raw, family)
    assert states[0] == "timed_out"
    assert set(states) <= {"timed_out", "cancelled"}


@pytest.mark.parametrize("order", ORDERS, ids=str)
async def test_a_family_cancelled_together_is_told_once_each(ledger: Ledger, raw: Raw, order: tuple[int, ...]) -> None:
    family = await three_generations(ledger, order)
    answers = await ledger.run(runs.cancel([lease.id for lease in family]))
    assert {answer.run.status for answer in answers if answer.run} == {Status.CANCELLED}
    assert lawful(raw, family) == ["cancelled"] * 3
    assert [raw.events(lease.id).count("cancelled") for lease in family] == [1, 1, 1]
