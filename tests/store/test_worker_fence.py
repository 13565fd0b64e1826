"""A lease is proved by run, epoch and worker: a history that was lost may give one epoch to two workers.

After a failover that lost the last commits, the new server hands out a number which the old one had handed out already.
Here the row is written as such a failover leaves it: the epoch is the first worker's own, and another worker has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.ledger import (
    Raw,
    claim,
    create,
    define,
    failed,
    flush,
    get,
    leased,
    overran,
    paused,
    record,
    released,
    repeated,
    retried,
    settle,
    stub,
    succeeded,
    waiting,
)
from support.outbox import emitting, mark, offered, put, take

from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Lease
from simpleworkflow.model.states import StepKind, StepStatus
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs, steps, writing

DONE, LOST = Outcome.DONE, Outcome.LOST


async def rewritten(ledger: Ledger, raw: Raw) -> Lease:
    """Leased to w1; and then w2 has it with the same epoch, as if the first claim had never been."""
    lease = await leased(ledger)
    text = "UPDATE workflow.workflow_run SET leased_by = 'w2', lease_epoch = ?, version = version + 1 WHERE id = ?"
    raw.sql(text, lease.epoch, lease.id)
    raw.rewrite_events("data = ?", "workflow_id = ? AND event_type = 'leased'", '{"worker":"w2"}', lease.id)
    row = raw.row(lease.id)
    assert (row["status"], row["leased_by"], row["lease_epoch"]) == ("leased", "w2", lease.epoch)
    return lease


WRITES: dict[str, Callable[[Any], Any]] = {
    "a record": record,
    "a record with an event": lambda lease: emitting(lease, 0),
    "a wait": waiting,
    "a failed attempt": lambda lease: record(lease, status=StepStatus.RETRYING, attempt=1, due_in=5),
    "a pause": paused,
    "a success": succeeded,
    "a failure": failed,
    "a retry": retried,
    "a release": released,
    "an overrun": overran,
    "a success of a child": lambda lease: succeeded(stub(lease.id, lease.epoch, parent_id=lease.id)),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("write", WRITES)
async def test_a_worker_cannot_write_under_another_workers_lease_though_the_epoch_is_its_own(
    ledger: Ledger, raw: Raw, write: str, fused: bool
) -> None:
    lease = await rewritten(ledger, raw)
    before = raw.everything()
    fuse = fused and ledger.can.fuses_writes
    assert await ledger.run(writing.write([WRITES[write](lease)], "w1", fused=fuse)) == [LOST]
    assert raw.everything() == before
    assert await ledger.run(writing.write([WRITES[write](lease)], "w2", fused=fuse)) == [DONE]


async def test_the_stale_worker_is_told_that_it_owns_nothing(ledger: Ledger, raw: Raw) -> None:
    lease = await rewritten(ledger, raw)
    until = raw.row(lease.id)["lease_until"]
    (news,) = await ledger.run(leases.renew([(lease.id, lease.epoch, 500.0)], "w1"))
    assert (news.owned, news.renewed) == (False, False)
    (news,) = await ledger.run(leases.check_leases([(lease.id, lease.epoch)], "w1"))
    assert not news.owned
    state, _ = await ledger.run(steps.reload(lease.id, lease.epoch, "w1"))
    assert not state.owned
    assert await ledger.run(leases.heartbeat(lease.id, lease.epoch, "w1", 500.0)) is False
    assert raw.row(lease.id)["lease_until"] == until
    (news,) = await ledger.run(leases.renew([(lease.id, lease.epoch, 500.0)], "w2"))
    assert news.renewed


@pytest.mark.parametrize("write", ["a success", "a failure", "a pause", "a success of a child"])
async def test_an_end_that_another_worker_wrote_is_not_taken_for_ones_own(ledger: Ledger, raw: Raw, write: str) -> None:
    """Repeated after an answer that was lost: the run stands as both meant to leave it."""
    lease = await rewritten(ledger, raw)
    assert await flush(ledger, WRITES[write](lease), worker="w2") == [DONE]
    assert await ledger.run(repeated(writing.write([WRITES[write](lease)], "w1"))) == [LOST]
    assert await ledger.run(repeated(writing.write([WRITES[write](lease)], "w2"))) == [DONE]


async def test_the_undo_of_a_run_does_not_wait_less_because_a_stale_worker_has_stopped(
    ledger: Ledger, raw: Raw
) -> None:
    await define(ledger, "test.work.v1", on_cancel="test.undo.v1")
    lease = await rewritten(ledger, raw)
    await ledger.run(runs.cancel([lease.id]))
    assert await ledger.run(leases.hasten_undo(lease.id, lease.epoch, "w1")) is False
    assert await ledger.run(leases.hasten_undo(lease.id, lease.epoch, "w2")) is True


async def test_a_dispatcher_cannot_mark_events_of_a_lane_that_another_has_with_the_same_epoch(
    ledger: Ledger, raw: Raw
) -> None:
    (run_id,) = await create(ledger)
    put(raw, run_id, 1)
    mine = await take(ledger, "me")
    events = await offered(ledger)
    raw.sql("UPDATE workflow.outbox_lane SET owner = 'you'")
    assert await mark(ledger, mine, me="me", published=events) == {event.lane for event in events}
    assert await mark(ledger, mine, me="you", published=events) == set()


async def test_what_one_worker_holds_is_no_lease_of_anothers(ledger: Ledger, raw: Raw) -> None:
    """The plainest case, without any lost history."""
    lease = await leased(ledger)
    assert await settle(ledger, succeeded(lease), worker="w2") == [LOST]
    assert (await get(ledger, lease.id)).leased_by == "w1"
    assert await claim(ledger, worker="w2") == []
    assert await flush(ledger, record(lease, kind=StepKind.STEP), succeeded(lease), worker="w1") == [DONE, DONE]
