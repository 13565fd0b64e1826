"""The plan as a picture, docs/map.svg: the rooms from top to bottom, the floors behind them, the arrows beside them."""

from __future__ import annotations

from collections.abc import Iterator

from . import svg
from .boxes import LEFT, LONGEST, WIDTH, Box, columns, draw_box
from .floors import House
from .sizes import STEP
from .wires import FIRST, GAP, draw_wires, places

TOP, BETWEEN_ROOMS, BETWEEN_FLOORS, FLOOR_MARGIN = 92.0, 10.0, 20.0, 8.0
HUES = (8.0, 262.0)
"""Of the highest and the lowest floor: warm at the faces, cool at the law."""


def picture(house: House) -> str:
    boxes = {box.room: box for box in _boxes(house)}
    width = LEFT + WIDTH + FIRST + GAP * len(places(house, boxes)) + 16
    height = max(box.bottom for box in boxes.values()) + 24
    parts = [svg.rect(0, 0, width, height, fill="#fbfbfd"), *_heading(house), *_draw_floors(house, boxes, width)]
    parts += draw_wires(house, boxes)
    for box in boxes.values():
        parts += draw_box(box, house)
    return "\n".join([_open(width, height), "<!-- Made by `make map`; do not edit. -->", *parts, "</svg>", ""])


def _open(width: float, height: float) -> str:
    size = f'width="{svg.number(width)}" height="{svg.number(height)}"'
    view = f'viewBox="0 0 {svg.number(width)} {svg.number(height)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} font-family="{svg.SANS}">'


def _boxes(house: House) -> Iterator[Box]:
    y = TOP
    for number, floor in enumerate(house.floors):
        share = number / max(1, len(house.floors) - 1)
        hue = HUES[0] + (HUES[1] - HUES[0]) * share
        for room in floor:
            box = Box(room, hue, y, columns(house.files[room], room))
            yield box
            y = box.bottom + BETWEEN_ROOMS
        y += BETWEEN_FLOORS - BETWEEN_ROOMS


def _draw_floors(house: House, boxes: dict[str, Box], width: float) -> Iterator[str]:
    for floor in house.floors:
        top, bottom = boxes[floor[0]].top - FLOOR_MARGIN, boxes[floor[-1]].bottom + FLOOR_MARGIN
        shade = svg.color(boxes[floor[0]].hue, 0.965, 0.5)
        yield svg.rect(LEFT - FLOOR_MARGIN - 6, top, width - LEFT, bottom - top, rx=10, fill=shade)


def _heading(house: House) -> Iterator[str]:
    files = sum(map(len, house.files.values()))
    yield svg.text(LEFT, 34, "The house at a glance", 22, font_weight=700, fill=svg.INK)
    words = (
        f"{len(house.rooms)} rooms, {files} files. A bar is a file: full width is {LONGEST} lines, a step {STEP}; "
        "darker bars are longer. A number counts imports, from the room on its left"
    )
    yield svg.text(LEFT, 53, words, 11.5, fill=svg.PALE)
    yield svg.text(LEFT, 68, "to the room that the line leads to.", 11.5, fill=svg.PALE)
