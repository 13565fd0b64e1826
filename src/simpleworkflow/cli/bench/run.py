"""Runs the benchmark in its place, with a progress bar, and prints the report.

Everything is imported before the place is made: a KeyboardInterrupt during an import makes Python end as if SIGINT had
killed it, whatever exit code the command chose.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...benchmark.log_warnings import LogWarnings
from ...benchmark.measures import OnProgress, take
from ...benchmark.place import place_at
from ...benchmark.plan import Plan
from ...benchmark.report import Report
from ...config import default_url
from ...model.errors import SimpleWorkflowError
from ..common.interrupts import run_in_a_loop, stopped_by_sigterm
from ..common.output import fail, safe
from .report_table import print_report


def run_bench(url: str | None, *, runs: int, steps: int, as_json: bool, keep: bool) -> None:
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
    with LogWarnings() as warnings:
        try:
            yield warnings
        except Exception:
            for text in warnings.texts:
                click.echo(safe(text), err=True)
            raise
