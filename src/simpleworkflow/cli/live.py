"""What `simpleworkflow dev` shows: every run that is open, those that ended lately, and where each of them stands.

On a terminal it is a table that lives below the log; without one, a line per change of a run; with --json the same as
JSON. A run's sentence is the one of `explain`, asked for again whenever the run has moved and now and then in between.
A run that was seen open is followed until it ends, however many newer ones there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import click
from rich.table import Table
from rich.text import Text

from ..clock import monotonic
from ..model.errors import RunNotFound
from ..model.states import OPEN, TERMINAL
from .common.instants import now
from .common.output import safe, say_json
from .screen.text import say, screen, status_text

if TYPE_CHECKING:
    from ..app import App
    from ..model.records import Run

MOST_LOOKED_AT = 200
MOST_ENDED = 50
SHOW_ENDED_FOR = 30.0
SENTENCE_AGE = 2.0
ROOM_FOR_LOG = 4


class Line(NamedTuple):
    """One run and its sentence."""

    run: Run
    sentence: str
    key: tuple[Any, ...]
    at: float
    """When it was looked at, on our own clock."""


class Runs:
    """The runs of one database, followed from now on."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lines: dict[UUID, Line] = {}
        self._old: set[UUID] | None = None
        """What had ended before we came."""

    async def look(self) -> tuple[list[Line], list[Line]]:
        """Every line that is to be shown, open ones first; and those that have changed since the last look."""
        found = await self._find()
        changed = []
        for run in found:
            before = self._lines.get(run.id)
            key = _key(run)
            is_same = before is not None and before.key == key
            if before is not None and is_same and (run.is_finished or monotonic() - before.at < SENTENCE_AGE):
                continue
            line = Line(run, await self._app.explain(run.id), key, monotonic())
            self._lines[run.id] = line
            if not is_same:
                changed.append(line)
        return self._shown(), changed

    async def _find(self) -> list[Run]:
        """Open runs, those that ended lately, and those that were open at the last look and are in neither list."""
        open_runs = [run async for run in self._app.runs(status=OPEN, limit=MOST_LOOKED_AT)]
        ended = [run async for run in self._app.runs(status=TERMINAL, limit=MOST_ENDED)]
        if self._old is None:
            self._old = {run.id for run in ended}
        ended = [run for run in ended if run.id not in self._old]
        found = {run.id: run for run in [*ended, *open_runs]}
        for run_id in [line.run.id for line in self._lines.values() if not line.run.is_finished]:
            if run_id not in found:
                try:
                    found[run_id] = await self._app.get(run_id)
                except RunNotFound:  # pruned, or the tables were made anew
                    del self._lines[run_id]
        return sorted(found.values(), key=lambda run: run.id)

    def _shown(self) -> list[Line]:
        fresh = monotonic() - SHOW_ENDED_FOR
        for run_id, line in list(self._lines.items()):
            if line.run.is_finished and line.at < fresh:
                del self._lines[run_id]
                if self._old is not None:
                    self._old.add(run_id)
        return sorted(self._lines.values(), key=lambda line: (line.run.is_finished, line.run.id))


def _key(run: Run) -> tuple[Any, ...]:
    """What counts as a change: not that a lease was renewed."""
    return run.status, run.lease_epoch, run.attempt, run.crashes, run.is_held


class Screen:
    """A line per change, in the order in which things happen; what the worker prints goes to standard error."""

    def __init__(self) -> None:
        self._out = screen()

    def shown(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def say(self, text: str, style: str = "") -> None:
        """Something about dev itself."""
        say(self._out, Text(f"{_time()} dev: {safe(text)}", style))

    def printed(self, line: str) -> None:
        """Something that the worker or its code has printed."""
        click.echo(line, err=True)

    def show(self, lines: list[Line], changed: Iterable[Line]) -> None:
        for line in changed:
            say(self._out, f"{_time()} {safe(line.sentence)}")


class JsonScreen(Screen):
    """Nothing but JSON on standard output; the rest goes to standard error."""

    def say(self, text: str, style: str = "") -> None:
        click.echo(f"dev: {safe(text)}", err=True)

    def show(self, lines: list[Line], changed: Iterable[Line]) -> None:
        for run, sentence, *_ in changed:
            say_json({"run": run.id, "type": run.type, "status": run.status, "explain": sentence, "at": run.updated_at})


class LiveScreen(Screen):
    """A table that lives at the bottom of the terminal; everything else scrolls above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live

        self._live = Live(console=self._out, refresh_per_second=8, vertical_overflow="ellipsis")

    def shown(self) -> AbstractContextManager[Any]:
        return self._live

    def say(self, text: str, style: str = "") -> None:
        self._live.console.print(Text(safe(text), style or "bold"))

    def printed(self, line: str) -> None:
        self._live.console.print(Text.from_ansi(line))  # colours yes, anything that moves the cursor no

    def show(self, lines: list[Line], changed: Iterable[Line]) -> None:
        room = max(self._out.height - ROOM_FOR_LOG, 1)
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1)
        for line in lines[:room]:
            is_held = line.run.is_held and not line.run.is_finished
            table.add_row(status_text(line.run.status, is_held=is_held), Text(safe(line.sentence)))
        if len(lines) > room:
            table.add_row("", Text(f"and {len(lines) - room} more", "dim"))
        if not lines:
            table.add_row("", Text("no open runs; Ctrl-C ends this", "dim"))
        self._live.update(table)


def make_screen(*, as_json: bool) -> Screen:
    if as_json:
        return JsonScreen()
    out = screen()
    return LiveScreen() if out.is_terminal and not out.is_dumb_terminal else Screen()


def _time() -> str:
    return now().astimezone().strftime("%H:%M:%S")
