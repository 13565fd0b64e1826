"""The plan as text: the floors with their rooms, the arrows, and every file with its size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from .floors import House
from .reading import File
from .sizes import STEP, blocks, told

WIDTH = 118
COLUMNS = 3
LONGEST_BAR = 8
"""Blocks; a longer file ends in a plus."""
NO_BREAK = "\N{NO-BREAK SPACE}"


def overview(house: House) -> str:
    """What ARCHITECTURE.md shows: the floors, and what each room imports."""
    return "\n".join([*_floors(house), "", *_arrows(house)]) + "\n"


def whole(house: House) -> str:
    """docs/map.txt: the same, and the files of every room."""
    return "\n".join([*_floors(house), "", *_arrows(house), "", *_files(house)]) + "\n"


def _floors(house: House) -> Iterator[str]:
    name = _name_width(house)
    room_for_words = WIDTH - name - 20
    yield f"{'room':<{name}}  {'what it is for':<{room_for_words}}  {'files':>6}  {'lines':>8}"
    for floor in house.floors:
        yield "─" * WIDTH
        for room in floor:
            first, *more = wrap(house.purposes[room], room_for_words)
            yield f"{room:<{name}}  {first:<{room_for_words}}  {len(house.files[room]):>6}  {_size(house, room):>8}"
            yield from (f"{'':<{name}}  {line}" for line in more)
    yield "─" * WIDTH


def _arrows(house: House) -> Iterator[str]:
    """One line per room: how many imports lead to it, and how many lead from it to which other rooms."""
    name = _name_width(house)
    yield f"{'room':<{name}}  {'imported':>8}  imports"
    for room in house.rooms:
        below = ", ".join(_arrow(house, room, other, count) for other, count in house.below(room))
        lines = [line.replace(NO_BREAK, " ") for line in wrap(below, WIDTH - name - 12)] or ["nothing"]
        yield f"{room:<{name}}  {house.reached(room):>8}  {lines[0]}"
        yield from (f"{'':<{name}}  {'':>8}  {line}" for line in lines[1:])


def _arrow(house: House, room: str, other: str, count: int) -> str:
    return f"{other} {count}{' (upwards!)' if (room, other) in house.upward else ''}".replace(" ", NO_BREAK)


def _files(house: House) -> Iterator[str]:
    yield f"The files. A block is {STEP} lines, a dot less than half of that; a plus is more than {LONGEST_BAR} blocks."
    for room in house.rooms:
        for folder, files in by_folder(house.files[room]):
            yield ""
            yield f"{folder}/" if folder else f"{room}:"
            yield from _columns([_cell(file) for file in files])


def by_folder(files: list[File]) -> Iterator[tuple[str, list[File]]]:
    """The files of a room folder by folder, its own first."""
    ordered = sorted(files, key=lambda file: (file.folder, file.name))
    for folder, found in groupby(ordered, key=lambda file: file.folder):
        yield folder, list(found)


def _columns(cells: list[str]) -> Iterator[str]:
    height = -(-len(cells) // COLUMNS)
    for row in range(height):
        yield "  " + "".join(cells[row::height]).rstrip()


def _cell(file: File) -> str:
    length = blocks(file.lines)
    bar = "█" * min(length, LONGEST_BAR) + ("+" if length > LONGEST_BAR else "") if length else "·"
    return f"{file.name:<{28}}{bar:<{LONGEST_BAR + 2}}"


def _name_width(house: House) -> int:
    return max(map(len, house.rooms))


def _size(house: House, room: str) -> str:
    return told(house.lines(room))
