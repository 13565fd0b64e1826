"""Runs that ended long ago, with everything that can hang on one, written by plain SQL: nobody waits for 30 days.

Their ids are of the time that they ended, as real ones would be: pruning leaps over ids that are too young to be old.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from simpleworkflow.model.retention import PruneResult, Retention, rules_of
from simpleworkflow.runtime.pruning import Pass
from simpleworkflow.store import Ledger
from support.ledger import TYPE, Raw

DAY = 86_400.0
OWNED = {"workflow_step": "run_id", "workflow_signal": "run_id", "workflow_event": "workflow_id"}
OWNED |= {"outbox_event": "aggregate_id"}


def id_of_then(ago: float) -> UUID:
    """An id of version 7 that was made so many seconds ago."""
    milliseconds = round((time.time() - ago) * 1000)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (secrets.randbits(12) << 64) | (2 << 62) | secrets.randbits(62))


def ended(
    raw: Raw,
    ago: float,
    *,
    type: str = TYPE,
    status: str = "succeeded",
    id: UUID | None = None,
    deleted: float | None = None,
    outbox: str | None = "published",
    **columns: Any,
) -> UUID:
    """A run that ended so many seconds ago (`deleted`: and was deleted then), with a step, a signal, events and an
    outbox event."""
    run_id = id or id_of_then(ago + 60)
    then = f"{raw.now} {raw.back(ago)}"
    gone = "NULL" if deleted is None else f"{raw.now} {raw.back(deleted)}"
    names = "".join(f", {name}" for name in columns)
    raw.sql("BEGIN")
    raw.sql(
        f"INSERT INTO workflow.workflow_run (id, type, status, created_at, finished_at, deleted_at{names}) "
        f"VALUES (?, ?, ?, {then}, {then}, {gone}{', ?' * len(columns)})",
        run_id,
        type,
        status,
        *columns.values(),
    )
    furnish(raw, run_id, outbox)
    raw.sql("COMMIT")
    return run_id


def still_open(raw: Raw, ago: float, **columns: Any) -> UUID:
    """A run that was made so long ago and waits ever since."""
    run_id = id_of_then(ago)
    names = "".join(f", {name}" for name in columns)
    raw.sql(
        f"INSERT INTO workflow.workflow_run (id, type, created_at, run_at{names}) "
        f"VALUES (?, ?, {raw.now} {raw.back(ago)}, {raw.now} {raw.back(-DAY)}{', ?' * len(columns)})",
        run_id,
        TYPE,
        *columns.values(),
    )
    furnish(raw, run_id, None)
    return run_id


def furnish(raw: Raw, run_id: UUID, outbox: str | None) -> None:
    raw.sql(
        "INSERT INTO workflow.workflow_step (run_id, seq, lease_epoch, kind, status, step_id, completed_at) "
        f"VALUES (?, 1, 1, 'step', 'succeeded', 'charge#1', {raw.now})",
        run_id,
    )
    signal = "INSERT INTO workflow.workflow_signal (id, run_id, seq, name, created_at) VALUES (?, ?, 1, 'go', "
    with raw.without_triggers("workflow_signal"):  # it came while the run was open
        raw.sql(f"{signal}{raw.now})", id_of_then(0), run_id)
    raw.sql(
        "INSERT INTO workflow.workflow_event (workflow_id, lease_epoch, event_type) VALUES (?, 1, 'leased')", run_id
    )
    if outbox is not None:
        raw.sql(
            "INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload, created_at, published_at) "
            f"VALUES (?, 1, 'told', '{{}}', {raw.now}, {raw.now if outbox == 'published' else 'NULL'})",
            run_id,
        )


def owned(raw: Raw, run_id: UUID) -> dict[str, int]:
    """How many rows each table has of a run."""
    return {
        table: raw.sql(f"SELECT count(*) AS n FROM workflow.{table} WHERE {column} = ?", run_id)[0]["n"]
        for table, column in OWNED.items()
    }


def orphans(raw: Raw) -> dict[str, int]:
    """Rows of runs that do not exist."""
    return {
        table: n
        for table, column in OWNED.items()
        if (
            n := raw.sql(
                f"SELECT count(*) AS n FROM workflow.{table} t "
                f"WHERE NOT EXISTS (SELECT 1 FROM workflow.workflow_run r WHERE r.id = t.{column})"
            )[0]["n"]
        )
    }


def left(raw: Raw) -> set[UUID]:
    return {UUID(str(row["id"])) for row in raw.sql("SELECT id FROM workflow.workflow_run")}


async def no_rest(_: float) -> None:
    pass


def a_pass(ledger: Ledger, keeps: Iterable[Retention], *, later: float = 0.0, **rest: Any) -> Pass:
    """A pass that does not rest; `later`: as if its walk were made in so many seconds."""
    now = ledger.clock.wall() + round(later * 1e6)
    return Pass(ledger.run, rules_of(keeps), now, **{"rest": no_rest, **rest})


async def prune(ledger: Ledger, *keeps: Retention, **rest: Any) -> PruneResult:
    walk = a_pass(ledger, keeps, **rest)
    while await walk.go_on():
        pass
    return walk.done
