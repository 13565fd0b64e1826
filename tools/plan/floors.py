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

from .reading import PACKAGE, ROOT, File, Import, files, imports, sentence_of

NAMES = "names"
"""The files beside the packages that no room imports: what programs get when they import the package."""
SHARED = "shared"
"""The files beside the packages that rooms import and that need nothing but the law."""
PURPOSES = {
    NAMES: "What `import simpleworkflow` offers, loaded when it is asked for.",
    SHARED: "What every room may use.",
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
    package = root / PACKAGE.relative_to(ROOT)
    found, links = files(package), [link for link in imports(package) if not link.for_types]
    layers = _layers(root / "pyproject.toml")
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


def _layers(contract: Path) -> list[list[str]]:
    """The layers of import-linter, top first, without the name of the package."""
    contracts = tomllib.loads(contract.read_text())["tool"]["importlinter"]["contracts"]
    (layered,) = [one for one in contracts if one["type"] == "layers"]
    return [[name.strip().partition(".")[2] for name in line.split("|")] for line in layered["layers"]]


def _rooms(found: list[File], links: list[Import], named: set[str], lowest: str) -> dict[str, str]:
    """The room of every file. A file beside the packages is a room of its own if the layers name it, or if rooms use it
    and it needs rooms above the lowest."""
    beside = {file.path for file in found if not file.folder}
    room_of = {file.path: file.path.partition("/")[0] for file in found}
    used = _used(beside, links)
    shared = used - {f"{name}.py" for name in named}
    while needing_more := {
        link.source
        for link in links
        if link.source in shared and link.target not in shared and room_of[link.target] != lowest
    }:
        shared -= needing_more
    names = beside - used - {f"{name}.py" for name in named}
    return room_of | dict.fromkeys(shared, SHARED) | dict.fromkeys(names, NAMES)


def _used(beside: set[str], links: list[Import]) -> set[str]:
    """The files beside the packages that a room imports, or that such a file imports."""
    used = {link.target for link in links if link.source not in beside} & beside
    while more := {link.target for link in links if link.source in used} & beside - used:
        used |= more
    return used


def _between(links: list[Import], room_of: dict[str, str]) -> Arrows:
    pairs = [(room_of[link.source], room_of[link.target]) for link in links]
    return dict(sorted(Counter(pair for pair in pairs if pair[0] != pair[1]).items()))


def _floors(layers: list[list[str]], rooms: set[str], arrows: Arrows) -> Floors:
    """The layers, with floors put in between for the rooms that they do not name: first those that need no other such
    room. Rooms that import each other are put on the top floor: their arrows show as wrong."""
    floors = [[room for name in layer for room in (name, f"{name}.py") if room in rooms] for layer in layers]
    waiting = sorted(rooms - {room for floor in floors for room in floor})
    new: list[list[str]] = []
    while waiting:
        ready = [room for room in waiting if not any((room, other) in arrows for other in waiting if other != room)]
        for room in ready or waiting:
            needed = [index for index, floor in enumerate(floors) if any((room, other) in arrows for other in floor)]
            above = min(needed, default=len(floors) - 1)
            if above and floors[above - 1] in new and not any((other, room) in arrows for other in floors[above - 1]):
                floors[above - 1].append(room)
            else:
                new.append([room])
                floors.insert(above, new[-1])
        waiting = sorted(set(waiting) - set(ready or waiting))
    return tuple(tuple(floor) for floor in floors if floor)


def _purpose(room: str, package: Path) -> str:
    if room in PURPOSES:
        return PURPOSES[room]
    place = package / room
    return sentence_of(place / "__init__.py" if place.is_dir() else place)
