"""Puts the files into rooms and the rooms onto floors, from the faces at the top to the law at the bottom.

A room is a package beside the others, or one of the files beside the packages. The floors are the layers that
import-linter watches (pyproject.toml). What the layers do not name is placed by its own imports, on a floor directly
above the highest room that it needs, so that a new package finds its place without being named anywhere.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .reading import PACKAGE, ROOT, File, Import, files, imports, sentence_of

NAMES = "names"
"""The files beside the packages that no room imports: what programs get when they import the package."""
SHARED = "shared"
"""The files beside the packages that rooms import and that need nothing but the lowest room and what it needs."""
BASE = "base"
"""The files beside the packages that even the lowest room imports."""
PURPOSES = {
    NAMES: "What `import simpleworkflow` offers, loaded when it is asked for.",
    SHARED: "What the rooms above may use.",
    BASE: "What even the lowest room may use.",
}


Floors = tuple[tuple[str, ...], ...]
"""The rooms of each floor, top first."""
Arrows = dict[tuple[str, str], int]
"""(from, to) -> how many pairs of files."""


@dataclass(frozen=True)
class House:
    """The rooms by floor, top first, with the files of each and the imports between them."""

    floors: Floors
    files: dict[str, list[File]]
    purposes: dict[str, str]
    arrows: Arrows
    """Imports that only type checkers see are left out."""

    @cached_property
    def rooms(self) -> list[str]:
        return [room for floor in self.floors for room in floor]

    @cached_property
    def upward(self) -> list[tuple[str, str]]:
        """Arrows that do not lead to a lower floor. There should be none."""
        level = {room: number for number, floor in enumerate(self.floors) for room in floor}
        return sorted(pair for pair in self.arrows if level[pair[0]] >= level[pair[1]])

    def below(self, room: str) -> Iterator[tuple[str, int]]:
        """What a room imports from, in the order of the rooms."""
        for other in self.rooms:
            if (room, other) in self.arrows:
                yield other, self.arrows[room, other]

    def lines(self, room: str) -> int:
        return sum(file.lines for file in self.files[room])

    def reached(self, room: str) -> int:
        """How many imports of other rooms lead to this one."""
        return sum(count for (_, target), count in self.arrows.items() if target == room)


def read_house(root: Path = ROOT) -> House:
    package, project = root / PACKAGE.relative_to(ROOT), tomllib.loads((root / "pyproject.toml").read_text())
    found = [file for file in files(package) if not _is_left_out(root, package / file.path, project)]
    links = [link for link in imports(package) if not link.for_types]
    layers = _layers(project)
    room_of = _rooms(found, links, {room for layer in layers for room in layer}, layers[-1][0])
    by_room: dict[str, list[File]] = {room: [] for room in sorted(set(room_of.values()))}
    for file in found:
        by_room[room_of[file.path]].append(file)
    arrows = _between(links, room_of)
    return House(
        floors=_floors(layers, set(by_room), arrows),
        files=by_room,
        purposes={room: _purpose(room, package) for room in by_room},
        arrows=arrows,
    )


def _is_left_out(root: Path, path: Path, project: dict[str, Any]) -> bool:
    """What the wheel leaves out is not part of the package, such as SQL that was generated for review."""
    left_out = project["tool"]["hatch"]["build"]["targets"]["wheel"].get("exclude", [])
    return any(path.is_relative_to(root / folder) for folder in left_out)


def _layers(project: dict[str, Any]) -> list[list[str]]:
    """The layers of import-linter, top first, without the name of the package."""
    (layered,) = [one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]
    return [[name.strip().partition(".")[2] for name in line.split("|")] for line in layered["layers"]]


def _rooms(found: list[File], links: list[Import], named: set[str], lowest: str) -> dict[str, str]:
    """The room of every file. A file beside the packages is a room of its own if the layers name it, or if rooms use it
    and it needs rooms above the lowest."""
    room_of = {file.path: file.path.partition("/")[0] for file in found}
    beside = {file.path for file in found if not file.folder} - {f"{name}.py" for name in named}
    used = _used(beside, [link for link in links if link.source not in beside], links)
    base = _used(beside, [link for link in links if room_of[link.source] == lowest], links)
    shared = used - base
    while needing_more := {
        link.source
        for link in links
        if link.source in shared and link.target not in shared | base and room_of[link.target] != lowest
    }:
        shared -= needing_more
    groups = {BASE: base, SHARED: shared, NAMES: beside - used}
    return room_of | {path: room for room, paths in groups.items() for path in paths}


def _used(beside: set[str], first: list[Import], links: list[Import]) -> set[str]:
    """The files beside the packages that these imports lead to, by way of each other too."""
    used = {link.target for link in first} & beside
    while more := {link.target for link in links if link.source in used} & beside - used:
        used |= more
    return used


def _between(links: list[Import], room_of: dict[str, str]) -> Arrows:
    pairs = [(room_of[link.source], room_of[link.target]) for link in links]
    return dict(sorted(Counter(pair for pair in pairs if pair[0] != pair[1]).items()))


def _floors(layers: list[list[str]], rooms: set[str], arrows: Arrows) -> Floors:
    """The layers, with floors put in between for the rooms that they do not name: first those that need no other such
    room. Rooms that import each other come last: their arrows show as wrong."""
    floors = [[room for name in layer for room in (name, f"{name}.py") if room in rooms] for layer in layers]
    waiting = sorted(rooms - {room for floor in floors for room in floor})
    while waiting:
        ready = [room for room in waiting if not any((room, other) in arrows for other in waiting)] or waiting
        for room in ready:
            floors.insert(_place(room, floors, arrows), [room])
        waiting = [room for room in waiting if room not in ready]
    return tuple(tuple(floor) for floor in floors if floor)


def _place(room: str, floors: list[list[str]], arrows: Arrows) -> int:
    """Above the highest room that it needs; without such a one, below the lowest room that needs it."""
    needed = [index for index, floor in enumerate(floors) if any((room, other) in arrows for other in floor)]
    needing = [index for index, floor in enumerate(floors) if any((other, room) in arrows for other in floor)]
    return min(needed) if needed else max(needing, default=-1) + 1


def _purpose(room: str, package: Path) -> str:
    if room in PURPOSES:
        return PURPOSES[room]
    place = package / room
    return sentence_of(place / "__init__.py" if place.is_dir() else place)
