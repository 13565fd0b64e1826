"""`simpleworkflow schedule …`: list, write, pause, resume and delete schedules, run one now, make up for lost time.

What cannot be a schedule is the caller's mistake (exit code 2); a name that nobody has is an answer (exit code 1).
Changes take effect by themselves: the next worker that looks follows them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..model.errors import InvalidInput, InvalidName, InvalidSchedule
from .common.database import opened
from .common.group import Group
from .common.instants import ExactInstant, Instant, now
from .common.options import check_duration, json_option, url_option
from .common.output import fail, safe, say_json
from .common.payloads import read_payload
from .schedule_rows import print_schedules, schedule_json, shown, state_of

if TYPE_CHECKING:
    from ..model.schedule import NewSchedule, Schedule

FOR_EVER = "a schedule that stands beside the code is written anew when a worker starts"


@click.group(cls=Group)
def schedule() -> None:
    """List, write, pause, resume, delete and run schedules."""


@contextmanager
def refusing() -> Iterator[None]:
    """What cannot be was written by the caller."""
    try:
        yield
    except (InvalidSchedule, InvalidInput, InvalidName) as error:
        raise click.UsageError(safe(str(error))) from None


@schedule.command()
@click.argument("name")
@click.argument("type")
@click.argument("cron", required=False)
@click.option("--every", callback=check_duration, help="An interval instead of CRON, such as 15m.")
@click.option("--tz", default="UTC", show_default=True, help="The zone whose clocks CRON means: Europe/Berlin.")
@click.option("--payload", metavar="JSON|-|@FILE", help="The input of every run; omitted means null.")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip", "cancel"]),
    default="allow",
    show_default=True,
    help="While the run of the slot before is open: start the next too, skip it, or cancel the other.",
)
@click.option(
    "--catch-up",
    type=click.Choice(["none", "one", "all"]),
    default="one",
    show_default=True,
    help="Of the slots that were missed, start none, the last one, or all.",
)
@click.option("--window", callback=check_duration, help="Slots that were missed longer ago are not started.")
@url_option
@json_option
def add(
    name: str, type: str, cron: str | None, payload: str | None, url: str | None, as_json: bool, **how: Any
) -> None:
    """Write the schedule NAME down, or change it: start TYPE by CRON.

    CRON has five fields, such as "0 9 * * MON-FRI", or is @hourly, @daily, @weekly, @monthly or @yearly.
    """
    value = read_payload(payload, "--payload")
    with opened(url) as app, refusing():
        written = app.sync.schedules.put(name, type, cron, payload=value, **how)
    if as_json:
        say_json(schedule_json(written))
    else:
        click.echo(f"{written.name}: {written.rhythm}, next at {shown(written.next_at, written)}")


@schedule.command("list")
@url_option
@json_option
def list_schedules(url: str | None, as_json: bool) -> None:
    """List every schedule, its next slot, and whether it is well."""
    with opened(url) as app:
        found = app.sync.schedules.all()
    if as_json:
        for one in found:
            say_json(schedule_json(one))
    elif found:
        print_schedules(found)
    else:
        click.echo("no schedules", err=True)


@schedule.command()
@click.argument("name")
@click.option("--reason", help="For whoever asks later.")
@url_option
@json_option
def pause(name: str, reason: str | None, url: str | None, as_json: bool) -> None:
    """Start no slot of NAME until it is resumed."""
    with opened(url) as app:
        _tell(app.sync.schedules.pause(name, reason=reason), as_json)


@schedule.command()
@click.argument("name")
@url_option
@json_option
def resume(name: str, url: str | None, as_json: bool) -> None:
    """Go on with NAME; slots that were missed follow its catch-up policy."""
    with opened(url) as app:
        _tell(app.sync.schedules.resume(name), as_json)


@schedule.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
@json_option
def delete(name: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Forget the schedule NAME; its runs stay."""
    from ..model.schedule import CODE

    if not yes:
        click.confirm(f"Delete schedule {safe(name)}?", abort=True, err=True)
    with opened(url) as app:
        gone = app.sync.schedules.delete(name)
    if as_json:
        say_json({"name": gone.name, "is_deleted": True})
    else:
        click.echo(f"{gone.name} deleted")
    if gone.origin == CODE:
        click.echo(f"{FOR_EVER}: take it out of the code too, or pause it instead", err=True)


@schedule.command("run-now")
@click.argument("name")
@url_option
@json_option
def run_now(name: str, url: str | None, as_json: bool) -> None:
    """Start one run of NAME at once; its slots stay as they are. Prints the run's id."""
    with opened(url) as app:
        run_id = app.sync.schedules.run_now(name)
    if as_json:
        say_json({"name": name, "id": run_id})
    else:
        click.echo(str(run_id))


@schedule.command()
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
    """How far it is, and a bar above many."""

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


@schedule.command("next")
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
    from ..model.schedule import new_schedule

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
    from ..model.cron import zone_of

    slot = found.timing.following(start)
    for _ in range(count):
        if slot is None:
            return
        yield slot, slot.astimezone(zone_of(found.tz))
        slot = found.timing.following(slot)


def _tell(one: Schedule, as_json: bool) -> None:
    if as_json:
        say_json(schedule_json(one))
    else:
        click.echo(f"{one.name} {state_of(one, now())}, next slot {shown(one.next_at, one)}")
