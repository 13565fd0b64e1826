"""Runs as lines and as JSON: what `runs list`, `runs show` and the commands that change runs print of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..model.records import Run
from ..model.states import Status
from .showing import Column, first_line, length, print_table, safe, status_text, when

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = (
    Column("run"),
    Column("type", is_flexible=True),
    Column("status"),
    Column("created", leaves=2),
    Column("took", is_right=True, leaves=1),
    Column("note", is_flexible=True, leaves=3),
)


def print_runs(runs: Iterable[Run], out: Console, now: datetime, indent: str = "") -> None:
    print_table(COLUMNS, [_row(run, now) for run in runs], out, indent)


def _row(run: Run, now: datetime) -> list[str | Text]:
    return [
        str(run.id),
        safe(run.type),
        status_text(run.status, is_held=run.is_held, is_deleted=run.deleted_at is not None),
        when(run.created_at),
        took(run, now),
        _note(run),
    ]


def took(run: Run, now: datetime) -> str:
    """From the claim by which it started to its end, or until now; nothing before it has started."""
    if run.started_at is None:
        return ""
    return length(max(0.0, ((run.finished_at or now) - run.started_at).total_seconds()))


def _note(run: Run) -> str:
    """The one thing that an operator would ask next."""
    if run.is_finished:
        return "" if run.status is Status.SUCCEEDED else first_line(run.last_error or "")
    if run.is_held:
        return first_line(run.hold_reason or "")
    if run.status is Status.LEASED:
        return f"on {safe(run.leased_by or '')}"
    if run.run_at is None:
        return "waits for an event"
    tried = f"; {run.attempt + run.crashes} failed: {first_line(run.last_error or '')}" if run.last_error else ""
    return f"due {when(run.run_at)}{tried}"


def run_json(run: Run) -> dict[str, Any]:
    """Every field, with payload, result and error as the JSON values that they are."""
    plain = {field.name: getattr(run, field.name) for field in fields(Run) if not field.name.endswith("_json")}
    return {**plain, "payload": run.payload, "result": run.result, "error": run.error}
