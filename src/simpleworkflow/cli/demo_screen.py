"""How the demo looks: on a terminal a board of orders that change colour, elsewhere one line a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..clock import monotonic
from ..model.records import Run
from ..model.states import Status
from .demo_evidence import Evidence

COLUMNS = 10
LINE_EVERY = 1.0


class Look(Enum):
    """What an order looks like: a word and a style."""

    WAITING = "waiting", "dim"
    LEASED = str(Status.LEASED), "bold black on yellow"
    RETRYING = "to be retried", "bold white on magenta"
    INTERRUPTED = "interrupted", "bold white on red"
    DONE = "done", "black on green"
    FAILED = "failed", "bold red"

    @classmethod
    def of(cls, run: Run) -> Look:
        if run.is_finished:
            return cls.DONE if run.status is Status.SUCCEEDED else cls.FAILED
        if run.status is Status.LEASED:
            return cls.LEASED
        if run.crashes:
            return cls.INTERRUPTED
        return cls.RETRYING if run.attempt else cls.WAITING


class Screen:
    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._started = monotonic()
        self._next_line = 0.0
        is_alive = self._console.is_terminal and not self._console.is_dumb_terminal
        self.live = Live(console=self._console, refresh_per_second=10) if is_alive else None

    @property
    def seconds(self) -> float:
        return monotonic() - self._started

    def say(self, text: str, style: str = "bold") -> None:
        self._console.print(Text(f"{self.seconds:5.1f} s  {text}", style))

    def show(self, runs: Sequence[Run], *, now: bool = False) -> None:
        looks = [Look.of(run) for run in runs]
        counts = Counter(looks)
        parts = [Text(f"{look.value[0]} {counts[look]}", look.value[1]) for look in Look if counts[look]]
        if self.live is not None:
            self.live.update(Group(_board(looks), Text("   ").join(parts)))
        elif now or monotonic() >= self._next_line:
            self._next_line = monotonic() + LINE_EVERY
            self._console.print(Text("   ").join([Text(f"{self.seconds:5.1f} s"), *parts]))

    def conclude(self, evidence: Evidence) -> None:
        table = Table("what the effects log and the audit trail say", "")
        for label, count in evidence.table():
            table.add_row(label, Text(str(count), justify="right"))
        self._console.print(table)
        for line in evidence.against():
            self._console.print(Text(line, "red"))
        if evidence.is_sound:
            self.say("A worker was killed, nothing was lost, every order was finished once.", "bold green")
        else:
            self.say("Orders were lost or finished twice; the lines above are the evidence.", "bold red")


def _board(looks: Sequence[Look]) -> Text:
    board = Text()
    for index, look in enumerate(looks, 1):
        board.append(f" {index:02} ", look.value[1]).append(" " if index % COLUMNS else "\n")
    return board
