"""`simpleworkflow bench`: what does my database, on this machine, give me?

The figures are taken in a schema (PostgreSQL) or a file (SQLite) of the benchmark's own, which is gone afterwards
(bench_place.py). They are told together with the durability they were bought with: a server without fsync is fast
until it loses power. Real work on the same server shares the disk and the processors meanwhile, in both directions.
"""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..config import default_url
from ..model.errors import SimpleWorkflowError
from ..store.operations.health import durability, unsafe
from ..store.url import mask_text
from .bench_measures import Amount, Figure, Latency, Measures, Plan, Rate, Told
from .bench_place import Place, place_at
from .common import fail, json_option, safe, url_option
from .opened import run_in_a_loop, stopped_by_sigterm

MOST_TROUBLES = 3


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
    plan = Plan(runs, steps)
    kept = ""
    try:
        with stopped_by_sigterm(), place_at(url or default_url(), keep=keep) as place:
            if keep:
                kept = f"{place.kind} {place.name} is kept"
            with _progress(show=not as_json) as told, Troubles() as troubles:
                settings, figures = run_in_a_loop(partial(_take, place, plan, told))
            report = Report(place, plan, settings, figures, keep, troubles.told)
            if as_json:
                click.echo(json.dumps(report.as_json()))
            else:
                report.show()
    except KeyboardInterrupt:
        fail(f"interrupted; {kept or 'nothing is left behind'}")
    except SimpleWorkflowError as error:
        if not kept:
            raise
        fail(f"{error}; {kept}")


async def _take(place: Place, plan: Plan, told: Told) -> tuple[dict[str, str], list[Figure]]:
    settings = {setting.name: setting.value for setting in await place.app._client.run(durability())}
    return settings, await Measures(place.app, plan, told).take()


@contextmanager
def _progress(*, show: bool) -> Iterator[Told]:
    """A bar on the screen; nothing where nobody looks."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as progress:
        task = progress.add_task("")

        def told(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        yield told


class Troubles(logging.Handler):
    """What our own log has to complain of meanwhile: a rate that contains an outage is no measure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.told) < MOST_TROUBLES:
            try:
                self.told.append(mask_text(record.getMessage()))
            except Exception:
                self.handleError(record)

    def __enter__(self) -> Self:
        logging.getLogger("simpleworkflow").addHandler(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        logging.getLogger("simpleworkflow").removeHandler(self)
        if kind is not None and issubclass(kind, Exception):  # there will be no report to tell them
            for trouble in self.told:
                click.echo(safe(trouble), err=True)


class Report:
    def __init__(
        self,
        place: Place,
        plan: Plan,
        settings: dict[str, str],
        figures: list[Figure],
        keep: bool,
        troubles: Sequence[str] = (),
    ) -> None:
        self._troubles = list(troubles)
        self._place = place
        self._plan = plan
        self._settings = settings
        self._figures = figures
        self._keep = keep

    def as_json(self) -> dict[str, Any]:
        return {
            "simpleworkflow": version("simpleworkflow"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "database": str(self._place.url),
            "place": {"kind": self._place.kind, "name": self._place.name, "kept": self._keep},
            "settings": self._settings,
            "unsafe": self._unsafe(),
            "troubles": self._troubles,
            "runs": self._plan.runs,
            "steps": self._plan.steps,
            "figures": {figure.key: figure.as_json() for figure in self._figures},
        }

    def _unsafe(self) -> list[str]:
        """The settings with which a loss of power may take accepted runs along."""
        return [name for name, value in self._settings.items() if unsafe(name, value)]

    def show(self) -> None:
        console = Console(highlight=False)
        table = Table("measure", title=str(self._place.url), title_justify="left")
        table.add_column("figure", justify="right")
        table.add_column("taken from", style="dim")
        for figure in self._figures:
            table.add_row(figure.title, *_told_of(figure))
        console.print(table)
        if any(isinstance(figure, Amount) for figure in self._figures):
            console.print(
                "The write-ahead log is the whole server's: what others wrote meanwhile is in it.", style="dim"
            )
        console.print("bought with " + ", ".join(f"{name} {value}" for name, value in self._settings.items()))
        for name in self._unsafe():
            console.print(
                f"{name} is {self._settings[name]}: a loss of power may take accepted runs along", style="red"
            )
        for trouble in self._troubles:
            console.print(
                f"there was trouble, and the figures are the worse for it: {safe(trouble)}", style="red", markup=False
            )
        if self._keep:
            console.print(f"kept: {self._place.kind} {self._place.name}", soft_wrap=True)


def _told_of(figure: Figure) -> tuple[str, str]:
    match figure:
        case Rate():
            what = figure.unit.partition("/")[0]
            return f"{figure.value:,.0f} {figure.unit}", f"{figure.count:,} {what} in {figure.seconds:.2f} s"
        case Latency():
            return f"p50 {figure.p50:.1f} ms, p99 {figure.p99:.1f} ms", f"{figure.count:,} runs, one at a time"
        case Amount():
            return f"{figure.value:,.0f} {figure.unit}", f"{figure.count:,} runs, trigger included"
