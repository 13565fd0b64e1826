"""What happened in the demo, told by two witnesses: the effects log and the audit trail.

The log stands for the outside world: every execution appends a line when it begins, when it fails and when it is
through, and no line can be taken back. The audit trail is the database's own story of each run. An execution that is
killed after its last line and before its ending is committed does its work again: the outside world sees such work at
least once, not exactly once, and the table counts it apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from ..model.records import Event
from ..model.states import EventType
from ..runtime.context import Context

LOG = "effects.log"


class Effect(NamedTuple):
    what: str
    run_id: UUID
    order: int
    epoch: int
    attempt: int
    pid: int


def note(what: str, ctx: Context, order: int) -> None:
    """Append one line in one write, so that lines of several processes never mix."""
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, f"{what} {ctx.run_id} {order} {ctx.epoch} {ctx.attempt} {os.getpid()}\n".encode())
    os.close(log)


def read_effects() -> list[Effect]:
    lines = Path(LOG).read_text().splitlines() if Path(LOG).exists() else []
    return [Effect(what, UUID(run_id), *map(int, rest)) for what, run_id, *rest in map(str.split, lines)]


@dataclass(frozen=True)
class Evidence:
    effects: Sequence[Effect]
    trail: Mapping[UUID, Sequence[Event]]
    """The events of every order that was accepted."""
    killed: int
    """The process that was killed."""

    def table(self) -> list[tuple[str, int]]:
        begun, ended = self._lines("start"), self._lines("end")
        cut_short = begun.keys() - ended.keys() - self._lines("error").keys()
        crashed = {run_id for run_id, story in self.trail.items() if any(map(_is_crash, story))}
        by_others = {run_id for (run_id, _), pid in begun.items() if pid != self.killed}
        again = len(ended) - len({run_id for run_id, _ in ended})
        return [
            ("orders accepted", len(self._epochs(EventType.CREATED))),
            ("executions begun", len(begun)),
            ("interrupted by the kill", sum(begun[one] == self.killed for one in cut_short)),
            ("taken over by the second worker", len(crashed & by_others)),
            ("retried after an error", sum(map(len, self._epochs(EventType.RETRIED).values()))),
            *([("done again, killed just before the commit", again)] if again else []),
            ("finished exactly once", len(self.finished_once)),
            ("lost", len(self.trail.keys() - self._epochs(EventType.SUCCEEDED).keys())),
        ]

    @property
    def finished_once(self) -> set[UUID]:
        """Orders that succeeded once by the trail, in an execution that came to its end by the log."""
        ended = self._lines("end")
        successes = self._epochs(EventType.SUCCEEDED)
        return {run_id for run_id, epochs in successes.items() if len(epochs) == 1 and (run_id, epochs[0]) in ended}

    @property
    def is_sound(self) -> bool:
        return self.finished_once == self.trail.keys()

    def against(self) -> list[str]:
        """The stories of orders that are lost or finished twice."""
        return [
            f"run {run_id}: trail {[str(event.type) for event in story]}, "
            f"log {[f'{effect.what} in epoch {effect.epoch}' for effect in self.effects if effect.run_id == run_id]}"
            for run_id, story in self.trail.items()
            if run_id not in self.finished_once
        ]

    def _lines(self, what: str) -> dict[tuple[UUID, int], int]:
        """The executions that wrote such a line, and their processes."""
        return {(effect.run_id, effect.epoch): effect.pid for effect in self.effects if effect.what == what}

    def _epochs(self, word: EventType) -> dict[UUID, list[int | None]]:
        """The orders with that event (crashes apart), and the epochs in which it happened."""
        epochs = {
            run_id: [event.epoch for event in story if event.type is word and not _is_crash(event)]
            for run_id, story in self.trail.items()
        }
        return {run_id: found for run_id, found in epochs.items() if found}


def _is_crash(event: Event) -> bool:
    return event.type is EventType.RETRIED and (event.data or {}).get("reason") == "crash"
