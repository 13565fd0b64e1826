"""What pruning reads on PostgreSQL follows its page and its batch, never the tables: by any plan that it may get.

The exact texts of the catalogue, on 20,000 finished runs and all that hangs on them, with the driver's settings
and with a server's defaults, planned for their values and planned once for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.postgres import Server
from test_plans import SETTINGS, buffers, nodes

from simpleworkflow.model.retention import FIRST_ID, LAST_ID, Retention, rules_of
from simpleworkflow.store.catalog import statements
from simpleworkflow.store.drivers.postgres import bind

RUNS = 20_000
PAGE, BATCH = 200, 50
PER_RUN = 60
"""Buffers that looking at one run, or removing it, may cost: some ten index entries and rows, a few pages each."""
STATEMENTS = statements("postgres")
RULES = rules_of([Retention("load.*", "30 days", failed="1 day"), Retention("*", "90 days")])
LOAD = f"""
INSERT INTO workflow.workflow_run (id, type, status, finished_at, created_at, parent_id, payload)
SELECT ('0190' || lpad(to_hex(n), 8, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid, 'load.t' || n % 3 || '.v1',
       'succeeded', now() - interval '40 days', now() - interval '41 days',
       CASE WHEN n % 4 = 0 THEN gen_random_uuid() END,
       json_build_object('text', repeat('x', 100))
FROM generate_series(1, {RUNS}) n;
INSERT INTO workflow.workflow_event (workflow_id, event_type)
SELECT id, e FROM workflow.workflow_run, unnest(ARRAY['created', 'leased', 'succeeded']) e;
INSERT INTO workflow.workflow_step (run_id, lease_epoch, kind, status, step_id, completed_at)
SELECT id, 1, 'step', 'succeeded', 'charge#' || n, now() FROM workflow.workflow_run, generate_series(1, 2) n;
INSERT INTO workflow.workflow_signal (run_id, seq, name) SELECT id, 1, 'go' FROM workflow.workflow_run;
INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload, status, published_at)
SELECT id, 1, 'told', '{{}}', 'published', now() FROM workflow.workflow_run;
"""


@pytest.fixture(scope="module")
def old_runs(postgres: Server) -> Iterator[str]:
    postgres.create_database("swf_old_runs", template="template_swf")
    url = postgres.url("swf_old_runs")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(LOAD)
        connection.execute("VACUUM ANALYZE")
    yield url
    postgres.drop_database("swf_old_runs")


def explained(url: str, settings: dict[str, str], mode: str, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """As a prepared statement that is planned for each call, or once for all; taken back afterwards."""
    statement = STATEMENTS[name]
    with psycopg.connect(url, cursor_factory=psycopg.ClientCursor) as connection:
        for setting, value in {**settings, "plan_cache_mode": mode}.items():
            connection.execute(f"SET {setting} = '{value}'")
        values = bind(statement, parameters)
        connection.execute(f"PREPARE it AS {statement.text.replace('%', '%%')}")
        marks = ", ".join(["%s"] * len(values))
        explain = "EXPLAIN (ANALYZE, VERBOSE, BUFFERS, FORMAT JSON)"
        row = connection.execute(f"{explain} EXECUTE it({marks})", values).fetchone()
        connection.rollback()
    assert row is not None
    plan: dict[str, Any] = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
    return plan


def ids(count: int) -> list[tuple[UUID]]:
    return [(UUID(f"0190{n:08x}70008000{n:012x}"),) for n in range(7_001, 7_001 + count)]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("settings", sorted(SETTINGS))
def test_pruning_reads_as_much_as_it_looks_at_and_no_table_to_its_end(old_runs: str, settings: str, mode: str) -> None:
    page = {"rule": RULES, "first": FIRST_ID, "last": LAST_ID, "limit": PAGE, "shortest": 86_400_000_000, "most": 4_000}
    batch = ids(BATCH)
    for name, parameters, runs in (
        ("find_prunable", page, PAGE),
        ("find_prunable", {**page, "first": ids(1)[0][0], "most": 0}, PAGE),
        ("lock_prunable", {"b": batch}, BATCH),
        ("judge_prunable", {"b": batch, "rule": RULES}, BATCH),
        ("prune_runs", {"b": batch}, BATCH),
    ):
        plan = explained(old_runs, SETTINGS[settings], mode, name, parameters)
        told = json.dumps(plan)
        assert [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"] == [], name
        assert "hashed SubPlan" not in told, f"{name}: it would read all open runs, or all of the outbox"
        assert buffers(plan) <= runs * PER_RUN + 100, name


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("settings", sorted(SETTINGS))
def test_what_goes_with_a_run_is_found_by_its_key(old_runs: str, settings: str, mode: str) -> None:
    """The trigger's statements, which no plan of ours shows: counted by the server, in the transaction that deletes."""
    statement = STATEMENTS["prune_runs"]
    counted = "SELECT relname, seq_tup_read FROM pg_stat_xact_user_tables WHERE schemaname = 'workflow'"
    with psycopg.connect(old_runs, cursor_factory=psycopg.ClientCursor) as connection:
        for setting, value in {**SETTINGS[settings], "plan_cache_mode": mode}.items():
            connection.execute(f"SET {setting} = '{value}'")
        connection.execute(f"PREPARE it AS {statement.text.replace('%', '%%')}")
        values = bind(statement, {"b": ids(BATCH)})
        connection.execute(f"EXECUTE it({', '.join(['%s'] * len(values))})", values)
        read = dict(connection.execute(counted).fetchall())
        left = connection.execute("SELECT count(*) FROM workflow.workflow_step").fetchone()
        connection.rollback()
    assert left == (2 * (RUNS - BATCH),)
    assert set(read.values()) == {0}, "a table was read from end to end"
