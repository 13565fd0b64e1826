"""`simpleworkflow runs show RUN`: one run with its fields, payload, result, error, steps, signals and children.

The first sentence is the one of `explain`. Long values are cut, with a line that says so; `--full` shows them. JSON has
them whole, except that it has only the first thousand children.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rich.text import Text

from ...model.payload import decode
from ...model.records import Run, Signal, Step
from ...model.states import Status, StepKind
from ..common.output import safe
from ..screen.table import Column, print_table
from ..screen.text import compact, first_line, length, say, status_text, when
from .error_lines import as_lines
from .rows import print_runs, run_json, took
from .steps import place_of, started, step_json

if TYPE_CHECKING:
    from rich.console import Console

    from ...app import App

MOST_LINES = 20
MOST_ROWS = 30
MOST_CHILDREN = 1_000
LATER = ("payload_json", "result_json", "error_json", "id", "type", "status")
STEP_COLUMNS = (
    Column("step", is_flexible=True),
    Column("kind"),
    Column("status"),
    Column("failures", is_right=True),
    Column("started"),
    Column("took", is_right=True),
    Column("outcome", is_flexible=True),
)
SIGNAL_COLUMNS = (Column("signal"), Column("sent"), Column("consumed"), Column("payload", is_flexible=True))


@dataclass(frozen=True)
class Page:
    run: Run
    sentence: str
    steps: list[Step]
    signals: list[Signal]
    children: list[Run]
    waits: dict[UUID, list[Step]]
    """What each paused child waits for."""
    is_full: bool


def look_at(app: App, run_id: UUID, *, full: bool) -> Page:
    run = app.sync.get(run_id)
    children = app.sync.handle(run_id).children(limit=MOST_CHILDREN)
    listed = children if full else children[:MOST_ROWS]
    return Page(
        run,
        str(app.sync.explain(run_id)),
        app.sync.handle(run_id).steps(),
        app.sync.handle(run_id).signals(),
        children,
        app.sync.activity.waits(child.id for child in listed if child.status is Status.PAUSED),
        full,
    )


def page_json(page: Page) -> dict[str, Any]:
    return {
        **run_json(page.run),
        "explain": page.sentence,
        "steps": [step_json(step) for step in page.steps],
        "signals": [
            {"id": s.id, "name": s.name, "created_at": s.created_at, "consumed_at": s.consumed_at, "payload": s.payload}
            for s in page.signals
        ],
        "children": [{"id": child.id, "type": child.type, "status": child.status} for child in page.children],
    }


def print_page(page: Page, out: Console, now: datetime) -> None:
    run = page.run
    head = Text(str(run.id), "bold")
    head.append(f"  {safe(run.type)}  ", "not bold")
    head.append_text(status_text(run.status, is_held=run.is_held, is_deleted=run.deleted_at is not None))
    say(out, head)
    say(out, safe(page.sentence))
    _heading(out, "fields")
    for name, value in _fields(run, now):
        say(out, f"  {name:<16}{value}")
    for title, text in (("payload", run.payload_json), ("result", run.result_json)):
        if text is not None:
            _heading(out, title)
            _value(out, decode(text, what=title), page.is_full)
    if run.error_json is not None:
        _heading(out, "error")
        _error(out, decode(run.error_json, what="error"), page.is_full)
    _tables(page, out, now)


def _fields(run: Run, now: datetime) -> list[tuple[str, str]]:
    found = []
    for field in fields(Run):
        value = getattr(run, field.name)
        if value is None or field.name in LATER:
            continue
        shown = when(value) if isinstance(value, datetime) else safe(str(value))
        found.append((field.name, first_line(shown) if field.name == "last_error" else shown))
    if run.started_at is not None:
        found.append(("took", took(run, now)))
    return found


def _heading(out: Console, title: str) -> None:
    out.print()
    say(out, Text(title, "bold"))


def _error(out: Console, error: Any, full: bool) -> None:
    """Its fields as JSON and its traceback as text; of a long traceback the end is shown."""
    rest, lines = as_lines(error)
    if rest or not lines:
        _value(out, rest, full)
    shown = lines if full else lines[-MOST_LINES:]
    if lines:
        _heading(out, "traceback")
    if len(lines) > len(shown):
        say(out, Text(f"  … {len(lines) - len(shown)} earlier lines; --full shows them", "dim"))
    for line in shown:
        say(out, "  " + (safe(line) if full else _cut(line)))


def _value(out: Console, value: Any, full: bool) -> None:
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    shown = lines if full else lines[:MOST_LINES]
    for line in shown:
        say(out, "  " + (safe(line) if full else _cut(line)))
    if len(lines) > len(shown):
        say(out, Text(f"  … {len(lines) - len(shown)} more lines; --full shows them", "dim"))


def _cut(line: str, most: int = 500) -> str:
    text = safe(line)
    return text if len(text) <= most else f"{text[:most]}… {len(text) - most} more characters; --full shows them"


def _tables(page: Page, out: Console, now: datetime) -> None:
    if page.steps:
        _heading(out, f"steps ({len(page.steps)})")
        shown = page.steps if page.is_full else page.steps[-MOST_ROWS:]
        _cut_note(out, page.steps, shown, "earlier")
        starts = started(page.steps)
        print_table(STEP_COLUMNS, [_step_row(step, place_of(step, starts), now) for step in shown], out, "  ")
    if page.signals:
        _heading(out, f"signals ({len(page.signals)})")
        latest = page.signals if page.is_full else page.signals[-MOST_ROWS:]
        _cut_note(out, page.signals, latest, "earlier")
        print_table(SIGNAL_COLUMNS, [_signal_row(signal) for signal in latest], out, "  ")
    if page.children:
        count = len(page.children)
        _heading(out, f"children ({f'the first {count}' if count == MOST_CHILDREN else count})")
        first = page.children if page.is_full else page.children[:MOST_ROWS]
        print_runs(first, out, now, "  ", page.waits)
        _cut_note(out, page.children, first, "more")


def _cut_note(out: Console, everything: Sequence[Any], shown: Sequence[Any], word: str) -> None:
    if len(shown) < len(everything):
        say(out, Text(f"  … {len(everything) - len(shown)} {word}; --full shows them", "dim"))


def _step_row(step: Step, place: str, now: datetime) -> list[str | Text]:
    span = "" if step.started_at is None else length(((step.completed_at or now) - step.started_at).total_seconds())
    outcome = ""
    if step.error_json is not None:
        outcome = _error_line(step.error_json)
    elif step.output_json is not None:
        outcome = first_line(compact(decode(step.output_json, what="output")))
    elif step.completed_at is None and step.due_at is not None:
        outcome = f"due {when(step.due_at)}"
    failures = "" if step.kind is StepKind.PUBLISH else str(step.attempt)  # whose attempt counts values
    return [place, step.kind, step.status, failures, when(step.started_at), span, outcome]


def _error_line(text: str) -> str:
    error = decode(text, what="error")
    if isinstance(error, dict) and "type" in error:
        return first_line(f"{error['type']}: {error.get('message', '')}")
    return first_line(compact(error))


def _signal_row(signal: Signal) -> list[str | Text]:
    return [
        safe(signal.name),
        when(signal.created_at),
        when(signal.consumed_at) or "not yet",
        first_line(compact(signal.payload)),
    ]
