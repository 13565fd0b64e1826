"""`python bench [--quick] [--only NAME …] [--output FOLDER] [--before [COMMIT] [--rounds N]]`: takes the measures, one
after the other, and reports. With `--before` they are those of this working tree against an older commit of ours.

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
from measures import before
from peers import driving, older
from peers.venvs import CannotInstall, cache_folder
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


def begin(ground: Ground, folder: Path, *, keep: bool, other: older.Older | None = None) -> report.Story:
    """A story of this machine: the one that is there, where it may be added to, or a new one."""
    story = report.Story(ground.about() | (other.about if other else {}), ground.quick)
    there = story.place(folder, "json")
    if keep and there.exists():
        kept = report.Story.read(there)
        if kept.is_of(story.about):
            kept.about = story.about
            return kept
        print("the results that are there are of another machine or other settings; starting anew", file=sys.stderr)
    return story


def tell(story: report.Story, folder: Path) -> None:
    """To the screen, and the picture; ratios that are all near 1 need none."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PAPER)
    console.print(report.table(story))
    if story.against:
        console.print(f"written to {story.place(folder, 'json')} and {story.place(folder, 'md').name}", soft_wrap=True)
        return
    console.print(plot.terminal(story), no_wrap=True, overflow="ignore", crop=False)
    told = plot.png(story, story.place(folder, "png"))
    console.print(f"written to {folder}" if told is None else f"written to {folder}; {told}", soft_wrap=True)


def choices(words: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for: `names` are the measures, `commit` the older commit of ours, if one was asked for."""
    parser = argparse.ArgumentParser(prog="python bench", description="Ours and the peers on one durable server.")
    parser.add_argument("--quick", action="store_true", help="the short form of every measure, under five minutes")
    parser.add_argument("--only", nargs="+", choices=ORDER, metavar="NAME", help=f"some of: {', '.join(ORDER)}")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go")
    told = "not the peers: this working tree against an older commit of ours (the newest tag)"
    parser.add_argument("--before", nargs="?", const="", metavar="COMMIT", help=told)
    told = f"with --before: how often both run ({before.ROUNDS}, with --quick {before.QUICK_ROUNDS})"
    parser.add_argument("--rounds", type=int, metavar="N", help=told)
    options = parser.parse_args(words)
    possible = ORDER if options.before is None else before.NAMES
    options.names = [name for name in possible if options.only is None or name in options.only]
    if not options.names:
        parser.error(f"--before has these measures: {', '.join(possible)}")
    if options.rounds is not None and (options.before is None or options.rounds < 1):
        parser.error("--rounds is a number above zero, and goes with --before")
    options.rounds = options.rounds or (before.QUICK_ROUNDS if options.quick else before.ROUNDS)
    try:
        options.commit = None if options.before is None else older.commit_of(options.before)
        options.output.mkdir(parents=True, exist_ok=True)
    except older.NoSuchCommit as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"nothing can be written to {options.output}: {error}")
    return options


def main(words: Sequence[str] | None = None, *, find: Find | None = None, open_ground: Open = ground) -> int:
    options = choices(words)
    interrupted, other = False, None
    find = find or (found_by_name if options.commit is None else before.finder(options.rounds))
    try:
        if options.commit is not None:
            print(f"an environment for {options.commit[:10]} …", file=sys.stderr)
            other = older.make(options.commit, cache_folder())
        with open_ground(quick=options.quick) as opened:
            story = begin(opened, options.output, keep=options.only is not None, other=other)
            try:
                take_all(options.names, story, opened, find, options.output)
            except KeyboardInterrupt:
                interrupted = True
    except (NoGround, CannotInstall) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the first measure
        return INTERRUPTED
    tell(story, options.output)
    if interrupted:
        return INTERRUPTED
    return 1 if any(taken.name in options.names for taken in story.failures) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the server and its folder go
    sys.exit(main())
