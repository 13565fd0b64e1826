"""`simpleworkflow history RUN`: everything that happened to a run.

First the timeline, a bar per step and wait (`timeline.py`). Then a line per entry of the history, with offsets from the
trigger (`lines.py`). `--audit` prints the table workflow_event instead, which also says who leased the run and when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..common.database import opened
from ..common.options import json_option, url_option
from ..common.output import say_json
from ..runs.lookup import key_option, run_id_of

if TYPE_CHECKING:
    from rich.console import Console

    from ...model.records import Event, HistoryEvent, Run, Step


@click.command()
@click.argument("run")
@url_option
@click.option("--audit", is_flag=True, help="The audit trail (workflow_event) instead of the history.")
@key_option
@json_option
def history(run: str, url: str | None, audit: bool, as_key: bool, as_json: bool) -> None:
    """Draw the timeline of a run and tell its history."""
    with opened(url) as app:
        run_id = run_id_of(app, run, as_key)
        events = app.sync.handle(run_id).events()
        if audit:
            _print_audit(events, as_json)
            return
        found = app.sync.get(run_id)
        happenings = app.sync.handle(run_id).history()
        steps = [] if as_json else app.sync.handle(run_id).steps()
    if as_json:
        for line in happenings:
            say_json({"idx": line.idx, "type": line.type, "at": line.at, "details": line.details})
    else:
        _print_history(found, steps, events, happenings)


def _print_history(run: Run, steps: list[Step], events: list[Event], happenings: list[HistoryEvent]) -> None:
    from ..common.instants import now
    from ..screen.text import say, screen
    from .lines import happening_line
    from .timeline import bars_of, draw

    out = screen()
    end = run.finished_at or max([now(), *(line.at for line in happenings)])
    _print_head(run, end, out)
    bars = bars_of(run, steps, events, end)
    if bars:
        out.print()
        for line in draw(bars, run.created_at, end, out.width, ascii_only=out.options.ascii_only):
            say(out, line)
    out.print()
    for happening in happenings:
        say(out, happening_line(happening, run.created_at))


def _print_head(run: Run, end: Any, out: Console) -> None:
    from rich.text import Text

    from ..common.output import safe
    from ..screen.text import first_line, length, say, status_text, when

    head = Text(str(run.id), "bold")
    head.append(f"  {safe(run.type)}  ", "not bold")
    head.append_text(status_text(run.status, is_held=run.is_held, is_deleted=run.deleted_at is not None))
    word = "after" if run.is_finished else "for"
    head.append(f" {word} {length((end - run.created_at).total_seconds())}", "not bold")
    say(out, head)
    say(out, Text(f"triggered {when(run.created_at)}", "dim"))
    if run.last_error:
        say(out, Text(first_line(run.last_error, 1_000), "red"))


def _print_audit(events: list[Event], as_json: bool) -> None:
    if as_json:
        for event in events:
            say_json(event_json(event))
        return
    from ..screen.text import screen

    print_events(events, screen())


def event_json(event: Event) -> dict[str, Any]:
    plain = {"id": event.id, "run_id": event.run_id, "type": event.type, "at": event.created_at}
    return {**plain, "epoch": event.epoch, "data": event.data}


def print_events(events: list[Event], out: Console) -> None:
    from ..screen.table import Column, print_table
    from ..screen.text import compact, first_line, when
    from .lines import offset

    columns = (
        Column("event"),
        Column("at"),
        Column("after", is_right=True),
        Column("epoch", is_right=True),
        Column("data"),
    )
    start = events[0].created_at
    rows = [
        [
            event.type,
            when(event.created_at),
            offset(event.created_at, start),
            "" if event.epoch is None else str(event.epoch),
            "" if event.data is None else first_line(compact(event.data), 400),
        ]
        for event in events
    ]
    print_table(columns, rows, out)
