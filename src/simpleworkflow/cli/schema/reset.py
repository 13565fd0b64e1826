"""`simpleworkflow migrate reset`: takes all migrations back and applies them again; every run is lost.

It says what would be lost and asks, unless told `--yes`. It refuses while runs are open or workers are alive, whose
tables would vanish; `--force` insists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

import click

from ..common.database import opened, place_of
from ..common.options import json_option, url_option
from ..common.output import counted, fail, say_json

if TYPE_CHECKING:
    from ...app import App
    from ...store.url import DatabaseURL

T = TypeVar("T")

MOST_WORKERS_SHOWN = 3


@click.command("reset")
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
            _refuse_while_in_use(app, runs)
        lost = _lost(runs)
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
    """(what was taken back, what was applied). Incomplete tables are completed first, so that all can be taken back."""
    import asyncio

    from ...store.migrate import migrations, reset

    app.sync.migrate()
    undone, applied = asyncio.run(_awaited(app._client.run(reset(migrations(place.dialect, place.schema)))))
    return [f"{one.version}_{one.name}" for one in undone], [f"{one.version}_{one.name}" for one in applied]


async def _awaited(what: Awaitable[T]) -> T:
    return await what


def _runs_there(app: App) -> Counter[str] | None:
    """How many runs there are by status; None when the tables are incomplete."""
    from ...model.errors import MissingMigration

    counts: Counter[str] = Counter()
    try:
        for one in app.sync.activity.counts():
            counts[str(one.status)] += one.runs
    except MissingMigration:
        return None
    return counts


def _lost(runs: Counter[str] | None) -> str:
    if runs is None:
        return "incomplete tables with whatever they hold"
    return f"{counted(runs.total(), 'run')} with their records"


def _refuse_while_in_use(app: App, runs: Counter[str] | None) -> None:
    from ...model.states import OPEN

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
