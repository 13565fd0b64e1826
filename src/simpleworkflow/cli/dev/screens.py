"""How `simpleworkflow dev` prints: a live table on a terminal, a line per change elsewhere, or JSON."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from ..common.instants import now
from ..common.output import safe, say_json
from ..screen.text import say, screen, status_text
from .followed_runs import Line

ROOM_FOR_LOG = 4


class Screen:
    """A line per change; what the worker prints goes to standard error."""

    def __init__(self) -> None:
        self._out = screen()

    def shown(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def say(self, text: str, style: str = "") -> None:
        """Print a message of dev itself."""
        say(self._out, Text(f"{_time()} dev: {safe(text)}", style))

    def printed(self, line: str) -> None:
        """Pass on a line that the worker or its code has printed."""
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
    """A live table at the bottom of the terminal; everything else scrolls above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live

        self._live = Live(console=self._out, refresh_per_second=8, vertical_overflow="ellipsis")

    def shown(self) -> AbstractContextManager[Any]:
        return self._live

    def say(self, text: str, style: str = "") -> None:
        self._live.console.print(Text(safe(text), style or "bold"))

    def printed(self, line: str) -> None:
        self._live.console.print(Text.from_ansi(line))  # keeps colours, drops what moves the cursor

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
