"""The sweep: what nobody will finish is taken back, and what is overdue is ended, by the database and its clock alone.

No leader, no registry: a lease that ran out is enough (P2), a process known to be gone makes it quicker. A crash
counts (P5): at once the first time, with growing pauses later, and never more often than the run's attempts allow.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from support.ledger import (
    Raw,
    check_invariants,
    check_path,
    claim,
    create,
    handed_back,
    leased,
    new,
    offer,
    released,
    retried,
    settle,
    sweep,
)

from simpleworkflow.model import moves
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs, writing


async def crash_again(ledger: Ledger, raw: Raw, run_id: UUID) -> Status:
    raw.age(run_id, 1000, "run_at")
    taken = await claim(ledger, suspects=bool(raw.row(run_id)["crashes"]))
    assert [lease.id for lease in taken] == [run_id]
    raw.age(run_id, 60, "lease_until")
    return (await sweep(ledger))[run_id]


async def test_an_expired_lease_is_taken_back_at_once(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    raw.age(lease.id, 31, "lease_until")
    assert await sweep(ledger) == {lease.id: Status.PENDING}
    row = raw.row(lease.id)
    check_invariants(row)
    assert (row["crashes"], row["attempt"], row["lease_epoch"]) == (1, 0, 1)
    assert raw.delay(lease.id) == 0
    assert "w1" in row["last_error"]
    assert raw.events(lease.id) == ["created", "leased", "retried"]


async def test_a_live_lease_is_left_alone(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    raw.age(lease.id, 15, "lease_until")
    before = raw.row(lease.id)
    assert await sweep(ledger, "somebody else") == {}
    assert raw.row(lease.id) == before


async def test_the_pauses_between_crashes_grow(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, max_attempts=100)
    pauses = []
    for _ in range(12):
        assert await crash_again(ledger, raw, run_id) is Status.PENDING
        pauses.append(raw.delay(run_id))
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


async def test_chance_spreads_the_retries(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, max_attempts=100)
    for _ in range(5):
        await crash_again(ledger, raw, run_id)
    raw.age(run_id, 1000)
    await claim(ledger, suspects=True)
    raw.age(run_id, 60, "lease_until")
    await ledger.run(leases.crash([], limit=10, chance=0.999))
    assert raw.delay(run_id) == pytest.approx(16 * 1.5, abs=0.01)


async def test_a_run_fails_when_attempts_and_crashes_are_spent(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, max_attempts=3)
    await settle(ledger, retried(lease))
    assert await crash_again(ledger, raw, lease.id) is Status.PENDING
    assert await crash_again(ledger, raw, lease.id) is Status.FAILED
    row = raw.row(lease.id)
    check_invariants(row)
    assert (row["attempt"], row["crashes"]) == (1, 2)
    assert "WorkerCrashed" in str(row["error"])
    assert raw.events(lease.id)[-1] == "failed"
    assert check_path(raw.events(lease.id)) is Status.FAILED


async def test_a_dead_workers_runs_are_taken_back_without_waiting(ledger: Ledger, raw: Raw) -> None:
    dead, alive = await create(ledger, new(type="a.v1"), new(type="b.v1"))
    await claim(ledger, offer("a.v1"), worker="dead")
    await claim(ledger, offer("b.v1"), worker="alive")
    assert await sweep(ledger, "dead", "unknown") == {dead: Status.PENDING}
    assert raw.row(alive)["leased_by"] == "alive"


async def test_the_sweep_is_bounded(ledger: Ledger, raw: Raw) -> None:
    made = await create(ledger, *(new() for _ in range(7)))
    await claim(ledger)
    for run_id in made:
        raw.age(run_id, 60, "lease_until")
    sizes = [len(await sweep(ledger, limit=3)) for _ in range(4)]
    assert sizes == [3, 3, 1, 0]


async def test_the_sweep_is_blind_to_types(ledger: Ledger, raw: Raw) -> None:
    made = await create(ledger, *(new(type=f"nobody.serves.v{n}") for n in range(4)))
    await claim(ledger, *(offer(f"nobody.serves.v{n}") for n in range(4)))
    for run_id in made:
        raw.age(run_id, 60, "lease_until")
    assert set(await sweep(ledger)) == set(made)


async def test_many_sweepers_take_each_run_back_once(ledger: Ledger, raw: Raw) -> None:
    made = await create(ledger, *(new() for _ in range(60)))
    await claim(ledger)
    raw.sql(f"UPDATE workflow.workflow_run SET lease_until = lease_until {raw.back(60)}")
    swept = await asyncio.gather(*(sweep(ledger) for _ in range(8)))
    taken = [run_id for one in swept for run_id in one]
    assert sorted(taken) == sorted(made)
    assert {row["crashes"] for row in raw.rows("1 = 1")} == {1}


async def test_progress_elsewhere_does_not_hide_a_crash(ledger: Ledger, raw: Raw) -> None:
    """A graceful release burns nothing; only the lease that ran out counts."""
    lease = await leased(ledger)
    await settle(ledger, released(lease))
    assert await crash_again(ledger, raw, lease.id) is Status.PENDING
    assert raw.row(lease.id)["crashes"] == 1


async def in_state(ledger: Ledger, raw: Raw, state: str) -> UUID:
    if state in {"pending", "held"}:
        (run_id,) = await create(ledger)
        if state == "held":
            await ledger.run(runs.hold([run_id]))
        return run_id
    lease = await leased(ledger)
    if state == "paused":
        raw.pause(lease.id)
    return lease.id


@pytest.mark.parametrize("state", ["pending", "leased", "paused", "held"])
async def test_a_passed_deadline_ends_every_open_run(ledger: Ledger, raw: Raw, state: str) -> None:
    run_id = await in_state(ledger, raw, state)
    (other,) = await create(ledger)
    raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(0.001)} WHERE id = ?", run_id)
    raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(-60)} WHERE id = ?", other)
    assert await ledger.run(leases.expire(limit=10)) == [run_id]
    row = raw.row(run_id)
    check_invariants(row)
    assert row["status"] == "timed_out"
    assert row["last_error"] == "its deadline passed"
    assert check_path(raw.events(run_id)) is Status.TIMED_OUT
    assert raw.row(other)["status"] == "pending"
    assert await ledger.run(leases.expire(limit=10)) == []


async def test_the_worker_that_executes_a_run_has_a_moment_to_end_it_at_its_deadline(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    (waiting,) = await create(ledger)
    for run_id in (lease.id, waiting):
        raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(5)} WHERE id = ?", run_id)
    assert await ledger.run(leases.expire(limit=10, grace=60.0)) == [waiting]
    assert await ledger.run(leases.expire(limit=10, grace=1.0)) == [lease.id]


async def test_start_by_ends_only_what_was_never_started(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, start_within=5)
    await settle(ledger, released(lease))
    (waiting,) = await create(ledger, start_within=5)
    (patient,) = await create(ledger, start_within=500)
    for run_id in (lease.id, waiting, patient):
        raw.age(run_id, 60)
    assert await ledger.run(leases.expire(limit=10)) == [waiting]
    assert raw.row(waiting)["last_error"] == "no worker started it in time"
    assert raw.row(patient)["status"] == raw.row(lease.id)["status"] == "pending"


async def test_what_came_back_unstarted_must_still_start_in_time(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, start_within=5)
    await settle(ledger, handed_back(lease))
    assert raw.row(lease.id)["started_at"] is None
    raw.age(lease.id, 60)
    assert await claim(ledger) == [], "nobody takes what is too late"
    assert await ledger.run(leases.expire(limit=10)) == [lease.id]
    assert raw.row(lease.id)["last_error"] == "no worker started it in time"


async def test_a_claim_that_was_lost_on_the_way_is_no_start_either(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, start_within=5)
    assert await ledger.run(writing.release_strangers(raw.row(lease.id)["leased_by"], set())) == 1
    raw.age(lease.id, 60)
    assert await ledger.run(leases.expire(limit=10)) == [lease.id]


async def test_the_timeout_begins_with_the_claim_that_leads_to_a_start(ledger: Ledger, raw: Raw) -> None:
    await create(ledger)
    (first,) = await claim(ledger, offer(timeout=60))
    await settle(ledger, handed_back(first))
    assert raw.row(first.id)["deadline_at"] is None
    raw.age(first.id, 90)
    assert await ledger.run(leases.expire(limit=10)) == [], "it waited, and did not run"
    (second,) = await claim(ledger, offer(timeout=60))
    await settle(ledger, released(second))
    deadline = raw.row(first.id)["deadline_at"]
    (third,) = await claim(ledger, offer(timeout=60))
    await settle(ledger, handed_back(third))
    assert deadline is not None
    assert raw.row(first.id)["deadline_at"] == deadline, "it has started once, and its time runs"


async def test_a_deadline_that_came_with_the_run_outlives_a_claim_that_is_given_back(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now}")
    raw.age(run_id, -60, "deadline_at")
    own = raw.row(run_id)["deadline_at"]
    (lease,) = await claim(ledger, offer(timeout=7))
    await settle(ledger, moves.hand_back(lease, 7.0))
    assert raw.row(run_id)["deadline_at"] == own
    assert raw.row(run_id)["started_at"] is None


async def test_a_run_whose_claims_are_always_lost_on_the_way_still_times_out(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    for _ in range(2):
        assert len(await claim(ledger, offer(timeout=60))) == 1
        await ledger.run(writing.release_strangers(raw.row(run_id)["leased_by"], set()))
        assert await ledger.run(leases.expire(limit=10)) == []
        raw.age(run_id, 40)
    assert await ledger.run(leases.expire(limit=10)) == [run_id]


async def test_what_nobody_can_serve_still_comes_to_its_end(ledger: Ledger, raw: Raw) -> None:
    await create(ledger)
    (lease,) = await claim(ledger, offer(timeout=60))
    await settle(ledger, handed_back(lease, delay=1))
    raw.age(lease.id, 90)
    assert await ledger.run(leases.expire(limit=10)) == [lease.id], "coming back and back, and its timeout never ends"


@pytest.mark.parametrize("story", ["failed once", "crashed once"])
async def test_what_has_run_stays_started_though_a_later_claim_comes_back(ledger: Ledger, raw: Raw, story: str) -> None:
    lease = await leased(ledger, start_within=5)
    if story == "failed once":
        await settle(ledger, retried(lease, 0))
    else:
        raw.age(lease.id, 3_600, "lease_until")
        await ledger.run(leases.crash([], limit=10, chance=0))
    (again,) = await claim(ledger, suspects=story == "crashed once")
    await settle(ledger, handed_back(again))
    raw.age(lease.id, 60)
    assert raw.row(lease.id)["started_at"] is not None
    assert await ledger.run(leases.expire(limit=10)) == []


async def test_expiry_is_bounded(ledger: Ledger, raw: Raw) -> None:
    await create(ledger, *(new() for _ in range(5)))
    raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(1)}")
    assert [len(await ledger.run(leases.expire(limit=2))) for _ in range(4)] == [2, 2, 1, 0]


async def test_lease_holders_are_named_once_each(ledger: Ledger) -> None:
    await create(ledger, *(new() for _ in range(6)))
    for worker in ("w2", "w1", "w3"):
        await claim(ledger, limit=2, worker=worker)
    assert await ledger.run(leases.lease_holders()) == ["w1", "w2", "w3"]


async def test_nobody_holds_leases_of_an_idle_store(ledger: Ledger) -> None:
    await create(ledger)
    assert await ledger.run(leases.lease_holders()) == []
