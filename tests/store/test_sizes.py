"""How large the tables are, as a scrape tells it: right, without reading a row, and never at the queue's expense."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.ledger import Raw, create, new

from simpleworkflow.runtime.meter import Meter
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations.sizes import Sizes, table_sizes
from simpleworkflow.worker import metrics
from simpleworkflow.worker.metrics_database import QueueReader, Reading

GROWING = {"workflow_run", "workflow_step", "workflow_event", "workflow_signal", "outbox_event"}


def told(sizes: Sizes | None) -> dict[tuple[str, ...], metrics.Value]:
    samples = metrics.read(Meter(lambda _: None), "w1", lambda: metrics.Vitals(1, 0, 0, 0, 0), Reading(sizes=sizes))
    names = ("workflow_table_", "workflow_database_bytes", "workflow_database_free_bytes")
    return {(one.name, *one.labels): one.value for one in samples if one.name.startswith(names)}


async def test_sizes_grow_with_the_work_and_are_told_as_metrics(ledger: Ledger, raw: Raw, url: str) -> None:
    before = await ledger.run(table_sizes())
    await create(ledger, *(new(payload='"' + "x" * 500 + '"') for _ in range(400)))
    if not raw.is_sqlite:
        raw.sql("ANALYZE workflow.workflow_run")
    sizes = await ledger.run(table_sizes())
    assert sizes.bytes >= before.bytes + 400 * 500
    exported = told(sizes)
    assert exported.pop(("workflow_database_bytes",)) == sizes.bytes
    if raw.is_sqlite:
        raw.sql("PRAGMA wal_checkpoint(TRUNCATE)")
        assert sizes.bytes == os.path.getsize(url)
        assert exported == {("workflow_database_free_bytes",): 0}
        return
    assert sizes.tables.keys() == sizes.rows.keys() == GROWING
    assert sum(sizes.tables.values()) == sizes.bytes
    (counted,) = raw.sql("SELECT pg_total_relation_size('workflow.workflow_run') AS n")
    assert exported["workflow_table_bytes", "workflow_run"] == counted["n"]
    assert exported["workflow_table_rows", "workflow_run"] == 400
    assert len(exported) == 2 * len(GROWING)


async def test_what_a_sqlite_file_has_free_is_told(tmp_path: Path) -> None:
    ledger = open_ledger(str(tmp_path / "free.db"))
    await create(ledger, *(new(payload='"' + "x" * 500 + '"') for _ in range(400)))
    raw = Raw(str(tmp_path / "free.db"))
    raw.sql("DELETE FROM workflow_run")
    raw.close()
    sizes = await ledger.run(table_sizes())
    assert 400 * 500 <= (sizes.free or 0) < sizes.bytes
    assert told(sizes)["workflow_database_free_bytes",] == sizes.free
    await ledger.close()


async def test_a_table_that_is_being_rewritten_does_not_hide_the_queue(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """VACUUM FULL holds such a lock for as long as it takes."""
    ledger, _ = pg
    await create(ledger)
    other.execute("LOCK TABLE workflow.workflow_event IN ACCESS EXCLUSIVE MODE")
    monkeypatch.setattr("simpleworkflow.worker.metrics_database.SIZES_TIMEOUT", 0.2)
    reading = await asyncio.wait_for(QueueReader(ledger).read(), 5)
    assert reading.depth is not None
    assert sum(reading.depth.runs.values()) == 1
    assert reading.sizes is None
    assert told(reading.sizes) == {}
    other.rollback()
    again = await QueueReader(ledger).read()
    assert again.sizes is not None
