"""`simpleworkflow migrate …`: the tables of a database, brought up, taken down, looked at, made anew, or as SQL.

`down` and `reset` lose data: they ask unless told `--yes`, and `reset` says first what is there. `reset` also refuses
while runs are open or workers are alive, since both would be pulled the floor from under their feet; `--force` insists.
Nothing heavy is imported before a command runs, so that `--help` stays quick.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from .common.database import opened, place_of
from .common.exit_codes import NOT_DONE
from .common.group import Group
from .common.options import json_option, url_option
from .common.output import fail, say_json

if TYPE_CHECKING:
    from ..app import App
    from ..store.migrate import Migration
    from ..store.url import DatabaseURL

T = TypeVar("T")

DIALECT_NAMES = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite"}
MOST_WORKERS_SHOWN = 3


@contextmanager
def _at(url: str | None) -> Iterator[App]:
    """The App of a database that may not exist yet, closed afterwards."""
    from ..app import App

    place_of(url)
    app = App(url)
    try:
        yield app
    finally:
        app.sync.close()


@click.group(cls=Group)
def migrate() -> None:
    """Bring the tables of a database up or down; or print the SQL."""


@migrate.command("up")
@url_option
@json_option
def migrate_up(url: str | None, as_json: bool) -> None:
    """Apply every migration that is missing."""
    with _at(url) as app:
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
    with _at(url) as app:
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
    with _at(url) as app:
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


@migrate.command("reset")
@url_option
@click.option("--yes", is_flag=True, help="Do not ask; every run is lost.")
@click.option("--force", is_flag=True, help="Even while runs are open or workers are alive.")
@json_option
def migrate_reset(url: str | None, yes: bool, force: bool, as_json: bool) -> None:
    """Take everything back and apply it again; every run is lost.

    Refuses while runs are open or workers are alive, and asks before it begins.
    """
    place = place_of(url)
    with opened(url) as app:
        there = {f"{one.version}_{one.name}" for one in app.sync.migrations.status() if one.applied is not None}
        runs = _runs_there(app) if there else Counter()
        if not force and there:
            _refuse_the_living(app, runs)
        lost = "incomplete tables with whatever they hold" if runs is None else f"{_number(runs)} with their records"
        if not yes and there:
            click.confirm(f"This deletes {lost} from {place}, for good. Go on?", abort=True, err=as_json)
        undone, applied = _reset(app, place)
        undone = [name for name in undone if name in there]
    if as_json:
        say_json({"lost_runs": None if runs is None else runs.total(), "taken_back": undone, "applied": applied})
        return
    for name in undone:
        click.echo(f"took back {name}")
    for name in applied:
        click.echo(f"applied {name}")
    if there:
        click.echo(f"gone: {lost}")


def _reset(app: App, place: DatabaseURL) -> tuple[list[str], list[str]]:
    """What was taken back and what applied. Incomplete tables are completed first, so that all of them can be taken."""
    import asyncio

    from ..store.migrate import migrations, reset

    app.sync.migrate()
    undone, applied = asyncio.run(_awaited(app._client.run(reset(migrations(place.dialect, place.schema)))))
    return [f"{one.version}_{one.name}" for one in undone], [f"{one.version}_{one.name}" for one in applied]


async def _awaited(what: Awaitable[T]) -> T:
    return await what


def _runs_there(app: App) -> Counter[str] | None:
    """How many runs there are by status; None when the tables cannot be asked."""
    from ..model.errors import MissingMigration

    counts: Counter[str] = Counter()
    try:
        for one in app.sync.activity.counts():
            counts[str(one.status)] += one.runs
    except MissingMigration:
        return None
    return counts


def _refuse_the_living(app: App, runs: Counter[str] | None) -> None:
    from ..model.states import OPEN

    if runs is None:
        return
    open_runs = {status: runs[status] for status in sorted(OPEN) if runs[status]}
    alive = app.sync.workers.alive()
    reasons = []
    if open_runs:
        reasons.append(
            "runs are open (" + ", ".join(f"{number} {status}" for status, number in open_runs.items()) + ")"
        )
    if alive:
        names = ", ".join(worker.name for worker in alive[:MOST_WORKERS_SHOWN])
        more = f" and {len(alive) - MOST_WORKERS_SHOWN} more" if len(alive) > MOST_WORKERS_SHOWN else ""
        reasons.append(f"workers are alive ({names}{more})")
    if reasons:
        fail(f"{' and '.join(reasons)}; nothing was changed. Stop or end them first, or insist with --force")


def _number(runs: Counter[str]) -> str:
    return "1 run" if runs.total() == 1 else f"{runs.total():,} runs"


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
    from .schema_files import create_pair

    paths = create_pair(name, folder)
    if as_json:
        say_json({"files": [str(path) for path in paths]})
        return
    for path in paths:
        click.echo(f"wrote {os.path.relpath(path)}")


@migrate.command("sql")
@url_option
@click.option(
    "--dialect",
    type=click.Choice(list(DIALECT_NAMES)),
    help="Ask no database: everything, as for an empty one (with --down: as for a complete one).",
)
@click.option("--schema", default=None, help="With --dialect: the schema of the tables on PostgreSQL (workflow).")
@click.option("--down", is_flag=True, help="What `down` would run instead.")
@click.option("--count", default=1, show_default=True, type=click.IntRange(1), help="With --down: how many.")
@json_option
def migrate_sql(
    url: str | None, dialect: str | None, schema: str | None, down: bool, count: int, as_json: bool
) -> None:
    """Print the SQL that `up` would run.

    For those who apply it by hand; `migrate status` knows afterwards that it was done. Nothing is changed here.
    """
    from ..store.by_hand import down_script, up_script

    if dialect is not None and url is not None:
        raise click.UsageError("--url asks a database, --dialect asks none; give one of them")
    if schema is not None and dialect is None:
        raise click.UsageError("--schema goes with --dialect; in a URL it is ?schema=")
    chosen, where, known, applied = _known(url) if dialect is None else _known_without_asking(dialect, schema, down)
    if down:
        told = [one for one in reversed(known) if one.version in applied][:count]
        text = down_script([one for one in known if one.version in applied], chosen, where, count) if told else ""
    else:
        told = [one for one in known if one.version not in applied]
        text = up_script(told, chosen, where) if told else ""
    names = [f"{one.version}_{one.name}" for one in told]
    if as_json:
        say_json({"dialect": chosen, "down": down, "migrations": names, "sql": text})
        return
    click.echo(_head(chosen, where, "down" if down else "up", names) + text, nl=False)


def _head(dialect: str, schema: str, what: str, names: list[str]) -> str:
    """The comment that stands before the script: what it is, and how to run it so that it is all or nothing."""
    if not names:
        return f"-- nothing to {'apply' if what == 'up' else 'take back'}\n"
    run = "psql -v ON_ERROR_STOP=1 -f FILE" if dialect == "postgres" else "sqlite3 -bail DATABASE < FILE"
    place = f" in schema {schema}" if dialect == "postgres" else ""
    return f"-- simpleworkflow migrate {what}{place}: {', '.join(names)}\n-- One transaction; run it with: {run}\n\n"


Known = tuple[str, str, "tuple[Migration, ...]", set[str]]
"""Dialect, schema, every migration of this version, and the versions that are applied."""


def _known(url: str | None) -> Known:
    from ..store.migrate import migrations

    place = place_of(url)
    known = migrations(place.dialect, place.schema)
    with _at(url) as app:
        report = app.sync.migrations.status()
    changed = [f"{one.version}_{one.name}" for one in report if one.is_changed]
    if changed:
        fail(f"{', '.join(changed)} was applied with another text; this database was made by a different build")
    return place.dialect, place.schema, known, {one.version for one in report if one.applied is not None}


def _known_without_asking(dialect: str, schema: str | None, complete: bool) -> Known:
    from ..store.migrate import migrations
    from ..store.url import parse_url

    chosen = DIALECT_NAMES[dialect]
    where = parse_url("postgresql://h/d", schema=schema).schema  # refuses what cannot be a schema
    known = migrations(chosen, where)
    return chosen, where, known, {one.version for one in known} if complete else set()
