"""The ratios as a picture: on the terminal with block characters, and as a PNG where matplotlib is installed.

Ratios are drawn on a logarithmic scale, from 1 outwards, so that twice as fast and half as fast are equally long. A
mark shows where the bar of a line stands: ▸ must be reached, ◂ must not be passed. The interval is drawn as a thin
line; a long one says that the machine was noisy, and the verdict says what follows from that. Lines without a peer
have no ratio and stand in the table only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from report import STYLES, Line, Story, figure
from rich.text import Text

WIDTH = 48
LONGEST_TITLE = 56
COLOURS = {"pass": "#4c956c", "fail": "#c44536", "inconclusive": "#d9a441", "reported": "#6c8ead"}
INK = "#333333"
NO_MATPLOTLIB = "no picture: matplotlib is not installed (pip install --group bench)"


def ratios(story: Story) -> list[Line]:
    return [line for line in story.lines if line.is_ratio]


def bar_of(line: Line) -> tuple[str, float] | None:
    """Which way it points, and where it stands."""
    if line.bar is None:
        return None
    sign, value = line.bar.split()
    return ("▸" if sign == "≥" else "◂"), float(value)


class Scale:
    """From a ratio to a column, logarithmically; 1 and every bar are always on it."""

    def __init__(self, lines: Sequence[Line], width: int = WIDTH) -> None:
        bars = [bar[1] for line in lines if (bar := bar_of(line)) is not None]
        values = [1.0, *bars, *(edge for line in lines for edge in (line.median, *line.interval))]
        self.low, self.high = min(values) / 1.15, max(values) * 1.15
        self.width = width

    def column(self, value: float) -> int:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return min(self.width - 1, max(0, int(share * self.width)))

    def ticks(self) -> list[float]:
        """1, and the powers of ten and their halves that are on the scale."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        round_ones = (step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5))
        return [value for value in round_ones if self.low <= value <= self.high]


def terminal(story: Story) -> Text:
    """One row per ratio, and an axis below."""
    lines = ratios(story)
    picture = Text()
    if not lines:
        return picture
    scale = Scale(lines)
    indent = min(LONGEST_TITLE, max(len(line.title) for line in lines))
    for line in lines:
        title = line.title if len(line.title) <= indent else line.title[: indent - 1] + "…"
        picture.append(f"{title:<{indent}} ")
        picture.append_text(_row(line, scale))
        picture.append(f" {figure(line.median)}×\n")
    picture.append(" " * (indent + 1) + _axis(scale) + "\n", "dim")
    return picture


def _row(line: Line, scale: Scale) -> Text:
    cells = [(" ", "")] * scale.width
    style = STYLES[line.verdict]
    one, median = scale.column(1.0), scale.column(line.median)
    for column in range(scale.column(line.interval[0]), scale.column(line.interval[1]) + 1):
        cells[column] = ("─", style)
    for column in range(min(one, median), max(one, median) + 1):
        cells[column] = ("█", style)
    bar = bar_of(line)
    if bar is not None:
        cells[scale.column(bar[1])] = (bar[0], "bold")
    return Text.assemble(*cells)


def _axis(scale: Scale) -> str:
    axis = [" "] * (scale.width + 4)
    free = 0
    for value in scale.ticks():
        label, start = f"{value:g}", scale.column(value)
        if start >= free:
            axis[start : start + len(label)] = label
            free = start + len(label) + 1
    return "".join(axis).rstrip()


def png(story: Story, target: Path) -> str | None:
    """Writes the picture; the sentence that comes back says why there is none."""
    lines = ratios(story)
    if not lines:
        return "no picture: there is no ratio to draw"
    try:
        import matplotlib
    except ImportError:
        return NO_MATPLOTLIB
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    scale = Scale(lines)
    drawing, axes = plt.subplots(figsize=(11, 1.6 + 0.42 * len(lines)), layout="constrained")
    for place, line in enumerate(lines):
        _draw(axes, place, line)
    axes.set_xscale("log")
    axes.set_xlim(scale.low, scale.high * 1.25)  # room for the last number
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_yticks(range(len(lines)), [line.title for line in lines])
    axes.set_xticks(scale.ticks(), [f"{value:g}×" for value in scale.ticks()])
    axes.minorticks_off()
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    # Of the whole drawing, not of the axes, which long titles leave only half of it.
    words = "ours over theirs, within pairs (median and 90 % interval); ▸ to reach, ◂ not to pass"
    drawing.supxlabel(words, x=0.01, ha="left", color=INK, fontsize=9)
    drawing.suptitle(f"simpleworkflow, ours over theirs\n{story.heading}", x=0.01, ha="left", color=INK, fontsize=11)
    seen = [verdict for verdict in COLOURS if any(line.verdict == verdict for line in lines)]
    handles = [Patch(color=COLOURS[verdict], label=verdict) for verdict in seen]
    drawing.legend(handles=handles, loc="outside lower right", ncols=len(seen), frameon=False)
    drawing.savefig(target, dpi=130, facecolor="white")
    plt.close(drawing)
    return None


def _draw(axes: object, place: int, line: Line) -> None:
    """One bar from 1 to the median, its whisker, its mark and its number."""
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    low, high = line.interval
    axes.barh(place, line.median - 1, left=1, height=0.55, color=COLOURS[line.verdict])
    axes.plot([low, high], [place, place], color=INK, linewidth=1.2, marker="|", markersize=6)
    bar = bar_of(line)
    if bar is not None:
        way = 5 if bar[0] == "▸" else 4  # matplotlib's carets: right and left
        axes.plot([bar[1]], [place], marker=way, markersize=9, color=INK, linestyle="none")
    edge = max(high, line.median, 1.0, bar[1] if bar else 0.0)
    clear = 14 if bar == ("◂", edge) else 7  # that mark stands to the right of its tip
    number = f"{figure(line.median)}×"
    axes.annotate(number, (edge, place), (clear, 0), textcoords="offset points", va="center", color=INK, fontsize=9)
