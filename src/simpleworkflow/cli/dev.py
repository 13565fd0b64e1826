"""`simpleworkflow dev MODULE:APP`: a worker for people who write workflows: it migrates, reloads, and shows every run.

The command itself; what it does stands in developing.py, which is imported when it runs.
"""

from __future__ import annotations

import sys

import click

from .common.options import check_seconds, check_url, import_option, json_option, log_level_option


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
    from ..model.duration import seconds
    from .developing import develop

    length = seconds(drain, what="drain")
    orders = {"target": target, "imports": imports, "url": url, "drain": length, "log_level": log_level}
    sys.exit(develop(orders, as_json=as_json))
