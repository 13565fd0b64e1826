"""`simpleworkflow bench`: the command. It measures by the package `simpleworkflow.benchmark`, imported when it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from ...config import default_url
from ...model.errors import SimpleWorkflowError
from ..common.interrupts import run_in_a_loop, stopped_by_sigterm
from ..common.options import json_option, url_option
from ..common.output import fail, safe

if TYPE_CHECKING:
    from ...benchmark.log_warnings import LogWarnings
    from ...benchmark.measures import OnProgress


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
    run_bench(url, runs=runs, steps=steps, as_json=as_json, keep=keep)


def run_bench(url: str | None, *, runs: int, steps: int, as_json: bool, keep: bool) -> None:
    from ...benchmark.place import place_at
    from ...benchmark.plan import Plan
    from ...benchmark.report import Report
    from ...benchmark.run import take
    from .report_table import print_report

    plan = Plan(runs, steps)
    kept = ""
    try:
        with stopped_by_sigterm(), place_at(url or default_url(), keep=keep) as place:
            if keep:
                kept = f"{place.kind} {place.name} is kept"
            with _progress_bar(show=not as_json) as on_progress, _warnings() as warnings:
                settings, figures = run_in_a_loop(partial(take, place, plan, on_progress))
            report = Report(place, plan, settings, figures, keep, warnings.texts)
            if as_json:
                click.echo(json.dumps(report.as_json()))
            else:
                print_report(report)
    except KeyboardInterrupt:
        fail(f"interrupted; {kept or 'nothing is left behind'}")
    except SimpleWorkflowError as error:
        if not kept:
            raise
        fail(f"{error}; {kept}")


@contextmanager
def _progress_bar(*, show: bool) -> Iterator[OnProgress]:
    """On standard error where it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as progress:
        task = progress.add_task("")

        def on_progress(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        yield on_progress


@contextmanager
def _warnings() -> Iterator[LogWarnings]:
    """Collect them for the report; print them when an error prevents the report."""
    from ...benchmark.log_warnings import LogWarnings

    with LogWarnings() as warnings:
        try:
            yield warnings
        except Exception:
            for text in warnings.texts:
                click.echo(safe(text), err=True)
            raise
