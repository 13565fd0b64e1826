"""Fencing (P4): a worker that lost its lease writes nothing, however late it wakes up and whatever it tries.

The danger is not the polite latecomer, who reads the new epoch and sees that it lost. It is the statement that was
already under way: its snapshot is old, and what it inserts beside the run lands although a newer epoch has committed.
The first PostgreSQL test here shows that danger with plain SQL; the next ones show that our writes wait for the row's
lock, look again, and are refused. That a statement really waits is read from pg_stat_activity, not assumed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
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
    repeated,
    retried,
    settle,
    stub,
    succeeded,
    sweep,
)
from support.waiting import eventually, until

from simpleworkflow.model.moves import Ending, Outcome
from simpleworkflow.model.records import Lease
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import leases, runs, writing

ENDINGS = [succeeded, failed, retried, released, overran]


async def reclaimed(ledger: Ledger, raw: Raw) -> tuple[Lease, Lease]:
    """A run whose worker froze and lost it, and has it again now: only the epoch tells the two leases apart."""
    stale = await leased(ledger)
    raw.age(stale.id, 60, "lease_until")
    await sweep(ledger)
    (current,) = await claim(ledger, suspects=True)
    return stale, current


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
async def test_a_late_worker_cannot_settle_a_reclaimed_run(
    ledger: Ledger, raw: Raw, ending: Callable[[Any], Ending]
) -> None:
    stale, current = await reclaimed(ledger, raw)
    before, story = raw.row(stale.id), raw.events(stale.id)
    assert await settle(ledger, ending(stale)) == [Outcome.LOST]
    assert raw.row(stale.id) == before
    assert raw.events(stale.id) == story
    assert await settle(ledger, ending(current)) == [Outcome.DONE]


async def test_a_late_worker_cannot_renew_a_reclaimed_run(ledger: Ledger, raw: Raw) -> None:
    stale, current = await reclaimed(ledger, raw)
    before = raw.row(stale.id)
    (news,) = await ledger.run(leases.renew([(stale.id, stale.epoch, 500.0)], "w1"))
    assert not news.owned
    assert raw.row(stale.id) == before
    (news,) = await ledger.run(leases.renew([(current.id, current.epoch, 500.0)], "w1"))
    assert news.owned
    assert raw.row(stale.id)["lease_until"] > before["lease_until"]


async def test_a_late_worker_cannot_heartbeat_a_reclaimed_run(ledger: Ledger, raw: Raw) -> None:
    stale, current = await reclaimed(ledger, raw)
    before, story = raw.row(stale.id), raw.events(stale.id)
    assert await ledger.run(leases.heartbeat(stale.id, stale.epoch, "w1", 500.0)) is False
    assert raw.row(stale.id) == before
    assert raw.events(stale.id) == story
    assert await ledger.run(leases.heartbeat(current.id, current.epoch, "w1", 500.0)) is True
    assert raw.events(stale.id) == [*story, "heartbeat"]


async def test_one_batch_may_hold_a_stale_and_a_current_entry_of_one_run(ledger: Ledger, raw: Raw) -> None:
    """A worker that lost a run and got it back still has the old execution's entry in its journal."""
    stale, current = await reclaimed(ledger, raw)
    outcomes = await settle(ledger, failed(stale), succeeded(current))
    assert outcomes == [Outcome.LOST, Outcome.DONE]
    assert raw.row(stale.id)["status"] == "succeeded"
    assert raw.events(stale.id)[-2:] == ["started", "succeeded"]
    news = await ledger.run(leases.check_leases([(stale.id, stale.epoch), (current.id, current.epoch)], "w1"))
    assert [one.epoch for one in news] == [stale.epoch, current.epoch]


async def test_a_lost_entry_harms_no_neighbour(ledger: Ledger, raw: Raw) -> None:
    stale, _ = await reclaimed(ledger, raw)
    good = [await leased(ledger) for _ in range(3)]
    outcomes = await settle(ledger, succeeded(good[0]), succeeded(stale), failed(good[1]), retried(good[2]))
    assert outcomes == [Outcome.DONE, Outcome.LOST, Outcome.DONE, Outcome.DONE]
    assert [raw.row(one.id)["status"] for one in good] == ["succeeded", "failed", "pending"]


async def test_successes_in_one_batch_learn_which_of_them_were_lost(ledger: Ledger, raw: Raw) -> None:
    """The quick road asks only how many have ended, and which when some have not."""
    stale, current = await reclaimed(ledger, raw)
    cancelled, *good = [await leased(ledger) for _ in range(3)]
    await ledger.run(runs.cancel([cancelled.id]))
    endings = [succeeded(one) for one in (good[0], stale, cancelled, good[1])]
    outcomes = await ledger.run(writing.write(endings, "w1", fused=ledger.can.fuses_writes))
    assert outcomes == [Outcome.DONE, Outcome.LOST, Outcome.LOST, Outcome.DONE]
    assert [raw.row(one.id)["status"] for one in (*good, current, cancelled)] == [
        "succeeded", "succeeded", "leased", "cancelled",
    ]  # fmt: skip


async def test_a_cancelled_run_is_not_overwritten(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await ledger.run(runs.cancel([lease.id]))
    assert await settle(ledger, succeeded(lease)) == [Outcome.LOST]
    assert raw.row(lease.id)["status"] == "cancelled"
    assert check_path(raw.events(lease.id)) is Status.CANCELLED


async def test_an_unknown_run_is_lost(ledger: Ledger) -> None:
    assert await settle(ledger, succeeded(stub(new().id))) == [Outcome.LOST]
    (news,) = await ledger.run(leases.renew([(new().id, 1, 30.0)], "w1"))
    assert not news.owned


async def test_settling_twice_lands_once(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    assert await settle(ledger, succeeded(lease)) == [Outcome.DONE]
    assert await settle(ledger, succeeded(lease)) == [Outcome.LOST]
    assert raw.events(lease.id) == ["created", "leased", "started", "succeeded"]


async def test_ends_of_runs_whose_rows_have_moved_land_beside_those_that_have_not(ledger: Ledger, raw: Raw) -> None:
    """A renewal writes the row anew, elsewhere; another worker took the third; the fourth is still where it was."""
    mine = [await leased(ledger) for _ in range(4)]
    await ledger.run(leases.heartbeat(mine[1].id, 1, "w1", 500.0))
    await settle(ledger, released(mine[2]))
    await claim(ledger, offer(), limit=1, worker="w2")
    outcomes = await settle(ledger, *(succeeded(lease) for lease in mine))
    assert outcomes == [Outcome.DONE, Outcome.DONE, Outcome.LOST, Outcome.DONE]
    for lease, outcome in zip(mine, outcomes, strict=True):
        events = raw.events(lease.id)
        assert events.count("succeeded") == (outcome is Outcome.DONE)
        assert raw.row(lease.id)["status"] == ("succeeded" if outcome is Outcome.DONE else "leased")


async def test_a_renewal_never_shortens_a_lease(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await ledger.run(leases.heartbeat(lease.id, 1, "w1", 500.0))
    until_then = raw.row(lease.id)["lease_until"]
    await ledger.run(leases.renew([(lease.id, 1, 5.0)], "w1"))
    assert raw.row(lease.id)["lease_until"] == until_then


async def test_a_renewal_tells_of_holds_and_wakes(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await ledger.run(runs.hold([lease.id]))
    child = await leased(ledger, type="test.child.v1", parent_id=lease.id)
    await settle(ledger, succeeded(child))
    (news,) = await ledger.run(leases.renew([(lease.id, 1, 30.0)], "w1"))
    assert (news.owned, news.held, news.wakes) == (True, True, 1)


# A flush repeated after an ambiguous commit


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
@pytest.mark.parametrize("family", [False, True], ids=["alone", "family"])
async def test_a_repeated_flush_that_had_landed_is_done(
    ledger: Ledger, raw: Raw, ending: Callable[[Any], Ending], family: bool
) -> None:
    parent = (await create(ledger, type="test.parent.v1"))[0] if family else None
    lease = await leased(ledger, parent_id=parent)
    assert await settle(ledger, ending(lease)) == [Outcome.DONE]
    before, story = raw.row(lease.id), raw.events(lease.id)
    assert await ledger.run(repeated(writing.write([ending(lease)], "w1"))) == [Outcome.DONE]
    assert raw.row(lease.id) == before
    assert raw.events(lease.id) == story


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
async def test_a_repeated_flush_that_had_not_landed_lands(
    ledger: Ledger, raw: Raw, ending: Callable[[Any], Ending]
) -> None:
    lease = await leased(ledger)
    assert await ledger.run(repeated(writing.write([ending(lease)], "w1"))) == [Outcome.DONE]
    assert raw.row(lease.id)["status"] == ending(lease).status


async def test_a_repeated_flush_is_lost_when_somebody_else_ended_the_run(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await ledger.run(runs.cancel([lease.id]))
    assert await ledger.run(repeated(writing.write([succeeded(lease)], "w1"))) == [Outcome.LOST]


async def test_a_repeated_flush_is_lost_when_the_run_was_reclaimed(ledger: Ledger, raw: Raw) -> None:
    stale, current = await reclaimed(ledger, raw)
    assert await ledger.run(repeated(writing.write([succeeded(stale)], "w1"))) == [Outcome.LOST]
    await settle(ledger, succeeded(current))
    assert await ledger.run(repeated(writing.write([succeeded(stale)], "w1"))) == [Outcome.LOST]


async def test_a_repeated_success_is_lost_when_the_run_was_swept(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    raw.age(lease.id, 60, "lease_until")
    await sweep(ledger)
    assert await ledger.run(repeated(writing.write([succeeded(lease)], "w1"))) == [Outcome.LOST]


# The statement that was already under way (PostgreSQL; SQLite has one writer at a time)


@pytest.fixture
async def pg(postgres_url: str) -> Any:
    ledger = open_ledger(postgres_url)
    raw = Raw(postgres_url)
    yield ledger, raw, postgres_url
    raw.close()
    await ledger.close()


@pytest.fixture
def blocker(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session with an open transaction in which tests hold locks."""
    with psycopg.connect(postgres_url) as connection:
        yield connection
        connection.rollback()


def waiting(raw: Raw, *, but: int = 0) -> list[dict[str, Any]]:
    """Sessions of this database that wait for a lock at this moment."""
    return raw.sql(
        "SELECT pid, application_name, query FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock' AND pid <> ?",
        but,
    )


async def test_an_insert_that_only_joins_the_run_lands_after_a_newer_epoch(
    pg: Any, blocker: psycopg.Connection[Any]
) -> None:
    """Why P4 asks for the lock: this is what happens without it."""
    ledger, raw, url = pg
    stale = await leased(ledger)
    raw.sql("CREATE TABLE checkpoint (name text PRIMARY KEY, epoch bigint)")
    blocker.execute("INSERT INTO checkpoint VALUES ('charge', 0)")
    late = Raw(url)
    unfenced = (
        "INSERT INTO checkpoint SELECT 'charge', r.lease_epoch FROM workflow.workflow_run r "
        "WHERE r.id = ? AND r.status = 'leased' AND r.lease_epoch = ?"
    )
    thread = threading.Thread(target=late.sql, args=(unfenced, stale.id, stale.epoch))
    thread.start()
    until(lambda: waiting(raw), "the unfenced insert stands before the unique key")

    raw.age(stale.id, 60, "lease_until")
    await sweep(ledger)
    (current,) = await claim(ledger, suspects=True)
    assert current.epoch == 2
    blocker.rollback()

    thread.join(10)
    late.close()
    assert raw.sql("SELECT epoch FROM checkpoint") == [{"epoch": 1}], "the stale write landed under epoch 2"


WRITES: dict[str, Callable[[Ledger, Lease], Awaitable[Any]]] = {
    "heartbeat": lambda ledger, lease: ledger.run(leases.heartbeat(lease.id, lease.epoch, "w1", 30.0)),
    "settle": lambda ledger, lease: settle(ledger, succeeded(lease)),
    "settle a family": lambda ledger, lease: settle(ledger, succeeded(stub(lease.id, 1, parent_id=new().id))),
}


@pytest.mark.parametrize("write", WRITES)
async def test_our_writes_wait_for_the_row_look_again_and_are_refused(
    pg: Any, blocker: psycopg.Connection[Any], write: str
) -> None:
    ledger, raw, _ = pg
    stale = await leased(ledger)
    blocker.execute(
        "UPDATE workflow.workflow_run SET lease_epoch = 2, version = version + 1 WHERE id = %s",
        [stale.id],
    )
    task = asyncio.ensure_future(WRITES[write](ledger, stale))
    await eventually(
        lambda: [one for one in waiting(raw) if one["application_name"] == "simpleworkflow"], f"{write} waits"
    )
    assert not task.done()
    blocker.commit()
    assert await task in (False, [Outcome.LOST])
    assert raw.events(stale.id) == ["created", "leased"]
    run = await get(ledger, stale.id)
    assert (run.status, run.lease_epoch, run.leased_by) == (Status.LEASED, 2, "w1")


async def test_a_renewal_does_not_wait_behind_a_flush(pg: Any, blocker: psycopg.Connection[Any]) -> None:
    """Skipped is not lost: the renewal says that the lease still stands, and the next one prolongs it."""
    ledger, _, _ = pg
    lease = await leased(ledger)
    blocker.execute("SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE", [lease.id])
    (news,) = await asyncio.wait_for(ledger.run(leases.renew([(lease.id, 1, 30.0)], "w1")), 5)
    assert news.owned


async def test_a_claim_does_not_wait_for_a_locked_run(pg: Any, blocker: psycopg.Connection[Any]) -> None:
    ledger, _, _ = pg
    locked, free = await create(ledger, new(), new())
    blocker.execute("SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE", [locked])
    taken = await asyncio.wait_for(claim(ledger, limit=1), 5)
    assert [lease.id for lease in taken] == [free]
