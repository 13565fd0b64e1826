"""`simpleworkflow dev MODULE:APP`: the command. It runs `supervisor.py`, imported when the command is called."""

from __future__ import annotations

import sys

import click

from ..common.options import check_seconds, check_url, import_option, json_option, log_level_option


@click.command()
@click.argument("target", metavar="MODULE:APP")
@import_option
@click.option("--url", callback=check_url, help="Another database than the App's own.")
@click.option(
    "--drain",
    default="1s",
    show_default=True,
    callback=check_seconds,
    help="How long running code may go on after a change, before it is handed to the new code.",
)
@log_level_option
@json_option
def dev(target: str, imports: tuple[str, ...], url: str | None, drain: str, log_level: str, as_json: bool) -> None:
    """Run a worker that reloads when the code changes, and watch its runs.

    The database is migrated first. Ctrl-C ends it.
    """
    from ...model.duration import seconds
    from .supervisor import develop

    length = seconds(drain, what="drain")
    options = {"target": target, "imports": imports, "url": url, "drain": length, "log_level": log_level}
    sys.exit(develop(options, as_json=as_json))
