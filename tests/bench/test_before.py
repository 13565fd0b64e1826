"""This working tree against an older commit: which commit, which driver, which way ratios point, what is reported.

The older commit is exported and installed by the benchmark only; here this working tree plays its part.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import report
from judging import OURS, Bar, Finding
from measures import before
from peers import driving, older
from peers.driving import BEFORE, NotDone
from peers.sitting import Sitting
from peers.venvs import CannotInstall
from support.bench import FakeGround, fake_ground, program


@pytest.fixture(autouse=True)
def no_driver_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "older_command", command := [])
    monkeypatch.setattr(older, "older_command", command)


def git(repository: Path, *words: str) -> str:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "tag.gpgSign=false"]
    command = ["git", "-C", str(repository), *who, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits of one file, without a tag."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for text in ("first", "second"):
        (folder / "file.txt").write_text(text)
        git(folder, "add", "file.txt")
        git(folder, "commit", "--quiet", "--message", text)
    return folder


def test_without_a_name_the_newest_tag_is_meant(repository: Path) -> None:
    with pytest.raises(older.NoSuchCommit, match="there is no tag to compare with; name a commit"):
        older.commit_of("", repository)
    git(repository, "tag", "v1", "HEAD^")
    assert older.commit_of("", repository) == git(repository, "rev-parse", "HEAD^")
    assert older.commit_of("HEAD", repository) == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["nowhere", "--help", "HEAD:file.txt"])
def test_a_name_that_is_no_commit_is_refused(repository: Path, name: str) -> None:
    with pytest.raises(older.NoSuchCommit, match=f"there is no commit '{name}'"):
        older.commit_of(name, repository)


def test_the_files_are_those_of_the_commit_and_not_of_the_working_tree(repository: Path, tmp_path: Path) -> None:
    older.export(older.commit_of("HEAD^", repository), tmp_path / "cache" / "source", repository)
    assert (tmp_path / "cache" / "source" / "file.txt").read_text() == "first"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("refused", "chosen"), [((), "current"), (("peers",), "its own"), (("peers", "source"), "none of them")]
)
def test_the_older_commit_gets_its_own_driver_only_when_it_cannot_run_ours(
    refused: tuple[str, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("cache", "before-123")
    source = folder / "source"

    def drive(who: str, command: str, *words: str) -> str:
        python, driver = driving.older_command
        assert (who, python) == (BEFORE, str(folder / "bin" / "python"))
        if command == "steps" and ("source" if source in Path(driver).parents else "peers") in refused:
            raise NotDone("no such method")
        return ""

    monkeypatch.setattr(older, "drive", drive)
    if chosen == "none of them":
        with pytest.raises(CannotInstall, match=r"runs neither driver: .*no such method.*no such method"):
            older.choose_driver(folder)
        return
    assert older.choose_driver(folder) == chosen
    ours, own = driving.HERE / "drive_ours.py", source / "bench" / "peers" / "drive_ours.py"
    assert driving.older_command[1] == str(own if chosen == "its own" else ours)


def test_an_environment_that_imports_another_tree_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(older, "python_of", lambda *_: sys.executable)  # it has this working tree
    with pytest.raises(CannotInstall, match=r"imports .*simpleworkflow/__init__\.py; is PYTHONPATH set"):
        older.check_origin(tmp_path)


def test_a_latency_that_doubled_is_half_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {OURS: 0.0, BEFORE: 0.0}
    orders = []

    def sit(ground: Any, everyone: tuple[str, ...], turns: int) -> Sitting:
        orders.append(everyone)
        return Sitting({OURS: [[4.0]] * turns, BEFORE: [[2.0]] * turns}, free, free)

    monkeypatch.setattr(before, "sit", sit)
    short: Any = FakeGround(True, {})
    (found,) = before.latency(3, short)
    assert orders == [(OURS, BEFORE), (BEFORE, OURS), (OURS, BEFORE)]
    assert (found.ours, found.theirs, found.values, found.verdict) == (4.0, 2.0, (0.5, 0.5, 0.5), "fail")


# The program.


OPEN = fake_ground({"cores": 2, "python": "3.11.2", "postgres": "15.18"})


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Any:
    """bench/__main__.py, with an older commit that is there at once."""
    monkeypatch.setattr(older, "commit_of", lambda name: name)
    monkeypatch.setattr(older, "make", lambda commit, cache: older.Older(commit, "its own"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return program()


def found_everywhere(name: str) -> Any:
    return lambda _: [Finding(f"before.{name}", name, "runs/s", 1.0, 1.0, (1.0, 1.0, 1.0), Bar(at_least=0.96))]


def test_the_report_names_both_commits_and_has_files_of_its_own(ready: Any, tmp_path: Path) -> None:
    words = ["--before", "f5555cbf4012", "--output", str(tmp_path)]
    assert ready.main(words, find=found_everywhere, open_ground=OPEN) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.json", "before.md"]
    story = report.Story.read(tmp_path / "before.json")
    assert [taken.name for taken in story.measures] == list(before.NAMES)
    assert (story.against, story.measures[0].code) == ("f5555cbf40", ready.code())
    text = (tmp_path / "before.md").read_text()
    assert "· against f5555cbf40\n\n| measure | now | before | ratio | bar | verdict |" in text
    assert "* the older commit ran the driver of its own time" in text


def test_results_against_another_commit_are_not_added_to(ready: Any, tmp_path: Path) -> None:
    for commit, kept in (("one", 5), ("one", 5), ("other", 1)):
        only = ["--only", "drain"] if (tmp_path / "before-quick.json").exists() else []
        words = ["--quick", "--before", commit, *only, "--output", str(tmp_path)]
        assert ready.main(words, find=found_everywhere, open_ground=OPEN) == 0
        assert len(report.Story.read(tmp_path / "before-quick.json").measures) == kept


def test_the_rounds_that_were_asked_for_are_run(ready: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def finder(number: int) -> Any:
        asked.append(number)
        return found_everywhere

    monkeypatch.setattr(before, "finder", finder)
    for words in (["--rounds", "4"], ["--quick"], []):
        ready.main(["--before", "one", *words, "--output", str(tmp_path)], open_ground=OPEN)
    assert asked == [4, before.QUICK_ROUNDS, before.ROUNDS]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rounds", "3"], "goes with --before"),
        (["--before", "one", "--rounds", "0"], "a number above zero"),
        (["--before", "one", "--only", "wal"], "--before has these measures: drain"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    ready: Any, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        ready.main(words, find=found_everywhere, open_ground=OPEN)
    assert refused.value.code == 2
    assert told in capsys.readouterr().err
