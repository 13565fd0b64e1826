"""`simpleworkflow bench`: the command and its options. `run.py` does the work, imported when the command is called."""

from __future__ import annotations

import click

from ..common.options import json_option, url_option


@click.command()
@url_option
@click.option(
    "--runs", default=5_000, show_default=True, type=click.IntRange(1, 1_000_000), help="No-op runs to drain."
)
@click.option("--steps", default=10, show_default=True, type=click.IntRange(1, 1_000), help="Steps per workflow.")
@json_option
@click.option("--keep", is_flag=True, help="Leave the benchmark's schema or file where it is.")
def bench(url: str | None, runs: int, steps: int, as_json: bool, keep: bool) -> None:
    """Measure what a database gives on this machine.

    Works in a schema (PostgreSQL) or a file (SQLite) of its own, which is removed afterwards.
    """
    from .run import run_bench

    run_bench(url, runs=runs, steps=steps, as_json=as_json, keep=keep)
