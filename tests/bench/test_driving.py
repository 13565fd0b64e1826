"""What happens around the drivers: the order of a round, who counts as the best, and peers that are not there.

The drivers themselves are exercised by the benchmark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judging import OURS, Bar
from peers import driving
from peers.venvs import CannotInstall

ROUNDS: list[dict[str, Any]] = [
    {OURS: {"rate": 10.0}, "slow": {"rate": 1.0}, "fast": {"rate": 5.0}},
    {OURS: {"rate": 20.0}, "slow": {"rate": 9.0}, "fast": {"rate": 4.0}},
    {OURS: {"rate": 30.0}, "slow": {"rate": 2.0}, "fast": {"rate": 6.0}},
    {OURS: {"rate": 40.0}},
]


def test_rounds_go_forth_and_back_with_the_first_peer_beside_us() -> None:
    orders = driving.forth_and_back({OURS: 3, "near": 3, "far": 3})
    assert orders == [[OURS, "near", "far"], ["far", "near", OURS], [OURS, "near", "far"]]


def test_a_peer_is_in_as_many_rounds_as_asked() -> None:
    assert driving.forth_and_back({OURS: 2, "rare": 1}) == [[OURS, "rare"], [OURS]]


def test_the_best_peer_is_the_one_with_the_best_median() -> None:
    assert driving.best(ROUNDS, ("slow", "fast", "absent")) == "fast"
    assert driving.best(ROUNDS, ("slow", "fast"), lowest=True) == "slow"
    assert driving.best(ROUNDS, ("absent",)) is None


def test_the_best_peer_is_found_within_rounds_and_not_across_them() -> None:
    """The machine was ten times faster in the rounds in which only one of them took part."""
    slow, fast = {OURS: {"rate": 10.0}, "near": {"rate": 8.0}}, {OURS: {"rate": 100.0}, "far": {"rate": 20.0}}
    assert driving.best([slow, slow, slow, fast, fast, fast], ("near", "far")) == "near"


def test_without_a_rival_nobody_is_the_best() -> None:
    bar, rest = Bar(at_least=1.5), {"key": "key", "title": "title", "unit": "runs/s"}
    (alone,) = driving.finding(ROUNDS, "fast", bar=bar, rivals=("fast", "absent"), **rest)
    assert (alone.absent, alone.verdict) == (("absent",), "inconclusive")
    (among,) = driving.finding(ROUNDS, "fast", bar=bar, rivals=("fast", "slow"), **rest)
    assert (among.absent, among.verdict) == ((), "pass")


def test_a_finding_uses_only_the_rounds_that_have_both_sides() -> None:
    (found,) = driving.finding(ROUNDS, "fast", key="key", title="title", unit="runs/s", times=2, bar=Bar(at_least=1.5))
    assert found.values == (2.0, 5.0, 5.0)
    assert (found.ours, found.theirs, found.verdict) == (40.0, 10.0, "pass")


def test_a_peer_that_took_no_part_has_no_finding() -> None:
    assert driving.finding(ROUNDS, "absent", key="key", title="title", unit="runs/s") == []


def test_a_peer_that_cannot_be_installed_is_left_out_with_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(peer: str, cache: Path) -> None:
        raise CannotInstall("no network")

    monkeypatch.setattr(driving, "make", refuse)
    assert driving.is_present(OURS)
    assert not driving.is_present("pgqueuer")
    assert "pgqueuer is not here and cannot be installed (no network); it is left out" in capsys.readouterr().err


def test_a_count_that_differs_is_no_figure() -> None:
    with pytest.raises(driving.NotDone, match="jobs: 9 instead of 10"):
        driving._expect(9, 10, "jobs")


class Watched:
    """A ground that only notes what is asked of it."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        yield "postgresql://nowhere"

    def ask(self, statement: str, url: str | None = None) -> Any:
        return 7

    def tidy(self, url: str) -> None:
        self.noted.append("tidy")

    def checkpoint(self) -> None:
        self.noted.append("checkpoint")

    def processor_seconds(self) -> float:
        return 0.0


def test_what_was_filled_has_statistics_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    ground: Any = Watched()

    def drive(who: str, command: str, *words: str) -> str:
        ground.noted.append(command)
        return '{"jobs": 7, "handlers": 7, "seconds": 1.0}'

    monkeypatch.setattr(driving, "drive", drive)
    monkeypatch.setattr(driving, "_verify", lambda *_: None)
    driving.run(ground, OURS, "drain", 7)
    assert ground.noted == ["prepare", "tidy", "checkpoint", "drain"]
    ground.noted.clear()
    driving.run(ground, OURS, "steps", 7)
    assert ground.noted == ["prepare", "checkpoint", "steps"]
