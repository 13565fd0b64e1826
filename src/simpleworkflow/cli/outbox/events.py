"""`simpleworkflow outbox list | replay | skip`: the events of a run, or those that were given up.

`replay` offers events again, `skip` lets the later events of a run pass a dead one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from ...model.outbox import OutboxEvent
from ..common.database import opened
from ..common.instants import Instant
from ..common.options import json_option, url_option
from ..common.output import safe, say_json
from ..runs.lookup import key_option, run_id_of

MOST_DEAD = 100


@click.command("list")
@click.argument("run", required=False)
@url_option
@key_option
@json_option
def list_events(run: str | None, url: str | None, as_key: bool, as_json: bool) -> None:
    """Show the events of RUN and what became of each; without RUN, what was given up."""
    with opened(url) as app:
        if run is None:
            found = app.sync.outbox.dead(limit=MOST_DEAD)
        else:
            run_id = run_id_of(app, run, as_key)
            found = app.sync.outbox.events(run_id)
            if not found:
                app.sync.get(run_id)
    if as_json:
        for event in found:
            say_json(event_json(event))
    elif found:
        _print_events(found)
        if run is None and len(found) == MOST_DEAD:
            click.echo(f"the oldest {MOST_DEAD}; simpleworkflow outbox status says how many there are", err=True)
    else:
        click.echo("no event was given up" if run is None else "this run has no events in the outbox", err=True)


def event_json(event: OutboxEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in OutboxEvent.__dataclass_fields__}


def _print_events(found: list[OutboxEvent]) -> None:
    from ..screen.table import Column, print_table
    from ..screen.text import first_line, screen, when

    columns = (
        Column("run"),
        Column("number", is_right=True),
        Column("type", is_flexible=True),
        Column("status"),
        Column("refused", is_right=True),
        Column("created"),
        Column("next try"),
        Column("why", is_flexible=True),
    )
    rows = [
        [
            str(event.run_id),
            str(event.sequence),
            safe(event.type),
            event.status,
            str(event.attempt),
            when(event.created_at),
            when(event.due_at),
            first_line(event.last_error or _skipped(event)),
        ]
        for event in found
    ]
    print_table(columns, rows, screen())


def _skipped(event: OutboxEvent) -> str:
    if event.skipped_by is None:
        return ""
    return f"skipped by {event.skipped_by}" + (f": {event.skip_reason}" if event.skip_reason else "")


@click.command()
@click.argument("run", required=False)
@url_option
@click.option("--from", "first", type=click.IntRange(1), help="Of RUN: only events from this number on.")
@click.option("--since", type=Instant(), help="What was published since then, of all runs.")
@click.option("--dead", is_flag=True, help="Everything that was given up.")
@key_option
@json_option
def replay(
    run: str | None,
    url: str | None,
    first: int | None,
    since: datetime | None,
    dead: bool,
    as_key: bool,
    as_json: bool,
) -> None:
    """Offer events again: those of RUN, those published --since, or all --dead ones.

    Receivers get them a second time under the same ids, so that those who keep track can drop them.
    """
    if sum([run is not None, since is not None, dead]) != 1:
        raise click.UsageError("say what to offer again: RUN, --since or --dead")
    if first is not None and run is None:
        raise click.UsageError("--from counts the events of one RUN")
    with opened(url) as app:
        run_id = None if run is None else run_id_of(app, run, as_key)
        count = app.sync.outbox.replay(run_id, since=since, dead=dead, first=first or 1)
    if as_json:
        say_json({"replayed": count})
    else:
        click.echo(f"{count:,} {'event is' if count == 1 else 'events are'} offered again")


@click.command()
@click.argument("run")
@click.argument("sequence", type=click.IntRange(1))
@url_option
@click.option("--reason", help="Why; it stays in the event's row.")
@click.option("--by", help="Who decides so; the user and host of this command unless given.")
@key_option
@json_option
def skip(
    run: str, sequence: int, url: str | None, reason: str | None, by: str | None, as_key: bool, as_json: bool
) -> None:
    """Skip event SEQUENCE of RUN, which is dead or retried, so that the run's later events go out."""
    with opened(url) as app:
        event = app.sync.outbox.skip(run_id_of(app, run, as_key), sequence, reason=reason, by=by)
    if as_json:
        say_json(event_json(event))
    else:
        click.echo(f"event {event.sequence} of run {event.run_id} is skipped; later ones of that run go out")
