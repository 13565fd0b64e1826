"""The effects log of the demo: one line when the body of a step starts, and one when it ends or raises.

The log stands for the outside world: no line can be taken back. The demo process adds a line for every signal that was
accepted and for every process that it killed. `evidence.py` compares the log with the tables.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..clock import SystemClock
from ..runtime.step import step_info

LOG = "effects.log"

Place = tuple[str, str]
"""A step of a run: run id and step id."""


class Effect(NamedTuple):
    """One line: start, end or error of a step's body; signal or kill by the demo process."""

    what: str
    at: int
    pid: int
    order: int = 0
    run_id: str = ""
    step_id: str = ""

    @property
    def place(self) -> Place:
        return self.run_id, self.step_id


def note(line: Effect) -> None:
    """Append one line in one write, so that lines of several processes never mix."""
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, ("\t".join(map(str, line)) + "\n").encode())
    os.close(log)


def read_effects() -> list[Effect]:
    lines = Path(LOG).read_text().splitlines() if Path(LOG).exists() else []
    fields = (line.split("\t") for line in lines)
    return [Effect(what, int(at), int(pid), int(order), *rest) for what, at, pid, order, *rest in fields]


@contextmanager
def effect(order: int) -> Iterator[None]:
    """Log the start and the end of a step's body; used inside the body."""
    info, clock = step_info(), SystemClock()
    step_id = info.idempotency_key.removeprefix(f"{info.run_id}:")

    def log(what: str) -> None:
        note(Effect(what, clock.wall(), os.getpid(), order, str(info.run_id), step_id))

    log("start")
    try:
        yield
    except Exception:
        log("error")
        raise
    log("end")


def bodies_under_way(effects: Sequence[Effect], pid: int) -> int:
    """How many step bodies that process has started and not ended."""
    counts = Counter(line.what for line in effects if line.pid == pid)
    return counts["start"] - counts["end"] - counts["error"]
