"""`simpleworkflow schedule backfill | next`: start missed slots, and show the coming ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..common.database import opened
from ..common.instants import ExactInstant, Instant, now
from ..common.options import check_duration, json_option, url_option
from ..common.output import fail, say_json
from .refusing import refusing

if TYPE_CHECKING:
    from ...model.schedule import NewSchedule


@click.command()
@click.argument("name")
@click.argument("start", type=Instant())
@click.argument("end", type=Instant(), required=False)
@click.option("--dry-run", is_flag=True, help="Only say how many slots there are.")
@url_option
@json_option
def backfill(name: str, start: datetime, end: datetime | None, dry_run: bool, url: str | None, as_json: bool) -> None:
    """Start every slot of NAME from START on and before END (now) that has no run yet.

    Instants are ISO 8601 with a time zone, or durations back from now. Asking again starts nothing twice.
    """
    if start >= (end or now()):
        raise click.UsageError(f"START {start.isoformat()} is not before END")
    with opened(url) as app, refusing():
        progress = _Progress()
        try:
            with progress.shown():
                done = app.sync.schedules.backfill(name, start, end, tell=progress.tell, dry_run=dry_run)
        except KeyboardInterrupt:
            far = f"{progress.done} of {progress.total} slots were dealt with; " if progress.total else ""
            fail(f"interrupted; {far}ask again to go on")
    rest = done.slots - done.started
    if dry_run:
        say_json({"name": name, "slots": done.slots}) if as_json else click.echo(f"{done.slots} slots")
    elif as_json:
        say_json({"name": name, "slots": done.slots, "started": done.started})
    else:
        click.echo(f"{done.started} of {done.slots} slots started" + (f"; {rest} had been before" if rest else ""))


class _Progress:
    """How many slots are done; a bar on a terminal."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self._update: Any = lambda: None

    def tell(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._update()

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            self._update = lambda: bar.update(task, completed=self.done, total=self.total)
            yield


@click.command("next")
@click.argument("name", required=False)
@click.option("--cron", help="Of this expression instead of a schedule.")
@click.option("--every", callback=check_duration, help="Of this interval.")
@click.option("--tz", default="UTC", help="The zone of --cron.")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many slots.")
@click.option("--from", "start", type=ExactInstant(), help="After this instant instead of now.")
@url_option
@json_option
def coming(
    name: str | None,
    cron: str | None,
    every: str | None,
    tz: str,
    count: int,
    start: datetime | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show the coming slots of NAME, or of an expression, in UTC and on the clocks of its zone."""
    if (name is None) == (cron is None and every is None):
        raise click.UsageError("name a schedule, or give --cron or --every, one of the two")
    with refusing():
        if name is not None:
            with opened(url) as app:
                found: NewSchedule = app.sync.schedules.get(name)
        else:
            found = _made_up(cron, every, tz)
        slots = list(_slots_after(found, start or now(), count))
    for slot, local in slots:
        if as_json:
            say_json({"slot": slot, "local": local})
        else:
            click.echo(f"{slot:%Y-%m-%d %H:%M:%SZ}  {local:%a %Y-%m-%d %H:%M:%S %Z}")


def _made_up(cron: str | None, every: str | None, tz: str) -> NewSchedule:
    from ...model.schedule import new_schedule

    return new_schedule(
        "preview",
        "preview",
        cron,
        every=every,
        tz=tz,
        payload_json="null",
        overlap="allow",
        catch_up="one",
        window=None,
    )


def _slots_after(found: NewSchedule, start: datetime, count: int) -> Iterator[tuple[datetime, datetime]]:
    from ...model.cron import zone_of

    slot = found.timing.following(start)
    for _ in range(count):
        if slot is None:
            return
        yield slot, slot.astimezone(zone_of(found.tz))
        slot = found.timing.following(slot)
