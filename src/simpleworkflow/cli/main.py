"""The command's tree. Subcommands are imported when called, so that `--help` stays quick.

Exit codes: 0 done; 1 the work could not be done (the message says why); 2 the command was called wrongly;
3 a worker stopped with code still running or entries unwritten.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from ..config import URL_VARIABLE
from ..model.duration import seconds
from ..model.errors import InvalidDuration, InvalidName, InvalidURL, SimpleWorkflowError
from ..model.names import span_of_prefix


def _check_url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from ..store.url import parse_url

    if value is not None:
        try:
            parse_url(value)
        except InvalidURL as error:
            raise click.BadParameter(str(error)) from None
    return value


def _check_duration(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            seconds(value, what="duration")
        except InvalidDuration as error:
            raise click.BadParameter(str(error)) from None
    return value


def _check_prefixes(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for prefix in value:
        try:
            span_of_prefix(prefix)
        except InvalidName as error:
            raise click.BadParameter(str(error)) from None
    return value


url_option = click.option(
    "--url",
    callback=_check_url,
    help=f"The database: a SQLite file or postgresql://…; {URL_VARIABLE} or simpleworkflow.db unless given.",
)


class Commands(click.Group):
    """Users' mistakes end in one sentence, never in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SimpleWorkflowError as error:
            fail(str(error))


def fail(message: str, code: int = 1) -> NoReturn:
    click.secho("error: ", fg="red", nl=False, err=True)
    click.echo(message, err=True)
    sys.exit(code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="simpleworkflow", prog_name="simpleworkflow")
def main() -> None:
    """Durable workflows for Python, on SQLite or PostgreSQL."""


@main.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--url", callback=_check_url, help="Another database than the App's own.")
@click.option("--name", help="How this worker calls itself.")
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    callback=_check_prefixes,
    help="Serve only types with this prefix, such as billing.*; repeatable.",
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="Runs at a time (100).")
@click.option(
    "--lease",
    callback=_check_duration,
    help='How long this worker may be silent before its runs are taken over ("30s").',
)
@click.option("--drain", callback=_check_duration, help='How long running code may go on after a stop ("20s").')
@click.option("--fail-unknown", is_flag=True, help="Also claim types without a handler here, and fail them.")
@click.option(
    "--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
)
def worker(target: str, **options: Any) -> None:
    """Run a worker for the App that MODULE holds, until SIGTERM or Ctrl-C."""
    from .work import run_worker

    run_worker(target, **options)


@main.group()
def migrate() -> None:
    """Bring the tables of a database up or down."""


@migrate.command("up")
@url_option
def migrate_up(url: str | None) -> None:
    """Apply every migration that is missing."""
    from .schema import up

    up(url)


@migrate.command("down")
@url_option
@click.option("--count", default=1, show_default=True, type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Do not ask; the data of these tables is lost.")
def migrate_down(url: str | None, count: int, yes: bool) -> None:
    """Take back the newest migrations, with their data."""
    from .schema import down

    down(url, count, yes)


@migrate.command("status")
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def migrate_status(url: str | None, as_json: bool) -> None:
    """Show which migrations are applied; exit code 1 when some are missing."""
    from .schema import status

    status(url, as_json)


@main.command()
@url_option
@click.option(
    "--runs", default=5_000, show_default=True, type=click.IntRange(1, 1_000_000), help="No-op runs to drain."
)
@click.option("--steps", default=10, show_default=True, type=click.IntRange(1, 1_000), help="Steps per workflow.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--keep", is_flag=True, help="Leave the benchmark's schema or file where it is.")
def bench(url: str | None, runs: int, steps: int, as_json: bool, keep: bool) -> None:
    """Measure what a database gives on this machine.

    Works in a schema (PostgreSQL) or a file (SQLite) of its own, which is removed afterwards.
    """
    from .bench import run_bench

    run_bench(url, runs=runs, steps=steps, as_json=as_json, keep=keep)
