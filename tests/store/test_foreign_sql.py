"""The tables are a contract: plain SQL from any language may cancel or delete a run and leaves a valid row.

Triggers fill in what the stranger did not know of (the end's time, the lease, the audit trail, the family) and refuse
what the law does not allow, with a message that says what to do. PostgreSQL lets strangers do more (run again, lease);
SQLite refuses that with a message, because its triggers cannot complete such a row.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
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
    offer,
    settle,
    succeeded,
)

from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger, open_ledger

REFUSED = (sqlite3.IntegrityError, psycopg.errors.CheckViolation)
CHANGES = {
    "cancel": "status = 'cancelled'",
    "delete": "deleted_at = {now}",
    "delete with a reason": "deleted_at = {now}, delete_reason = 'gdpr'",
    "both": "status = 'cancelled', deleted_at = {now}",
}


@pytest.mark.parametrize("state", ["pending", "leased", "paused"])
@pytest.mark.parametrize("change", CHANGES)
async def test_plain_sql_leaves_a_valid_row(ledger: Ledger, raw: Raw, change: str, state: str) -> None:
    run_id = (await create(ledger))[0] if state == "pending" else (await leased(ledger)).id
    if state == "paused":
        raw.pause(run_id)
    version = raw.row(run_id)["version"]
    raw.sql(f"UPDATE workflow.workflow_run SET {CHANGES[change].format(now=raw.now)} WHERE id = ?", run_id)
    row = raw.row(run_id)
    check_invariants(row)
    assert row["status"] == "cancelled"
    assert row["version"] > version
    assert row["updated_at"] >= row["created_at"]
    expected = ["cancelled"] if change == "cancel" else ["cancelled", "deleted"]
    assert raw.events(run_id)[-len(expected) :] == expected
    assert (row["deleted_at"] is not None) is (change != "cancel")
    assert row["delete_reason"] == ("gdpr" if "reason" in change else None)
    assert check_path(raw.events(run_id)) is Status.CANCELLED
    run = await get(ledger, run_id)
    assert run.finished_at is not None


async def test_plain_sql_may_cancel_many_at_once(ledger: Ledger, raw: Raw) -> None:
    made = [(await leased(ledger)).id for _ in range(4)]
    raw.sql("UPDATE workflow.workflow_run SET status = 'cancelled', last_error = 'wrong tenant' WHERE type = ?", TYPE)
    for run_id in made:
        row = raw.row(run_id)
        check_invariants(row)
        assert (row["status"], row["last_error"]) == ("cancelled", "wrong tenant")
        assert raw.events(run_id)[-1] == "cancelled"


async def test_the_worker_of_a_run_cancelled_by_sql_has_lost_it(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    raw.put(lease.id, status="cancelled")
    assert await settle(ledger, succeeded(lease)) == [Outcome.LOST]


async def test_plain_sql_takes_the_family_along(ledger: Ledger, raw: Raw) -> None:
    """A stranger's connection has SQLite's defaults, among them that triggers do not fire themselves."""
    grandparent = await leased(ledger, "test.a.v1")
    raw.pause(grandparent.id)
    parent = await leased(ledger, "test.b.v1", parent_id=grandparent.id)
    child = await leased(ledger, "test.c.v1", parent_id=parent.id)
    grandchild = await leased(ledger, "test.d.v1", parent_id=child.id)
    raw.put(parent.id, status="cancelled")
    for lease in (parent, child, grandchild):
        assert raw.row(lease.id)["status"] == "cancelled"
        assert raw.events(lease.id).count("cancelled") == 1
    assert raw.row(grandparent.id)["wakes"] == 1
    assert [lease.id for lease in await claim(ledger, offer("test.a.v1"))] == [grandparent.id]


async def test_plain_sql_starts_the_undo(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, TYPE, on_cancel="test.undo.v1")
    (run_id,) = await create(ledger)
    raw.put(run_id, status="cancelled")
    assert len(await claim(ledger, offer("test.undo.v1"))) == 1


@pytest.mark.parametrize("target", ["cancelled", "failed", "leased", "paused"])
async def test_a_finished_run_cannot_be_moved_by_sql(ledger: Ledger, raw: Raw, target: str) -> None:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    before, story = raw.row(lease.id), raw.events(lease.id)
    with pytest.raises(REFUSED) as refusal:
        raw.put(lease.id, status=target)
    assert "already succeeded" in str(refusal.value) or "use the API" in str(refusal.value)
    assert raw.row(lease.id) == before
    assert raw.events(lease.id) == story


async def test_plain_sql_may_delete_a_finished_run(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, idempotency_key="k")
    await settle(ledger, succeeded(lease))
    raw.sql(f"UPDATE workflow.workflow_run SET deleted_at = {raw.now} WHERE id = ?", lease.id)
    assert raw.row(lease.id)["status"] == "succeeded"
    assert raw.events(lease.id)[-2:] == ["succeeded", "deleted"]
    assert await create(ledger, idempotency_key="k") != [lease.id]


async def test_plain_sql_may_change_what_no_law_watches(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    raw.put(run_id, priority=1, last_error="a note")
    assert raw.events(run_id) == ["created"]
    assert len(await claim(ledger, offer(priority=1))) == 1


async def test_an_unknown_status_is_refused(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.IntegrityError)):
        raw.put(run_id, status="running")
    assert raw.row(run_id)["status"] == "pending"


# What each database does with the other moves


async def test_other_moves_by_sql(ledger: Ledger, raw: Raw, backend: str) -> None:
    """One law, two means: PostgreSQL completes a revival and a lease, SQLite names the API instead."""
    finished = await leased(ledger)
    await settle(ledger, failed(finished))
    (waiting,) = await create(ledger, type="test.other.v1")
    lease_until = f"{raw.now} {raw.back(-30)}"
    lease = f"UPDATE workflow.workflow_run SET status = 'leased', leased_by = 'php', lease_until = {lease_until}"
    if backend == "sqlite":
        with pytest.raises(sqlite3.IntegrityError, match="use the API"):
            raw.put(finished.id, status="pending")
        with pytest.raises(sqlite3.IntegrityError, match="use the API"):
            raw.sql(f"{lease} WHERE id = ?", waiting)
        return
    raw.put(finished.id, status="pending")
    revived = raw.row(finished.id)
    check_invariants(revived)
    assert (revived["attempt"], revived["lease_epoch"]) == (0, 1)
    assert [again.epoch for again in await claim(ledger)] == [2]
    raw.sql(f"{lease} WHERE id = ?", waiting)
    taken = raw.row(waiting)
    check_invariants(taken)
    assert (taken["lease_epoch"], taken["leased_by"]) == (1, "php")
    for run_id in (finished.id, waiting):
        assert check_path(raw.events(run_id)) is Status.LEASED


async def test_a_foreign_worker_may_finish_its_lease_on_postgres(ledger: Ledger, raw: Raw, backend: str) -> None:
    lease = await leased(ledger)
    if backend == "sqlite":
        with pytest.raises(sqlite3.IntegrityError, match="use the API"):
            raw.put(lease.id, status="succeeded", result="1")
        assert raw.row(lease.id)["status"] == "leased"
        return
    raw.put(lease.id, status="succeeded", result="1")
    check_invariants(raw.row(lease.id))
    assert (await get(ledger, lease.id)).result == 1
    assert check_path(raw.events(lease.id)) is Status.SUCCEEDED


@pytest.mark.parametrize(
    "values",
    [
        {"id": "'order-1'"},
        {"id": "upper(lower(hex(randomblob(16))))"},
        {"id": "'01A1DE8C-125C-7370-996D-4C4BB24A094B'"},
        {"run_at": "datetime('now')"},
        {"start_by": "'soon'"},
        {"deadline_at": "1.5"},
    ],
    ids=str,
)
async def test_sqlite_refuses_a_row_that_no_worker_could_read(tmp_path: Path, values: dict[str, str]) -> None:
    ledger = open_ledger(str(tmp_path / "odd.db"))
    await ledger.check()
    connection = sqlite3.connect(tmp_path / "odd.db")
    columns, row = ", ".join(values), ", ".join(values.values())
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"INSERT INTO workflow_run (type, payload, {columns}) VALUES ('t.odd.v1', '1', {row})")
    connection.close()
    await ledger.close()


@pytest.mark.parametrize("column", ["run_at", "deadline_at", "start_by"])
@pytest.mark.parametrize("value", ["infinity", "-infinity"])
async def test_postgres_refuses_instants_that_never_come(postgres_url: str, column: str, value: str) -> None:
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(f"INSERT INTO workflow.workflow_run (type, {column}) VALUES ('t.odd.v1', '{value}')")


@pytest.mark.parametrize("status", ["succeeded", "failed", "timed_out", "paused"])
async def test_postgres_refuses_moves_by_sql_that_the_law_does_not_know(postgres_url: str, status: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("INSERT INTO workflow.workflow_run (type) VALUES ('t.odd.v1')")
        with pytest.raises(psycopg.errors.CheckViolation, match="cannot become"):
            connection.execute("UPDATE workflow.workflow_run SET status = %s, finished_at = now()", (status,))


async def test_a_migration_mends_the_instants_that_would_refuse_later_statements(tmp_path: Path) -> None:
    """On SQLite a column takes what it is given; the limits look at the whole row."""
    ledger = open_ledger(str(tmp_path / "odd.db"))
    await ledger.check()
    await ledger.migrate_down(1)
    connection = sqlite3.connect(tmp_path / "odd.db", isolation_level=None)
    for odd in ("'2026-01-01 00:00:00'", "1.5", str(2**62)):
        connection.execute(f"INSERT INTO workflow_registry (workflow_name, updated_at) VALUES ({odd}, {odd})")
        connection.execute(f"INSERT INTO workflow_run (type, updated_at, held_at) VALUES ('t.v1', {odd}, {odd})")
        connection.execute(
            "INSERT INTO workflow_run (type, status, finished_at, deleted_at, started_at)"
            f" VALUES ('t.v1', 'failed', {odd}, {odd}, {odd})"
        )
        connection.execute(
            "INSERT INTO workflow_run (type, status, leased_by, lease_epoch, lease_until)"
            f" VALUES ('t.v1', 'leased', 'gone', 1, {odd})"
        )
        connection.execute(
            "INSERT INTO workflow_schedule (name, type, cron, updated_at, last_fired_at, fired)"
            f" VALUES ('s' || (SELECT count(*) FROM workflow_schedule), 't.v1', '* * * * *', {odd}, {odd}, {odd})"
        )
    await ledger.migrate_up()
    connection.execute("UPDATE workflow_registry SET is_enabled = 0")
    assert connection.execute("SELECT count(*) FROM workflow_event WHERE event_type <> 'created'").fetchone() == (0,)
    connection.execute("UPDATE workflow_run SET priority = 7")
    connection.execute("UPDATE workflow_schedule SET paused_at = next_at, trouble = 'none'")
    for table, column in (
        ("registry", "updated_at"),
        ("run", "held_at"),
        ("run", "lease_until"),
        ("schedule", "fired"),
    ):
        text = f"SELECT DISTINCT typeof({column}) FROM workflow_{table} WHERE {column} IS NOT NULL"
        found = connection.execute(text).fetchall()
        assert found == [("integer",)], column
    connection.close()
    await ledger.close()
