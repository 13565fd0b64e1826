"""The runs that `simpleworkflow dev` shows: every open run, and those that have ended lately, each with its sentence.

The sentence is the one of `explain`. It is read again when the run has changed, and every two seconds. A run that was
seen open is followed until it ends, however many newer ones there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from ...app import App
from ...clock import monotonic
from ...model.errors import RunNotFound
from ...model.records import Run
from ...model.states import OPEN, TERMINAL

MOST_LOOKED_AT = 200
MOST_ENDED = 50
SHOW_ENDED_FOR = 30.0
SENTENCE_AGE = 2.0


class Line(NamedTuple):
    """One run and its sentence."""

    run: Run
    sentence: str
    key: tuple[Any, ...]
    at: float
    """When it was read, on the monotonic clock."""


class FollowedRuns:
    """The runs of one database, from now on."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lines: dict[UUID, Line] = {}
        self._old: set[UUID] | None = None
        """Runs that had ended before the first look."""

    async def look(self) -> tuple[list[Line], list[Line]]:
        """(every line to show, open runs first; the lines that have changed since the last look)."""
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
                except RunNotFound:  # pruned, or the tables were reset
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
    """What counts as a change; a renewed lease does not."""
    return run.status, run.lease_epoch, run.attempt, run.crashes, run.is_held
