"""`simpleworkflow outbox rules …`: which lifecycle events of runs go to the outbox."""

from __future__ import annotations

import click

from ...model.outbox import OutboxRule
from ...model.states import EventType
from ..common.database import opened
from ..common.group import Group
from ..common.options import json_option, url_option
from ..common.output import safe, say_json
from ..workers.listing import span_words

events_argument = click.argument(
    "events", nargs=-1, required=True, metavar="EVENT...", type=click.Choice([kind.value for kind in EventType])
)


@click.group(cls=Group)
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
