"""`python bench [--quick] [--only NAME …] [--output FOLDER]`: takes the measures, one after the other, and reports.

One durable server for the whole run, the measures in a fixed order, nothing beside them: two at a time would measure
each other. A measure that raises is reported as failed, with its reason; the others go on, and the exit code is 1 at
the end. A missed bar is a finding, not a failure. Everything known is written after each measure, so Ctrl-C costs the
measure that was under way and no other. `--only` adds to the results that are there, if they are of the same machine
and settings; a run without it starts anew.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import plot
import report
from ground import RESULTS, Ground, NoGround, code, ground
from judging import Finding
from peers import driving
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

ORDER = (
    "drain",
    "steps",
    "triggers",
    "latency",
    "anatomy",
    "ceiling",
    "claims",
    "wal",
    "memory",
    "endurance",
    "sqlite",
)
INTERRUPTED = 130
LONGEST_REASON = 500
PAPER = 160
"""Columns where there is no screen: in a file nobody wants wrapped cells."""

Measure = Callable[[Ground], list[Finding]]
Find = Callable[[str], Measure]
Open = Callable[..., contextlib.AbstractContextManager[Ground]]


def found_by_name(name: str) -> Measure:
    """Imported when its turn comes: a measure that cannot be imported costs only itself."""
    measure: Measure = importlib.import_module(f"measures.{name}").measure
    return measure


def take(name: str, ground: Ground, find: Find) -> report.Taken:
    """One measure, judged. Whatever it raises is its result."""
    when, started = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    lines: tuple[report.Line, ...] = ()
    failed = None
    driving.left_out.clear()
    try:
        lines = tuple(report.Line.of(finding) for finding in find(name)(ground))
        if not lines:
            failed = "it found nothing"
    except Exception as error:
        traceback.print_exc()  # all of it here and now; the report needs one line
        failed = " ".join(f"{type(error).__name__}: {error}".split()).strip(": ")[:LONGEST_REASON]
    seconds, absent = round(time.perf_counter() - started, 1), tuple(sorted(driving.left_out))
    return report.Taken(name, when, seconds, lines, failed, code(), absent)


def take_all(names: Sequence[str], story: report.Story, ground: Ground, find: Find, folder: Path) -> None:
    console = Console(stderr=True, highlight=False)
    for nth, name in enumerate(names, 1):
        with _clock(console, f"{nth}/{len(names)}  {name}"):
            taken = take(name, ground, find)
        style = "red" if taken.failed is not None else None
        line = f"{nth}/{len(names)}  {name:<13} {taken.seconds:7.1f} s  {taken.summary}"
        console.print(line, style=style, markup=False, soft_wrap=True)
        story.add(taken, ORDER)
        report.write(story, folder)


@contextlib.contextmanager
def _clock(console: Console, what: str) -> Iterator[None]:
    """What is under way, and for how long; nothing of it stays on the screen."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(what, total=None)
        yield


def begin(ground: Ground, folder: Path, *, keep: bool) -> report.Story:
    """A story of this machine: the one that is there, where it may be added to, or a new one."""
    about, there = ground.about(), report.place(folder, ground.quick, "json")
    if keep and there.exists():
        before = report.Story.read(there)
        if before.is_of(about):
            before.about = about
            return before
        print("the results that are there are of another machine or other settings; starting anew", file=sys.stderr)
    return report.Story(about, ground.quick)


def tell(story: report.Story, folder: Path) -> None:
    """To the screen, and the picture."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PAPER)
    console.print(report.table(story))
    console.print(plot.terminal(story), no_wrap=True, overflow="ignore", crop=False)
    told = plot.png(story, report.place(folder, story.quick, "png"))
    console.print(f"written to {folder}" if told is None else f"written to {folder}; {told}", soft_wrap=True)


def main(words: Sequence[str] | None = None, *, find: Find = found_by_name, open_ground: Open = ground) -> int:
    parser = argparse.ArgumentParser(prog="python bench", description="Ours and the peers on one durable server.")
    parser.add_argument("--quick", action="store_true", help="the short form of every measure, under five minutes")
    parser.add_argument("--only", nargs="+", choices=ORDER, metavar="NAME", help=f"some of: {', '.join(ORDER)}")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go")
    options = parser.parse_args(words)
    names = [name for name in ORDER if options.only is None or name in options.only]
    interrupted = False
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"nothing can be written to {options.output}: {error}")
    try:
        with open_ground(quick=options.quick) as opened:
            story = begin(opened, options.output, keep=options.only is not None)
            try:
                take_all(names, story, opened, find, options.output)
            except KeyboardInterrupt:
                interrupted = True
    except NoGround as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the first measure
        return INTERRUPTED
    tell(story, options.output)
    if interrupted:
        return INTERRUPTED
    return 1 if any(taken.name in names for taken in story.failures) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the server and its folder go
    sys.exit(main())
