"""What a run of the benchmark leaves behind: JSON for machines, a Markdown table for readers, one for the screen.

A story is the machine, and one entry per measure: when it was taken, how long it took, its lines, or why it failed.
All of it is written after every measure, so an interrupted run leaves what it has, and each file is replaced in one
move, so nobody ever reads half of one. Lines are kept as they were judged: rendering an old story again needs no new
arithmetic.

The danger of a table is that it hides what was not measured. So a measure that failed is named in every form, with its
reason, and a story without a measure that was asked for does not exist.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from judging import Finding
from rich.table import Table
from rich.text import Text

STYLES = {"pass": "green", "fail": "bold red", "inconclusive": "yellow", "reported": "cyan"}
HEAD = ("measure", "ours", "theirs", "ratio", "bar", "verdict")
HEAD_AGAINST = ("measure", "now", "before", "ratio", "bar", "verdict")
"""Where the other side is an older commit of ours."""
CHANGING = "fsync_per_second"
"""The one entry about the machine that differs from run to run on the same machine."""


@dataclass(frozen=True, slots=True)
class Line:
    """A finding as it was judged."""

    key: str
    title: str
    unit: str
    ours: float
    theirs: float | None
    bar: str | None
    median: float
    interval: tuple[float, float]
    level: float
    verdict: str
    values: tuple[float, ...]
    detail: dict[str, Any]
    absent: tuple[str, ...] = ()

    @classmethod
    def of(cls, finding: Finding) -> Line:
        return cls.read(finding.as_json())

    @classmethod
    def read(cls, told: dict[str, Any]) -> Line:
        low, high = told["interval"]
        lists = {"values": tuple(told["values"]), "absent": tuple(told.get("absent", ()))}
        return cls(**{**told, "interval": (low, high), **lists})

    @property
    def is_ratio(self) -> bool:
        """Whether the values are ratios; otherwise they are figures of our own, in the unit of the line."""
        return self.theirs is not None

    @property
    def found(self) -> str:
        """The median ratio and its interval, 2.41× [2.20 – 2.60]; of a figure of our own the interval alone."""
        median = f"{figure(self.median)}×" if self.is_ratio else ""
        span = "" if len(self.values) < 2 else f"[{figure(self.interval[0])} – {figure(self.interval[1])}]"
        return f"{median} {span}".strip()

    @property
    def cells(self) -> tuple[str, ...]:
        theirs = "" if self.theirs is None else figure(self.theirs)
        title = self.title + (f" (without {', '.join(self.absent)})" if self.absent else "")
        return title, f"{figure(self.ours)} {self.unit}", theirs, self.found, self.bar or "", self.verdict


@dataclass(frozen=True, slots=True)
class Taken:
    """One measure: its lines, or why there are none."""

    name: str
    when: str
    seconds: float
    lines: tuple[Line, ...] = ()
    failed: str | None = None
    code: str = ""
    """The commit that was measured."""
    absent: tuple[str, ...] = ()
    """Peers that could not be installed."""

    @classmethod
    def read(cls, told: dict[str, Any]) -> Taken:
        lines = tuple(Line.read(line) for line in told["lines"])
        return cls(**{**told, "lines": lines, "absent": tuple(told.get("absent", ()))})

    @property
    def remarks(self) -> list[str]:
        """What a reader of its lines must know."""
        found = [] if self.failed is None else [f"was not measured: {self.failed}"]
        return found + [f"was taken without {peer}, which could not be installed" for peer in self.absent]

    @property
    def summary(self) -> str:
        if self.failed is not None:
            return f"failed: {self.failed}"
        counts = Counter(line.verdict for line in self.lines)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES if counts[verdict])


@dataclass(slots=True)
class Story:
    """Everything that is told about one machine."""

    about: dict[str, Any]
    quick: bool
    measures: list[Taken] = field(default_factory=list)

    @property
    def lines(self) -> list[Line]:
        return [line for taken in self.measures for line in taken.lines]

    @property
    def failures(self) -> list[Taken]:
        return [taken for taken in self.measures if taken.failed is not None]

    @property
    def remarks(self) -> list[str]:
        """Under the table: what it would hide."""
        codes = self._codes
        apart = [f"{', '.join(names)}: code {code or '?'}" for code, names in codes.items() if len(codes) > 1]
        own = self.about.get("driver_of_before") == "its own"
        apart += ["the older commit ran the driver of its own time"] if own else []
        return apart + [f"`{taken.name}` {remark}" for taken in self.measures for remark in taken.remarks]

    @property
    def _codes(self) -> dict[str, list[str]]:
        """What was measured of which commit."""
        found: dict[str, list[str]] = {}
        for taken in self.measures:
            found.setdefault(taken.code, []).append(f"`{taken.name}`")
        return found

    @property
    def heading(self) -> str:
        when = max((taken.when[:10] for taken in self.measures), default="")
        server = f"PostgreSQL {str(self.about.get('postgres', '?')).partition(' ')[0]}"
        code = f"code {''.join(self._codes)}" if len(self._codes) == 1 and "" not in self._codes else ""
        against = f"against {self.against}" if self.against else ""
        machine = [f"{self.about.get('cores', '?')} cores", server, f"Python {self.about.get('python', '?')}"]
        parts = [*machine, when, code, against]
        return " · ".join([*filter(None, parts), *(["quick"] if self.quick else [])])

    @property
    def against(self) -> str:
        """The older commit of ours that is compared with, where it is not the peers."""
        return str(self.about.get("against", ""))

    @property
    def head(self) -> tuple[str, ...]:
        return HEAD_AGAINST if self.against else HEAD

    def place(self, folder: Path, suffix: str) -> Path:
        """Its file. A quick run leaves the results of a long one alone, and this comparison those of the other."""
        long, quick = ("before", "before-quick") if self.against else ("bench", "quick")
        return folder / f"{quick if self.quick else long}.{suffix}"

    def add(self, taken: Taken, order: Iterable[str]) -> None:
        """A measure taken again replaces what it said before."""
        places = {name: nth for nth, name in enumerate(order)}
        kept = [one for one in self.measures if one.name != taken.name]
        self.measures = sorted([*kept, taken], key=lambda one: places.get(one.name, len(places)))

    def is_of(self, about: dict[str, Any]) -> bool:
        """Whether it was taken on such a machine, with such settings."""
        return _lasting(self.about) == _lasting(about)

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, default=str) + "\n"

    @classmethod
    def read(cls, path: Path) -> Story:
        told = json.loads(path.read_text())
        return cls(told["about"], told["quick"], [Taken.read(taken) for taken in told["measures"]])


def _lasting(about: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if key != CHANGING}


def figure(value: float) -> str:
    """A number with as many digits as a noisy machine can answer for."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def markdown(story: Story) -> str:
    """The table for the README."""
    rows = [story.head, ("---", "---:", "---:", "---:", "---", "---"), *(line.cells for line in story.lines)]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    remarks = "".join(f"\n* {remark}" for remark in story.remarks)
    return f"{story.heading}\n\n{text}\n" + (f"{remarks}\n" if remarks else "")


def table(story: Story) -> Table:
    """The same for a terminal, one section per measure."""
    found = Table(title=story.heading, title_justify="left")
    for nth, name in enumerate(story.head):
        found.add_column(name, justify="right" if nth in range(1, 4) else "left")
    for taken in story.measures:
        for line in taken.lines:
            *cells, verdict = line.cells
            found.add_row(*map(Text, cells), Text(verdict, STYLES[line.verdict]))
        if taken.failed is not None:
            found.add_row(Text(f"{taken.name}: {taken.failed}"), *[""] * (len(HEAD) - 2), Text("failed", "bold red"))
        for peer in taken.absent:
            found.add_row(Text(f"{taken.name}: without {peer}"), *[""] * (len(HEAD) - 2), Text("absent", "yellow"))
        found.add_section()
    return found


def write(story: Story, folder: Path) -> None:
    """JSON and Markdown; the picture is plot.py's."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(story.place(folder, "json"), story.as_json())
    _replace(story.place(folder, "md"), markdown(story))


def _replace(target: Path, text: str) -> None:
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_text(text)
    os.replace(fresh, target)
