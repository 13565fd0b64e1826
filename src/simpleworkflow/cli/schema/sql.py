"""`simpleworkflow migrate sql`: prints the SQL that `up` or `down` would run, for those who apply it by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..common.database import opened_or_new, place_of
from ..common.options import json_option, url_option
from ..common.output import fail, say_json

if TYPE_CHECKING:
    from ...store.migrate import Migration

DIALECT_NAMES = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite"}


@click.command("sql")
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
    from ...store.by_hand import down_script, up_script

    if dialect is not None and url is not None:
        raise click.UsageError("--url asks a database, --dialect asks none; give one of them")
    if schema is not None and dialect is None:
        raise click.UsageError("--schema goes with --dialect; in a URL it is ?schema=")
    chosen, where, known, applied = _known(url) if dialect is None else _known_without_asking(dialect, schema, down)
    if down:
        selected = [one for one in reversed(known) if one.version in applied][:count]
        text = down_script([one for one in known if one.version in applied], chosen, where, count) if selected else ""
    else:
        selected = [one for one in known if one.version not in applied]
        text = up_script(selected, chosen, where) if selected else ""
    names = [f"{one.version}_{one.name}" for one in selected]
    if as_json:
        say_json({"dialect": chosen, "down": down, "migrations": names, "sql": text})
        return
    click.echo(_head(chosen, where, "down" if down else "up", names) + text, nl=False)


def _head(dialect: str, schema: str, what: str, names: list[str]) -> str:
    """The comment before the script: what it is, and how to run it so that it is all or nothing."""
    if not names:
        return f"-- nothing to {'apply' if what == 'up' else 'take back'}\n"
    run = "psql -v ON_ERROR_STOP=1 -f FILE" if dialect == "postgres" else "sqlite3 -bail DATABASE < FILE"
    place = f" in schema {schema}" if dialect == "postgres" else ""
    return f"-- simpleworkflow migrate {what}{place}: {', '.join(names)}\n-- One transaction; run it with: {run}\n\n"


Known = tuple[str, str, "tuple[Migration, ...]", set[str]]
"""Dialect, schema, every migration of this version, and the versions that are applied."""


def _known(url: str | None) -> Known:
    from ...store.migrate import migrations

    place = place_of(url)
    known = migrations(place.dialect, place.schema)
    with opened_or_new(url) as app:
        report = app.sync.migrations.status()
    changed = [f"{one.version}_{one.name}" for one in report if one.is_changed]
    if changed:
        fail(f"{', '.join(changed)} was applied with another text; this database was made by a different build")
    return place.dialect, place.schema, known, {one.version for one in report if one.applied is not None}


def _known_without_asking(dialect: str, schema: str | None, complete: bool) -> Known:
    from ...store.migrate import migrations
    from ...store.url import parse_url

    chosen = DIALECT_NAMES[dialect]
    where = parse_url("postgresql://h/d", schema=schema).schema  # refuses what cannot be a schema
    known = migrations(chosen, where)
    return chosen, where, known, {one.version for one in known} if complete else set()
