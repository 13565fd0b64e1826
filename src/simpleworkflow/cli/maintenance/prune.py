"""`simpleworkflow prune`: deletes old finished runs for good.

Without --yes it counts first and asks. It can be stopped at any point and called again. A cron job calls it with --yes;
workers whose App has keep= need no such job.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...model.retention import ENDS, Kept, PruneResult
from ..common.database import opened
from ..common.interrupts import stopped_by_sigterm
from ..common.options import check_duration, check_prefixes, json_option, url_option
from ..common.output import counted, fail, say_json

if TYPE_CHECKING:
    from ...app import App

OnProgress = Callable[[PruneResult], object]
MOST_LINES = 20
WHY_KEPT = {
    Kept.PARENT: "their parent is open",
    Kept.OUTBOX: "they have events that are not published yet",
    Kept.NEWEST: "it holds the newest line of the audit trail; it goes once there is a newer one",
    Kept.LOCKED: "somebody was at them; call again",
}


@click.command()
@url_option
@click.option("--older-than", callback=check_duration, help='How long ago they ended at least, such as "30 days".')
@click.option(
    "--deleted-older-than",
    callback=check_duration,
    help="How long ago deleted runs were deleted at least; --older-than unless given.",
)
@click.option(
    "--prefix",
    multiple=True,
    callback=check_prefixes,
    help="Only types below this prefix, such as billing.*; repeatable.",
)
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in ENDS]),
    help="Only runs that ended so; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Only count what would go.")
@click.option(
    "--batch", default=500, show_default=True, type=click.IntRange(1, 10_000), help="Runs per transaction, at most."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def prune(url: str | None, yes: bool, dry_run: bool, as_json: bool, **wanted: Any) -> None:
    """Delete finished runs for good, with their steps, events and signals."""
    if wanted["older_than"] is None and wanted["deleted_older_than"] is None:
        raise click.UsageError('say how old they must be: --older-than "30 days", or --deleted-older-than "7 days"')
    with opened(url) as app, stopped_by_sigterm():
        found = None
        if dry_run or not yes:
            found = _walk(app, wanted, dry_run=True, total=None)
        if not dry_run and found is not None and found.total:
            _ask(found)
        if dry_run or (found is not None and not found.total):
            assert found is not None
            found.is_dry = dry_run
            _report(found, as_json)
            return
        _report(_walk(app, wanted, dry_run=False, total=found.total if found else None), as_json)


def _walk(app: App, wanted: dict[str, Any], *, dry_run: bool, total: int | None) -> PruneResult:
    so_far = PruneResult()

    def on_batch(done: PruneResult) -> None:
        nonlocal so_far
        so_far = done
        advance(done)

    try:
        with _progress("counting" if dry_run else "deleting", total) as advance:
            return app.sync.retention.prune(**wanted, dry_run=dry_run, tell=on_batch)
    except KeyboardInterrupt:
        if dry_run:
            fail("interrupted; nothing was deleted")
        were = "was" if so_far.total == 1 else "were"
        # "at least": a batch may have been under way.
        message = f"interrupted; at least {counted(so_far.total, 'run')} {were} deleted for good"
        fail(f"{message}, the others are whole; call again to go on")


def _ask(found: PruneResult) -> None:
    _print_counts(found, err=True)
    what = "this run" if found.total == 1 else f"these {found.total:,} runs"
    click.confirm(f"Delete {what} for good?", abort=True, err=True)


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[OnProgress]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: PruneResult) -> None:
            message = f"{what}: {done.total:,} of {done.examined:,} examined"
            bar.update(task, completed=done.total, description=message)

        yield advance


def _report(done: PruneResult, as_json: bool) -> None:
    if as_json:
        by_type = [
            {"type": type, "status": status, "runs": count} for (type, status), count in sorted(done.runs.items())
        ]
        kept = {why.value: done.kept[why] for why in Kept}
        say_json(
            {"dry_run": done.is_dry, "examined": done.examined, "pruned": done.total, "by_type": by_type, "kept": kept}
        )
        return
    _print_counts(done, err=False)
    word = "would be deleted" if done.is_dry else "deleted"
    click.echo(f"{counted(done.total, 'run')} {word}, {done.examined:,} examined")


def _print_counts(done: PruneResult, *, err: bool) -> None:
    largest = sorted(done.runs.items(), key=lambda entry: (-entry[1], entry[0]))
    for (type, status), count in largest[:MOST_LINES]:
        click.echo(f"{count:>12,}  {type}  {status}", err=err)
    rest = largest[MOST_LINES:]
    if rest:
        click.echo(f"{sum(count for _, count in rest):>12,}  of {len(rest)} other kinds", err=err)
    for why, count in sorted(done.kept.items()):
        if count:
            click.echo(f"{count:>12,}  old enough, but kept: {WHY_KEPT[why]}", err=True)
