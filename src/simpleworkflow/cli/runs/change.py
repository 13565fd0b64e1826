"""`simpleworkflow runs cancel | hold | resume | retry | delete | signal`: commands that change runs.

Several runs may be named, or `-` for ids on standard input. One refusal does not stop the others: each run gets a line
with its new state or the refusal. The exit code is 1 when any was refused. Ctrl-C takes nothing back.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from ...model.errors import RunNotFound, SimpleWorkflowError, StoreUnavailable
from ...model.records import Run
from ..common.database import opened
from ..common.exit_codes import NOT_DONE
from ..common.options import check_signal, json_option, url_option
from ..common.output import fail, safe, say_json
from ..common.payloads import STDIN, read_lines, read_payload
from .lookup import key_option, run_id_of

if TYPE_CHECKING:
    from ...app import App

AT_ONCE = 16
"""Calls at the same time: enough to hide round trips, few enough for one connection pool."""
WORTH_A_BAR = 50

Change = Callable[[UUID], Awaitable[Run]]

runs_argument = click.argument("named", nargs=-1, required=True, metavar="RUN...|-")
reason_option = click.option("--reason", help="For the audit trail, and for whoever asks later.")


@click.command()
@runs_argument
@url_option
@reason_option
@key_option
@json_option
def cancel(named: tuple[str, ...], url: str | None, reason: str | None, as_key: bool, as_json: bool) -> None:
    """End runs at once, with their children."""
    change_all(named, url, as_key, as_json, lambda app: partial(app.cancel, reason=reason))


@click.command()
@runs_argument
@url_option
@reason_option
@key_option
@json_option
def hold(named: tuple[str, ...], url: str | None, reason: str | None, as_key: bool, as_json: bool) -> None:
    """Stop runs from going on until they are resumed."""
    change_all(named, url, as_key, as_json, lambda app: partial(app.hold, reason=reason))


@click.command()
@runs_argument
@url_option
@key_option
@json_option
@click.option(
    "--run-new", is_flag=True, help="Run the new step that holds the run because it looks like a renamed one."
)
def resume(named: tuple[str, ...], run_new: bool, url: str | None, as_key: bool, as_json: bool) -> None:
    """Let held runs go on."""
    change_all(named, url, as_key, as_json, lambda app: partial(app.resume, run_new=run_new))


@click.command()
@runs_argument
@url_option
@key_option
@json_option
def retry(named: tuple[str, ...], url: str | None, as_key: bool, as_json: bool) -> None:
    """Open finished runs again; finished steps are kept. An open run is left as it is."""
    change_all(named, url, as_key, as_json, lambda app: app.retry)


@click.command()
@runs_argument
@url_option
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@key_option
@json_option
def delete(named: tuple[str, ...], url: str | None, reason: str | None, yes: bool, as_key: bool, as_json: bool) -> None:
    """Hide runs and free their idempotency keys; open ones are cancelled first."""
    if not yes:
        if STDIN in named:
            raise click.UsageError("ids come from standard input, so nobody can be asked there; add --yes")
        what = "this run" if len(named) == 1 else f"these {len(named)} runs"
        click.confirm(f"Delete {what}? Open ones are cancelled first.", abort=True, err=True)
    change_all(named, url, as_key, as_json, lambda app: partial(app.delete, reason=reason))


@click.command()
@click.argument("run")
@click.argument("name", callback=check_signal)
@click.argument("payload", required=False, metavar="[PAYLOAD|-|@FILE]")
@url_option
@click.option("--id", "signal_id", type=click.UUID, help="The signal's id: sending it twice then sends it once.")
@key_option
@json_option
def signal(
    run: str,
    name: str,
    payload: str | None,
    url: str | None,
    signal_id: UUID | None,
    as_key: bool,
    as_json: bool,
) -> None:
    """Send RUN the signal NAME; prints the signal's id."""
    value = read_payload(payload)
    with opened(url) as app:
        run_id = run_id_of(app, run, as_key)
        sent = app.sync.signal(run_id, name, value, id=signal_id)
    if as_json:
        say_json({"id": sent, "run_id": run_id, "name": name})
    else:
        click.echo(str(sent))


def change_all(
    named: Sequence[str], url: str | None, as_key: bool, as_json: bool, change_of: Callable[[App], Change]
) -> None:
    names = _names(named)
    with opened(url) as app:
        report = _Report(as_json, len(names))
        try:
            with report.progress():
                asyncio.run(_change_each(app, names, as_key, change_of(app), report))
        except KeyboardInterrupt:
            fail(f"interrupted; {report.done} of {len(names)} were dealt with")
    if report.refused:
        sys.exit(NOT_DONE)


def _names(named: Sequence[str]) -> list[str]:
    """The runs that were named, once each, in order."""
    every = [name for text in named for name in (read_lines() if text == STDIN else [text])]
    return list(dict.fromkeys(every))


async def _change_each(app: App, names: Sequence[str], as_key: bool, change: Change, report: _Report) -> None:
    for start in range(0, len(names), AT_ONCE):
        together = names[start : start + AT_ONCE]
        answers = await asyncio.gather(*(_change_one(app, name, as_key, change) for name in together))
        for name, answer in zip(together, answers, strict=True):
            report.add(name, answer)


async def _change_one(app: App, name: str, as_key: bool, change: Change) -> Run | str:
    """The run after the change, or why nothing was changed."""
    try:
        try:
            return await change(await asyncio.to_thread(_id_of, app, name, as_key))
        except RunNotFound:
            if as_key:
                raise
            return await change(await asyncio.to_thread(run_id_of, app, name))  # a key can look like an id
    except StoreUnavailable:
        raise  # the other runs would fail as well
    except SimpleWorkflowError as error:
        return str(error)
    except _Unknown:
        return ""


def _id_of(app: App, name: str, as_key: bool) -> UUID:
    if not as_key:
        with suppress(ValueError):
            return UUID(name)  # looked up as a key only when no run has this id: there may be many
    try:
        return run_id_of(app, name, as_key)
    except SystemExit:  # the message is printed; the other runs follow
        raise _Unknown from None


class _Unknown(Exception):
    """No run has that name; the message is printed."""


class _Report:
    """Prints a line per run, and a progress bar when there are many."""

    def __init__(self, as_json: bool, total: int) -> None:
        self._as_json = as_json
        self._total = total
        self._advance: Callable[[], object] = lambda: None
        self.done = 0
        self.refused = 0

    def add(self, name: str, answer: Run | str) -> None:
        self.done += 1
        self._advance()
        if isinstance(answer, Run):
            self._print_run(answer)
            return
        self.refused += 1
        if self._as_json:
            say_json({"id": name, "error": answer or "there is no such run"})
        elif answer:
            click.echo(f"refused: {safe(answer)}", err=True)

    def _print_run(self, run: Run) -> None:
        is_deleted, is_held = run.deleted_at is not None, run.is_held and not run.is_finished
        if self._as_json:
            say_json({"id": run.id, "status": run.status, "is_held": is_held, "is_deleted": is_deleted})
        else:
            words: list[Any] = [run.id, run.status, *(["held"] * is_held), *(["deleted"] * is_deleted)]
            click.echo(" ".join(map(str, words)))

    @contextmanager
    def progress(self) -> Iterator[None]:
        if self._total < WORTH_A_BAR or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        to_terminal = sys.stdout.isatty()  # then lines are printed above the bar
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, redirect_stdout=to_terminal) as bar:
            task = bar.add_task("", total=self._total)
            self._advance = lambda: bar.advance(task)
            yield
