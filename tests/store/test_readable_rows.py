"""What nobody could read again is refused on its way in, whichever table it is for.

PostgreSQL has types for most of it; on SQLite, where any column takes any value, triggers look.
"""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import TYPE, Raw, claim, create, get, offer, tell

from simpleworkflow.clock import new_id
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import events, steps

REFUSED = (sqlite3.IntegrityError, psycopg.errors.CheckViolation, psycopg.DataError, psycopg.errors.DatatypeMismatch)
NO_IDS = ["order-4711-approved", "", "0199A6C0-0000-7000-8000-000000000000", "0199a6c0-0000-7000-8000-0000000000000"]


def signal(raw: Raw, run_id: UUID, **columns: Any) -> None:
    values = {"run_id": run_id, "name": "go"} | columns
    marks = ", ".join("?" * len(values))
    raw.sql(f"INSERT INTO workflow.workflow_signal ({', '.join(values)}) VALUES ({marks})", *values.values())


# Signals


@pytest.mark.parametrize("odd", NO_IDS)
async def test_a_signal_has_the_id_of_a_signal(ledger: Ledger, raw: Raw, odd: str) -> None:
    (run_id,) = await create(ledger)
    if not raw.is_sqlite and odd == odd.upper() != "":
        odd += "x"  # capitals are the same id there
    with pytest.raises(REFUSED):
        signal(raw, run_id, id=odd)
    await tell(ledger, run_id)
    with pytest.raises(REFUSED):
        raw.sql("UPDATE workflow.workflow_signal SET id = ?", odd)
    assert len((await ledger.run(steps.load([run_id])))[run_id].signals) == 1


async def test_a_signal_has_a_payload_that_is_json(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    with pytest.raises(REFUSED):
        signal(raw, run_id, payload="nope")
    await tell(ledger, run_id)
    with pytest.raises(REFUSED):
        raw.sql("UPDATE workflow.workflow_signal SET payload = 'nope'")


async def test_a_migration_makes_old_signals_readable(tmp_path: Path) -> None:
    ledger, raw = open_ledger(str(tmp_path / "f.db")), Raw(str(tmp_path / "f.db"))
    await ledger.migrate_up()
    await ledger.migrate_down(1)
    run_id = new_id()
    raw.sql("INSERT INTO workflow_run (id, type) VALUES (?, 't.v1')", run_id)
    signal(raw, run_id, id="order-4711-approved", payload="1")
    signal(raw, run_id, payload="nope")
    await ledger.migrate_up()
    found = (await ledger.run(steps.load([run_id])))[run_id].signals
    assert [one.payload_json for one in found] == ["1", '"nope"']
    raw.close()
    await ledger.close()


# Runs


@pytest.mark.parametrize("odd", [*NO_IDS, b"0199a6c0-0000-7000-8000-000000000000"])
async def test_a_parent_is_named_by_an_id(ledger: Ledger, raw: Raw, odd: str | bytes) -> None:
    (run_id,) = await create(ledger)
    if not raw.is_sqlite and odd == odd.upper() and odd:
        return  # capitals are the same id there
    with pytest.raises(REFUSED):
        raw.sql("INSERT INTO workflow.workflow_run (type, parent_id) VALUES (?, ?)", TYPE, odd)
    with pytest.raises(REFUSED):
        raw.put(run_id, parent_id=odd)
    assert len(await claim(ledger)) == 1


TEXTS = ["last_error", "hold_reason", "delete_reason", "idempotency_key", "traceparent", "error", "result", "payload"]
WHOLE = ["started_at", "held_at", "max_attempts", "priority", "attempt", "wakes", "attempts_unset"]


@pytest.mark.parametrize(
    ("column", "odd"),
    [
        *((column, b"hi") for column in TEXTS),
        ("id", b"0199a6c0-0000-7000-8000-000000000000"),
        ("id", "0199a6c0-0000-7000-8000-000000000000\0x"),
        *((column, odd) for column in ("result", "error", "payload") for odd in ("nope", "")),
        *((column, odd) for column in WHOLE for odd in (1.5, "abc")),
    ],
)
async def test_a_column_holds_what_everybody_can_read(tmp_path: Path, column: str, odd: Any) -> None:
    """PostgreSQL has types for that."""
    ledger, raw = open_ledger(str(tmp_path / "f.db")), Raw(str(tmp_path / "f.db"))
    await ledger.migrate_up()
    (run_id,) = await create(ledger)
    with pytest.raises(REFUSED):
        raw.sql(f"INSERT INTO workflow_run (type, {column}) VALUES (?, ?)", TYPE, odd)
    with pytest.raises(REFUSED):
        raw.put(run_id, **{column: odd})
    assert (await get(ledger, run_id)).type == TYPE
    raw.close()
    await ledger.close()


async def test_a_migration_makes_old_runs_readable(tmp_path: Path) -> None:
    ledger, raw = open_ledger(str(tmp_path / "f.db")), Raw(str(tmp_path / "f.db"))
    await ledger.migrate_up()
    await ledger.migrate_down(1)
    columns = "id, type, parent_id, last_error, error, result, hold_reason, idempotency_key, max_attempts"
    run_id = new_id()
    text = f"INSERT INTO workflow_run ({columns}) VALUES (?, ?, 'ORDER-4711', ?, 'nope', 'nope', ?, ?, 'abc')"
    raw.sql(text, run_id, TYPE, b"hi", b"ho", b"key")
    await ledger.migrate_up()
    raw.put(run_id, priority=7)
    found = await get(ledger, run_id)
    assert (found.parent_id, found.last_error, found.hold_reason, found.idempotency_key) == (None, "hi", "ho", "key")
    assert (found.result, found.max_attempts) == ("nope", 1)
    assert len(await claim(ledger, offer(TYPE, 7))) == 1
    raw.close()
    await ledger.close()


# Events


@pytest.mark.parametrize(
    ("column", "odd"),
    [("data", "not json"), ("data", b"1"), ("workflow_id", "ORDER-4711"), ("created_at", 10**18), ("created_at", 1.5)],
)
async def test_a_line_of_the_trail_is_one_that_everybody_can_read(tmp_path: Path, column: str, odd: Any) -> None:
    """PostgreSQL has types for that."""
    ledger, raw = open_ledger(str(tmp_path / "f.db")), Raw(str(tmp_path / "f.db"))
    await ledger.migrate_up()
    (run_id,) = await create(ledger)
    line = {"workflow_id": run_id, "event_type": "started", "lease_epoch": 1} | {column: odd}
    text = f"INSERT INTO workflow_event ({', '.join(line)}) VALUES ({', '.join('?' * len(line))})"
    with pytest.raises(REFUSED):
        raw.sql(text, *line.values())
    with pytest.raises(REFUSED):
        raw.sql(f"UPDATE workflow_event SET {column} = ?", odd)
    assert [one.type for one in await ledger.run(events.of_run(run_id))] == ["created"]
    raw.close()
    await ledger.close()


async def test_a_migration_makes_old_lines_of_the_trail_readable(tmp_path: Path) -> None:
    ledger, raw = open_ledger(str(tmp_path / "f.db")), Raw(str(tmp_path / "f.db"))
    await ledger.migrate_up()
    (run_id,) = await create(ledger)
    await ledger.migrate_down(1)
    for owner in (run_id, "ORDER-4711"):
        raw.sql("INSERT INTO workflow_event (workflow_id, event_type, data) VALUES (?, 'started', 'nope')", owner)
    await ledger.migrate_up()
    assert [one.data for one in await ledger.run(events.of_run(run_id))] == [None, {"text": "nope"}]
    assert len(raw.sql("SELECT * FROM workflow_event")) == 2
    raw.close()
    await ledger.close()


# Schedules


@pytest.mark.parametrize(
    ("column", "odd"),
    [("last_run_id", "ORDER-4711"), ("extra_run_id", "ORDER-4711"), ("trouble", b"hi"), ("fired", 1.5), ("cron", b"x")],
)
async def test_a_schedule_is_one_that_everybody_can_read(tmp_path: Path, column: str, odd: Any) -> None:
    """PostgreSQL has types for that."""
    ledger, raw = open_ledger(str(tmp_path / "f.db")), Raw(str(tmp_path / "f.db"))
    await ledger.migrate_up()
    row = {"name": "s", "type": "t.v1", "cron": "* * * * *"}
    for values, refused in ((row | {column: odd}, True), (row, False)):
        text = f"INSERT INTO workflow_schedule ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
        with pytest.raises(REFUSED) if refused else nullcontext():
            raw.sql(text, *values.values())
    with pytest.raises(REFUSED):
        raw.sql(f"UPDATE workflow_schedule SET {column} = ?", odd)
    raw.close()
    await ledger.close()
