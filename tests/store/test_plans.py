"""The plans of the hot statements on PostgreSQL: their cost follows the batch, never the backlog.

The exact texts of the catalogue are prepared, as the driver does it, and explained with real buffers on a backlog of
two thousand runs and of two hundred thousand: future runs, finished ones, crashed ones, several types and priorities.
They must hold with the driver's session settings, one plan for all values, and with a server's defaults, which is what
a pooler may hand us.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from support.ledger import LEASE_US, Raw, offer
from support.postgres import Server

from simpleworkflow.model.moves import Result
from simpleworkflow.model.names import EVERYTHING
from simpleworkflow.store.catalog import statements
from simpleworkflow.store.drivers.postgres import _PLANNER, bind
from simpleworkflow.store.operations import written_rows

SMALL, LARGE = 2_000, 200_000
BATCH = 100
TYPES, PRIORITIES = 5, 2
LANES = TYPES * PRIORITIES
SETTINGS: dict[str, dict[str, str]] = {"driver": _PLANNER, "default": {}}
HOT = statements("postgres")

LOAD = """
INSERT INTO workflow.workflow_run (type, priority, status, run_at, finished_at, crashes, created_at, payload)
SELECT 'load.t' || n %% {types} || '.v1', 100 + (n / 7) %% {priorities},
       CASE WHEN n %% 10 < 5 THEN 'pending' ELSE 'succeeded' END,
       now() - interval '1 hour' + (n %% 10 - 1) * interval '40 minutes',
       CASE WHEN n %% 10 >= 5 THEN now() END, CASE WHEN n %% 50 = 0 THEN 1 ELSE 0 END, now(),
       json_build_object('n', n, 'text', repeat('x', 100))
FROM generate_series(1, %s) n"""


UNTOUCHED = "ALTER TABLE workflow.{table} SET (autovacuum_enabled = false)"
"""On a busy machine autovacuum comes while the tests run, and finds the tables empty that they leave empty."""


def load(url: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("workflow_run", "workflow_event", "workflow_step", "outbox_event", "workflow_signal"):
            connection.execute(UNTOUCHED.format(table=table))
        connection.execute("SET session_replication_role = replica")  # no events: they are not what is measured
        connection.execute(LOAD.format(types=TYPES, priorities=PRIORITIES), [rows])
        connection.execute("VACUUM ANALYZE workflow.workflow_run")


@pytest.fixture(scope="module")
def backlogs(postgres: Server) -> Iterator[dict[int, str]]:
    made = {}
    for rows in (SMALL, LARGE):
        name = f"swf_backlog_{rows}"
        postgres.create_database(name, template="template_swf")
        made[rows] = postgres.url(name)
        load(made[rows], rows)
    yield made
    for rows in made:
        postgres.drop_database(f"swf_backlog_{rows}")


class Session:
    """A connection that explains catalogue statements in a transaction which is taken back."""

    def __init__(self, url: str, settings: dict[str, str]) -> None:
        self.connection = psycopg.connect(url)
        for name, value in settings.items():
            self.connection.execute(f"SET {name} = '{value}'")

    def explain(self, name: str, **parameters: Any) -> dict[str, Any]:
        statement = HOT[name]
        values = bind(statement, parameters)
        self.connection.execute(f"PREPARE explained AS {statement.text}".encode())
        execute = f"EXECUTE explained ({', '.join(['%s'] * len(values))})" if values else "EXECUTE explained"
        cursor = psycopg.ClientCursor(self.connection)
        (row,) = cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}", values).fetchall()
        self.connection.execute("DEALLOCATE explained")
        plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
        found: dict[str, Any] = plan[0]["Plan"]
        return found

    def fetch(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        statement = HOT[name]
        values = bind(statement, parameters)
        order = [int(number) - 1 for number in re.findall(r"\$(\d+)", statement.text)]
        text = re.sub(r"\$\d+", "%s", statement.text.replace("%", "%%"))
        return self.connection.execute(text, [values[place] for place in order]).fetchall()

    def close(self) -> None:
        self.connection.rollback()
        self.connection.close()


@pytest.fixture(params=sorted(SETTINGS))
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return SETTINGS[request.param]


def buffers(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def rows_of(plan: dict[str, Any], node: str) -> int:
    return max(int(one["Actual Rows"]) for one in nodes(plan) if one.get("Node Type") == node)


LANE_WALK: dict[str, Any] = {"span": [("", -1, EVERYTHING.high)], "limit": 64}


def walked(url: str, settings: dict[str, str]) -> tuple[int, int]:
    """Buffers of finding the lanes and of claiming a batch from them."""
    session = Session(url, settings)
    found = session.fetch("find_lanes", **LANE_WALK)
    assert len(found) == LANES
    offers = [offer(type, priority) for type, priority, due, _ in found if due]
    assert offers
    find = session.explain("find_lanes", **LANE_WALK)
    claim = session.explain("claim_lanes", lane=offers, limit=BATCH, worker="w1")
    assert rows_of(claim, "ModifyTable") == BATCH
    session.close()
    return buffers(find), buffers(claim)


def test_finding_and_claiming_cost_the_same_whatever_the_backlog(
    backlogs: dict[int, str], settings: dict[str, str]
) -> None:
    find_small, claim_small = walked(backlogs[SMALL], settings)
    find_large, claim_large = walked(backlogs[LARGE], settings)
    assert find_large <= 10 * LANES, "about three pages of the index per lane"
    assert claim_large <= 40 * BATCH + 10 * LANES
    assert find_large <= 1.5 * find_small + 2 * LANES
    assert claim_large <= 1.5 * claim_small + 2 * BATCH


def test_finding_lanes_of_many_spans_costs_by_the_lane(backlogs: dict[int, str], settings: dict[str, str]) -> None:
    session = Session(backlogs[LARGE], settings)
    spans = [(f"load.t{n}.v1", -1, f"load.t{n}.v1\x01") for n in range(TYPES)]
    plan = session.explain("find_lanes", **{**LANE_WALK, "span": spans})
    assert rows_of(plan, "Limit") >= 1
    assert buffers(plan) <= 10 * (LANES + TYPES)
    session.close()


def leases(session: Session) -> list[tuple[Any, int]]:
    rows = session.fetch("claim_lanes", lane=[offer("load.t1.v1", 100)], limit=BATCH, worker="w1")
    assert len(rows) == BATCH
    return sorted((row[0], row[2]) for row in rows)


def settled(lease: tuple[Any, int]) -> tuple[Any, ...]:
    return (*lease, "succeeded", "succeeded", 1, 1000, 0, 0, 0, "1", None, None, None, None)


def recorded(lease: tuple[Any, int], number: int) -> tuple[Any, ...]:
    return (*lease, f"step#{number}", "step", "succeeded", 0, 1000, None, None, "1", None)


OURS = {"worker": "w1"}
BY_LEASE: dict[str, Any] = {
    "finish_counted": lambda held: {"b": [(*lease, 1000, "1") for lease in held], "telling": True} | OURS,
    "record_results": lambda held: (
        written_rows.in_columns([Result(*lease, "step#1", 0.001, None, "1") for lease in held]) | OURS
    ),
    "record_fenced": lambda held: {"s": [recorded(lease, 1) for lease in held]} | OURS,
    "pause_runs": lambda held: {"b": [(*lease, 0, 1000) for lease in held]} | OURS,
    "progress_runs": lambda held: {"b": [(run_id,) for run_id, _ in held]},
    "settle_runs": lambda held: {"b": [settled(lease) for lease in held]} | OURS,
    "renew_leases": lambda held: {"b": [(*lease, LEASE_US) for lease in held]} | OURS,
    "lock_leases": lambda held: {"b": held} | OURS,
    "lock_free_leases": lambda held: {"b": held} | OURS,
    "lease_states": lambda held: {"b": held} | OURS,
    "lock_runs": lambda held: {"b": [(run_id,) for run_id, _ in held]},
    "get_runs": lambda held: {"b": [(run_id,) for run_id, _ in held]},
}


@pytest.mark.parametrize("name", BY_LEASE)
def test_a_workers_writes_reach_runs_by_primary_key_only(
    backlogs: dict[int, str], settings: dict[str, str], name: str
) -> None:
    session = Session(backlogs[LARGE], settings)
    plan = session.explain(name, **BY_LEASE[name](leases(session)))
    scans = [
        node for node in nodes(plan) if node.get("Relation Name") == "workflow_run" and "Scan" in node["Node Type"]
    ]
    assert scans
    assert {node.get("Index Name") for node in scans} <= {"workflow_run_pkey"} | (
        {None} if any(node["Node Type"].startswith("Bitmap") for node in scans) else set()
    )
    assert not [node for node in nodes(plan) if node["Node Type"] in {"Seq Scan", "Hash Join", "Merge Join"}]
    assert not [node for node in nodes(plan) if node.get("Index Name") == "workflow_run_leased"]
    assert buffers(plan) <= 60 * BATCH
    session.close()


def test_what_comes_back_unstarted_is_looked_up_run_by_run(backlogs: dict[int, str], settings: dict[str, str]) -> None:
    """Whether it has ever begun: its own events and steps say so, and nobody else's are read."""
    session = Session(backlogs[LARGE], settings)
    back = [(*lease, "pending", "released", 0, 0, 0, 0, 1, None, None, None, None, None) for lease in leases(session)]
    plan = session.explain("settle_runs", b=back, **OURS)
    looks = [
        n for n in nodes(plan) if n.get("Relation Name") in {"workflow_event", "workflow_step"} and "Plans" not in n
    ]
    looks = [n for n in looks if "Scan" in n["Node Type"]]
    assert len(looks) >= 2
    assert all("Index Cond" in look for look in looks), looks
    assert sum(n["Actual Loops"] for n in looks) >= BATCH
    assert not [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"]
    assert buffers(plan) <= 120 * BATCH
    session.close()


@pytest.fixture(scope="module")
def young(postgres: Server) -> Iterator[str]:
    """A database in which a hundred runs have just been created: nobody has counted its rows yet."""
    name = "swf_young"
    postgres.create_database(name, template="template_swf")
    url = postgres.url(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(LOAD.format(types=1, priorities=1), [2 * BATCH])
    yield url
    postgres.drop_database(name)


@pytest.mark.parametrize("name", BY_LEASE)
def test_a_plan_made_while_the_table_was_small_does_not_read_all_of_it(young: str, name: str) -> None:
    """Such a plan is kept by the connection, and the table grows under it."""
    session = Session(young, _PLANNER)
    rows = session.fetch("claim_lanes", lane=[offer("load.t0.v1", 100)], limit=BATCH // 4, worker="w1")
    plan = session.explain(name, **BY_LEASE[name](sorted((row[0], row[2]) for row in rows)))
    scans = [n for n in nodes(plan) if n.get("Relation Name") == "workflow_run" and "Scan" in n["Node Type"]]
    assert scans
    assert all("Index Cond" in scan or "TID Cond" in scan for scan in scans), scans
    assert sum(n.get("Rows Removed by Join Filter", 0) for n in nodes(plan)) == 0
    session.close()


def test_the_sweep_reads_leases_and_not_the_backlog(backlogs: dict[int, str], settings: dict[str, str]) -> None:
    session = Session(backlogs[LARGE], settings)
    leases(session)
    taking_back = {"w": [("gone",)], "x": [], "limit": BATCH, "unit": 1_000_000, "me": ""}
    for name, parameters in (
        ("crashed_in_company", {"w": [("gone",)], "me": ""}),
        ("crash_runs", taking_back),
        ("hold_spent_runs", taking_back),
        ("give_up_runs", taking_back),
        ("expire_deadlines", {"limit": BATCH, "grace": 0}),
        ("expire_unstarted", {"limit": BATCH, "grace": 0}),
        ("lease_holders", {}),
    ):
        plan = session.explain(name, **parameters)
        assert buffers(plan) <= 10 * BATCH, name
    session.close()


def test_histories_are_written_and_read_by_key(backlogs: dict[int, str], settings: dict[str, str]) -> None:
    """Many runs have histories; a claim of a hundred reads the hundred's, in one query, and a flush adds to them."""
    session = Session(backlogs[LARGE], settings)
    session.connection.execute(
        "INSERT INTO workflow.workflow_step (run_id, lease_epoch, kind, status, step_id, completed_at)"
        " SELECT id, 1, 'step', 'succeeded', 'old#' || n, now()"
        " FROM (SELECT id FROM workflow.workflow_run LIMIT 20000) AS r, generate_series(1, 5) AS n"
    )
    session.connection.execute("SET session_replication_role = replica")  # many runs have ended and take no signals
    session.connection.execute(
        "INSERT INTO workflow.workflow_signal (run_id, seq, name)"
        " SELECT id, nextval('workflow.workflow_event_id_seq'), 'go' FROM workflow.workflow_run LIMIT 20000"
    )
    session.connection.execute("SET session_replication_role = origin")
    session.connection.execute(
        "INSERT INTO workflow.workflow_event (workflow_id, lease_epoch, event_type) SELECT id, 1, 'created'"
        " FROM (SELECT id FROM workflow.workflow_run LIMIT 20000) AS r, generate_series(1, 3)"
    )
    session.connection.execute("ANALYZE workflow.workflow_step, workflow.workflow_signal, workflow.workflow_event")
    held = leases(session)
    runs = {"b": [(run_id,) for run_id, _ in held]}
    for name, parameters in (
        ("load_steps", runs),
        ("load_signals", runs),
        ("record_steps", {"b": [recorded(lease, n) for lease in held for n in range(2)]}),
        ("clear_steps", {"b": [(run_id, "step#0") for run_id, _ in held]}),
    ):
        plan = session.explain(name, **parameters)
        assert not [node for node in nodes(plan) if node["Node Type"] in {"Seq Scan", "Hash Join", "Merge Join"}], name
        assert buffers(plan) <= 40 * BATCH, (name, buffers(plan))
    plan = session.explain("history_of_run", run_id=held[0][0], after=0, limit=1000)
    tables = {node.get("Relation Name") for node in nodes(plan) if node["Node Type"] == "Seq Scan"}
    assert not tables, f"one run's history reads all of {tables}"
    session.connection.rollback()
    session.close()


def test_renewals_stay_on_their_page(postgres_url: str) -> None:
    """Heap-only updates: no index entry is written, so renewing all day leaves the indexes as they were.

    A few runs among many, as a worker holds them: a page that is full of leased runs has no room for all of them.
    """
    raw = Raw(postgres_url)
    raw.sql("INSERT INTO workflow.workflow_run (type) SELECT 'load.t1.v1' FROM generate_series(1, 50)")
    raw.close()
    session = Session(postgres_url, {})
    lane = [offer("load.t1.v1", 100)]
    held = sorted((row[0], row[2]) for row in session.fetch("claim_lanes", lane=lane, limit=5, worker="w1"))
    session.connection.commit()

    statistics = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'workflow_run'"
    before = session.connection.execute(statistics).fetchone() or (0, 0)
    assert len(session.fetch("renew_leases", b=[(*lease, LEASE_US) for lease in held], **OURS)) == 5
    after = session.connection.execute(statistics).fetchone() or (0, 0)
    assert (after[0] - before[0], after[1] - before[1]) == (5, 5)
    session.close()
