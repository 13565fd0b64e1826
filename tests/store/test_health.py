"""What the doctor asks, on both databases: true answers, and cheap ones.

The plans are judged on a backlog: no question may read the table of runs from end to end, whatever the planner's
settings, since somebody will ask every minute from a monitor.
"""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest
from support.ledger import Raw, claim, create, define, leased, new, offer

from simpleworkflow.model.errors import MissingMigration
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.catalog import statements
from simpleworkflow.store.drivers.postgres import _PLANNER, bind
from simpleworkflow.store.operations import health, workers
from simpleworkflow.store.operations.health import SAFE, unsafe

ROWS = 30_000
PAGES = 2_000


def test_a_setting_is_unsafe_only_when_it_is_known_to_be() -> None:
    assert unsafe("fsync", "off")
    assert unsafe("synchronous", "normal")
    assert unsafe("journal_mode", "memory")
    assert not unsafe("synchronous_commit", "remote_apply")
    assert not unsafe("PostgreSQL", "15.1")
    assert all(not unsafe(name, value) for name, values in SAFE.items() for value in values)


async def test_due_runs_are_counted_by_lane_up_to_a_limit(ledger: Ledger, raw: Raw) -> None:
    ids = await create(ledger, *[new("a.x.v1") for _ in range(3)], new("b.y.v1", priority=5), new("c.z.v1", delay=60))
    raw.age(ids[1], 100, "run_at")
    lanes = await ledger.look(health.due_lanes(limit=2))
    assert [(lane.type, lane.priority, lane.due) for lane in lanes] == [("a.x.v1", 100, 2), ("b.y.v1", 5, 1)]
    assert lanes[0].run_id == ids[1]
    assert 100 <= lanes[0].late < 160
    assert lanes[0].is_enabled


async def test_runs_of_a_disabled_type_are_told_as_such_and_crashed_ones_are_not_forgotten(
    ledger: Ledger, raw: Raw
) -> None:
    run_ids = await create(ledger, new("a.x.v1"), new("b.y.v1"))
    await define(ledger, "a.x.v1")
    await ledger.run(workers.enable("a.x.v1", False))
    raw.put(run_ids[1], crashes=2)
    lanes = await ledger.look(health.due_lanes(limit=10))
    assert [(lane.type, lane.is_enabled) for lane in lanes] == [("a.x.v1", False), ("b.y.v1", True)]
    assert await ledger.look(health.crashed(limit=10)) == {"b.y.v1": 1}


async def test_held_runs_are_not_due_and_are_found_among_the_newest(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger, new("a.x.v1"))
    raw.sql(f"UPDATE workflow.workflow_run SET held_at = {raw.now} {raw.back(50)} WHERE id = ?", run_id)
    await create(ledger, new("b.y.v1"))
    assert [lane.type for lane in await ledger.look(health.due_lanes(limit=10))] == ["b.y.v1"]
    told = await ledger.look(health.held(limit=10))
    assert (told.looked, told.runs) == (2, 1)
    assert told.oldest is not None
    assert 50 <= told.oldest < 110
    assert (await ledger.look(health.held(limit=1))).runs == 0


async def test_leases_that_ran_out_are_told_by_holder_after_a_grace(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    assert await ledger.look(health.expired_leases(grace=10, limit=10)) == []
    raw.age(lease.id, 100, "lease_until")
    assert await ledger.look(health.expired_leases(grace=1000, limit=10)) == []
    (late,) = await ledger.look(health.expired_leases(grace=10, limit=10))
    assert (late.what, late.runs) == ("w1", 1)
    assert 60 < late.late < 130


async def test_open_runs_past_their_deadline_or_their_start_are_counted(ledger: Ledger, raw: Raw) -> None:
    await create(ledger, new("a.x.v1", start_within=5.0), new("b.y.v1"))
    await claim(ledger, offer("b.y.v1", timeout=5.0))
    assert await ledger.look(health.missed_deadlines(grace=10, limit=10)) == []
    raw.sql(
        f"UPDATE workflow.workflow_run SET deadline_at = deadline_at {raw.back(50)}, start_by = start_by {raw.back(90)}"
    )
    late = {one.what: one for one in await ledger.look(health.missed_deadlines(grace=10, limit=10))}
    assert {what: one.runs for what, one in late.items()} == {"deadline": 1, "start": 1}
    assert 80 < late["start"].late < 150


async def test_workers_that_said_goodbye_are_not_silent(ledger: Ledger, raw: Raw) -> None:
    for name in ("left", "dead", "here"):
        await ledger.run(workers.announce(name, name, "host-1", 7, [("", "z")]))
    await ledger.run(workers.retire("left"))
    raw.sql(f"UPDATE workflow.workflow_worker SET seen_at = seen_at {raw.back(100)} WHERE id <> 'here'")
    (silent,) = await ledger.look(health.silent_workers(silence=45, limit=10))
    assert (silent.id, silent.name, silent.host, silent.pid) == ("dead", "dead", "host-1", 7)
    assert 100 <= silent.silent < 160


async def test_looking_does_not_migrate_what_it_looks_at(backend: str, url: str, postgres: Any, tmp_path: Any) -> None:
    empty = str(tmp_path / "empty.db")
    if backend == "postgres":
        postgres.create_database("swf_unmigrated")
        empty = postgres.url("swf_unmigrated")
    ledger = open_ledger(empty)
    try:
        for _ in range(2):
            with pytest.raises(MissingMigration):
                await ledger.look(health.applied())
    finally:
        await ledger.close()
        postgres.drop_database("swf_unmigrated")


async def test_what_a_database_cannot_know_has_no_answer(ledger: Ledger, backend: str) -> None:
    server, clock = await ledger.look(health.server()), await ledger.look(health.server_clock())
    file, reach = await ledger.look(health.file_facts()), await ledger.look(health.rows_ever())
    here, there = (server, clock), (file, reach or None)
    if backend == "sqlite":
        here, there = there, here
    assert all(here)
    assert not any(there)
    assert bool(await ledger.look(health.tables())) == (backend == "postgres")
    assert bool(await ledger.look(health.connections())) == (backend == "postgres")
    assert await ledger.look(health.blockers(older=3600)) == []


QUESTIONS: dict[str, dict[str, Any]] = {
    "due_lanes": {"lane": [("load.t1.v1", 100), ("load.t2.v1", 100)], "limit": 100},
    "due_suspect_lanes": {"lane": [("load.t1.v1", 100)], "limit": 100},
    "crashed_runs": {"limit": 100},
    "expired_leases": {"grace": 1, "limit": 100},
    "missed_deadlines": {"grace": 1, "limit": 100},
    "held_runs": {"limit": 500},
}

LOAD = """
INSERT INTO workflow.workflow_run (type, status, run_at, finished_at, crashes, deadline_at, start_by, payload)
SELECT 'load.t' || n % 5 || '.v1', CASE WHEN n % 10 < 5 THEN 'pending' ELSE 'succeeded' END,
       now() - interval '1 hour', CASE WHEN n % 10 >= 5 THEN now() END, CASE WHEN n % 50 = 0 THEN 1 ELSE 0 END,
       now() + interval '1 hour', now() + interval '1 hour', json_build_object('text', repeat('x', 100))
FROM generate_series(1, {rows}) n"""


@pytest.mark.parametrize("settings", [_PLANNER, {}], ids=["driver", "default"])
def test_no_question_reads_the_table_of_runs_from_end_to_end(postgres_url: str, settings: dict[str, str]) -> None:
    catalog = statements("postgres")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(LOAD.format(rows=ROWS))
        connection.execute("VACUUM ANALYZE workflow.workflow_run")
        for name, value in settings.items():
            connection.execute(f"SET {name} = '{value}'")
        for name, parameters in QUESTIONS.items():
            statement = catalog[name]
            values = bind(statement, parameters)
            placed = [values[int(number) - 1] for number in re.findall(r"\$(\d+)", statement.text)]
            text = re.sub(r"\$\d+", "%s", statement.text.replace("%", "%%"))
            row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", placed).fetchone()
            assert row is not None
            plan = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
            assert "Seq Scan" not in json.dumps(plan), name
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= PAGES, name
