"""What the benchmark says and leaves behind, told with made-up findings: no server and no peer is needed for that."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import plot
import pytest
import report
from ground import NoGround
from judging import Bar, Finding, paired
from rich.console import Console
from support.bench import FakeGround, fake_ground, program

ABOUT = {"cores": 2, "python": "3.11.2", "postgres": "15.18 (Debian)", "fsync_per_second": {"fdatasync": 7881.0}}
FASTER = paired("drain.slowpoke", "drain against slowpoke", "runs/s", [90, 100, 110], [10, 10, 10], bar=Bar(at_least=5))
SLOWER = paired("drain.hare", "drain against hare", "runs/s", [100, 100, 100], [200, 200, 200], bar=Bar(at_least=1.5))
LIGHT = Finding("wal.noop", "WAL | no-op run", "bytes/run", 2000.0, None, (1990.0, 2000.0, 2010.0), Bar(at_most=2457))
ALONE = Finding("memory.parked", "memory of 1,000 parked runs", "MiB", 3.25, None, (3.25,))


@pytest.fixture(autouse=True)
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite must not need it, and a machine that has it must not do other things than one that has not."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def story_of(*findings: Finding, failed: str | None = None) -> report.Story:
    lines = tuple(report.Line.of(finding) for finding in findings)
    story = report.Story(ABOUT, quick=False)
    story.add(report.Taken("drain", "2026-11-15T12:00:00+00:00", 42.0, lines), ("drain", "wal"))
    if failed is not None:
        story.add(report.Taken("wal", "2026-11-15T12:01:00+00:00", 1.0, failed=failed), ("drain", "wal"))
    return story


def on_screen(printable: Any, width: int = 200) -> str:
    screen = io.StringIO()
    Console(file=screen, width=width).print(printable)
    return screen.getvalue()


def bench(folder: Path, *words: str, find: Callable[[str], Any], about: dict[str, Any] = ABOUT) -> int:
    code: int = program().main([*words, "--output", str(folder)], find=find, open_ground=fake_ground(about))
    return code


def found_everywhere(name: str) -> Callable[[Any], list[Finding]]:
    return lambda _: [Finding(f"{name}.x", f"{name} of x", "ms", 1.0, 2.0, (0.5, 0.5, 0.5))]


# The table, the Markdown, the JSON.


def test_the_table_tells_every_line_with_its_verdict() -> None:
    text = on_screen(report.table(story_of(FASTER, SLOWER, LIGHT, ALONE)))
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if "│" in line}
    assert "100 runs/s" in rows["drain against slowpoke"]
    assert "10.0× [9.00 – 11.0]" in rows["drain against slowpoke"]
    assert "≥ 5" in rows["drain against slowpoke"]
    assert "pass" in rows["drain against slowpoke"]
    assert "fail" in rows["drain against hare"]
    assert "≤ 2457" in rows["WAL | no-op run"]
    assert "reported" in rows["memory of 1,000 parked runs"]


def test_a_figure_of_our_own_is_not_told_as_a_ratio() -> None:
    light, alone = (report.Line.of(finding) for finding in (LIGHT, ALONE))
    assert light.found == "[1,990 – 2,010]"
    assert alone.found == "", "one value has no interval"
    assert report.Line.of(FASTER).found.startswith("10.0×")


def test_the_markdown_is_one_table_with_the_machine_above_it() -> None:
    text = report.markdown(story_of(FASTER, LIGHT))
    assert text.startswith("2 cores · PostgreSQL 15.18 · Python 3.11.2 · 2026-11-15\n\n| measure | ours |")
    assert "| drain against slowpoke | 100 runs/s | 10.0 | 10.0× [9.00 – 11.0] | ≥ 5 | pass |" in text
    assert "| WAL \\| no-op run |" in text
    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {7}


def test_a_peer_that_took_no_part_is_named_under_the_table_and_on_the_line_that_it_might_have_changed() -> None:
    line = report.Line.of(replace(FASTER, absent=("hare", "snail")))
    story = report.Story(ABOUT, quick=False)
    story.add(report.Taken("drain", "2026-11-15T12:00:00+00:00", 42.0, (line,), absent=("hare",)), ("drain",))
    told = report.markdown(report.Story(ABOUT, False, [report.Taken.read(json.loads(story.as_json())["measures"][0])]))
    assert "| drain against slowpoke (without hare, snail) | " in told
    assert "| inconclusive |" in told
    assert "* `drain` was taken without hare, which could not be installed" in told
    assert "drain: without hare" in on_screen(report.table(story))


def test_the_code_that_was_measured_is_told_and_two_versions_of_it_are_told_apart() -> None:
    story = report.Story(ABOUT, quick=False)
    story.add(report.Taken("drain", "2026-11-15T12:00:00+00:00", 42.0, code="0b27e23"), ("drain", "wal"))
    assert story.heading.endswith("2026-11-15 · code 0b27e23")
    story.add(report.Taken("wal", "2026-11-15T12:01:00+00:00", 1.0, code="2891d5f+"), ("drain", "wal"))
    assert "code" not in story.heading
    story.add(report.Taken("steps", "2026-11-15T12:02:00+00:00", 1.0, code="0b27e23"), ("drain", "steps", "wal"))
    assert "* `drain`, `steps`: code 0b27e23\n* `wal`: code 2891d5f+" in report.markdown(story)


def test_a_measure_that_failed_is_named_with_its_reason() -> None:
    story = story_of(FASTER, failed="RuntimeError: the peer ended with 1")
    assert "* `wal` was not measured: RuntimeError: the peer ended with 1" in report.markdown(story)
    assert "wal: RuntimeError: the peer ended with 1" in on_screen(report.table(story))


def test_a_story_read_back_is_the_story_that_was_written(tmp_path: Path) -> None:
    story = story_of(FASTER, SLOWER, LIGHT, ALONE, failed="no")
    report.write(story, tmp_path / "deep" / "down")
    assert report.Story.read(tmp_path / "deep" / "down" / "bench.json") == story
    assert sorted(path.name for path in (tmp_path / "deep" / "down").iterdir()) == ["bench.json", "bench.md"]


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0.00"), (0.0123, "0.012"), (0.5, "0.50"), (9.876, "9.88"), (98.76, "98.8"), (9876, "9,876")],
)
def test_a_figure_has_as_many_digits_as_it_deserves(value: float, told: str) -> None:
    assert report.figure(value) == told


# The pictures.


def test_the_terminal_shows_each_ratio_with_its_bar_on_a_log_scale() -> None:
    rows = plot.terminal(story_of(FASTER, SLOWER, LIGHT)).plain.splitlines()
    assert len(rows) == 3, "two ratios and the axis; figures of our own are not drawn"
    faster, slower, axis = rows
    assert faster.endswith(" 10.0×")
    assert slower.endswith(" 0.50×")
    assert faster.count("█") > slower.count("█")
    assert faster.index("▸") < faster.rindex("█"), "the bar was reached"
    assert slower.index("▸") > slower.rindex("█"), "the bar was not reached"
    assert {"1", "2", "5", "10"} <= set(axis.split())


def test_a_story_without_ratios_has_no_picture(tmp_path: Path) -> None:
    assert plot.terminal(story_of(LIGHT)).plain == ""
    assert plot.png(story_of(LIGHT), tmp_path / "bench.png") == "no picture: there is no ratio to draw"


def test_a_missing_matplotlib_leaves_out_the_picture_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path, find=found_everywhere) == 0
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert not (tmp_path / "bench.png").exists()
    assert (tmp_path / "bench.json").exists()


# The program.


def test_the_measures_are_taken_in_their_order_and_the_exit_code_is_0(tmp_path: Path) -> None:
    taken: list[str] = []

    def find(name: str) -> Any:
        taken.append(name)
        return found_everywhere(name)

    assert bench(tmp_path, "--only", "wal", "steps", "drain", find=find) == 0
    assert taken == ["drain", "steps", "wal"]
    assert [one.name for one in report.Story.read(tmp_path / "bench.json").measures] == taken


def test_a_measure_that_raises_does_not_lose_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def find(name: str) -> Any:
        if name == "triggers":
            raise RuntimeError("the peer ended with 1:\n  no such table")
        return (lambda _: []) if name == "latency" else found_everywhere(name)

    assert bench(tmp_path, find=find) == 1
    story = report.Story.read(tmp_path / "bench.json")
    assert [one.name for one in story.measures] == list(program().ORDER)
    assert {one.name: one.failed for one in story.failures} == {
        "triggers": "RuntimeError: the peer ended with 1: no such table",
        "latency": "it found nothing",
    }
    assert "Traceback" in capsys.readouterr().err, "the whole story goes to the screen"


def test_an_interrupted_run_leaves_what_it_has(tmp_path: Path) -> None:
    def find(name: str) -> Any:
        if name == "triggers":
            raise KeyboardInterrupt
        return found_everywhere(name)

    assert bench(tmp_path, find=find) == 130
    assert [one.name for one in report.Story.read(tmp_path / "bench.json").measures] == ["drain", "steps"]


def test_a_quick_run_does_not_touch_the_results_of_a_long_one(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text("the long one")
    assert bench(tmp_path, "--quick", find=found_everywhere) == 0
    assert (tmp_path / "bench.json").read_text() == "the long one"
    assert json.loads((tmp_path / "quick.json").read_text())["quick"] is True


def test_one_measure_taken_again_keeps_the_others_of_the_same_machine(tmp_path: Path) -> None:
    bench(tmp_path, find=found_everywhere)
    again = {**ABOUT, "fsync_per_second": {"fdatasync": 1.0}}
    assert bench(tmp_path, "--only", "steps", find=lambda _: lambda _: [FASTER], about=again) == 0
    story = report.Story.read(tmp_path / "bench.json")
    assert [one.name for one in story.measures] == list(program().ORDER)
    assert [line.key for line in story.measures[1].lines] == ["drain.slowpoke"]

    assert bench(tmp_path, "--only", "wal", find=found_everywhere, about={**ABOUT, "cores": 64}) == 0
    assert [one.name for one in report.Story.read(tmp_path / "bench.json").measures] == ["wal"]


def test_a_ground_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @contextlib.contextmanager
    def nowhere(*, quick: bool) -> Iterator[FakeGround]:
        raise NoGround("no PostgreSQL here")
        yield

    assert program().main(["--output", str(tmp_path)], open_ground=nowhere) == 1
    assert capsys.readouterr().err == "error: no PostgreSQL here\n"


def test_a_measure_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as refused:
        bench(tmp_path, "--only", "dance", find=found_everywhere)
    assert refused.value.code == 2
