"""Writes the map of the house: docs/map.svg, docs/map.txt, and the overview in ARCHITECTURE.md.

    python tools/map.py           # what `make map` does
    python tools/map.py --check   # only say what is stale, as a test does

The map is read from the source alone: rooms, floors, files with their sizes, imports. Sizes are rounded, so that most
changes of a line leave it as it is. The same source gives the same map on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from plan.floors import House, read_house
from plan.picture import picture
from plan.reading import ROOT
from plan.text import overview, whole

PAGE = "ARCHITECTURE.md"
BEGIN, END = "<!-- map: made by `make map`; do not edit -->\n", "<!-- end of map -->\n"


def main(*, only_check: bool) -> int:
    stale = []
    for name, text in written(read_house()):
        path = ROOT / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not only_check:
            path.write_text(text)
    if only_check and stale:
        print(f"{', '.join(stale)}: not what the source says; run: make map", file=sys.stderr)
        return 1
    print(f"written: {', '.join(stale)}" if stale else "the map is current")
    return 0


def written(house: House) -> Iterator[tuple[str, str]]:
    """Every file that the map is in, with its whole text."""
    yield "docs/map.svg", picture(house)
    yield "docs/map.txt", whole(house)
    yield PAGE, with_block((ROOT / PAGE).read_text(), f"```text\n{overview(house)}```\n")


def with_block(page: str, block: str) -> str:
    """The page with the block between its markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        sys.exit(f"{PAGE} needs these two lines, once and in this order:\n{BEGIN}{END}")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{block}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(main(only_check="--check" in sys.argv[1:]))
