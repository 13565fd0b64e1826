"""The timeline of a run as text: a bar per step and wait, on one scale from the trigger to the end.

`█` is running code, `░` is a wait that takes no slot (a sleep, a signal, a child). The first row shows when a worker
held the run. Each bar has at least one cell, so that short steps can be seen. `#` and `.` replace the bars where the
terminal cannot print them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from ...model.payload import decode
from ...model.records import Event, Run, Step
from ...model.states import EventType, StepKind, StepStatus
from ..runs.steps import place_of, started
from ..screen.text import first_line, length
from .lines import error_words, offset

WAITS = {StepKind.SLEEP, StepKind.SIGNAL, StepKind.RESULT}
DRAWN = {StepKind.STEP, *WAITS}
LEAVES = {
    EventType.RETRIED,
    EventType.RELEASED,
    EventType.PAUSED,
    EventType.SUCCEEDED,
    EventType.FAILED,
    EventType.CANCELLED,
    EventType.TIMED_OUT,
}
"""Events that end the lease of a worker."""
NARROWEST = 20
WIDEST = 60
LONGEST_NAME = 36


class Stretch(NamedTuple):
    start: datetime
    end: datetime


@dataclass(frozen=True)
class Bar:
    name: str
    stretches: Sequence[Stretch]
    is_wait: bool
    is_open: bool
    style: str
    remark: str

    @property
    def seconds(self) -> float:
        return sum((stretch.end - stretch.start).total_seconds() for stretch in self.stretches)


def bars_of(run: Run, steps: Sequence[Step], events: Sequence[Event], now: datetime) -> list[Bar]:
    """One bar for the executions, then one per step and wait, in the order in which they began."""
    end = run.finished_at or now
    shown = [step for step in steps if step.kind in DRAWN and step.started_at is not None]
    shown.sort(key=lambda step: step.started_at or run.created_at)
    starts = started(steps)
    return [*_executions(run, events, end), *(_bar(step, place_of(step, starts), end) for step in shown)]


def _executions(run: Run, events: Sequence[Event], end: datetime) -> list[Bar]:
    stretches: list[Stretch] = []
    since: datetime | None = None
    for event in events:
        if since is not None and (event.type in LEAVES or event.type is EventType.LEASED):
            stretches.append(Stretch(since, max(since, event.created_at)))
            since = None
        if event.type is EventType.LEASED:
            since = event.created_at
    if since is not None:
        stretches.append(Stretch(since, max(since, end)))
    if not stretches:
        return []
    failures = [f"{run.attempt} failed"] if run.attempt else []
    crashes = [f"{run.crashes} crashed"] if run.crashes else []
    count = len(stretches)
    remark = ", ".join([f"{count} execution{'' if count == 1 else 's'}", *failures, *crashes])
    return [Bar("on a worker", stretches, False, since is not None, "cyan", remark)]


def _bar(step: Step, name: str, end: datetime) -> Bar:
    assert step.started_at is not None
    is_open = step.completed_at is None
    stretch = Stretch(step.started_at, max(step.started_at, step.completed_at or end))
    is_wait = step.kind in WAITS
    failed = step.status in {StepStatus.FAILED, StepStatus.SUPERSEDED}
    style = "red" if failed else "magenta" if is_wait else "green"
    return Bar(name, [stretch], is_wait, is_open, style, _remark(step, failed, is_open))


def _remark(step: Step, failed: bool, is_open: bool) -> str:
    words = []
    if is_open:
        words.append("to be tried again" if step.status is StepStatus.RETRYING else "still waiting")
    if step.kind is StepKind.STEP and step.attempt:
        words.append(f"{step.attempt} failed attempt{'' if step.attempt == 1 else 's'}")
    if step.error_json is not None:
        words.append(error_words(decode(step.error_json, what="error")))
    elif failed and step.kind is StepKind.SIGNAL:
        words.append("no signal came in time")
    return first_line("; ".join(words))


def draw(bars: Sequence[Bar], start: datetime, end: datetime, width: int, *, ascii_only: bool) -> list[Text]:
    """A scale and a line per bar. `width` is that of the terminal; remarks may be longer."""
    end = max([end, *(stretch.end for bar in bars for stretch in bar.stretches)])
    names = [_fitted(bar.name) for bar in bars]
    offsets = [offset(bar.stretches[0].start, start) for bar in bars]
    lengths = [length(bar.seconds) + ("…" if bar.is_open else "") for bar in bars]
    name_width = max(map(cell_len, names))
    offset_width, length_width = max(map(len, offsets)), max(map(len, lengths))
    cells = min(WIDEST, max(NARROWEST, width - name_width - offset_width - length_width - 8))
    indent = " " * (name_width + 2 + offset_width + 2)
    lines = [_scale(indent, cells, (end - start).total_seconds())]
    for bar, name, begins, took in zip(bars, names, offsets, lengths, strict=True):
        line = Text(name + " " * (name_width - cell_len(name)))
        line.append(f"  {begins:>{offset_width}}  ", "dim")
        line.append(_cells(bar, start, end, cells, ascii_only), bar.style)
        line.append(f"  {took:>{length_width}}")
        line.append(f"  {bar.remark}" if bar.remark else "", "dim" if bar.style != "red" else "red")
        lines.append(line)
    return lines


def _fitted(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else "…" + name[-(LONGEST_NAME - 1) :]


def _scale(indent: str, cells: int, seconds: float) -> Text:
    right = length(seconds)
    return Text(f"{indent}0s{right:>{cells - 2}}", "dim")


def _cells(bar: Bar, start: datetime, end: datetime, cells: int, ascii_only: bool) -> str:
    """Filled where the bar has a stretch; at least one cell for each."""
    whole = max((end - start).total_seconds(), 1e-6)
    row = [" "] * cells
    mark = ("." if ascii_only else "░") if bar.is_wait else ("#" if ascii_only else "█")
    for stretch in bar.stretches:
        first = min(cells - 1, max(0, int((stretch.start - start).total_seconds() / whole * cells)))
        last = min(cells, max(first + 1, round((stretch.end - start).total_seconds() / whole * cells)))
        row[first:last] = mark * (last - first)
    return "".join(row)
