"""`simpleworkflow workers`: which workers are alive, what they serve, how many runs they hold.

A worker that has been silent for longer than `worker_silence` (45 s) has died or cannot reach the database. On its own
host a process that is gone is noticed at once. Its runs are taken over when their leases end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ...model.names import EVERYTHING, Span
from ..common.database import opened
from ..common.options import json_option, url_option
from ..common.output import say_json

if TYPE_CHECKING:
    from ...model.records import WorkerState

MOST_SPANS = 6


@click.command()
@url_option
@click.option("--all", "everyone", is_flag=True, help="Those that have stopped or fallen silent too.")
@json_option
def workers(url: str | None, everyone: bool, as_json: bool) -> None:
    """List the workers that are alive."""
    with opened(url) as app:
        states = app.sync.workers.all()
    states = [_as_this_host_knows(state) for state in states]
    shown = [state for state in states if everyone or state.is_alive]
    if as_json:
        for state in shown:
            say_json(worker_json(state))
        return
    if shown:
        _print_workers(shown)
    else:
        rest = f"; {len(states)} have stopped or fallen silent (--all)" if states else ""
        click.echo(f"no worker is alive{rest}", err=True)


def _as_this_host_knows(state: WorkerState) -> WorkerState:
    """A killed worker counts as alive until it has been silent for long; its own host knows better."""
    from ...worker.process import is_dead

    return replace(state, is_alive=False) if state.is_alive and is_dead(state.id) else state


def worker_json(state: WorkerState) -> dict[str, Any]:
    return {
        "id": state.id,
        "name": state.name,
        "host": state.host,
        "pid": state.pid,
        "state": state_of(state),
        "serves": [span_words(span) for span in state.spans],
        "runs": state.runs,
        "started_at": state.started_at,
        "seen_at": state.seen_at,
        "stopped_at": state.stopped_at,
    }


def state_of(state: WorkerState) -> str:
    return "alive" if state.is_alive else "silent" if state.stopped_at is None else "stopped"


def span_words(span: Span) -> str:
    """A range of types as an operator writes it: `billing.*`."""
    low, high = span
    if span == EVERYTHING:
        return "*"
    if high == f"{low}\x01":
        return low
    if low and high == low[:-1] + chr(ord(low[-1]) + 1):
        return f"{low}*"
    return f"{low} … {high}"


def _print_workers(shown: list[WorkerState]) -> None:
    from ..common.instants import now
    from ..screen.text import screen

    out = screen()
    _table(shown, out, now())


def _table(shown: list[WorkerState], out: Any, now: datetime) -> None:
    from ..common.output import safe
    from ..screen.table import Column, print_table
    from ..screen.text import length, when

    columns = (
        Column("worker", is_flexible=True),
        Column("name", is_flexible=True),
        Column("host", is_flexible=True),
        Column("pid", is_right=True),
        Column("state"),
        Column("seen", is_right=True),
        Column("started"),
        Column("runs", is_right=True),
        Column("serves", is_flexible=True),
    )
    rows = [
        [
            safe(state.id),
            safe(state.name),
            safe(state.host),
            str(state.pid),
            state_of(state),
            f"{length(max(0.0, (now - state.seen_at).total_seconds()))} ago",
            when(state.started_at),
            str(state.runs),
            safe(_serves(state)),
        ]
        for state in shown
    ]
    print_table(columns, rows, out)


def _serves(state: WorkerState) -> str:
    words = [span_words(span) for span in state.spans]
    rest = f" and {len(words) - MOST_SPANS} more" if len(words) > MOST_SPANS else ""
    return (", ".join(words[:MOST_SPANS]) or "nothing") + rest
