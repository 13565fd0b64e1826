"""The map of the house is what the source says: every file stands on it, every arrow is an import, and it is current.

`make map` writes docs/map.svg, docs/map.txt and a block of ARCHITECTURE.md. The tests that change something work in a
copy of the tree, so that they also show what the checks are able to see.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from support.scratch import ROOT, Scratch

PACKAGE = ROOT / "src" / "simpleworkflow"
SOURCES = {
    path.relative_to(PACKAGE).as_posix()
    for kind in ("py", "sql")
    for path in PACKAGE.rglob(f"*.{kind}")
    if not path.is_relative_to(PACKAGE / "store" / "sql" / "generated")  # for review, and not part of the package
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("plan.floors")


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path, "src", "tools", "docs", "pyproject.toml", "ARCHITECTURE.md")


def check(scratch: Scratch, **rest: Any) -> tuple[int, str]:
    done = scratch.python("tools/map.py", "--check", **rest)
    return done.returncode, done.stderr


def picture() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "docs" / "map.svg").getroot()


def listed() -> set[str]:
    """The files that docs/map.txt lists, each below the heading of its folder or room."""
    found, folder = set(), ""
    for line in (ROOT / "docs" / "map.txt").read_text().partition("The files.")[2].splitlines()[1:]:
        if re.fullmatch(r"[\w./]+[/:]", line):
            folder = line if line.endswith("/") else ""
        found |= {folder + name for name in re.findall(r"([\w.]+\.(?:py|sql)) ", line)}
    return found


def test_the_map_is_what_the_source_says() -> None:
    command = [sys.executable, "tools/map.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_file_stands_on_the_map() -> None:
    told = {(title.text or "").partition(":")[0] for title in picture().iter(f"{SVG}title")}
    assert told >= SOURCES
    assert listed() == SOURCES


def test_the_page_shows_the_overview_of_the_map() -> None:
    page, whole = (ROOT / "ARCHITECTURE.md").read_text(), (ROOT / "docs" / "map.txt").read_text()
    assert whole.partition("\nThe files.")[0] in page
    assert "](docs/map.svg)" in page


def test_no_arrow_of_the_map_leads_up_or_sideways(plan: Any) -> None:
    assert plan.read_house().upward == []


def test_a_file_that_imports_another_one_counts_once_however_often_it_says_so(scratch: Scratch, plan: Any) -> None:
    before = plan.read_house(scratch.root).arrows["sinks", "store"]
    lines = "\nfrom ..store import outage as _\nfrom ..store.outage import level as _\n"
    scratch.append("src/simpleworkflow/sinks/at.py", lines)
    assert plan.read_house(scratch.root).arrows["sinks", "store"] == before + 1


def test_a_file_that_is_not_on_the_map_makes_it_stale(scratch: Scratch) -> None:
    scratch.write("src/simpleworkflow/worker/night_watch.py", '"""Watches at night."""\n')
    status, said = check(scratch)
    assert status == 1
    assert "docs/map.svg, docs/map.txt, ARCHITECTURE.md: not what the source says; run: make map" in said
    assert scratch.python("tools/map.py").returncode == 0
    assert check(scratch) == (0, "")
    assert "night_watch.py" in (scratch.root / "docs" / "map.txt").read_text()


def test_an_import_from_another_room_makes_the_map_stale(scratch: Scratch) -> None:
    scratch.append("src/simpleworkflow/sinks/at.py", "\nfrom ..store import outage as _\n")
    assert check(scratch)[0] == 1


def test_a_line_more_does_not_make_the_map_stale(scratch: Scratch) -> None:
    """Sizes are told in steps of fifty lines, or every change would have to draw the map anew."""
    steady = next(name for name in sorted(SOURCES) if 5 < (PACKAGE / name).read_text().count("\n") % 50 < 15)
    scratch.append(
        f"src/simpleworkflow/{steady}", "# A line more.\n" if steady.endswith(".py") else "-- A line more.\n"
    )
    status, said = check(scratch)
    assert (status, said) == (0, ""), steady


def test_the_same_source_gives_the_same_map_everywhere(scratch: Scratch) -> None:
    for seed in ("1", "2"):
        assert check(scratch, hash_seed=seed) == (0, "")


def test_a_new_package_finds_its_floor_by_its_imports(scratch: Scratch, plan: Any) -> None:
    scratch.write("src/simpleworkflow/fair/__init__.py", '"""The fair: shows what the house can do."""\n')
    scratch.write("src/simpleworkflow/fair/stand.py", '"""One stand."""\n\nfrom ..app import App as App\n')
    scratch.append("src/simpleworkflow/cli/main.py", "\nfrom ..fair import stand as stand\n")
    house = plan.read_house(scratch.root)
    (above,) = [number for number, floor in enumerate(house.floors) if "cli" in floor]
    (own,) = [number for number, floor in enumerate(house.floors) if "fair" in floor]
    assert own > above
    assert house.floors[own : own + 2] == (("fair",), ("app.py",))
    assert house.purposes["fair"] == "The fair: shows what the house can do."
    assert house.upward == []


def test_a_file_beside_the_packages_stands_below_those_that_need_it(scratch: Scratch, plan: Any) -> None:
    scratch.write("src/simpleworkflow/ground.py", '"""Needs nothing of ours."""\n')
    scratch.append("src/simpleworkflow/model/limits.py", "\nfrom .. import ground as _\n")
    house = plan.read_house(scratch.root)
    assert house.rooms[-2:] == ["model", "base"]
    assert "ground.py" in {file.path for file in house.files["base"]}
    assert house.upward == []


def test_an_arrow_that_leads_up_is_seen_and_marked(scratch: Scratch, plan: Any) -> None:
    scratch.append("src/simpleworkflow/model/limits.py", "\nfrom ..store import outage as _\n")
    assert plan.read_house(scratch.root).upward == [("model", "store")]
    assert scratch.python("tools/map.py").returncode == 0
    assert "store 1 (upwards!)" in (scratch.root / "docs" / "map.txt").read_text()


def test_imports_for_type_checkers_are_no_arrows(scratch: Scratch, plan: Any) -> None:
    before = plan.read_house(scratch.root).arrows
    lines = "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..store import outage\n"
    scratch.append("src/simpleworkflow/model/limits.py", lines)
    assert plan.read_house(scratch.root).arrows == before


def test_nothing_of_the_picture_lies_outside_its_frame() -> None:
    root = picture()
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width, rect.attrib
        assert 0 <= y <= y + h <= height, rect.attrib
