"""Idioms that readers had to guess at do not come back. The list grows as more of them are replaced."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "simpleworkflow"
BANNED = re.compile(
    r"how-manieth|in the book\b|\bminds\b|\bhands on\b|unburned|of its own making|\bknock|the bell\b|the crew\b"
    r"|the stage\b|comes? along\b|takes? along\b|doorway|\bdesks?\b|engine room",
    re.IGNORECASE,
)


def test_no_banned_idiom_comes_back() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in BANNED.finditer(line)
    ]
    assert found == []
