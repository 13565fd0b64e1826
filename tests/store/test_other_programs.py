"""Programs of others write to our tables by plain SQL: what they may, what is refused, and what comes out right.

One source for both databases. Plain SQL never leases a run on SQLite; what simple-workflow's own clients do on
PostgreSQL is in tests/compat.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import (
    TYPE,
    Raw,
    claim,
    create,
    define,
    flush,
    get,
    leased,
    offer,
    paused,
    record,
    retried,
    settle,
    succeeded,
    tell,
)
from support.outbox import emitting

from simpleworkflow.clock import new_id
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import leases, runs, workers

REFUSED = (sqlite3.IntegrityError, psycopg.errors.CheckViolation)
KEYED = """
    INSERT INTO workflow.workflow_run (id, type, payload, priority, run_at, idempotency_key, max_attempts)
    VALUES (?, 'test.work.v1', '1', 100, {now}, ?, 3)
    ON CONFLICT (idempotency_key) DO NOTHING RETURNING id"""


def keyed(raw: Raw, key: str | None) -> str | None:
    """As simple-workflow's producers do it."""
    made = raw.sql(KEYED.format(now=raw.now), str(new_id()), key)
    return str(made[0]["id"]) if made else None


def data(raw: Raw, run_id: UUID, event: str) -> Any:
    (row,) = raw.sql("SELECT data FROM workflow.workflow_event WHERE workflow_id = ? AND event_type = ?", run_id, event)
    return json.loads(row["data"]) if isinstance(row["data"], str) else row["data"]


# Keys


async def test_a_key_may_be_named_as_the_conflict_target(ledger: Ledger, raw: Raw) -> None:
    first = keyed(raw, "k")
    assert first is not None
    assert keyed(raw, "k") is None
    assert await create(ledger, payload="1", idempotency_key="k") == [UUID(first)]
    assert keyed(raw, None) != keyed(raw, None)


@pytest.mark.parametrize("state", ["open", "ended"])
@pytest.mark.parametrize("road", ["ours", "sql"])
async def test_a_deleted_run_frees_its_key_and_the_trail_keeps_it(
    ledger: Ledger, raw: Raw, road: str, state: str
) -> None:
    lease = await leased(ledger, idempotency_key="k")
    if state == "ended":
        await settle(ledger, succeeded(lease))
    if road == "ours":
        await ledger.run(runs.delete([lease.id], "test data"))
    else:
        raw.sql(f"UPDATE workflow.workflow_run SET deleted_at = {raw.now} WHERE id = ?", lease.id)
    row = raw.row(lease.id)
    assert row["deleted_at"] is not None
    assert row["idempotency_key"] is None
    said = {"reason": "test data"} if road == "ours" else {"by": "sql"}
    assert data(raw, lease.id, "deleted") == {**said, "idempotency_key": "k"}
    assert keyed(raw, "k") not in {None, str(lease.id)}


async def test_a_deleted_run_gets_no_key(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    await ledger.run(runs.delete([run_id]))
    raw.put(run_id, idempotency_key="order-1")
    raw.sql(
        "INSERT INTO workflow.workflow_run (type, status, finished_at, deleted_at, idempotency_key)"
        f" VALUES ('t.v1', 'cancelled', {raw.now}, {raw.now}, 'order-2')"
    )
    assert keyed(raw, "order-1") is not None
    assert keyed(raw, "order-2") is not None


async def test_a_migrated_database_frees_the_keys_of_what_was_deleted(ledger: Ledger, raw: Raw) -> None:
    await ledger.migrate_down(1)
    (run_id,) = await create_old(raw, "k")
    raw.sql(f"UPDATE workflow.workflow_run SET deleted_at = {raw.now} WHERE id = ?", run_id)
    await create_old(raw, "k")
    raw.sql("INSERT INTO workflow.workflow_signal (id, run_id, seq, name) VALUES (?, ?, 1, 'lost')", new_id(), new_id())
    await ledger.migrate_up()
    assert raw.row(run_id)["idempotency_key"] is None
    assert data(raw, run_id, "deleted") == {"by": "sql", "idempotency_key": "k"}
    assert keyed(raw, "k") is None
    assert raw.sql("SELECT * FROM workflow.workflow_signal") == []
    assert [lease.max_attempts for lease in await claim(ledger, offer(attempts=9))] == [9]


async def create_old(raw: Raw, key: str) -> list[UUID]:
    run_id = new_id()
    text = "INSERT INTO workflow.workflow_run (id, type, idempotency_key) VALUES (?, ?, ?)"
    raw.sql(text, run_id, TYPE, key)
    return [run_id]


# Ends


@pytest.mark.parametrize(
    "change",
    [
        "result = '2'",
        "status = 'succeeded', result = '2'",
        "last_error = 'late'",
        "attempt = 1",
        "crashes = 1",
        "error = '{}'",
    ],
)
async def test_a_run_that_has_ended_keeps_its_outcome(ledger: Ledger, raw: Raw, change: str) -> None:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    before, told = raw.row(lease.id), raw.events(lease.id)
    with pytest.raises(REFUSED, match="keeps its outcome"):
        raw.sql(f"UPDATE workflow.workflow_run SET {change} WHERE id = ?", lease.id)
    assert (raw.row(lease.id), raw.events(lease.id)) == (before, told)


async def test_a_worker_that_comes_late_does_not_bring_a_cancelled_run_back(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await ledger.run(runs.cancel([lease.id]))
    before, told = raw.row(lease.id), raw.events(lease.id)
    with pytest.raises(REFUSED):
        raw.put(lease.id, status="pending", attempt=1, last_error="Workflow cancelled")
    assert (raw.row(lease.id), raw.events(lease.id)) == (before, told)


@pytest.mark.parametrize("version", [0, 1, 9])
async def test_a_whole_row_that_was_read_earlier_is_not_written_back(ledger: Ledger, raw: Raw, version: int) -> None:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    before, told = raw.row(lease.id), raw.events(lease.id)
    with pytest.raises(REFUSED, match="version"):
        raw.put(lease.id, status="pending", finished_at=None, result=None, lease_epoch=0, version=version)
    assert (raw.row(lease.id), raw.events(lease.id)) == (before, told)


@pytest.mark.parametrize("change", ["status = 'pending'", "status = 'pending', attempt = 0, last_error = NULL"])
async def test_an_operator_runs_again_what_has_ended(postgres_url: str, change: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO workflow.workflow_run (type, status, finished_at, attempt, last_error)"
            " VALUES ('t.v1', 'failed', now(), 3, 'boom')"
        )
        connection.execute(f"UPDATE workflow.workflow_run SET {change}")
        row = connection.execute("SELECT status, attempt, last_error FROM workflow.workflow_run").fetchone()
    assert row == ("pending", 0, None)


@pytest.mark.parametrize(
    "report", ["attempt = 1", "attempt = attempt", "last_error = 'boom'", "last_error = last_error"]
)
async def test_one_word_of_a_late_report_is_enough_to_refuse_it(postgres_url: str, report: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO workflow.workflow_run (type, status, finished_at, attempt, last_error)"
            " VALUES ('t.v1', 'failed', now(), 3, 'boom')"
        )
        with pytest.raises(psycopg.errors.CheckViolation, match="has already failed and cannot become pending"):
            connection.execute(f"UPDATE workflow.workflow_run SET status = 'pending', {report}")


async def test_replace_does_not_bring_a_run_back(tmp_path: Path) -> None:
    ledger, raw = open_ledger(str(tmp_path / "f.db")), Raw(str(tmp_path / "f.db"))
    await ledger.migrate_up()
    (run_id,) = await create(ledger)
    await ledger.run(runs.cancel([run_id]))
    before, told = raw.row(run_id), raw.events(run_id)
    with pytest.raises(REFUSED, match="not to be replaced"):
        raw.sql("REPLACE INTO workflow_run (id, type) VALUES (?, 'test.work.v1')", run_id)
    assert (raw.row(run_id), raw.events(run_id)) == (before, told)
    raw.sql("INSERT INTO workflow_run (id, type) VALUES (?, 'x.v1') ON CONFLICT (id) DO NOTHING", run_id)
    raw.sql("DELETE FROM workflow_run WHERE id = ?", run_id)
    raw.sql("INSERT INTO workflow_run (id, type) VALUES (?, 'test.work.v1')", run_id)
    assert raw.events(run_id) == ["created"]
    raw.close()
    await ledger.close()


async def test_a_migration_removes_what_a_run_that_was_deleted_has_left(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    await ledger.migrate_down(1)
    raw.sql("DELETE FROM workflow.workflow_run WHERE id = ?", lease.id)
    assert raw.events(lease.id) != []
    await ledger.migrate_up()
    assert raw.events(lease.id) == []


# Leases


async def test_plain_sql_does_not_take_a_lease_that_has_not_ended(ledger: Ledger, raw: Raw, backend: str) -> None:
    lease = await leased(ledger)
    if backend == "sqlite":
        with pytest.raises(REFUSED, match="may not lease"):
            raw.put(lease.id, leased_by="thief")
    else:
        raw.put(lease.id, leased_by="thief")
    assert (raw.row(lease.id)["leased_by"], raw.row(lease.id)["lease_epoch"]) == ("w1", 1)
    assert await settle(ledger, succeeded(lease)) == [Outcome.DONE]


async def test_the_epoch_is_not_for_plain_sql_to_change(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    with pytest.raises(REFUSED):
        raw.put(lease.id, lease_epoch=7)


@pytest.mark.parametrize(
    "change",
    ["lease_until = {later}", "attempt = 1", "crashes = 1", "last_error = 'late'", "result = '2'", "error = '{{}}'"],
)
async def test_what_a_worker_of_ours_has_leased_is_not_for_others_to_report_of(
    ledger: Ledger, raw: Raw, change: str
) -> None:
    await ledger.run(workers.announce("w1", "w1", "host", 1, [("", "z")]))
    lease = await leased(ledger)
    before, told = raw.row(lease.id), raw.events(lease.id)
    with pytest.raises(REFUSED, match="is leased to"):
        text = change.format(later=f"lease_until {raw.back(-60)}")
        raw.sql(f"UPDATE workflow.workflow_run SET {text} WHERE id = ? AND status = 'leased'", lease.id)
    assert (raw.row(lease.id), raw.events(lease.id)) == (before, told)
    raw.put(lease.id, priority=7, status="cancelled", last_error="customer called")
    assert raw.row(lease.id)["status"] == "cancelled"


async def test_a_late_heartbeat_of_others_does_not_revive_the_lease_of_a_dead_worker(ledger: Ledger, raw: Raw) -> None:
    await ledger.run(workers.announce("w1", "w1", "host", 1, [("", "z")]))
    lease = await leased(ledger)
    raw.age(lease.id, 3600, "lease_until")
    with pytest.raises(REFUSED, match="alone may prolong"):
        soon = f"{raw.now} {raw.back(-30)}"
        raw.sql(f"UPDATE workflow.workflow_run SET lease_until = {soon} WHERE id = ? AND status = 'leased'", lease.id)
    assert dict(await ledger.run(leases.crash((), limit=10, chance=0.0))) == {lease.id: Status.PENDING}


async def test_the_id_of_a_run_stays(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    with pytest.raises(REFUSED, match="the id of"):
        raw.put(run_id, id=new_id())
    assert raw.events(run_id) == ["created"]


async def test_a_deleted_run_stays_deleted(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, idempotency_key="k")
    raw.sql(f"UPDATE workflow.workflow_run SET deleted_at = {raw.now} WHERE id = ?", run_id)
    with pytest.raises(REFUSED, match="deleted and stays so"):
        raw.put(run_id, deleted_at=None)
    assert raw.events(run_id) == ["created", "cancelled", "deleted"]


async def test_a_number_of_attempts_set_by_sql_counts(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    raw.put(run_id, max_attempts=5)
    assert (await get(ledger, run_id)).max_attempts == 5
    raw.sql("INSERT INTO workflow.workflow_run (type, max_attempts) VALUES (?, 3)", TYPE)
    raw.sql("INSERT INTO workflow.workflow_run (type) VALUES (?)", TYPE)
    taken = await claim(ledger, offer(attempts=9))
    assert sorted(lease.max_attempts for lease in taken) == [3, 5, 9]


async def test_a_number_of_attempts_that_sql_names_is_meant_though_it_stood_there(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    assert raw.row(run_id)["max_attempts"] == 3
    raw.put(run_id, max_attempts=3)
    assert [lease.max_attempts for lease in await claim(ledger, offer(attempts=6))] == [3]


async def test_a_number_of_attempts_that_is_set_null_is_the_policys_again(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, max_attempts=5)
    raw.put(run_id, max_attempts=None)
    assert raw.row(run_id)["max_attempts"] == (None if raw.is_sqlite else 3)
    assert [lease.max_attempts for lease in await claim(ledger, offer(attempts=6))] == [6]


async def test_everybody_reads_a_number_of_attempts_after_a_bare_insert(postgres_url: str) -> None:
    """A worker of simple-workflow that reads NULL there stops at that run for ever."""
    raw = Raw(postgres_url)
    (made,) = raw.sql("INSERT INTO workflow.workflow_run (type) VALUES ('t.v1') RETURNING max_attempts, attempts_unset")
    assert made == {"max_attempts": 3, "attempts_unset": True}
    raw.close()


async def test_the_number_of_the_first_claim_stays(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await settle(ledger, retried(lease))
    (again,) = await claim(ledger, offer(attempts=9))
    assert again.max_attempts == lease.max_attempts == 3


# The trail


@pytest.mark.parametrize("event", ["created", "leased", "succeeded", "failed", "retried", "cancelled"])
async def test_what_others_tell_of_moves_is_not_told_twice(ledger: Ledger, raw: Raw, event: str) -> None:
    (run_id,) = await create(ledger)
    raw.sql("INSERT INTO workflow.workflow_event (workflow_id, event_type) VALUES (?, ?)", run_id, event)
    raw.sql("INSERT INTO workflow.workflow_event (workflow_id, event_type) VALUES (?, 'started')", run_id)
    assert raw.events(run_id) == ["created", "started"]


async def test_every_change_by_sql_moves_updated_at(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    raw.sql(f"UPDATE workflow.workflow_run SET updated_at = updated_at {raw.back(60)} WHERE id = ?", run_id)
    before = raw.row(run_id)
    raw.put(run_id, priority=5)
    assert raw.row(run_id)["updated_at"] > before["updated_at"]
    assert raw.row(run_id)["version"] > before["version"]


async def test_updated_at_does_not_go_back_in_a_transaction_that_began_earlier(postgres_url: str) -> None:
    ledger, raw = open_ledger(postgres_url), Raw(postgres_url)
    (run_id,) = await create(ledger)
    for change in ("priority = 5", "priority = 6, updated_at = now()"):
        raw.sql("BEGIN")
        raw.sql("SELECT now()")
        await ledger.run(runs.hold([run_id]))
        before = raw.row(run_id)["updated_at"]
        raw.sql(f"UPDATE workflow.workflow_run SET {change} WHERE id = ?", run_id)
        raw.sql("COMMIT")
        assert raw.row(run_id)["updated_at"] >= before
        await ledger.run(runs.resume([run_id]))
    raw.close()
    await ledger.close()


async def test_what_a_trigger_of_others_tells_of_moves_is_not_told_twice(postgres_url: str) -> None:
    ledger, raw = open_ledger(postgres_url), Raw(postgres_url)
    raw.sql("""
        CREATE FUNCTION workflow.theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO workflow.workflow_event (workflow_id, event_type) VALUES (NEW.id, 'leased'), (NEW.id, 'started');
          RETURN NULL; END $$;
        CREATE TRIGGER theirs AFTER UPDATE ON workflow.workflow_run FOR EACH ROW EXECUTE FUNCTION workflow.theirs()""")
    lease = await leased(ledger)
    assert raw.events(lease.id) == ["created", "leased", "started"]
    raw.sql("DROP TRIGGER theirs ON workflow.workflow_run; DROP FUNCTION workflow.theirs")
    raw.close()
    await ledger.close()


async def test_our_renewals_are_not_taken_for_plain_sql(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    before = raw.row(lease.id)["version"]
    await ledger.run(leases.renew([(lease.id, lease.epoch, 60.0)], "w1"))
    assert raw.row(lease.id)["version"] == before + 1
    assert raw.events(lease.id) == ["created", "leased"]


async def test_the_end_of_a_child_names_its_start(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    child, other = new_id(), new_id()
    for number, run_id in enumerate((child, other)):
        started = record(parent, f"g.c#{number}", kind="child", output=f'"{run_id}"', input="1")
        ended = record(parent, f"@result {run_id}#0", kind="result", output="2", input='"g.c"')
        await flush(ledger, started, ended)
    await flush(ledger, record(parent, "charge#0", output="3"))
    text = "SELECT event_type, details FROM workflow.workflow_history WHERE workflow_id = ? ORDER BY idx"
    told = [(row["event_type"], plain(row["details"])) for row in raw.sql(text, parent.id)]
    pairs = [(name, one.get("child_id"), one["step_id"]) for name, one in told if name.startswith("Activity")]
    assert pairs == [
        ("ActivityScheduled", str(child), "g.c#0"),
        ("ActivityCompleted", str(child), "g.c#0"),
        ("ActivityScheduled", str(other), "g.c#1"),
        ("ActivityCompleted", str(other), "g.c#1"),
        ("ActivityScheduled", None, "charge#0"),
        ("ActivityCompleted", None, "charge#0"),
    ]


def plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


# Deleting


async def test_a_deleted_row_takes_along_what_belongs_to_it(ledger: Ledger, raw: Raw) -> None:
    made = [await leased(ledger) for _ in range(3)]
    for lease in made:
        await flush(ledger, record(lease), emitting(lease, 0))
        await tell(ledger, lease.id)
    raw.sql("DELETE FROM workflow.workflow_run WHERE id IN (?, ?)", made[0].id, made[1].id)
    for table, column in (
        ("workflow_step", "run_id"),
        ("workflow_signal", "run_id"),
        ("workflow_event", "workflow_id"),
        ("outbox_event", "aggregate_id"),
    ):
        left = raw.sql(f"SELECT DISTINCT {column} AS id FROM workflow.{table}")
        assert [str(row["id"]) for row in left] == [str(made[2].id)], table


async def test_a_parent_hears_that_its_child_was_deleted(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger, "test.parent.v1")
    (child,) = await create(ledger, parent_id=parent.id)
    await flush(ledger, paused(parent))
    assert await claim(ledger, offer("test.parent.v1")) == []
    raw.sql("DELETE FROM workflow.workflow_run WHERE id = ?", child)
    assert [lease.id for lease in await claim(ledger, offer("test.parent.v1"))] == [parent.id]


@pytest.mark.parametrize("epoch", [0, 1])
async def test_no_run_begins_leased(ledger: Ledger, raw: Raw, epoch: int) -> None:
    """It would be a lease that no claim has given, and without an event."""
    with pytest.raises(REFUSED):
        raw.sql(
            "INSERT INTO workflow.workflow_run (type, status, leased_by, lease_until, lease_epoch) "
            f"VALUES ('test.odd.v1', 'leased', 'somebody', {raw.now}, {epoch})"
        )


async def test_no_run_begins_paused(ledger: Ledger, raw: Raw) -> None:
    with pytest.raises(REFUSED, match="begins"):
        raw.sql("INSERT INTO workflow.workflow_run (type, status, run_at) VALUES ('test.odd.v1', 'paused', NULL)")


async def test_a_run_may_be_inserted_as_one_that_has_ended(ledger: Ledger, raw: Raw) -> None:
    """An import: it starts nothing that an end would start."""
    await define(ledger, "test.odd.v1", dead_letter="test.dead.v1")
    text = f"INSERT INTO workflow.workflow_run (type, status, finished_at) VALUES ('test.odd.v1', 'failed', {raw.now})"
    (made,) = raw.sql(f"{text} RETURNING id")
    assert raw.events(made["id"]) == ["created"]
    assert raw.rows("type = 'test.dead.v1'") == []


# The outbox


async def test_an_event_of_others_is_numbered_among_ours(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, emitting(lease, 0))
    columns = "aggregate_id, event_type, payload"
    raw.sql(
        f"INSERT INTO workflow.outbox_event ({columns}) VALUES (?, 'theirs', '{{}}'), (?, 'x', '1')", *[lease.id] * 2
    )
    await flush(ledger, emitting(lease, 1))
    rows = raw.sql("SELECT sequence, event_type FROM workflow.outbox_event ORDER BY sequence")
    assert [tuple(row.values()) for row in rows] == [(1, "told"), (2, "theirs"), (3, "x"), (4, "told")]


async def test_two_events_of_others_wait_for_each_other(ledger: Ledger, raw: Raw, backend: str, url: str) -> None:
    """Numbers are given under the lock of the run (SQLite: of the file)."""
    (run_id,) = await create(ledger)
    other = Raw(url)
    text = "INSERT INTO workflow.outbox_event (aggregate_id, event_type, payload) VALUES (?, 'theirs', '{}')"
    raw.sql("BEGIN IMMEDIATE" if backend == "sqlite" else "BEGIN")
    raw.sql(text, run_id)
    other.sql("PRAGMA busy_timeout = 0" if backend == "sqlite" else "SET lock_timeout = '1ms'")
    with pytest.raises((sqlite3.OperationalError, psycopg.errors.LockNotAvailable)):
        other.sql(text, run_id)
    raw.sql("COMMIT")
    other.sql(text, run_id)
    other.close()
    assert [row["sequence"] for row in raw.sql("SELECT sequence FROM workflow.outbox_event ORDER BY id")] == [1, 2]


# Values that nobody can count on from, and instants that no calendar has

FAR = {"sqlite": "253402300800000000", "postgres": "'10000-01-01 00:00:00+00'"}
EARLY = {"sqlite": "-62135596800000001", "postgres": "'0001-12-31 23:59:59 BC'"}
COUNTS = {"version": 2**61, "lease_epoch": 2**61, "wakes": 2**61, "attempt": 2**29, "crashes": 2**29}
INSTANTS = ["run_at", "created_at", "deadline_at", "held_at", "start_by", "started_at", "updated_at"]


@pytest.mark.parametrize("column", [*COUNTS, *INSTANTS])
async def test_a_value_that_would_stop_others_is_refused(ledger: Ledger, raw: Raw, backend: str, column: str) -> None:
    (run_id,) = await create(ledger)
    values = [str(COUNTS[column]), "-1"] if column in COUNTS else [FAR[backend], EARLY[backend]]
    values += ["'infinity'", "'-infinity'"] if backend == "postgres" and column in INSTANTS else []
    for value in values:
        with pytest.raises(REFUSED):
            raw.sql(f"INSERT INTO workflow.workflow_run (type, {column}) VALUES ('test.odd.v1', {value})")
        with pytest.raises(REFUSED):
            raw.sql(f"UPDATE workflow.workflow_run SET {column} = {value} WHERE id = ?", run_id)
    assert len(await claim(ledger)) == 1


@pytest.mark.parametrize("column", COUNTS)
async def test_the_greatest_number_that_is_taken_can_be_counted_on(ledger: Ledger, raw: Raw, column: str) -> None:
    raw.sql(f"INSERT INTO workflow.workflow_run (type, {column}) VALUES (?, ?)", TYPE, COUNTS[column] - 1)
    (lease,) = await claim(ledger, suspects=column == "crashes")
    await ledger.run(leases.renew([(lease.id, lease.epoch, 60.0)], "w1"))
    assert await settle(ledger, retried(lease)) == [Outcome.DONE]


async def test_a_lease_ends_within_the_calendar(ledger: Ledger, raw: Raw, backend: str) -> None:
    lease = await leased(ledger)
    for value in (FAR[backend], EARLY[backend]):
        with pytest.raises(REFUSED):
            raw.sql(f"UPDATE workflow.workflow_run SET lease_until = {value} WHERE id = ?", lease.id)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO workflow.workflow_schedule (name, type, cron, next_at) VALUES ('s', 't.v1', '* * * * *', {far})",
        "INSERT INTO workflow.workflow_signal (run_id, name, created_at) VALUES ({run}, 'go', {far})",
        "INSERT INTO workflow.outbox_event (aggregate_id, event_type, payload, created_at)"
        " VALUES ({run}, 'x', '1', {far})",
        "INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload)"
        " VALUES ({run}, 4611686018427387904, 'x', '1')",
        "UPDATE workflow.workflow_step SET due_at = {far}",
        "INSERT INTO workflow.workflow_step (run_id, lease_epoch, kind, status, step_id, seq, due_at)"
        " VALUES ({run}, 1, 'sleep', 'waiting', '@sleep#9', 1, {far})",
        "UPDATE workflow.workflow_worker SET seen_at = {far}",
        "UPDATE workflow.workflow_worker SET started_at = {far}",
        "UPDATE workflow.workflow_registry SET updated_at = {far}",
        "UPDATE workflow.outbox_lane SET owner = 'x', lease_until = {far}",
        "UPDATE workflow.outbox_lane SET epoch = 4611686018427387904",
        "INSERT INTO workflow.outbox_rule (event_type, low, high, created_at) VALUES ('failed', 'a', 'b', {far})",
    ],
)
async def test_the_other_tables_keep_within_the_calendar(ledger: Ledger, raw: Raw, backend: str, text: str) -> None:
    lease = await leased(ledger)
    await flush(ledger, record(lease))
    await define(ledger, TYPE)
    await ledger.run(workers.announce("w1", "w1", "host", 1, [("", "z")]))
    odd = [FAR[backend], EARLY[backend]] if "{far}" in text else ["only once"]
    for value in [*odd, *(["'infinity'"] if backend == "postgres" else ["1.5"] if "step" not in text else [])]:
        with pytest.raises(REFUSED):
            raw.sql(text.format(far=value, run=f"'{lease.id}'"))


@pytest.mark.parametrize("column", COUNTS)
async def test_a_migration_leaves_room_to_count_on(ledger: Ledger, raw: Raw, column: str) -> None:
    await ledger.migrate_down(1)
    greatest = 2**63 - 1 if raw.is_sqlite or COUNTS[column] > 2**31 else 2**31 - 1
    for number in (greatest, 2 * COUNTS[column] - 1):
        raw.sql(f"INSERT INTO workflow.workflow_run (type, {column}) VALUES (?, ?)", TYPE, number)
    await ledger.migrate_up()
    taken = await claim(ledger, suspects=column == "crashes")
    assert len(taken) == 2
    assert await settle(ledger, *(retried(lease) for lease in taken)) == [Outcome.DONE] * 2


async def test_a_migration_brings_odd_values_within_the_limits(postgres_url: str) -> None:
    ledger, raw = open_ledger(postgres_url), Raw(postgres_url)
    await ledger.migrate_down(1)
    raw.sql(
        "INSERT INTO workflow.workflow_run (type, version, lease_epoch) VALUES (?, ?, ?)", TYPE, 2**63 - 1, 2**63 - 1
    )
    raw.sql("INSERT INTO workflow.workflow_run (type, created_at, held_at) VALUES ('t.v1', '12000-01-01', 'infinity')")
    raw.sql(
        "INSERT INTO workflow.workflow_schedule (name, type, cron, next_at)"
        " VALUES ('s', 't.v1', '* * * * *', '12000-01-01')"
    )
    await ledger.migrate_up()
    assert len(await claim(ledger)) == 1
    found = raw.rows("type = 't.v1'")[0]
    assert found["created_at"].year == found["held_at"].year == 9999
    assert raw.sql("SELECT next_at FROM workflow.workflow_schedule")[0]["next_at"].year == 9999
    raw.close()
    await ledger.close()
