"""Producers and workers of simple-workflow on our tables, by the statements that they really send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import Raw, check_invariants, check_path, claim, create, get, new, offer, settle, succeeded
from support.outbox import rule

from compat.simple_workflow import JANUARY, MARCH, Stranger
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Definition
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import leases, runs, workers

TYPE = "content.thumbnail.v1"
WORKERS = [("python", JANUARY), ("python", MARCH), ("go", JANUARY), ("go", MARCH)]
PRODUCERS = [("go", JANUARY), ("go", MARCH), ("python", MARCH)]


@pytest.fixture
async def pg(postgres_url: str) -> AsyncIterator[Ledger]:
    ledger = open_ledger(postgres_url)
    yield ledger
    await ledger.close()


@pytest.fixture
def raw(pg: Ledger, postgres_url: str) -> Iterator[Raw]:
    raw = Raw(postgres_url)
    yield raw
    raw.close()


@pytest.fixture
def stranger(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Stranger]:
    stranger = Stranger(postgres_url, *request.param)
    yield stranger
    stranger.close()


by_each_worker = pytest.mark.parametrize("stranger", WORKERS, indirect=True, ids="-".join)
by_each_producer = pytest.mark.parametrize("stranger", PRODUCERS, indirect=True, ids="-".join)


def taken(stranger: Stranger, seconds: float = 30) -> Any:
    run = stranger.claim(seconds)
    assert run is not None
    return run


# Producers


@by_each_producer
@pytest.mark.parametrize("payload", [{"content_id": "c_123"}, [1, 2], "text", None], ids=str)
async def test_what_their_producer_creates_is_ours_to_execute(stranger: Stranger, pg: Ledger, payload: Any) -> None:
    run_id = UUID(stranger.create(TYPE, payload, max_attempts=5))
    (lease,) = await claim(pg, offer(TYPE, attempts=9))
    assert (lease.id, lease.max_attempts) == (run_id, 5)
    assert (await get(pg, run_id)).payload == payload
    assert await settle(pg, succeeded(lease)) == [Outcome.DONE]


@by_each_producer
async def test_their_second_create_under_a_key_finds_the_first(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    first = UUID(stranger.create(TYPE, {"n": 1}, key="order-1"))
    assert stranger.create(TYPE, {"n": 1}, key="order-1") == ""
    assert await create(pg, type=TYPE, payload='{"n": 1}', idempotency_key="order-1") == [first]
    (ours,) = await create(pg, type=TYPE, idempotency_key="order-2")
    assert stranger.create(TYPE, None, key="order-2") == ""
    assert raw.events(first) == raw.events(ours) == ["created"]


@by_each_producer
async def test_a_deleted_run_frees_its_key_for_their_producer(stranger: Stranger, pg: Ledger) -> None:
    await create(pg, type=TYPE, idempotency_key="again")
    assert stranger.create(TYPE, None, key="again") == ""
    page = await pg.run(runs.list_page(**_any_run("again")))
    await pg.run(runs.delete([page[0].id]))
    assert stranger.create(TYPE, None, key="again") != ""


def _any_run(key: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("type", "span", "since", "until", "before"))
    return {**nothing, "statuses": [], "idempotency_key": key, "with_deleted": False, "held": False, "limit": 9}


@by_each_producer
async def test_their_cancel_is_ours(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    run_id = UUID(stranger.create(TYPE, None))
    stranger.cancel(run_id)
    assert (await get(pg, run_id)).status is Status.CANCELLED
    assert raw.events(run_id) == ["created", "cancelled"]
    with pytest.raises(LookupError):
        stranger.cancel(run_id)
    assert stranger.get(run_id) is not None


# Workers


@by_each_worker
async def test_their_worker_executes_what_our_api_triggered(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    (run_id,) = await create(pg, type=TYPE, payload='{"n": 1}')
    run = taken(stranger)
    assert (run.id, run.payload, run.attempt, run.max_attempts) == (run_id, {"n": 1}, 0, 3)
    assert stranger.heartbeat(run, 60) == 1
    assert not stranger.is_cancelled(run)
    assert stranger.succeed(run, {"by": "them"})
    found = await get(pg, run_id)
    assert (found.status, found.result, found.lease_epoch) == (Status.SUCCEEDED, {"by": "them"}, 1)
    assert raw.events(run_id) == ["created", "leased", "started", "succeeded"]


@by_each_worker
async def test_their_worker_tries_again_and_gives_up(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    (run_id,) = await create(pg, type=TYPE, max_attempts=2)
    assert stranger.fail(taken(stranger), "boom")
    assert (await get(pg, run_id)).attempt == 1
    raw.age(run_id, 3600, "run_at")
    assert stranger.fail(taken(stranger), "boom")
    found = await get(pg, run_id)
    assert (found.status, found.attempt, found.last_error, found.lease_epoch) == (Status.FAILED, 2, "boom", 2)
    told = raw.events(run_id)
    assert told == ["created", "leased", "started", "retried", "leased", "started", "failed"]
    assert check_path(told) is Status.FAILED


@by_each_worker
async def test_a_number_of_ours_is_kept_for_our_claim(stranger: Stranger, pg: Ledger) -> None:
    """What they read is 3 where nobody has chosen; the workflow's own number counts once we have claimed it."""
    (run_id,) = await create(pg, type=TYPE)
    assert (await get(pg, run_id)).max_attempts is None
    (lease,) = await claim(pg, offer(TYPE, attempts=9))
    assert lease.max_attempts == 9
    assert stranger.claim() is None


@by_each_worker
@pytest.mark.parametrize("end", ["cancelled", "succeeded", "timed_out"])
async def test_a_late_failure_of_theirs_does_not_bring_a_run_back(
    stranger: Stranger, pg: Ledger, raw: Raw, end: str
) -> None:
    """What their own way to react to a cancel comes to: raise, and be tried again."""
    (run_id,) = await create(pg, type=TYPE)
    run = taken(stranger)
    if end == "cancelled":
        await pg.run(runs.cancel([run_id]))
        assert stranger.is_cancelled(run)
    elif end == "succeeded":
        raw.put(run_id, status="succeeded", result='{"n": 1}')
    else:
        raw.sql("UPDATE workflow.workflow_run SET deadline_at = now() WHERE id = ?", run_id)
        await pg.run(leases.expire(limit=10))
    before, told = raw.row(run_id), raw.events(run_id)
    assert before["status"] == end
    assert not stranger.fail(run, "Workflow cancelled")
    assert not stranger.succeed(run, {"n": 2})
    assert raw.row(run_id) == before
    assert raw.events(run_id) == told


@by_each_worker
async def test_a_late_failure_that_is_on_record_already_does_not_bring_a_run_back(
    stranger: Stranger, pg: Ledger, raw: Raw
) -> None:
    """Two of theirs had it, one after the other, and failed alike; between them it was cancelled."""
    (run_id,) = await create(pg, type=TYPE)
    late = taken(stranger)
    raw.put(run_id, status="pending")
    assert stranger.fail(taken(stranger), "no answer")
    raw.put(run_id, status="cancelled")
    before, told = raw.row(run_id), raw.events(run_id)
    assert (before["attempt"], before["last_error"]) == (1, "no answer")
    assert not stranger.fail(late, "no answer")
    assert (raw.row(run_id), raw.events(run_id)) == (before, told)


@by_each_worker
async def test_a_second_result_of_theirs_is_refused(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    (run_id,) = await create(pg, type=TYPE)
    run = taken(stranger)
    assert stranger.succeed(run, {"n": 1})
    assert stranger.succeed(run, {"n": 1}), "the same once more changes nothing"
    assert not stranger.succeed(run, {"n": 2})
    assert raw.row(run_id)["result"] == {"n": 1}
    assert raw.events(run_id).count("succeeded") == 1


@by_each_worker
async def test_their_worker_takes_no_run_that_is_held_disabled_or_late(
    stranger: Stranger, pg: Ledger, raw: Raw
) -> None:
    """Refused, not passed over: who reads first would not notice, and execute it."""
    (run_id,) = await create(pg, type=TYPE, start_within=3600)
    before = raw.row(run_id)
    for change, back, why in (
        ("UPDATE workflow.workflow_run SET held_at = now()", "SET held_at = NULL", "is held"),
        ("UPDATE workflow.workflow_run SET deadline_at = now()", "SET deadline_at = NULL", "past its deadline"),
        ("UPDATE workflow.workflow_run SET start_by = now()", "SET start_by = NULL", "its start_by"),
    ):
        raw.sql(change)
        with pytest.raises(psycopg.errors.CheckViolation, match=why):
            stranger.claim()
        raw.sql(f"UPDATE workflow.workflow_run {back}")
    await pg.run(workers.define([Definition(TYPE)]))
    raw.sql("UPDATE workflow.workflow_registry SET is_enabled = false")
    with pytest.raises(psycopg.errors.CheckViolation, match="disabled type"):
        stranger.claim()
    assert (raw.row(run_id)["status"], raw.row(run_id)["lease_epoch"]) == ("pending", before["lease_epoch"])
    raw.sql("UPDATE workflow.workflow_registry SET is_enabled = true")
    assert taken(stranger).id == run_id


async def test_a_claim_that_sets_started_at_itself_does_not_get_past_start_by(pg: Ledger, raw: Raw) -> None:
    (run_id,) = await create(pg, type=TYPE, start_within=3600)
    raw.age(run_id, 7200, "start_by")
    with pytest.raises(psycopg.errors.CheckViolation, match="past its start_by"):
        raw.sql(
            "UPDATE workflow.workflow_run SET status = 'leased', leased_by = 'x', lease_until = now() + interval '1m', "
            "started_at = now() WHERE id = ?",
            run_id,
        )


@by_each_worker
async def test_a_heartbeat_of_theirs_does_not_touch_the_lease_of_our_worker(
    stranger: Stranger, pg: Ledger, raw: Raw
) -> None:
    (run_id,) = await create(pg, type=TYPE)
    run = taken(stranger)
    assert stranger.heartbeat(run, 60) == 1, "its own goes on"
    raw.age(run_id, 3600, "lease_until")
    await pg.run(leases.crash((), limit=10, chance=0.0))
    await pg.run(workers.announce("w1", "w1", "host", 1, [("", "z")]))
    (lease,) = await claim(pg, offer(TYPE), worker="w1", suspects=True)
    raw.age(run_id, 3600, "lease_until")
    before = raw.row(run_id)
    with pytest.raises(psycopg.errors.CheckViolation, match="alone may prolong"):
        stranger.heartbeat(run, 60)
    assert raw.row(run_id) == before
    assert (before["leased_by"], before["lease_epoch"]) == ("w1", lease.epoch)


@pytest.mark.parametrize("stranger", [("go", MARCH)], indirect=True, ids="-".join)
async def test_an_expired_lease_that_they_take_over_is_a_new_lease(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    """Our worker, which was stopped for a while, comes back with the old epoch."""
    (run_id,) = await create(pg, type=TYPE)
    (late,) = await claim(pg, offer(TYPE))
    assert stranger.claim() is None, "the lease has not ended"
    raw.age(run_id, 60, "lease_until")
    run = taken(stranger)
    row = raw.row(run_id)
    assert (row["leased_by"], row["lease_epoch"], row["crashes"]) == ("stranger", 2, 1)
    assert await settle(pg, succeeded(late)) == [Outcome.LOST]
    assert stranger.succeed(run, {"by": "them"})
    assert (await get(pg, run_id)).result == {"by": "them"}
    told = raw.events(run_id)
    assert told == ["created", "leased", "retried", "leased", "started", "succeeded"]
    assert check_path(told) is Status.SUCCEEDED


@pytest.mark.parametrize("stranger", [("go", MARCH)], indirect=True, ids="-".join)
async def test_a_spent_run_is_for_the_sweep(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    (run_id,) = await create(pg, type=TYPE, max_attempts=2)
    taken(stranger)
    raw.age(run_id, 60, "lease_until")
    taken(stranger)
    raw.age(run_id, 60, "lease_until")
    assert stranger.claim() is None
    assert dict(await pg.run(leases.crash((), limit=10, chance=0.0))) == {run_id: Status.FAILED}
    assert raw.row(run_id)["crashes"] == 2


@pytest.mark.parametrize("stranger", [("go", MARCH)], indirect=True, ids="-".join)
async def test_their_worker_of_the_same_name_takes_its_lease_anew(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    """A process in a container has the name that its predecessor had."""
    (run_id,) = await create(pg, type=TYPE)
    taken(stranger)
    raw.age(run_id, 60, "lease_until")
    taken(stranger)
    assert (raw.row(run_id)["lease_epoch"], raw.row(run_id)["crashes"]) == (2, 1)


@by_each_worker
async def test_a_late_ending_of_theirs_does_not_end_the_lease_of_our_worker(
    stranger: Stranger, pg: Ledger, raw: Raw
) -> None:
    (run_id,) = await create(pg, type=TYPE)
    run = taken(stranger)
    raw.age(run_id, 60, "lease_until")
    await pg.run(leases.crash((), limit=10, chance=0.0))
    await pg.run(workers.announce("w1", "w1", "host", 1, [("", "z")]))
    (lease,) = await claim(pg, offer(TYPE), worker="w1", suspects=True)
    assert not stranger.succeed(run, {"by": "them"})
    assert not stranger.fail(run, "boom")
    assert await settle(pg, succeeded(lease)) == [Outcome.DONE]


@by_each_worker
async def test_one_move_is_told_once_inside_and_outside(stranger: Stranger, pg: Ledger, raw: Raw) -> None:
    await rule(pg, "content.*", "failed")
    (run_id,) = await create(pg, type=TYPE, max_attempts=1)
    assert stranger.fail(taken(stranger), "boom")
    assert raw.events(run_id).count("failed") == 1
    sent = raw.sql("SELECT sequence, event_type FROM workflow.outbox_event WHERE aggregate_id = ?", run_id)
    assert sent == [{"sequence": 1, "event_type": "simpleworkflow.run.failed"}]
    lines = raw.sql("SELECT event_type FROM workflow.workflow_history WHERE workflow_id = ?", run_id)
    assert [line["event_type"] for line in lines] == ["WorkflowStarted", "WorkflowFailed"]


@by_each_worker
async def test_theirs_and_ours_share_a_type_and_each_run_is_executed_once(
    stranger: Stranger, pg: Ledger, raw: Raw
) -> None:
    made = await create(pg, *[new(TYPE) for _ in range(6)])
    for _ in range(3):
        stranger.succeed(taken(stranger), "them")
        (lease,) = await claim(pg, offer(TYPE), limit=1)
        await settle(pg, succeeded(lease))
    for run_id in made:
        row = raw.row(run_id)
        check_invariants(row)
        assert (row["status"], row["lease_epoch"]) == ("succeeded", 1)
