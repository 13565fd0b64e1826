"""The right side of the picture: the arrows between the rooms.

Every room that others import has a line of its own, which leads down to it and ends in an arrow. From every room one
line leads to the right; where it meets the line of another room, a number tells how many imports go that way. A line
grows with the imports that have joined it. Lines to lower rooms stand further to the right, so that no arrow crosses
the line of another one. An arrow that leads up, or sideways, is red and dashed. Imports that only type checkers see are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from . import svg
from .boxes import Box
from .floors import House

FIRST, GAP = 44.0, 32.0
"""From the boxes to the first line, and from line to line."""
NAMES = 66.0
"""Where the names above the lines stand."""
WRONG = "#d11a2a"


def places(house: House, boxes: dict[str, Box]) -> dict[str, float]:
    """Where the line of each imported room stands."""
    imported = [room for room in house.rooms if house.reached(room)]
    return {room: boxes[room].right + FIRST + GAP * place for place, room in enumerate(imported)}


def draw_wires(house: House, boxes: dict[str, Box]) -> Iterator[str]:
    """Lines first and numbers last, so that nothing lies on a number."""
    lines = places(house, boxes)
    for room, x in lines.items():
        yield from _draw_name(boxes[room], x, min(boxes[source].leaving for source, to in house.arrows if to == room))
    for room in house.rooms:
        yield from _draw_leaving(house, boxes[room], lines)
    for room in lines:
        yield from _draw_arriving(house, boxes, room, lines[room])
    for (room, other), count in house.arrows.items():
        yield from _draw_number(boxes, (room, other), count, lines[other], (room, other) in house.upward)


def _draw_name(box: Box, x: float, first: float) -> Iterator[str]:
    """The name of the room that a line leads to, above its beginning."""
    ink = svg.color(box.hue, 0.35)
    yield svg.line([(x, NAMES), (x, first)], 1, svg.color(box.hue, 0.75), stroke_dasharray="1 4")
    where = f"rotate(-50 {svg.number(x)} {svg.number(NAMES)})"
    yield svg.text(x + 2, NAMES - 2, box.room, 11, font_weight=600, fill=ink, transform=where)


def _draw_leaving(house: House, box: Box, lines: dict[str, float]) -> Iterator[str]:
    reached = [lines[other] for other, _ in house.below(box.room)]
    if reached:
        yield svg.line([(box.right, box.leaving), (max(reached), box.leaving)], 1.2, svg.color(box.hue, 0.6, 0.35))


def _draw_arriving(house: House, boxes: dict[str, Box], room: str, x: float) -> Iterator[str]:
    box = boxes[room]
    ink = svg.color(box.hue, 0.55)
    joined = 0
    right = [pair for pair in house.arrows if pair[1] == room and pair not in house.upward]
    sources = [source for source in house.rooms if (source, room) in right]
    ends = [*(boxes[source].leaving for source in sources[1:]), box.arriving]
    for source, end in zip(sources, ends, strict=False):
        joined += house.arrows[source, room]
        yield svg.line([(x, boxes[source].leaving), (x, end)], _width(joined), ink, stroke_linecap="round")
    if sources:
        yield svg.line([(x, box.arriving), (box.right + 9, box.arriving)], _width(joined), ink)
        yield _head(box, ink, _width(joined))
    for source, _ in (pair for pair in house.upward if pair[1] == room):
        way = [(x, boxes[source].leaving), (x, box.arriving), (box.right + 9, box.arriving)]
        yield svg.line(way, 2, WRONG, stroke_dasharray="5 3")
        yield _head(box, WRONG, 2)


def _head(box: Box, ink: str, width: float) -> str:
    half = 5 + width / 2
    tip, y = box.right + 1, box.arriving
    corners = [(tip, y), (tip + 11, y - half), (tip + 11, y + half)]
    return svg.element("polygon", points=" ".join(f"{svg.number(a)},{svg.number(b)}" for a, b in corners), fill=ink)


def _draw_number(boxes: dict[str, Box], pair: tuple[str, str], count: int, x: float, is_wrong: bool) -> Iterator[str]:
    room, other = pair
    y, width = boxes[room].leaving, 14.0 + 6 * (len(str(count)) - 1)
    ink = WRONG if is_wrong else svg.color(boxes[other].hue, 0.42)
    tip = svg.element("title", f"{room} imports from {other}: {count}")
    pill = svg.rect(x - width / 2, y - 7, width, 14, rx=7, fill=svg.PAPER, stroke=ink, stroke_width=1.2)
    told = svg.text(x, y + 3.5, str(count), 9.5, text_anchor="middle", font_weight=600, fill=ink)
    yield svg.element("g", tip + pill + told)


def _width(imports: int) -> float:
    return 1.0 + 0.4 * sqrt(imports)
