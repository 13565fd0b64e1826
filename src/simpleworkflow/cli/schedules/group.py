"""`simpleworkflow schedule …`: the group, and the commands that change one schedule. Those about slots: `slots.py`.

An invalid schedule is a mistake of the caller (exit code 2); an unknown name is not found (exit code 1). Workers follow
a change at their next look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..common.database import opened
from ..common.group import Group
from ..common.instants import now
from ..common.options import check_duration, json_option, url_option
from ..common.output import safe, say_json
from ..common.payloads import read_payload
from .refusing import refusing
from .rows import print_schedules, schedule_json, shown, state_of
from .slots import backfill, coming

if TYPE_CHECKING:
    from ...model.schedule import Schedule

WRITTEN_AGAIN = "a schedule that stands beside the code is written anew when a worker starts"


@click.group(cls=Group)
def schedule() -> None:
    """List, write, pause, resume, delete and run schedules."""


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
    from ...model.schedule import CODE

    if not yes:
        click.confirm(f"Delete schedule {safe(name)}?", abort=True, err=True)
    with opened(url) as app:
        gone = app.sync.schedules.delete(name)
    if as_json:
        say_json({"name": gone.name, "is_deleted": True})
    else:
        click.echo(f"{gone.name} deleted")
    if gone.origin == CODE:
        click.echo(f"{WRITTEN_AGAIN}: take it out of the code too, or pause it instead", err=True)


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


def _tell(one: Schedule, as_json: bool) -> None:
    if as_json:
        say_json(schedule_json(one))
    else:
        click.echo(f"{one.name} {state_of(one, now())}, next slot {shown(one.next_at, one)}")


for command in (backfill, coming):
    schedule.add_command(command)
