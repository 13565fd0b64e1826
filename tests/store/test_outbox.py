"""What lands in the outbox: chosen lifecycle events, in the transaction of the move, whoever moves; numbered per run
without gaps, together with what workflows emit. Without rules nothing lands and nobody pays.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import (
    Raw,
    claim,
    create,
    failed,
    flush,
    held_up,
    leased,
    new,
    offer,
    settle,
    succeeded,
    sweep,
)
from support.outbox import data, emitting, offered, rows, rule, told

from simpleworkflow.model.errors import InvalidFilter, InvalidName
from simpleworkflow.model.names import span_of_prefix
from simpleworkflow.model.outbox import lifecycle_rules
from simpleworkflow.model.states import EventType
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import outbox_lanes, runs

ENDS = ("succeeded", "failed", "cancelled", "timed_out")


async def test_an_end_lands_with_what_receivers_need_and_no_payload(ledger: Ledger, raw: Raw) -> None:
    await rule(ledger, "test.*", *ENDS)
    lease = await leased(ledger, payload='{"secret":1}')
    await settle(ledger, failed(lease))
    (row,) = rows(raw, lease.id)
    assert row["event_type"] == "simpleworkflow.run.failed"
    body = data(row)
    assert set(body) == {
        *("run_id", "type", "event", "status", "attempt", "epoch", "error"),
        *("created_at", "started_at", "happened_at"),
    }
    assert body["run_id"] == str(lease.id)
    assert (body["type"], body["event"], body["status"]) == ("test.work.v1", "failed", "failed")
    assert (body["attempt"], body["epoch"], body["error"]) == (1, 1, "boom")
    for instant in ("created_at", "started_at", "happened_at"):
        assert len(body[instant]) == len("2030-01-31T12:00:00.000000+00:00")
        assert body[instant].endswith("+00:00")
    assert "secret" not in str(row)


async def test_the_event_shares_the_fate_of_the_move(ledger: Ledger, raw: Raw) -> None:
    await rule(ledger, "*", "cancelled")
    (run_id,) = await create(ledger)
    for end, landed in (("ROLLBACK", []), ("COMMIT", [(1, "cancelled")])):
        raw.sql("BEGIN")
        raw.sql("UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = ?", run_id)
        assert told(raw, run_id) == [(1, "cancelled")]
        raw.sql(end)
        assert told(raw, run_id) == landed


async def test_a_foreign_cancel_lands_once_with_its_children(ledger: Ledger, raw: Raw) -> None:
    await rule(ledger, "*", "cancelled")
    (parent,) = await create(ledger)
    (child,) = await create(ledger, parent_id=parent)
    raw.sql("UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = ?", parent)
    for run_id in (parent, child):
        assert told(raw, run_id) == [(1, "cancelled")]
        assert data(rows(raw, run_id)[0])["status"] == "cancelled"


async def test_sweeps_deadlines_and_operators_land_like_workers(ledger: Ledger, raw: Raw) -> None:
    await rule(ledger, "*", *ENDS, "held", "retried")
    spent, late, stopped = await leased(ledger, max_attempts=1), await leased(ledger), await leased(ledger)
    raw.age(spent.id, 60, "lease_until")
    await sweep(ledger)
    raw.put(late.id, deadline_at=raw.sql(f"SELECT {raw.now} {raw.back(1)} AS x")[0]["x"])
    from simpleworkflow.store.operations import leases

    await ledger.run(leases.expire(limit=10))
    await ledger.run(runs.hold([stopped.id], "wait"))
    await ledger.run(runs.cancel([stopped.id], "no more"))
    await ledger.run(runs.revive([stopped.id]))
    assert told(raw, spent.id) == [(1, "failed")]
    assert told(raw, late.id) == [(1, "timed_out")]
    assert told(raw, stopped.id) == [(1, "held"), (2, "cancelled"), (3, "retried")]
    held, cancelled, retried = (data(row) for row in rows(raw, stopped.id))
    assert (held["status"], cancelled["status"], retried["status"]) == ("leased", "cancelled", "pending")


async def test_a_rule_chooses_types_and_events_and_two_rules_choose_once(ledger: Ledger, raw: Raw) -> None:
    await rule(ledger, "billing.*", "created", "succeeded")
    await rule(ledger, "billing.invoice.v1", "created")
    await rule(ledger, "*", "leased")
    wanted = [new("billing.invoice.v1"), new("billing.refund.v1"), new("billingx.v1"), new("media.v1")]
    ids = await create(ledger, *wanted)
    assert [told(raw, run_id) for run_id in ids] == [[(1, "created")], [(1, "created")], [], []]
    (lease,) = await claim(ledger, offer("media.v1"))
    await settle(ledger, succeeded(lease))
    assert told(raw, lease.id) == [(1, "leased")]


@pytest.mark.parametrize("event", list(EventType))
async def test_every_event_of_the_audit_trail_can_be_chosen(ledger: Ledger, raw: Raw, event: EventType) -> None:
    await rule(ledger, "*", event)
    (run_id,) = await create(ledger)
    raw.sql(
        "INSERT INTO workflow.workflow_event (workflow_id, lease_epoch, event_type) VALUES (?, 1, ?)",
        run_id,
        str(event),
    )
    assert told(raw, run_id)[-1] == (len(told(raw, run_id)), str(event))


async def test_emits_and_lifecycle_events_share_one_numbering(ledger: Ledger, raw: Raw) -> None:
    await rule(ledger, "*", "created", "leased", "started", "succeeded")
    lease = await leased(ledger)
    await flush(ledger, emitting(lease, 0), emitting(lease, 1))
    await flush(ledger, emitting(lease, 2), succeeded(lease))
    kinds = ["created", "leased", "told", "told", "told", "started", "succeeded"]
    assert told(raw, lease.id) == list(enumerate(kinds, 1))


async def test_without_rules_nothing_lands(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    assert rows(raw, lease.id) == []


async def test_many_writers_leave_no_gaps(ledger: Ledger, raw: Raw) -> None:
    """Emits of the owner, foreign cancels and retries of the same runs, all at once."""
    await rule(ledger, "*", *ENDS, "retried", "held", "resumed")
    taken = [await leased(ledger) for _ in range(8)]

    async def owner(lease: Any) -> None:
        for number in range(6):
            await flush(ledger, emitting(lease, number))
        await flush(ledger, succeeded(lease))

    async def operator(run_id: UUID) -> None:
        for _ in range(3):
            await ledger.run(runs.hold([run_id], None))
            await ledger.run(runs.resume([run_id]))
        await ledger.run(runs.cancel([run_id], None))
        await ledger.run(runs.revive([run_id]))

    work = [one for lease in taken for one in (owner(lease), operator(lease.id), operator(lease.id))]
    await asyncio.gather(*work)
    for lease in taken:
        numbers = [number for number, _ in told(raw, lease.id)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 8


async def test_a_writer_that_waited_for_the_row_counts_what_the_other_wrote(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    """The number is taken after the lock, by a statement that sees what was committed meanwhile."""
    ledger, raw = pg
    await rule(ledger, "*", "succeeded")
    lease = await leased(ledger)
    other.execute("SELECT FROM workflow.workflow_run WHERE id = %s FOR NO KEY UPDATE", [lease.id])
    insert = "INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload) VALUES (%s, 1, 'x', '1')"
    other.execute(insert, [lease.id])
    finish = await held_up(raw, other, settle(ledger, succeeded(lease)))
    other.commit()
    await finish
    assert told(raw, lease.id) == [(1, "x"), (2, "succeeded")]


def is_on(raw: Raw) -> bool:
    text = "SELECT tgenabled::text AS state FROM pg_trigger WHERE tgname = 'event_to_outbox'"
    return bool(raw.sql(text)[0]["state"] != "D")


async def test_the_trigger_is_on_exactly_while_there_is_a_rule(pg: tuple[Ledger, Raw]) -> None:
    _, raw = pg
    insert = "INSERT INTO workflow.outbox_rule (event_type, low, high) VALUES (?, 'a', 'b')"
    assert not is_on(raw)
    raw.sql(insert, "failed")
    raw.sql(insert, "created")
    assert is_on(raw)
    raw.sql("DELETE FROM workflow.outbox_rule WHERE event_type = 'failed'")
    assert is_on(raw)
    raw.sql("DELETE FROM workflow.outbox_rule")
    assert not is_on(raw)
    raw.sql(insert, "failed")
    raw.sql("TRUNCATE workflow.outbox_rule")
    assert not is_on(raw)


async def test_the_last_rule_that_goes_and_the_first_that_comes_do_not_miss_each_other(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    await rule(ledger, "a.*", "failed")
    other.execute("DELETE FROM workflow.outbox_rule")
    coming = await held_up(raw, other, rule(ledger, "b.*", "failed"))
    other.commit()
    await coming
    assert is_on(raw)
    assert [one.span for one in await ledger.run(outbox_lanes.rules())] == [span_of_prefix("b.*")]


async def test_rules_are_added_once_and_deleted_exactly(ledger: Ledger) -> None:
    wanted = lifecycle_rules("billing.*", ["failed", "succeeded", "failed"])
    assert await ledger.run(outbox_lanes.add_rules(wanted)) == wanted
    assert await ledger.run(outbox_lanes.add_rules(wanted)) == []
    assert await ledger.run(outbox_lanes.delete_rules(lifecycle_rules("billing.", ["failed"]))) == wanted[:1]
    assert await ledger.run(outbox_lanes.delete_rules(lifecycle_rules("*", ["succeeded"]))) == []
    assert await ledger.run(outbox_lanes.rules()) == wanted[1:]


@pytest.mark.parametrize(
    ("prefix", "events", "says"),
    [
        ("billing.*", [], "name the events"),
        ("billing.*", ["exploded"], "an event is one of created"),
        ("*.billing", ["failed"], "wildcard"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_where_it_is_written(prefix: str, events: list[str], says: str) -> None:
    with pytest.raises((InvalidFilter, InvalidName), match=says):
        lifecycle_rules(prefix, events)


async def test_a_stranger_cannot_write_a_rule_that_never_matches(ledger: Ledger, raw: Raw) -> None:
    insert = "INSERT INTO workflow.outbox_rule (event_type, low, high) VALUES (?, ?, ?)"
    for values in (("exploded", "a", "b"), ("failed", "b", "a")):
        with pytest.raises(Exception, match=r"(?i)check"):
            raw.sql(insert, *values)


async def test_a_stranger_cannot_write_an_event_that_no_relay_could_read(ledger: Ledger, raw: Raw) -> None:
    """One such row would stop the deliveries of every run, or wait for ever in nobody's lane."""
    good = {"aggregate_id": "'0a0b0c0d-0000-7000-8000-00000000000a'", "sequence": "1", "payload": "'1'"}
    text = "INSERT INTO workflow.outbox_event (event_type, {}) VALUES ('told', {})"
    in_words, in_capitals = ("'infinity'", "'order'")
    if raw.is_sqlite:
        in_words, in_capitals = ("datetime('now')", f"upper({good['aggregate_id']})")
    bad = ({"sequence": "0"}, {"payload": "'hello'"}, {"created_at": in_words}, {"aggregate_id": in_capitals})
    for change in bad:
        row = good | change
        with pytest.raises(Exception, match=r"outbox_event_shape|invalid input syntax"):
            raw.sql(text.format(", ".join(row), ", ".join(row.values())))
    raw.sql(text.format(", ".join(good), ", ".join(good.values())))
    assert [event.sequence for event in await offered(ledger)] == [1]
