"""What must hold after every step: the database says what the law says, and keeps the invariants on its own.

The second half asks the database alone, so that a mistake which the law shares is still found.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from support.ledger import check_invariants, check_path

from machine.law import FAN_OUT_WAIT, Law, Run
from machine.world import Rows, World
from simpleworkflow.model.states import OPEN, TERMINAL, Status

ENDS = {status.value for status in TERMINAL}


def check(law: Law, world: World) -> None:
    rows = world.rows()
    assert set(rows.runs) == set(law.runs), "exactly the runs that were created exist"
    for run_id, run in law.runs.items():
        _check_run(run, rows.runs[run_id], world)
        _check_memo(run, rows)
        _check_story(run, rows.runs[run_id], rows)
    for run_id, row in rows.runs.items():
        if row["parent_id"] is not None:
            _check_family(rows, UUID(str(row["parent_id"])), run_id, world, law.now)


def _check_run(run: Run, row: dict[str, Any], world: World) -> None:
    check_invariants(row)
    said = {
        "status": run.status.value,
        "type": run.type,
        "payload": run.payload,
        "idempotency_key": run.key,
        "attempt": run.attempt,
        "crashes": run.crashes,
        "max_attempts": run.max_attempts,
        "lease_epoch": run.epoch,
        "leased_by": run.worker,
        "started": run.started,
        "held": run.held,
        "deleted": run.deleted,
    }
    found = {name: row[name] for name in said if name in row} | {
        "payload": str(row["payload"]),
        "max_attempts": None if row["attempts_unset"] and row["lease_epoch"] == 0 else row["max_attempts"],
        "started": row["started_at"] is not None,
        "held": row["held_at"] is not None,
        "deleted": row["deleted_at"] is not None,
    }
    assert found == said, f"{run.id}: {run.events}"
    assert (row["parent_id"] and UUID(str(row["parent_id"]))) == run.parent
    # A run that ends together with a child may or may not have been woken by it first; nobody can tell any more.
    assert row["wakes"] == run.wakes if run.is_open else row["wakes"] >= run.wakes, f"{run.id}: {run.events}"
    run.wakes = row["wakes"]
    if run.is_open:
        for name in ("run_at", "lease_until", "start_by"):
            _check_instant(world, name, row[name], getattr(run, name), run)
        _check_instant(world, "deadline_at", row["deadline_at"], run.deadline, run)


def _check_instant(world: World, name: str, value: Any, said: float | None, run: Run) -> None:
    found = world.instant(value)
    if found is None or said is None:
        assert found == said, f"{name} is {found}, the law says {said}: {run.events}"
    else:
        assert abs(found - said) <= world.slack + 1e-5, f"{name} is {found}, the law says {said}: {run.events}"


def _check_memo(run: Run, rows: Rows) -> None:
    steps = {
        row["step_id"]: (row["kind"], row["status"], row["attempt"], _text(row["output"]), row["lease_epoch"])
        for row in rows.steps[run.id]
    }
    assert steps == {
        name: (step.kind, step.status, step.attempt, step.output, step.epoch) for name, step in run.steps.items()
    }
    signals = [(UUID(str(row["id"])), row["name"], row["consumed_by"]) for row in rows.signals[run.id]]
    assert signals == [(signal.id, signal.name, signal.consumed_by) for signal in run.signals]
    assert all((row["consumed_at"] is None) == (row["consumed_by"] is None) for row in rows.signals[run.id])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _check_story(run: Run, row: dict[str, Any], rows: Rows) -> None:
    """The events are a path through the table of moves that ends where the run stands, and each one was predicted."""
    story = [event["event_type"] for event in rows.events[run.id]]
    assert check_path(story) == row["status"], story
    assert story.count("leased") == row["lease_epoch"], story
    assert story == run.events


def _check_family(rows: Rows, parent_id: UUID, child_id: UUID, world: World, now: float) -> None:
    parent, child = rows.runs[parent_id], rows.runs[child_id]
    child_ended, parent_ended = _last(rows, child_id, ENDS), _last(rows, parent_id, ENDS)
    if child["status"] in OPEN and parent["status"] in ENDS - {Status.SUCCEEDED.value}:
        assert _last(rows, child_id, {"retried"}) > parent_ended, "an open child under a parent that ended"
    if parent["status"] == Status.PAUSED.value and child_ended > _last(rows, parent_id, {"paused"}):
        due = world.instant(parent["run_at"])
        assert due is not None, "a child ended, and its parent sleeps"
        assert due <= now + FAN_OUT_WAIT + world.slack, "a child ended, and its parent sleeps on"


def _last(rows: Rows, run_id: UUID, types: set[str]) -> int:
    """The place of the latest such event in the audit trail, or 0."""
    return max((event["id"] for event in rows.events[run_id] if event["event_type"] in types), default=0)
