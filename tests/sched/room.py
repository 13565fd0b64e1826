"""What sched's scenarios share: histories in short, and a witness who looks at one again and again.

`told` says a history as its lines are written in these tests: the type, and in brackets what the line is about. The
witness holds the law of the event log: lines are numbered from 1 without gaps, and what was read once is never seen
otherwise. It looks after every commit it can catch, not only at the end, because a line that moves is right in the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.records import HistoryEvent
from simpleworkflow.model.states import Status

QUICK = swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.1, drain=0.0)
NO_JITTER: dict[str, Any] = {"initial": "20ms", "jitter": 0.0}
SUBJECTS = "workflow_name", "activity_name", "timer_id", "signal_name"

Line = tuple[int, str, Any, str | None]


def types(history: Sequence[HistoryEvent]) -> list[str]:
    return [line.type for line in history]


def told(history: Sequence[HistoryEvent]) -> list[str]:
    """`ActivityScheduled(charge)`; the bare type where a line is about the run itself."""
    lines = []
    for line in history:
        details = line.details or {}
        subject = next((details[key] for key in SUBJECTS if key in details), None)
        lines.append(line.type if subject is None else f"{line.type}({subject})")
    return lines


def of_type(history: Sequence[HistoryEvent], type: str) -> list[HistoryEvent]:
    return [line for line in history if line.type == type]


def details(history: Sequence[HistoryEvent], type: str, *keys: str) -> list[tuple[Any, ...]]:
    """These details of every line of that type."""
    return [tuple(line.details[key] for key in keys) for line in of_type(history, type)]


def without_yields(lines: Sequence[str]) -> list[str]:
    """For runs whose pauses depend on how fast the machine is."""
    return [line for line in lines if line != "WorkflowTaskYielded"]


async def until_status(handle: swf.RunHandle[Any], status: Status, seconds: float = 15.0) -> swf.Run:
    async def reached() -> swf.Run | None:
        run = await handle.get()
        return run if run.status is status else None

    run: swf.Run = await eventually(reached, f"the run is {status}", seconds)
    return run


async def until_told(handle: swf.RunHandle[Any], line: str) -> list[HistoryEvent]:
    async def seen() -> list[HistoryEvent] | None:
        history = await handle.history()
        return history if line in told(history) else None

    history: list[HistoryEvent] = await eventually(seen, f"the history tells of {line}")
    return history


class Gate:
    """An event for two event loops: the test's and its worker's."""

    def __init__(self) -> None:
        self._open = threading.Event()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        async def is_open() -> bool:
            return self.is_open

        await eventually(is_open, "the gate opens")


class Witness:
    """Looks at a run's history whenever asked, and remembers every line."""

    def __init__(self, handle: swf.RunHandle[Any]) -> None:
        self._handle = handle
        self.lines: list[Line] = []
        self.looks = 0

    async def look(self) -> list[HistoryEvent]:
        history = await self._handle.history()
        lines = [(line.idx, line.type, line.at, line.details_json) for line in history]
        assert [line[0] for line in lines] == list(range(1, len(lines) + 1)), f"numbered otherwise: {lines}"
        before = lines[: len(self.lines)]
        assert before == self.lines, f"what was told has changed\nfrom {self.lines}\nto   {before}"
        self.lines = lines
        self.looks += 1
        return history


@asynccontextmanager
async def watching(handle: swf.RunHandle[Any]) -> AsyncIterator[Witness]:
    """A witness who looks all the time, until the block is over; what it saw fails the test then."""
    witness, over = Witness(handle), asyncio.Event()

    async def watch() -> None:
        while not over.is_set():
            await witness.look()
            await asyncio.sleep(0.001)

    task = asyncio.create_task(watch())
    try:
        yield witness
    finally:
        over.set()
        await task
    await witness.look()
