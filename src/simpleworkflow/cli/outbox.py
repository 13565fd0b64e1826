"""`simpleworkflow outbox status | dispatch | list | replay | skip | rules`: events on their way out.

`status` says how much waits and who serves it; `list` shows one run's events, or everything that was given up; `replay`
offers events again, `skip` lets a run's later events pass a dead one; `rules` says which lifecycle events go out.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import click

from ..model.outbox import OutboxEvent, OutboxRule, OutboxStatus
from ..model.states import EventType
from .common.database import opened
from .common.group import Group
from .common.instants import Instant
from .common.options import json_option, url_option
from .common.output import safe, say_json
from .outbox_dispatch import dispatch
from .runs.lookup import key_option, run_id_of
from .workers import span_words

MOST_DEAD = 100

events_argument = click.argument(
    "events", nargs=-1, required=True, metavar="EVENT...", type=click.Choice([kind.value for kind in EventType])
)


@click.group(cls=Group)
def outbox() -> None:
    """Events on their way out: show their state, take them to a sink, offer them again."""


outbox.add_command(dispatch)


@outbox.command()
@url_option
@json_option
def status(url: str | None, as_json: bool) -> None:
    """Show how many events wait, how late they are, which are dead, and who serves which lanes."""
    with opened(url) as app:
        found = app.sync.outbox.status()
    if as_json:
        say_json(_status_json(found))
        return
    for line in _status_lines(found):
        click.echo(line)


def _status_json(found: OutboxStatus) -> dict[str, Any]:
    return {
        "waiting": found.waiting,
        "retrying": found.retrying,
        "held_back": found.behind,
        "dead": found.dead,
        "lag_seconds": round(found.lag, 3),
        "counted_up_to": found.most,
        "dispatchers": list(found.dispatchers),
        "lanes": [
            {"lane": lane.lane, "owner": lane.owner if lane.is_held else None, "epoch": lane.epoch}
            for lane in found.lanes
        ],
    }


def _status_lines(found: OutboxStatus) -> list[str]:
    from .screen.text import length

    def some(count: int) -> str:
        return f"{count:,}{' or more' if count >= found.most else ''}"

    oldest = f", the oldest for {length(found.lag)}" if found.lag else ""
    waiting, retrying = (oldest, "") if found.waiting else ("", oldest)
    lines = [
        f"waiting    {some(found.waiting)}{waiting}",
        f"retrying   {some(found.retrying)}{retrying}",
        f"held back  {some(found.behind)} behind a retried or dead event of their own run",
        f"dead       {some(found.dead)}" + ("; see: simpleworkflow outbox list" if found.dead else ""),
    ]
    owned = Counter(lane.owner for lane in found.lanes if lane.is_held and lane.owner is not None)
    for owner in sorted({*owned, *found.dispatchers}):
        lanes = "".join(lane.lane for lane in found.lanes if lane.owner == owner and lane.is_held)
        lines.append(f"dispatcher {safe(owner)}  serves {owned[owner]} of {len(found.lanes)} lanes {lanes}".rstrip())
    if not owned:
        lines.append("no dispatcher is alive: simpleworkflow outbox dispatch --sink …, or worker --sink …")
    return lines


@outbox.command("list")
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
    from .screen.table import Column, print_table
    from .screen.text import first_line, screen, when

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


@outbox.command()
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


@outbox.command()
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


@outbox.group(cls=Group)
def rules() -> None:
    """Which lifecycle events of runs go to the outbox."""


@rules.command("list")
@url_option
@json_option
def list_rules(url: str | None, as_json: bool) -> None:
    """List the rules."""
    with opened(url) as app:
        found = app.sync.outbox.rules()
    for rule in found:
        _tell_rule(rule, as_json)
    if not found and not as_json:
        click.echo("no lifecycle event goes to the outbox; what workflows emit always does", err=True)


@rules.command()
@click.argument("prefix")
@events_argument
@url_option
@json_option
def add(prefix: str, events: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Let EVENTs of types below PREFIX (billing.*) go to the outbox from now on."""
    with opened(url) as app:
        added = app.sync.outbox.add_rules(prefix, events)
    for rule in added:
        _tell_rule(rule, as_json)
    if len(added) < len(set(events)) and not as_json:
        click.echo("the others were there already" if added else "they were there already", err=True)


@rules.command()
@click.argument("prefix")
@events_argument
@url_option
@json_option
def delete(prefix: str, events: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """End rules; what is in the outbox already still goes out."""
    with opened(url) as app:
        gone = app.sync.outbox.delete_rules(prefix, events)
    for rule in gone:
        _tell_rule(rule, as_json, "deleted ")
    if len(gone) < len(set(events)) and not as_json:
        click.echo("there were no others" if gone else "there is no such rule", err=True)


def _tell_rule(rule: OutboxRule, as_json: bool, verb: str = "") -> None:
    prefix = span_words(rule.span)
    if as_json:
        say_json({"prefix": prefix, "event": rule.event})
    else:
        click.echo(f"{verb}{safe(prefix)}  {rule.event}")
