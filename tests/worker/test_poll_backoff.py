"""The pause between two looks grows with the silence, between two bounds."""

from __future__ import annotations

import pytest

from simpleworkflow import poll_backoff
from simpleworkflow.poll_backoff import PollBackoff


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moment that it is; the first in the list."""
    moment = [1_000.0]
    monkeypatch.setattr(poll_backoff, "monotonic", lambda: moment[0])
    return moment


def test_before_anything_has_happened_looks_are_as_rare_as_they_may_be() -> None:
    assert PollBackoff(0.01).pause(1.0) == 1.0


@pytest.mark.parametrize(("silence", "pause"), [(0.0, 0.01), (0.08, 0.01), (0.4, 0.05), (8.0, 1.0), (3_600.0, 1.0)])
def test_a_pause_is_an_eighth_of_the_silence(now: list[float], silence: float, pause: float) -> None:
    looks = PollBackoff(0.01)
    looks.happened()
    now[0] += silence
    assert looks.pause(1.0) == pytest.approx(pause)


def test_who_asks_for_shorter_pauses_than_the_shortest_gets_them(now: list[float]) -> None:
    looks = PollBackoff(0.01)
    looks.happened()
    assert looks.pause(0.005) == 0.005


def test_looks_that_take_long_come_less_often(now: list[float]) -> None:
    looks = PollBackoff(0.01)
    looks.happened()
    assert looks.pause(1.0, 0.02) == pytest.approx(0.08)
    assert looks.pause(1.0, 30.0) == 1.0


def test_after_a_look_that_failed_there_is_no_hurry(now: list[float]) -> None:
    looks = PollBackoff(0.01)
    looks.happened()
    looks.failed()
    assert looks.pause(1.0) == 1.0


def test_what_comes_all_the_time_may_gather(now: list[float]) -> None:
    looks = PollBackoff(0.002, busy=0.01)

    def pause(has_news: bool) -> float:
        if has_news:
            looks.happened()
        return looks.pause(0.1)

    assert [pause(True) for _ in range(2_000)][:5] == [0.002, 0.004, 0.008, 0.01, 0.01]
    assert [pause(False), pause(True), pause(True)] == [0.002, 0.002, 0.004], "from the beginning after a silence"


def test_what_happens_alone_is_followed_by_fifty_looks_at_most(now: list[float]) -> None:
    looks, count = PollBackoff(0.01), 0
    looks.happened()
    while (pause := looks.pause(1.0)) < 1.0:
        now[0] += pause
        count += 1
    assert 40 <= count <= 50
    looks.happened()
    assert looks.pause(1.0) == 0.01, "it starts anew"
