"""The left side of the picture: every room is a box with its files, and the length of a bar is the size of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import svg
from .floors import House
from .reading import File
from .sizes import STEP, blocks, told
from .text import by_folder

LEFT, WIDTH, COLUMNS = 24.0, 960.0, 6
PADDING, HEAD, ROW, FOOT = 12.0, 44.0, 14.0, 10.0
CELL = (WIDTH - 2 * PADDING) / COLUMNS
LONGEST = 400
"""Lines that a bar as wide as its cell stands for; a longer file has a darker bar."""
WIDEST_NAME = 25

Cell = File | str
"""A file, or the folder that the next files are in."""


@dataclass(frozen=True, slots=True)
class Box:
    """A room and where it is drawn."""

    room: str
    hue: float
    top: float
    cells: tuple[tuple[Cell, ...], ...]
    """By column."""

    @property
    def height(self) -> float:
        return HEAD + ROW * max(map(len, self.cells)) + FOOT

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return LEFT + WIDTH

    @property
    def arriving(self) -> float:
        """Where the arrows to this room end."""
        return self.top + 15

    @property
    def leaving(self) -> float:
        """Where the arrows from this room begin."""
        return self.top + 39


def columns(files: list[File], room: str) -> tuple[tuple[Cell, ...], ...]:
    """Files in columns of one height; a folder's name never stands alone at the foot of a column."""
    cells: list[Cell] = []
    for folder, found in by_folder(files):
        below = folder.removeprefix(room).strip("/")
        cells += [f"{below}/", *found] if below else found
    height = max(1, -(-len(cells) // COLUMNS))
    while (filled := _fill(cells, height)) is None:
        height += 1
    return filled


def _fill(cells: list[Cell], height: int) -> tuple[tuple[Cell, ...], ...] | None:
    found: list[tuple[Cell, ...]] = []
    rest = list(cells)
    while rest:
        taken = height - 1 if len(rest) > height > 1 and isinstance(rest[height - 1], str) else height
        found.append(tuple(rest[:taken]))
        rest = rest[taken:]
    return tuple(found) if len(found) <= COLUMNS else None


def draw_box(box: Box, house: House) -> Iterator[str]:
    frame = svg.color(box.hue, 0.45)
    yield svg.rect(LEFT, box.top, WIDTH, box.height, rx=8, fill=svg.PAPER, stroke=frame, stroke_width=1.4)
    yield svg.text(LEFT + PADDING, box.top + 21, box.room, 15, font_weight=700, fill=svg.color(box.hue, 0.3))
    size = f"{len(house.files[box.room])} files, {told(house.lines(box.room))} lines"
    size = size.replace("1 files", "1 file") if size.startswith("1 ") else size
    yield svg.text(box.right - PADDING, box.top + 21, size, 11, text_anchor="end", fill=svg.PALE)
    yield svg.text(LEFT + PADDING, box.top + 36, house.purposes[box.room], 11, fill=svg.PALE)
    for column, cells in enumerate(box.cells):
        for row, cell in enumerate(cells):
            yield from _draw_cell(cell, box.hue, LEFT + PADDING + column * CELL, box.top + HEAD + row * ROW)


def _draw_cell(cell: Cell, hue: float, x: float, y: float) -> Iterator[str]:
    if isinstance(cell, str):
        yield svg.text(x, y + 10.5, cell, 9.5, font_family=svg.MONO, font_weight=700, fill=svg.color(hue, 0.35))
        return
    length = blocks(cell.lines) * STEP
    width = max(2.0, min(length, LONGEST) / LONGEST * (CELL - 8))
    shade = svg.color(hue, 0.74 if length > LONGEST else 0.88, 0.6)
    tip = svg.element("title", f"{cell.path}: about {length or 'ten'} lines")
    name = cell.name.removesuffix(".py")
    short = name if len(name) <= WIDEST_NAME else name[: WIDEST_NAME - 1] + "…"
    bar = svg.rect(x, y + 1, width, ROW - 2, rx=2, fill=shade)
    yield svg.element("g", tip + bar + svg.text(x + 3, y + 10.5, short, 9.5, font_family=svg.MONO, fill=svg.INK))
