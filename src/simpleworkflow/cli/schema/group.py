"""`simpleworkflow migrate …`: the group, and the commands `up`, `down`, `status` and `create`.

`down` loses data, so it asks unless told `--yes`. Nothing heavy is imported before a command runs, so that `--help`
stays fast.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..common.database import opened_or_new
from ..common.exit_codes import NOT_DONE
from ..common.group import Group
from ..common.options import json_option, url_option
from ..common.output import say_json
from .reset import migrate_reset
from .sql import migrate_sql


@click.group(cls=Group)
def migrate() -> None:
    """Bring the tables of a database up or down; or print the SQL."""


@migrate.command("up")
@url_option
@json_option
def migrate_up(url: str | None, as_json: bool) -> None:
    """Apply every migration that is missing."""
    with opened_or_new(url) as app:
        applied = app.sync.migrate()
    if as_json:
        say_json({"applied": applied})
        return
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo("nothing to apply; the database is up to date")


@migrate.command("down")
@url_option
@click.option("--count", default=1, show_default=True, type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Do not ask; the data of these tables is lost.")
@json_option
def migrate_down(url: str | None, count: int, yes: bool, as_json: bool) -> None:
    """Take back the newest migrations, with their data."""
    if not yes:
        click.confirm("This drops tables together with their data. Go on?", abort=True, err=as_json)
    with opened_or_new(url) as app:
        undone = app.sync.migrations.down(count)
    if as_json:
        say_json({"taken_back": undone})
        return
    for name in undone:
        click.echo(f"took back {name}")
    if not undone:
        click.echo("nothing to take back")


@migrate.command("status")
@url_option
@json_option
def migrate_status(url: str | None, as_json: bool) -> None:
    """Show which migrations are applied.

    The exit code is 1 when some are missing or were applied with another text.
    """
    with opened_or_new(url) as app:
        report = app.sync.migrations.status()
    if as_json:
        say_json(
            [{"version": m.version, "name": m.name, "applied": m.applied, "is_changed": m.is_changed} for m in report]
        )
    else:
        for one in report:
            changed = ", with another text: by a different build" if one.is_changed else ""
            click.echo(f"{one.version}_{one.name}  {one.applied or 'not applied'}{changed}")
    sys.exit(NOT_DONE if any(one.applied is None or one.is_changed for one in report) else 0)


@migrate.command("create")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the folders postgres and sqlite are; the package's own migrations, in a checkout, unless given.",
)
@json_option
def migrate_create(name: str, folder: Path | None, as_json: bool) -> None:
    """Write an empty migration called NAME, for both databases."""
    from .new_files import create_pair

    paths = create_pair(name, folder)
    if as_json:
        say_json({"files": [str(path) for path in paths]})
        return
    for path in paths:
        click.echo(f"wrote {os.path.relpath(path)}")


for command in (migrate_reset, migrate_sql):
    migrate.add_command(command)
