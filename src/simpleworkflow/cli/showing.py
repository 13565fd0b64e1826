"""How the commands put things on the screen: safe text, instants, lengths of time, tables.

Payloads, errors and names come from strangers. What a terminal would obey is shown as an escape (`\\x1b`) instead, and
text is never read as markup. A table fits the width of a terminal by shortening the columns that may be shortened, then
by leaving out those that may be missed; in a pipe everything is there, so that `grep` and `cut` see it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from ..model.duration import human
from ..model.states import Status
from .common import console
from .common import safe as safe  # stands there because `fail` needs it, and `--help` must not pay for rich
from .reading import now as now

if TYPE_CHECKING:
    from rich.console import Console

STYLES: dict[Status, str] = {
    Status.LEASED: "cyan",
    Status.PAUSED: "magenta",
    Status.SUCCEEDED: "green",
    Status.FAILED: "red",
    Status.TIMED_OUT: "red",
    Status.CANCELLED: "yellow",
}
GAP = "  "
READABLE = 12
NARROWEST = 10
"""A column is not shortened below this; a terminal that is narrower still wraps the line."""


def screen() -> Console:
    """Where tables go. What the terminal's encoding lacks is escaped: a strange letter must not end a command."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return console()


def first_line(text: str, most: int = 200) -> str:
    """The first line of a message, safe and not too long."""
    line = safe(text.strip().partition("\n")[0])
    return line if len(line) <= most else line[: most - 1] + "…"


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return safe(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def when(instant: datetime | None) -> str:
    """An instant as people write it, in UTC, to the second."""
    return "" if instant is None else instant.strftime("%Y-%m-%d %H:%M:%SZ")


def length(seconds: float) -> str:
    """A length of time in as many digits as anybody reads: 4ms, 1.25s, 3m 20s."""
    if seconds < 0.001:
        return "0s" if seconds <= 0 else "<1ms"
    return human(round(seconds, 3) if seconds < 1 else round(seconds, 2) if seconds < 60 else round(seconds))


def status_text(status: Status, *, is_held: bool = False, is_deleted: bool = False) -> Text:
    """A hold says nothing any more once the run has finished."""
    text = Text(status, STYLES.get(status, ""))
    if is_held and not status.is_terminal:
        text.append(" held", "bold yellow")
    if is_deleted:
        text.append(" deleted", "dim")
    return text


class Column(NamedTuple):
    title: str
    is_right: bool = False
    is_flexible: bool = False
    """May be shortened on a terminal that is too narrow."""
    leaves: int = 0
    """When shortening is not enough, columns with a number are left out, the lowest first."""
    enough: int = 0
    """So many characters of it say what it means, as of an id; it is cut to them, or to as many as make the rows
    differ, before others become unreadable."""


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], out: Console, indent: str = ""
) -> None:
    for line in table_lines(columns, rows, out.width - len(indent) if out.is_terminal else None):
        say(out, Text(indent) + line)


def say(out: Console, line: Text | str) -> None:
    """One line as it is: not wrapped, not cropped, not read as markup."""
    text = line if isinstance(line, Text) else Text(line)
    text.rstrip()
    out.print(text, soft_wrap=True)


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], width: int | None) -> list[Text]:
    """Header and rows with aligned columns, shortened to `width` where allowed (None: never)."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    header = [Text(column.title.upper(), "bold") for column in columns]
    widths = [max(cell_len(line[i].plain) for line in [header, *cells]) for i in range(len(columns))]
    kept = list(range(len(columns)))
    if width is not None:
        cells = _with_short_ids(columns, widths, cells, width)
        widths = [max(cell_len(line[i].plain) for line in [header, *cells]) for i in range(len(columns))]
        kept = _fitting(columns, widths, width)
        widths = _shrunk([widths[i] for i in kept], [columns[i] for i in kept], width)
    shown = [columns[i] for i in kept]
    return [_line(shown, widths, [line[i] for i in kept]) for line in [header, *cells]]


def _with_short_ids(
    columns: Sequence[Column], widths: Sequence[int], cells: list[list[Text]], width: int
) -> list[list[Text]]:
    """Their beginnings alone where the whole ones would leave the other columns less than is readable."""
    least = [min(widths[i], READABLE) if column.is_flexible else widths[i] for i, column in enumerate(columns)]
    if sum(least) + len(GAP) * (len(columns) - 1) <= width:
        return cells
    ends = [_distinct([row[i].plain for row in cells], column.enough) for i, column in enumerate(columns)]
    return [[cell[:end] if end else cell for cell, end in zip(row, ends, strict=True)] for row in cells]


def _distinct(values: Iterable[str], least: int) -> int:
    """How many characters keep different values different; 0 where nothing is to be cut."""
    whole = set(values)
    while least and len({value[:least] for value in whole}) < len(whole):
        least += 1
    return least


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Which columns there is room for, each as narrow as it may be."""
    kept = list(range(len(columns)))
    for leaving in sorted((i for i in kept if columns[i].leaves), key=lambda i: columns[i].leaves):
        least = [min(widths[i], NARROWEST) if columns[i].is_flexible else widths[i] for i in kept]
        if sum(least) + len(GAP) * (len(kept) - 1) <= width:
            break
        kept.remove(leaving)
    return kept


def _shrunk(widths: list[int], columns: Sequence[Column], width: int) -> list[int]:
    """Take from the widest column that gives, one by one, until it fits or nothing gives any more."""
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while excess > 0:
        giving = [i for i, column in enumerate(columns) if column.is_flexible and widths[i] > NARROWEST]
        if not giving:
            break
        widths[max(giving, key=lambda i: widths[i])] -= 1
        excess -= 1
    return widths


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Text]) -> Text:
    line = Text()
    for index, (column, width, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        shown = cell.copy()
        shown.truncate(width, overflow="ellipsis")
        space = " " * max(0, width - cell_len(shown.plain))
        line.append(GAP if index else "")
        line.append_text(Text(space) + shown if column.is_right else shown)
        line.append("" if column.is_right else space)
    line.rstrip()
    return line
