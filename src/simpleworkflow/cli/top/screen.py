"""How `top` prints: a few lines of figures, then a row per type; redrawn on a terminal, printed once in a pipe."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ...clock import monotonic
from ...model.errors import StoreUnavailable
from ...model.records import Count
from ...model.states import OPEN, Status
from ..common.instants import now
from ..common.output import safe
from ..screen.table import Column, table_lines
from ..screen.text import STYLES, length, say, when

if TYPE_CHECKING:
    from .snapshots import Counts, Looker, Snapshot

LATE = 5.0
"""Seconds after which the lateness is shown in red."""
ORDER = tuple(Status)


async def watch_plainly(looker: Looker, out: Console, place: str, interval: float, limit: int) -> None:
    """Print one look below the other until Ctrl-C, for a terminal that cannot move its cursor."""
    started = False
    while True:
        try:
            if not started:
                await looker.start()
                await looker.count()
                started = True
            await asyncio.sleep(interval)
            looker.count_in_background()
            snapshot = await looker.look()
            say(out, _title(place, interval))
            print_snapshot(snapshot, out, limit)
            say(out, "")
        except StoreUnavailable as error:
            say(out, Text(safe(str(error)), "red"))
            await asyncio.sleep(interval)


async def watch_live(looker: Looker, out: Console, place: str, interval: float, limit: int) -> None:
    """Redraw the whole screen until Ctrl-C, then restore it."""
    snapshot: Snapshot | None = None
    problem: str | None = None
    started = False
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            try:
                if not started:
                    await looker.start()
                    started = True
                looker.count_in_background()
                snapshot = await looker.look()
                problem = None
            except StoreUnavailable as error:
                problem = str(error)
            lines = [_title(place, interval)]
            if problem is not None:
                lines.append(Text(safe(problem), "red"))
            if snapshot is not None:
                rows = max(3, out.height - 10)
                lines += snapshot_lines(snapshot, out.width, min(limit, rows))
            live.update(Group(*[_one_line(line) for line in lines]), refresh=True)
            await asyncio.sleep(interval)


def _one_line(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _title(place: str, interval: float) -> Text:
    title = Text("simpleworkflow top", "bold")
    return title.append(f"  {safe(place)}  {when(now())}  every {length(interval)}, Ctrl-C ends", "not bold dim")


def print_snapshot(snapshot: Snapshot, out: Console, limit: int) -> None:
    for line in snapshot_lines(snapshot, out.width if out.is_terminal else None, limit):
        say(out, line)


def snapshot_lines(snapshot: Snapshot, width: int | None, limit: int) -> list[Text]:
    return [
        _rates(snapshot),
        _workers(snapshot),
        _lateness(snapshot),
        Text(""),
        *_counts(snapshot.counts, width, limit),
        *([Text(safe(snapshot.problem), "red")] if snapshot.problem else []),
    ]


def _rates(snapshot: Snapshot) -> Text:
    sign = "at least " if snapshot.is_partial else ""
    line = Text("rates     ", "bold")
    for index, (name, rate) in enumerate(snapshot.rates.items()):
        style = "red" if name == "failed" and rate > 0 else "not bold"
        line.append(f"{', ' if index else ''}{name} {sign}{_rate(rate)}/s", style)
    return line


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def _workers(snapshot: Snapshot) -> Text:
    line = Text("workers   ", "bold")
    if snapshot.workers:
        return line.append(f"{snapshot.workers} alive, holding {snapshot.held:,} runs", "not bold")
    return line.append("none is alive", "red")


def _lateness(snapshot: Snapshot) -> Text:
    line = Text("lateness  ", "bold")
    if snapshot.late is None:
        return line.append("no run is due", "not bold")
    text = f"the oldest due run has waited {length(snapshot.late)} ({safe(snapshot.late_type or '')})"
    return line.append(text, "red" if snapshot.late > LATE else "not bold")


def _counts(counts: Counts | None, width: int | None, limit: int) -> list[Text]:
    if counts is None:
        return [Text("counting …", "dim")]
    by_type = _by_type(counts.counts)
    columns = [
        Column("type", is_flexible=True),
        *(Column(s, is_right=True) for s in ORDER),
        Column("all", is_right=True),
    ]
    rows = [_row(type, by_type[type]) for type in list(by_type)[:limit]]
    total: Counter[Status] = sum(by_type.values(), Counter())
    lines = table_lines(columns, [*rows, _row("all", total)], width)
    if len(by_type) > limit:
        lines.insert(-1, Text(f"… and {len(by_type) - limit} more types", "dim"))
    return [*lines, Text(""), Text(_age(counts), "dim")]


def _by_type(counts: Sequence[Count]) -> dict[str, Counter[Status]]:
    """Types with the most open runs first."""
    found: dict[str, Counter[Status]] = {}
    for type, status, runs in counts:
        found.setdefault(type, Counter())[status] += runs
    return dict(sorted(found.items(), key=lambda item: (-sum(item[1][s] for s in OPEN), item[0])))


def _row(type: str, counts: Counter[Status]) -> list[str | Text]:
    cells = [Text(f"{counts[s]:,}", STYLES.get(s, "") if counts[s] else "dim") for s in ORDER]
    return [safe(type), *cells, f"{counts.total():,}"]


def _age(counts: Counts) -> str:
    ago = length(max(0.0, round(monotonic() - counts.at)))
    return f"counted {ago} ago in {length(counts.took)}; counting reads the whole table, so it is done now and then"


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    counts = snapshot.counts
    return {
        "at": now(),
        "rates": {name: round(rate, 3) for name, rate in snapshot.rates.items()},
        "is_partial": snapshot.is_partial,
        "late": snapshot.late,
        "late_type": snapshot.late_type,
        "workers": snapshot.workers,
        "held": snapshot.held,
        "counts": [] if counts is None else [{"type": t, "status": s, "runs": n} for t, s, n in counts.counts],
        "count_seconds": None if counts is None else round(counts.took, 3),
    }
