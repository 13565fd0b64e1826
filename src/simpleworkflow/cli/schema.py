"""`simpleworkflow migrate …`"""

from __future__ import annotations

import json
import sys

import click

from ..app import App
from .common import json_option, url_option


@click.group()
def migrate() -> None:
    """Bring the tables of a database up or down."""


@migrate.command("up")
@url_option
def migrate_up(url: str | None) -> None:
    """Apply every migration that is missing."""
    up(url)


@migrate.command("down")
@url_option
@click.option("--count", default=1, show_default=True, type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Do not ask; the data of these tables is lost.")
def migrate_down(url: str | None, count: int, yes: bool) -> None:
    """Take back the newest migrations, with their data."""
    down(url, count, yes)


@migrate.command("status")
@url_option
@json_option
def migrate_status(url: str | None, as_json: bool) -> None:
    """Show which migrations are applied; exit code 1 when some are missing."""
    status(url, as_json)


def up(url: str | None) -> None:
    app = App(url)
    applied = app.sync.migrate()
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo("nothing to apply; the database is up to date")


def down(url: str | None, count: int, yes: bool) -> None:
    if not yes:
        click.confirm("This drops tables together with their data. Go on?", abort=True)
    undone = App(url).sync.migrate_down(count)
    for name in undone:
        click.echo(f"took back {name}")
    if not undone:
        click.echo("nothing to take back")


def status(url: str | None, as_json: bool) -> None:
    report = App(url).sync.migration_status()
    if as_json:
        click.echo(json.dumps([{"version": m.version, "name": m.name, "applied": m.applied} for m in report]))
    else:
        for one in report:
            click.echo(f"{one.version}_{one.name}  {one.applied or 'not applied'}")
    sys.exit(1 if any(one.applied is None for one in report) else 0)
