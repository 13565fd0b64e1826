"""What plain SQL may not undo, each with the loss that it would be: numbers, records, wakes, outcomes, the trail.

One source for both databases. What others may write at all is in test_other_programs.py.
"""

from __future__ import annotations

import sqlite3
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
    failed,
    flush,
    get,
    leased,
    new,
    offer,
    paused,
    record,
    settle,
    succeeded,
    sweep,
    tell,
)
from support.outbox import emitting, put, rows, told

from simpleworkflow.clock import new_id
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.states import Status, StepKind, StepStatus
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import leases, runs, steps

REFUSED = (sqlite3.IntegrityError, psycopg.errors.CheckViolation)


def sent(raw: Raw, run_id: UUID, verb: str = "INSERT INTO", **columns: Any) -> None:
    values = {"run_id": run_id, "name": "go"} | columns
    marks = ", ".join("?" * len(values))
    raw.sql(f"{verb} workflow.workflow_signal ({', '.join(values)}) VALUES ({marks})", *values.values())


# The outbox


async def test_a_number_of_an_event_is_not_given_twice_though_others_clear_the_outbox(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, emitting(lease, 0), emitting(lease, 1))
    raw.sql(f"UPDATE workflow.outbox_event SET published_at = {raw.now}, status = 'published'")
    before = rows(raw, lease.id)
    raw.sql("DELETE FROM workflow.outbox_event WHERE published_at IS NOT NULL")
    assert rows(raw, lease.id) == before[1:]
    await flush(ledger, emitting(lease, 2))
    assert told(raw, lease.id) == [(2, "told"), (3, "told")]
    raw.sql("DELETE FROM workflow.outbox_event WHERE sequence = 2")
    assert told(raw, lease.id) == [(3, "told")]


async def test_events_of_runs_that_are_gone_may_all_be_deleted(ledger: Ledger, raw: Raw) -> None:
    kept, gone = await create(ledger, new(), new())
    for run_id in (kept, gone):
        put(raw, run_id, 3)
    stray = new_id()
    put(raw, stray, 2)
    raw.sql("DELETE FROM workflow.workflow_run WHERE id = ?", gone)
    assert rows(raw, gone) == []
    raw.sql("DELETE FROM workflow.outbox_event")
    assert [row["sequence"] for row in rows(raw, kept)] == [3]
    assert rows(raw, stray) == []


async def test_an_event_of_others_without_a_number_keeps_what_was_said_of_it(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    raw.sql(
        "INSERT INTO workflow.outbox_event"
        " (aggregate_id, event_type, payload, status, attempt, published_at, last_error)"
        f" VALUES (?, 'theirs', '1', 'published', 2, {raw.now}, 'HTTP 503')",
        run_id,
    )
    (row,) = rows(raw, run_id)
    assert (row["sequence"], row["status"], row["attempt"], row["last_error"]) == (1, "published", 2, "HTTP 503")
    assert row["published_at"] is not None


@pytest.mark.parametrize("change", ["sequence = sequence + 5", "aggregate_id = '{other}'"])
async def test_an_event_keeps_its_run_and_its_number(ledger: Ledger, raw: Raw, change: str) -> None:
    run_id, other = await create(ledger, new(), new())
    put(raw, run_id, 2)
    before = rows(raw, run_id)
    with pytest.raises(REFUSED, match="keeps its run and its number"):
        raw.sql(f"UPDATE workflow.outbox_event SET {change.format(other=other)} WHERE sequence = 2")
    raw.sql("UPDATE workflow.outbox_event SET sequence = sequence, aggregate_id = aggregate_id")
    assert rows(raw, run_id) == before


# Definitions


@pytest.mark.parametrize("column", ["on_cancel", "dead_letter"])
@pytest.mark.parametrize("odd", ["no spaces", "", "x" * 201, "größe"])
async def test_no_undo_or_dead_letter_run_has_a_name_that_no_run_can_have(
    ledger: Ledger, raw: Raw, column: str, odd: str
) -> None:
    await define(ledger, TYPE)
    with pytest.raises(REFUSED):
        raw.sql(f"UPDATE workflow.workflow_registry SET {column} = ?", odd)
    with pytest.raises(REFUSED):
        raw.sql(f"INSERT INTO workflow.workflow_registry (workflow_name, {column}) VALUES ('t.v1', ?)", odd)
    raw.sql(f"UPDATE workflow.workflow_registry SET {column} = ?", "x" * 200)
    raw.sql(f"UPDATE workflow.workflow_registry SET {column} = NULL")


@pytest.mark.parametrize("odd", ["false", "no", 2, 0.5, None])
async def test_a_definition_is_enabled_or_it_is_not(ledger: Ledger, raw: Raw, odd: Any) -> None:
    if not raw.is_sqlite and isinstance(odd, str):
        return  # it means false there
    await define(ledger, TYPE)
    with pytest.raises((*REFUSED, psycopg.Error)):
        raw.sql("UPDATE workflow.workflow_registry SET is_enabled = ?", odd)
    with pytest.raises((*REFUSED, psycopg.Error)):
        raw.sql("INSERT INTO workflow.workflow_registry (workflow_name, is_enabled) VALUES ('t.v1', ?)", odd)
    assert raw.sql("SELECT is_enabled FROM workflow.workflow_registry") == [{"is_enabled": True}]


async def test_a_migration_clears_names_that_no_run_can_have(ledger: Ledger, raw: Raw) -> None:
    await ledger.migrate_down(1)
    text = "INSERT INTO workflow.workflow_registry (workflow_name, on_cancel, dead_letter) VALUES (?, ?, ?)"
    raw.sql(text, TYPE, "no spaces", "test.dead.v1")
    raw.sql(text, "t.b.v1", None, "")
    if raw.is_sqlite:
        raw.sql(
            "INSERT INTO workflow_registry (workflow_name, is_enabled) VALUES ('t.c.v1', 'false'), ('t.d.v1', 'on')"
        )
    await ledger.migrate_up()
    found = raw.sql("SELECT workflow_name AS name, on_cancel, dead_letter, is_enabled FROM workflow.workflow_registry")
    assert {row["name"]: (row["on_cancel"], row["dead_letter"]) for row in found[:2]} == {
        TYPE: (None, "test.dead.v1"),
        "t.b.v1": (None, None),
    }
    assert [row["is_enabled"] for row in found] == [1, 1, *([0, 1] if raw.is_sqlite else [])]


# The trail


@pytest.mark.parametrize("change", ["event_type = 'failed'", "created_at = created_at", "data = '{}'"])
async def test_what_the_trail_has_told_is_not_changed(ledger: Ledger, raw: Raw, change: str) -> None:
    (run_id,) = await create(ledger)
    with pytest.raises(REFUSED, match="append-only"):
        raw.sql(f"UPDATE workflow.workflow_event SET {change} WHERE workflow_id = ?", run_id)
    raw.sql("DELETE FROM workflow.workflow_event WHERE workflow_id = ?", run_id)
    assert raw.events(run_id) == []


# Signals


@pytest.mark.parametrize("seq", [1, 5, 2**50])
async def test_a_signal_of_others_is_a_whole_one_whatever_number_it_gives(ledger: Ledger, raw: Raw, seq: int) -> None:
    lease = await leased(ledger)
    await flush(ledger, paused(lease))
    sent(raw, lease.id, seq=seq)
    sent(raw, lease.id, name="then")
    assert [row["name"] for row in raw.signals(lease.id)] == ["go", "then"]
    assert raw.row(lease.id)["wakes"] == 2
    assert [one.id for one in await claim(ledger)] == [lease.id]
    for run_id in (new_id(), (await create(ledger))[0]):
        await ledger.run(runs.cancel([run_id]))
        with pytest.raises(REFUSED, match="has finished"):
            sent(raw, run_id, seq=seq)


async def test_nobody_passes_for_us_where_no_signal_can_be_taken(ledger: Ledger, raw: Raw) -> None:
    """-1 is the number that our own signals give."""
    (ended,) = await create(ledger)
    await ledger.run(runs.cancel([ended]))
    for run_id in (ended, new_id()):
        with pytest.raises(REFUSED, match="has finished"):
            sent(raw, run_id, seq=-1)
        assert raw.signals(run_id) == []


async def test_our_own_signal_wakes_its_run_once(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    signal_id = await tell(ledger, run_id)
    await tell(ledger, run_id, id=signal_id)
    await tell(ledger, run_id, "then")
    assert [row["name"] for row in raw.signals(run_id)] == ["go", "then"]
    assert all(row["seq"] > 0 for row in raw.signals(run_id))


async def test_a_wake_is_not_undone(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    before = raw.row(lease.id)["wakes"]
    await tell(ledger, lease.id)
    with pytest.raises(REFUSED, match="only grow"):
        raw.put(lease.id, wakes=before)
    assert await flush(ledger, paused(lease, wakes=before)) == [Outcome.WOKEN]


async def test_a_signal_is_not_replaced_by_itself(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    signal_id = await tell(ledger, lease.id)
    if raw.is_sqlite:
        before = raw.everything(), raw.sql("SELECT * FROM workflow_sequence")
        with pytest.raises(REFUSED, match="not to be replaced"):
            sent(raw, lease.id, "INSERT OR REPLACE INTO", id=signal_id)
        assert (raw.everything(), raw.sql("SELECT * FROM workflow_sequence")) == before
        sent(raw, lease.id, "INSERT OR IGNORE INTO", id=signal_id)
        sent(raw, lease.id, "INSERT OR REPLACE INTO", id=new_id())
        raw.sql("DELETE FROM workflow_signal WHERE id <> ?", signal_id)
    text = "INSERT INTO workflow.workflow_signal (id, run_id, name) VALUES (?, ?, 'go')"
    raw.sql(f"{text} ON CONFLICT (id) DO NOTHING", signal_id, lease.id)
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        raw.sql(text, signal_id, lease.id)
    assert [str(row["id"]) for row in raw.signals(lease.id)] == [str(signal_id)]


@pytest.mark.parametrize("change", ["consumed_at = NULL", "run_id = '{other}'"])
async def test_a_signal_that_was_taken_is_not_given_again(ledger: Ledger, raw: Raw, change: str) -> None:
    lease = await leased(ledger)
    (other,) = await create(ledger)
    signal_id = await tell(ledger, lease.id)
    taken = record(lease, "go#0", kind=StepKind.SIGNAL, output="1", signal_id=signal_id)
    await flush(ledger, taken)
    with pytest.raises(REFUSED):
        raw.sql(f"UPDATE workflow.workflow_signal SET {change.format(other=other)}")
    for run_id in (lease.id, other):
        assert (await ledger.run(steps.load([run_id])))[run_id].signals == []
    raw.sql(f"UPDATE workflow.workflow_signal SET consumed_at = {raw.now}, run_id = run_id")


# Families and outcomes


async def test_a_child_keeps_its_parent(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger, "test.parent.v1")
    (child,) = await create(ledger, parent_id=parent.id)
    await flush(ledger, paused(parent))
    for other in (None, new_id()):
        with pytest.raises(REFUSED, match="parent_id"):
            raw.put(child, parent_id=other)
    raw.put(child, parent_id=parent.id)
    raw.put(child, status="cancelled")
    assert [lease.id for lease in await claim(ledger, offer("test.parent.v1"))] == [parent.id]


CHANGES = ["result = '7'", "result = NULL", "error = '{}'", "last_error = 'mended'"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("end", [succeeded, failed])
async def test_an_outcome_stays_though_others_count_the_version(
    ledger: Ledger, raw: Raw, change: str, end: Any
) -> None:
    lease = await leased(ledger)
    await settle(ledger, end(lease))
    if end is failed and change == "result = NULL":
        return  # it has none
    before = raw.row(lease.id)
    with pytest.raises(REFUSED, match="keeps its outcome"):
        raw.sql(f"UPDATE workflow.workflow_run SET {change}, version = version + 1 WHERE id = ?", lease.id)
    assert raw.row(lease.id) == before


async def test_one_end_does_not_become_another(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await settle(ledger, failed(lease))
    before = raw.row(lease.id)
    text = "UPDATE workflow.workflow_run SET status = 'succeeded', result = '1', version = version + 1 WHERE id = ?"
    if raw.is_sqlite:
        raw.sql(text, lease.id)  # passed over there, as a sweep that comes late is
    else:
        with pytest.raises(REFUSED, match="keeps its outcome"):
            raw.sql(text, lease.id)
    assert raw.row(lease.id) == before
    await ledger.run(runs.revive([lease.id]))
    assert (await get(ledger, lease.id)).status is Status.PENDING


# Steps


async def test_a_step_that_is_done_is_not_forgotten_while_its_run_is_open(ledger: Ledger, raw: Raw) -> None:
    lease, other = await leased(ledger), await leased(ledger)
    await flush(ledger, record(lease, output="1"), record(other, output="2"))
    await settle(ledger, succeeded(other))
    with pytest.raises(REFUSED, match="keeps its steps"):
        raw.sql("DELETE FROM workflow.workflow_step")
    assert [len(raw.steps(one.id)) for one in (lease, other)] == [1, 1]
    raw.sql("DELETE FROM workflow.workflow_step WHERE run_id = ?", other.id)
    raw.sql("DELETE FROM workflow.workflow_run WHERE id = ?", lease.id)
    assert raw.sql("SELECT * FROM workflow.workflow_step") == []


OTHERWISE = [
    "output = '2'",
    "output = NULL",
    "error = '1'",
    "status = 'waiting', completed_at = NULL",
    "status = 'superseded'",
    "step_id = step_id || '!'",
    "run_id = '{other}'",
    "kind = 'publish'",
]


@pytest.mark.parametrize("change", [*OTHERWISE, "status = 'failed'", "status = 'succeeded'"])
@pytest.mark.parametrize("end", [StepStatus.SUCCEEDED, StepStatus.FAILED])
async def test_a_step_that_is_done_stays_as_it_is(ledger: Ledger, raw: Raw, end: StepStatus, change: str) -> None:
    if change == f"status = '{end}'":
        return
    lease = await leased(ledger)
    (other,) = await create(ledger)
    done = {"output": "1"} if end is StepStatus.SUCCEEDED else {"error": '{"message": "no"}'}
    if end is StepStatus.FAILED and change == "output = NULL":
        return  # it has none
    await flush(ledger, record(lease, status=end, **done))
    before = raw.steps(lease.id)
    with pytest.raises(REFUSED, match="keeps its output"):
        raw.sql(f"UPDATE workflow.workflow_step SET {change.format(other=other)}")
    raw.sql("UPDATE workflow.workflow_step SET output = output, step_id = step_id, status = status, kind = kind")
    assert raw.steps(lease.id) == before


async def test_a_retry_of_a_run_still_makes_room_for_its_failed_steps(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, record(lease, status=StepStatus.FAILED, error='{"message": "no"}'))
    (place,) = [row["step_id"] for row in raw.steps(lease.id)]
    aside = f"@superseded {lease.epoch} {place}"
    text = "UPDATE workflow.workflow_step SET status = 'superseded', step_id = ?"
    with pytest.raises(REFUSED, match="keeps its output"):
        raw.sql(text, "@superseded 99 x#0")
    raw.sql(text, aside)
    with pytest.raises(REFUSED, match="keeps its output"):
        raw.sql("UPDATE workflow.workflow_step SET status = 'failed', step_id = ?", place)
    assert [(row["step_id"], row["status"]) for row in raw.steps(lease.id)] == [(aside, "superseded")]


async def test_what_waits_keeps_its_place_and_its_kind(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, record(lease, status=StepStatus.RETRYING, attempt=1, due_in=0))
    for change in ("kind = 'publish'", "step_id = 'other#0'"):
        with pytest.raises(REFUSED, match="keeps its output"):
            raw.sql(f"UPDATE workflow.workflow_step SET {change}")
    await flush(ledger, record(lease, output="3"))
    assert [row["output"] for row in raw.steps(lease.id)] in (["3"], [3])


async def test_what_a_run_publishes_is_written_again(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    for value in ("1", "2"):
        await flush(ledger, record(lease, "@publish#0", kind=StepKind.PUBLISH, output=value))
    waits = record(lease, "late#0", status=StepStatus.RETRYING, attempt=1, due_in=0)
    await flush(ledger, waits)
    await flush(ledger, record(lease, "late#0", output="3"))
    assert sorted(str(row["output"]) for row in raw.steps(lease.id)) == ["2", "3"]


# Attempts


async def test_the_greatest_number_of_attempts_stops_no_sweep(ledger: Ledger, raw: Raw) -> None:
    made = await create(ledger, new(), new(), new())
    most = 1_000_000_000
    raw.put(made[0], max_attempts=most)
    for worker in ("one", "two"):
        for run_id in made:
            raw.age(run_id, 1000, "run_at")
        await claim(ledger, worker=worker, crashes=None if worker == "one" else leases.ONCE)
        assert set(await sweep(ledger, worker)) == set(made)
    assert [raw.row(run_id)["max_attempts"] for run_id in made] == [most, 4, 4]


async def test_more_attempts_than_anybody_makes_are_refused(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    for number in (1_000_000_001, 2**31 - 1):
        with pytest.raises(REFUSED):
            raw.put(run_id, max_attempts=number)
        with pytest.raises(REFUSED):
            raw.sql("INSERT INTO workflow.workflow_run (type, max_attempts) VALUES ('t.v1', ?)", number)


async def test_a_migration_lowers_a_number_of_attempts_that_cannot_be_raised(url: str) -> None:
    ledger, raw = open_ledger(url), Raw(url)
    await ledger.migrate_up()
    await ledger.migrate_down(1)
    raw.sql("INSERT INTO workflow.workflow_run (type, max_attempts) VALUES (?, ?)", TYPE, 2**31 - 1)
    await ledger.migrate_up()
    assert [lease.max_attempts for lease in await claim(ledger)] == [1_000_000_000]
    raw.close()
    await ledger.close()
