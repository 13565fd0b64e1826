"""The depth of the queue: right where it is small, bounded where it is large, and blind to what is not in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from support.ledger import Raw, claim, create, define, leased, new, offer, settle, succeeded, sweep
from test_plans import Session, buffers, nodes

from simpleworkflow.model.names import EVERYTHING
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.catalog import statements
from simpleworkflow.store.drivers.postgres import _PLANNER
from simpleworkflow.store.drivers.sqlite_values import bind
from simpleworkflow.store.operations import runs, workers
from simpleworkflow.store.operations.queue_depth import BUDGET, queue_depth, types_of
from simpleworkflow.store.protocol import query

A, B, C = "a.work.v1", "b.work.v1", "c.work.v1"


async def test_an_empty_queue_has_no_depth(ledger: Ledger) -> None:
    depth = await ledger.run(queue_depth())
    assert (depth.runs, depth.late, depth.oldest, depth.capped, depth.overdue) == ({}, {}, {}, set(), 0)


async def test_open_runs_are_counted_by_type_and_status(ledger: Ledger, raw: Raw) -> None:
    await create(ledger, *(new(type=A) for _ in range(3)), new(type=A, priority=5), new(type=B, delay=3600.0))
    sleeper = await leased(ledger, C)
    raw.pause(sleeper.id, due=True)
    await leased(ledger, "d.work.v1")
    await settle(ledger, succeeded(await leased(ledger, "e.done.v1")))
    depth = await ledger.run(queue_depth())
    assert depth.runs == {
        (A, Status.PENDING): 4,
        (B, Status.PENDING): 1,
        (C, Status.PAUSED): 1,
        ("d.work.v1", Status.LEASED): 1,
    }
    assert depth.oldest.keys() == {A, C}, "the other one is not due yet"
    assert depth.capped == set()


async def test_held_runs_and_those_that_only_an_event_can_wake_are_not_in_the_queue(ledger: Ledger, raw: Raw) -> None:
    (held,) = await create(ledger, type=A)
    await ledger.run(runs.hold([held], "wait"))
    waiting = await leased(ledger, B)
    raw.pause(waiting.id)
    assert (await ledger.run(queue_depth())).runs == {}


async def test_suspects_are_counted_with_the_others(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger, A)
    raw.age(lease.id, 3600, "lease_until")
    await sweep(ledger)
    await create(ledger, type=A)
    depth = await ledger.run(queue_depth())
    assert depth.runs == {(A, Status.PENDING): 2}


async def test_late_runs_and_the_oldest_of_each_type_are_told(ledger: Ledger, raw: Raw) -> None:
    old, older, _ = await create(ledger, new(type=A), new(type=A, priority=7), new(type=A))
    await create(ledger, type=B)
    raw.age(old, 100, "run_at")
    raw.age(older, 500, "run_at")
    depth = await ledger.run(queue_depth())
    assert depth.late == {A: 2, B: 0}
    assert 500 <= depth.oldest[A] < 560
    assert 0 <= depth.oldest[B] < 60


async def test_a_disabled_type_is_in_the_queue_but_never_late(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, A)
    (run_id,) = await create(ledger, type=A)
    raw.age(run_id, 500, "run_at")
    await ledger.run(workers.enable(A, False))
    depth = await ledger.run(queue_depth())
    assert depth.runs == {(A, Status.PENDING): 1}
    assert depth.late == {}
    assert depth.oldest == {}


async def test_runs_past_their_deadline_are_overdue_until_a_sweep_ends_them(ledger: Ledger, raw: Raw) -> None:
    (unstarted,) = await create(ledger, type=A, start_within=10.0)
    (run_id,) = await create(ledger, type=B)
    taken = await claim(ledger, offer(B, timeout=60))
    assert [lease.id for lease in taken] == [run_id]
    assert (await ledger.run(queue_depth())).overdue == 0
    raw.age(run_id, 100, "deadline_at")
    raw.age(unstarted, 100, "start_by")
    assert (await ledger.run(queue_depth())).overdue == 2


async def test_large_queues_share_the_budget_and_are_marked(ledger: Ledger) -> None:
    sizes = {A: 40, B: 3, C: 60}
    await create(ledger, *(new(type=type) for type, size in sizes.items() for _ in range(size)))
    depth = await ledger.run(queue_depth(budget=83))
    assert depth.runs == {(A, Status.PENDING): 40, (B, Status.PENDING): 3, (C, Status.PENDING): 40}
    assert depth.capped >= {C}
    assert B not in depth.capped
    depth = await ledger.run(queue_depth(budget=1000))
    assert {type: count for (type, _), count in depth.runs.items()} == sizes
    assert depth.capped == set()


async def test_types_of_swept_runs_are_counted_by_status(ledger: Ledger) -> None:
    ids = await create(ledger, new(type=A), new(type=A), new(type=B))
    await settle(ledger, succeeded((await claim(ledger, offer(B)))[0]))
    assert await ledger.run(types_of(ids)) == {(A, Status.PENDING): 2, (B, Status.SUCCEEDED): 1}


LOAD = """
INSERT INTO workflow.workflow_run (type, priority, status, run_at, finished_at, created_at)
SELECT 'load.t' || n % 3 || '.v1', 100 + n % 2, CASE WHEN n % 4 = 0 THEN 'succeeded' ELSE 'pending' END,
       now() - interval '1 hour', CASE WHEN n % 4 = 0 THEN now() END, now()
FROM generate_series(1, 60000) n"""
MOST = 500
TYPES = [(f"load.t{n}.v1",) for n in range(3)]


@pytest.fixture
def backlog(postgres_url: str) -> str:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(LOAD)
        connection.execute("VACUUM ANALYZE workflow.workflow_run")
    return postgres_url


@pytest.mark.parametrize("settings", [_PLANNER, {}], ids=["driver", "default"])
def test_the_price_follows_the_budget_and_not_the_backlog(backlog: str, settings: dict[str, str]) -> None:
    session = Session(backlog, settings)
    for name, parameters in (
        ("count_queue", {"t": TYPES, "most": MOST, "late": 60_000_000}),
        ("count_suspects", {"t": TYPES, "most": MOST, "late": 60_000_000}),
        ("count_leased", {"most": MOST}),
        ("count_overdue", {"most": MOST}),
    ):
        plan = session.explain(name, **parameters)
        assert not [node for node in nodes(plan) if node["Node Type"] == "Seq Scan"], name
        assert buffers(plan) <= 2 * MOST * len(TYPES) + 50, name
    session.close()


async def test_the_whole_reading_counts_no_more_than_its_budget(backlog: str) -> None:
    ledger = open_ledger(backlog)
    depth = await ledger.run(queue_depth(budget=300))
    assert sum(depth.runs.values()) == 300
    assert depth.capped == {type for (type,) in TYPES}
    assert min(depth.oldest.values()) >= 3600
    assert sum((await ledger.run(queue_depth())).runs.values()) <= BUDGET
    await ledger.close()


def test_finding_the_lanes_of_a_deep_queue_reads_no_lane_to_its_end_on_sqlite(tmp_path: Path) -> None:
    """Counted in steps of SQLite's machine: a walk over the lanes takes a few hundred, over the runs a million."""
    path = str(tmp_path / "deep.db")
    asyncio.run(_migrate(path))
    raw = Raw(path)
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    raw.sql(
        f"INSERT INTO workflow_run (type, priority, run_at) {rows} SELECT 'load.t' || i % 2, i % 2, 1000000 + i FROM n"
    )
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 100

    raw.connection.set_progress_handler(count, 100)
    for name in ("find_lanes", "find_suspect_lanes"):
        statement = statements("sqlite")[name]
        wanted = query(name, span=[(EVERYTHING.low, -1, EVERYTHING.high)], limit=100)
        found = raw.connection.execute(statement.text, bind(statement, wanted, 10**15)).fetchall()
        assert len(found) == (2 if name == "find_lanes" else 0)
    assert steps < 3000
    raw.close()


async def _migrate(path: str) -> None:
    ledger = open_ledger(path)
    await ledger.check()
    await ledger.close()
