"""`simpleworkflow runs …`: the group, `runs list` and `runs show`. The others are in `watch.py` and `change.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from ...model.states import Status
from ..common.database import opened
from ..common.group import Group
from ..common.instants import Instant
from ..common.options import check_name, check_one_key, check_prefix, json_option, url_option
from ..common.output import say_json
from .change import cancel, delete, hold, resume, retry, signal
from .lookup import key_option, run_id_of
from .watch import watch

if TYPE_CHECKING:
    from ...app import App
    from ...model.records import Run

MOST = 1_000_000_000
"""No listing is longer; both databases can count to it."""


@click.group(cls=Group)
def runs() -> None:
    """List, show, watch and change runs."""


@runs.command("list")
@url_option
@click.option("--type", callback=check_name, help="Only runs of this type.")
@click.option("--prefix", callback=check_prefix, help="Only types below this prefix, such as billing.*")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="Only runs in this state; repeatable.",
)
@click.option(
    "--held", is_flag=True, help="Only held runs: by an operator, for want of attempts, or since the code does not fit."
)
@click.option("--since", type=Instant(), help="Created since: a duration back from now, or an instant.")
@click.option("--until", type=Instant(), help="Created before.")
@click.option("--key", callback=check_one_key, help="The run with this idempotency key.")
@click.option("--deleted", "with_deleted", is_flag=True, help="Deleted runs too.")
@click.option("--before", metavar="RUN", help="Only runs older than this one: the next page.")
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(0, MOST), help="How many at most; 0 for all."
)
@click.option("--ids", is_flag=True, help="Print the ids alone, for `runs cancel -` and its like.")
@json_option
def list_runs(url: str | None, limit: int, ids: bool, as_json: bool, before: str | None, **filters: Any) -> None:
    """List runs, newest first."""
    key = filters.pop("key")
    with opened(url) as app:
        place = None if before is None else run_id_of(app, before)
        wanted = {**filters, "idempotency_key": key, "before": place, "limit": limit + 1 if limit else None}
        found = app.sync.runs(**wanted)
        last = (
            _print_ids(found, limit)
            if ids
            else _print_json(found, limit)
            if as_json
            else _print_list(app, found, limit)
        )
        if last is not None and next(found, None) is not None:
            click.echo(f"there are more; go on with --before {last}, or --limit 0 for all", err=True)


def _print_list(app: App, found: Iterator[Run], limit: int) -> UUID | None:
    from ..common.instants import now
    from ..screen.text import screen
    from .rows import print_runs

    shown = list(islice(found, limit or None))
    if not shown:
        click.echo("no runs fit", err=True)
        return None
    print_runs(
        shown, screen(), now(), waits=app.sync.activity.waits(run.id for run in shown if run.status is Status.PAUSED)
    )
    return shown[-1].id


def _print_ids(found: Iterator[Run], limit: int) -> UUID | None:
    """Print each as it is read: there may be millions."""
    last: UUID | None = None
    for run in islice(found, limit or None):
        last = run.id
        click.echo(str(last))
    return last


def _print_json(found: Iterator[Run], limit: int) -> UUID | None:
    from .rows import run_json

    last: UUID | None = None
    for run in islice(found, limit or None):
        last = run.id
        say_json(run_json(run))
    return last


@runs.command()
@click.argument("run")
@url_option
@click.option("--full", is_flag=True, help="Payload, result, steps and children in full.")
@key_option
@json_option
def show(run: str, url: str | None, full: bool, as_key: bool, as_json: bool) -> None:
    """Show everything about one run."""
    from ..common.instants import now
    from ..screen.text import screen
    from .page import look_at, page_json, print_page

    with opened(url) as app:
        page = look_at(app, run_id_of(app, run, as_key), full=full)
    if as_json:
        say_json(page_json(page))
    else:
        print_page(page, screen(), now())


for command in (watch, cancel, hold, resume, retry, delete, signal):
    runs.add_command(command)
