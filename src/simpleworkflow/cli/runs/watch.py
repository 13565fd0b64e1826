"""`simpleworkflow runs watch RUN`: prints what a run does until it ends.

On a terminal the last line is redrawn: it says what the run is doing now, and its history scrolls above. Elsewhere
there is a line per change. The run is read by its id every half second, which costs the same however many runs there
are.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from ...model.states import Status
from ..common.database import opened
from ..common.exit_codes import NOT_DONE
from ..common.instants import Interval
from ..common.interrupts import run_in_a_loop, stopped_by_sigterm
from ..common.options import json_option, url_option
from ..common.output import fail, say_json
from .lookup import key_option, run_id_of

if TYPE_CHECKING:
    from ...app import App
    from ...model.records import HistoryEvent, Run


@click.command()
@click.argument("run")
@url_option
@click.option("--interval", default="500ms", show_default=True, type=Interval(0.05), help="Between looks.")
@key_option
@json_option
def watch(run: str, url: str | None, interval: float, as_key: bool, as_json: bool) -> None:
    """Watch a run until it ends; exit code 0 when it succeeded, 1 otherwise."""
    with opened(url) as app:
        run_id = run_id_of(app, run, as_key)
        try:
            with stopped_by_sigterm():
                last = run_in_a_loop(lambda: _watch(app, run_id, interval, as_json))
        except KeyboardInterrupt:
            fail(f"stopped watching; run {run_id} goes on")
    if last.status is not Status.SUCCEEDED:
        sys.exit(NOT_DONE)


async def _watch(app: App, run_id: UUID, interval: float, as_json: bool) -> Run:
    from ..screen.text import screen

    out = screen()
    sink: _Sink = _JsonSink() if as_json else _LiveSink(out) if out.is_terminal else _Sink(out)
    seen = 0
    with sink.shown():
        while True:
            run = await app.get(run_id)  # before the history: what happens in between is printed next time
            for happening in await app.handle(run_id).history(after=seen):
                sink.happening(run, happening)
                seen = happening.idx
            sink.state(run, str(await app.explain(run_id)))
            if run.is_finished:
                return run
            await asyncio.sleep(interval)


class _Sink:
    """Prints a line per change."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._last: tuple[Any, ...] = ()

    def shown(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def happening(self, run: Run, happening: HistoryEvent) -> None:
        from ..history.lines import happening_line
        from ..screen.text import say

        say(self._out, happening_line(happening, run.created_at))

    def state(self, run: Run, sentence: str) -> None:
        from ..common.output import safe
        from ..screen.text import say, when

        now = (run.status, run.is_held, run.run_at if run.status is not Status.LEASED else None, run.attempt)
        if now != self._last:
            self._last = now
            say(self._out, f"{when(run.updated_at)}  {safe(sentence)}")


class _LiveSink(_Sink):
    """Redraws the last line."""

    def __init__(self, out: Any) -> None:
        super().__init__(out)
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots")
        self._live = Live(self._spinner, console=out, transient=True, refresh_per_second=8)

    def shown(self) -> AbstractContextManager[Any]:
        return self._live

    def state(self, run: Run, sentence: str) -> None:
        from rich.text import Text

        from ..common.output import safe
        from ..screen.text import STYLES, say

        if run.is_finished:
            self._live.update(Text(""))
            say(self._out, Text(safe(sentence), STYLES.get(run.status, "")))
        else:
            self._spinner.update(text=Text(safe(sentence)))


class _JsonSink(_Sink):
    """Prints a JSON value per line of the history, and one whenever the state has changed."""

    def __init__(self) -> None:
        super().__init__(None)

    def happening(self, run: Run, happening: HistoryEvent) -> None:
        say_json({"idx": happening.idx, "type": happening.type, "at": happening.at, "details": happening.details})

    def state(self, run: Run, sentence: str) -> None:
        now = (run.status, run.is_held, run.run_at if run.status is not Status.LEASED else None, run.attempt)
        if now != self._last:
            self._last = now
            say_json({"status": run.status, "is_held": run.is_held, "explain": sentence, "at": run.updated_at})
