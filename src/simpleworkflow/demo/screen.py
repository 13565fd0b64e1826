"""The output of the demo: a live board of the orders on a terminal, one line a second elsewhere.

An order has five marks: charge, reserve, approval, labels, notify. A mark is set when the effects log has the end of
that part. The colour is the state of the run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from io import TextIOWrapper

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..clock import monotonic
from ..model.records import Run
from ..model.states import Status
from .effects_log import Effect
from .evidence import Evidence

COLUMNS = 6
LINE_EVERY = 1.0
PARTS = 5


class Look(Enum):
    """How an order is shown: a word and a style."""

    WAITING = "not begun", "dim"
    LEASED = str(Status.LEASED), "bold black on yellow"
    SIGNAL = "awaits approval", "bold white on blue"
    CHILDREN = "awaits labels", "black on cyan"
    INTERRUPTED = "interrupted", "bold white on red"
    DONE = "done", "black on green"
    FAILED = "failed", "bold red"

    @classmethod
    def of(cls, run: Run, parts: int, dead: Collection[str]) -> Look:
        if run.is_finished:
            return cls.DONE if run.status is Status.SUCCEEDED else cls.FAILED
        holder = (run.leased_by or "").partition("@")[0]
        if holder in dead or (run.crashes and run.status is Status.PENDING):
            return cls.INTERRUPTED
        if run.status is Status.PAUSED:
            return cls.SIGNAL if parts < 3 else cls.CHILDREN
        return cls.LEASED if run.status is Status.LEASED else cls.WAITING


class Screen:
    def __init__(self) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal can print the marks
        self._console = Console(highlight=False)
        self._started = monotonic()
        self._next_line = 0.0
        is_alive = self._console.is_terminal and not self._console.is_dumb_terminal
        self.live = Live(console=self._console, refresh_per_second=10) if is_alive else None

    @property
    def seconds(self) -> float:
        return monotonic() - self._started

    def say(self, text: str, style: str = "bold") -> None:
        self._console.print(Text(f"{self.seconds:5.1f} s  {text}", style), soft_wrap=True)

    def show(
        self, runs: Sequence[Run], effects: Sequence[Effect], dead: Collection[str] = (), *, now: bool = False
    ) -> None:
        parts = parts_done(runs, effects)
        looks = [Look.of(run, parts[run.payload["number"]], dead) for run in runs]
        counts = Counter(looks)
        legend = [Text(f"{look.value[0]} {counts[look]}", look.value[1]) for look in Look if counts[look]]
        if self.live is not None:
            cells = [(run.payload["number"], parts[run.payload["number"]]) for run in runs]
            self.live.update(Group(_board(cells, looks), Text("   ").join(legend)))
        elif now or monotonic() >= self._next_line:
            self._next_line = monotonic() + LINE_EVERY
            steps = sum(line.what == "end" for line in effects)
            line = Text("   ").join([Text(f"{self.seconds:5.1f} s  steps {steps}"), *legend])
            self._console.print(line, soft_wrap=True)

    def conclude(self, evidence: Evidence) -> None:
        table = Table("what the effects log and the tables say", "")
        for label, value in evidence.table():
            table.add_row(label, Text(value, justify="right"))
        self._console.print(table)
        for line in evidence.violations():
            self._console.print(Text(line, "red"), soft_wrap=True)
        if evidence.is_sound:
            self.say("Two workers were killed. Nothing was lost, and no finished step ran again.", "bold green")
        else:
            self.say("A promise was broken; the lines above are the evidence.", "bold red")


def parts_done(runs: Sequence[Run], effects: Sequence[Effect]) -> Mapping[int, int]:
    """Order number -> how many of its five parts have ended."""
    ends = {line.place: line.order for line in effects if line.what in {"end", "signal"}}
    names = Counter((order, step_id.partition("#")[0]) for (_, step_id), order in ends.items())
    done: Counter[int] = Counter()
    for run in runs:
        order = run.payload["number"]
        done[order] = sum(
            count >= (len(run.payload["parcels"]) if name == "make_label" else 1)
            for (number, name), count in names.items()
            if number == order
        )
    return done


def _board(cells: Sequence[tuple[int, int]], looks: Sequence[Look]) -> Text:
    board = Text()
    for index, ((number, parts), look) in enumerate(zip(cells, looks, strict=True), 1):
        board.append(f" {number:02} {'■' * parts}{'·' * (PARTS - parts)} ", look.value[1])
        board.append(" " if index % COLUMNS else "\n")
    return board
