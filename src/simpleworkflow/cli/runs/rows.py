"""Runs as rows of a table, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rich.text import Text

from ...model.names import child_of
from ...model.records import Run, Step
from ...model.states import Status, StepKind
from ..common.output import safe
from ..screen.table import Column, print_table
from ..screen.text import first_line, length, status_text, when

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = (
    Column("run", enough=13),
    Column("type", is_flexible=True),
    Column("status"),
    Column("created", leaves=2),
    Column("took", is_right=True, leaves=1),
    Column("note", is_flexible=True, leaves=3),
)


def print_runs(
    runs: Iterable[Run],
    out: Console,
    now: datetime,
    indent: str = "",
    waits: Mapping[UUID, Sequence[Step]] | None = None,
) -> None:
    """`waits`: what the paused ones wait for, where the caller has read it."""
    awaited = waits or {}
    print_table(COLUMNS, [_row(run, now, awaited.get(run.id, ())) for run in runs], out, indent)


def _row(run: Run, now: datetime, waits: Sequence[Step]) -> list[str | Text]:
    return [
        str(run.id),
        safe(run.type),
        status_text(run.status, is_held=run.is_held, is_deleted=run.deleted_at is not None),
        when(run.created_at),
        took(run, now),
        _note(run, waits),
    ]


def took(run: Run, now: datetime) -> str:
    """From the first claim to the end, or until now; empty before the run has started."""
    if run.started_at is None:
        return ""
    return length(max(0.0, ((run.finished_at or now) - run.started_at).total_seconds()))


def _note(run: Run, waits: Sequence[Step]) -> str:
    """What an operator wants to know next."""
    if run.is_finished:
        return "" if run.status is Status.SUCCEEDED else first_line(run.last_error or "")
    if run.is_held:
        return first_line(run.hold_reason or "")
    if run.status is Status.LEASED:
        return f"on {safe(run.leased_by or '')}"
    if run.status is Status.PAUSED and (awaited := _awaited(waits)):
        return awaited
    if run.run_at is None:
        return "waits for an event"
    tried = f"; {run.attempt + run.crashes} failed: {first_line(run.last_error or '')}" if run.last_error else ""
    return f"due {when(run.run_at)}{tried}"


def _awaited(waits: Sequence[Step]) -> str:
    """A signal first: somebody has to send it."""
    for wait in waits:
        if wait.kind is StepKind.SIGNAL:
            until = f" until {when(wait.due_at)}" if wait.due_at else ""
            name = wait.step_id.partition("#")[0].rpartition("/")[2]
            return f"waits for signal {safe(name)}{until}"
    children = sum(child_of(wait.step_id) is not None for wait in waits)
    return "waits for a child" if children == 1 else "waits for children" if children else ""


def run_json(run: Run) -> dict[str, Any]:
    """Every field; payload, result and error as JSON values."""
    plain = {field.name: getattr(run, field.name) for field in fields(Run) if not field.name.endswith("_json")}
    return {**plain, "payload": run.payload, "result": run.result, "error": run.error}
