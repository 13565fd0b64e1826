"""Whose fault a crash was: suspects that were not alone in their process are excused, and so is whoever had lived.

What is tried here is the arithmetic; that innocents come through with real processes is in tests/crash.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from support.ledger import Raw, claim, create, leased, new, offer, sweep

from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases


def left(raw: Raw, run_id: UUID) -> int:
    """Executions that may still end badly."""
    row = raw.row(run_id)
    return int(row["max_attempts"] - row["attempt"] - row["crashes"])


async def crashed(ledger: Ledger, raw: Raw, *run_ids: UUID, worker: str) -> None:
    """Claimed together by one worker, however often they have crashed, and lost with it."""
    for run_id in run_ids:
        raw.age(run_id, 1000, "run_at")
    kinds = [None, leases.ONCE, leases.AGAIN]
    taken = [lease.id for kind in kinds for lease in await claim(ledger, worker=worker, crashes=kind)]
    assert set(taken) >= set(run_ids)
    await sweep(ledger, worker)


async def test_the_first_crash_counts_for_everybody(ledger: Ledger, raw: Raw) -> None:
    made = await create(ledger, new(), new())
    await crashed(ledger, raw, *made, worker="one")
    assert [left(raw, run_id) for run_id in made] == [2, 2]


async def test_the_second_crash_of_runs_that_were_together_counts_for_none_of_them(ledger: Ledger, raw: Raw) -> None:
    made = await create(ledger, new(), new())
    for worker in ("one", "two"):
        await crashed(ledger, raw, *made, worker=worker)
    assert [left(raw, run_id) for run_id in made] == [2, 2]
    assert {raw.row(run_id)["crashes"] for run_id in made} == {2}
    events = raw.sql("SELECT data FROM workflow.workflow_event WHERE workflow_id = ? ORDER BY id", made[0])
    assert ["excused" in str(event["data"]) for event in events] == [False, False, False, False, True]


async def test_the_second_crash_of_a_run_that_was_alone_counts(ledger: Ledger, raw: Raw) -> None:
    (alone,) = await create(ledger)
    for worker in ("one", "two"):
        await crashed(ledger, raw, alone, worker=worker)
    assert left(raw, alone) == 1


async def test_of_suspects_that_are_let_in_one_by_one_the_last_one_is_to_blame(ledger: Ledger, raw: Raw) -> None:
    innocent, poison = await create(ledger, new(), new())
    for worker in ("one", "two"):
        await crashed(ledger, raw, innocent, poison, worker=worker)
    for run_id in (innocent, poison):
        raw.age(run_id, 1000, "run_at")
    raw.age(innocent, 1, "run_at")  # it comes first
    for run_id in (innocent, poison):
        (lease,) = await claim(ledger, limit=1, worker="three", crashes=leases.AGAIN)
        assert lease.id == run_id
    await sweep(ledger, "three")
    assert (left(raw, innocent), left(raw, poison)) == (2, 1)


async def test_leases_that_end_one_after_the_other_tell_the_same(ledger: Ledger, raw: Raw) -> None:
    """Seen from another host a worker's runs come back bit by bit; the last was no more alone than the first."""
    made = await create(ledger, new(), new())
    await crashed(ledger, raw, *made, worker="one")
    for run_id in made:
        raw.age(run_id, 1000, "run_at")
    assert len(await claim(ledger, worker="two", crashes=leases.ONCE)) == 2
    for run_id in made:
        raw.age(run_id, 60, "lease_until")
        assert await sweep(ledger) == {run_id: Status.PENDING}
    assert [left(raw, run_id) for run_id in made] == [2, 2]


async def test_a_run_that_is_always_in_company_comes_to_an_end(ledger: Ledger, raw: Raw) -> None:
    """Excuses are counted: at most three in a row."""
    made = await create(ledger, new(), new())
    crashes = 0
    while raw.row(made[0])["status"] == "pending":
        crashes += 1
        await crashed(ledger, raw, *(one for one in made if raw.row(one)["status"] == "pending"), worker=f"w{crashes}")
    assert crashes <= 6


@pytest.mark.parametrize("among", [leases.ONCE, leases.AGAIN])
async def test_a_claim_of_crashed_runs_takes_those_that_are_asked_for(
    ledger: Ledger, raw: Raw, among: leases.Crashes
) -> None:
    never, once, twice = await create(ledger, new(), new(), new())
    raw.put(once, crashes=1)
    raw.put(twice, crashes=2)
    wanted = once if among == leases.ONCE else twice
    assert [lease.id for lease in await claim(ledger, crashes=among)] == [wanted]
    assert [lease.id for lease in await claim(ledger)] == [never]


async def test_a_worker_that_lives_is_no_company(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, "test.one.v1")
    (other,) = await create(ledger, type="test.other.v1")
    raw.put(lease.id, crashes=1)
    raw.put(other, crashes=1)
    await claim(ledger, offer("test.other.v1"), worker="another", crashes=leases.ONCE)
    await sweep(ledger, "w1")
    assert left(raw, lease.id) == 1
