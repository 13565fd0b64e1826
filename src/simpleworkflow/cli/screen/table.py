"""Tables as lines of text.

On a terminal, a table fits the width: first the columns that may be shortened are, then those that may be missed are
left out. In a pipe everything is printed, so that `grep` and `cut` see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from .text import say

if TYPE_CHECKING:
    from rich.console import Console

GAP = "  "
READABLE = 12
NARROWEST = 10
"""A column is not shortened below this; a terminal that is narrower still wraps the line."""


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
