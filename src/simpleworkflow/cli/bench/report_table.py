"""Prints the report of the benchmark as a table, with the settings that the figures depend on and any warnings."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ...benchmark.figures import Amount, Figure, Latency, Rate
from ...benchmark.report import Report
from ..common.output import safe


def print_report(report: Report) -> None:
    console = Console(highlight=False)
    console.print(_table(report))
    if any(isinstance(figure, Amount) for figure in report.figures):
        console.print("The write-ahead log is the whole server's: what others wrote meanwhile is in it.", style="dim")
    console.print("bought with " + ", ".join(f"{name} {value}" for name, value in report.settings.items()))
    for name in report.unsafe:
        lost = "a loss of power may take accepted runs along"
        console.print(f"{name} is {report.settings[name]}: {lost}", style="red")
    for warning in report.warnings:
        text = f"there was trouble, and the figures are the worse for it: {safe(warning)}"
        console.print(text, style="red", markup=False)
    if report.is_kept:
        console.print(f"kept: {report.place.kind} {report.place.name}", soft_wrap=True)


def _table(report: Report) -> Table:
    table = Table("measure", title=str(report.place.url), title_justify="left")
    table.add_column("figure", justify="right")
    table.add_column("taken from", style="dim")
    for figure in report.figures:
        table.add_row(figure.title, *_cells_of(figure))
    return table


def _cells_of(figure: Figure) -> tuple[str, str]:
    match figure:
        case Rate():
            what = figure.unit.partition("/")[0]
            return f"{figure.value:,.0f} {figure.unit}", f"{figure.count:,} {what} in {figure.seconds:.2f} s"
        case Latency():
            return f"p50 {figure.p50:.1f} ms, p99 {figure.p99:.1f} ms", f"{figure.count:,} runs, one at a time"
        case Amount():
            return f"{figure.value:,.0f} {figure.unit}", f"{figure.count:,} runs, trigger included"
