"""Runs as lines and as JSON: what `runs list`, `runs show` and the commands that change runs print of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rich.text import Text

from ..model.names import child_of
from ..model.records import Run, Step
from ..model.states import Status, StepKind
from .common.output import safe
from .screen.table import Column, print_table
from .screen.text import first_line, length, status_text, when

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
    """`waits`: what those that are paused wait for, as far as it was asked."""
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
    """From the claim by which it started to its end, or until now; nothing before it has started."""
    if run.started_at is None:
        return ""
    return length(max(0.0, ((run.finished_at or now) - run.started_at).total_seconds()))


def _note(run: Run, waits: Sequence[Step]) -> str:
    """The one thing that an operator would ask next."""
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
    """Somebody has to send a signal, so that goes before everything else that it waits for."""
    for wait in waits:
        if wait.kind is StepKind.SIGNAL:
            until = f" until {when(wait.due_at)}" if wait.due_at else ""
            name = wait.step_id.partition("#")[0].rpartition("/")[2]
            return f"waits for signal {safe(name)}{until}"
    children = sum(child_of(wait.step_id) is not None for wait in waits)
    return "waits for a child" if children == 1 else "waits for children" if children else ""


def run_json(run: Run) -> dict[str, Any]:
    """Every field, with payload, result and error as the JSON values that they are."""
    plain = {field.name: getattr(run, field.name) for field in fields(Run) if not field.name.endswith("_json")}
    return {**plain, "payload": run.payload, "result": run.result, "error": run.error}
