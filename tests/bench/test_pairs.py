"""The arithmetic of the comparison with peers: who is paired with whom, how sure we are, and what is then said.

Only the pure part; the drivers are exercised by the comparison itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "peers"))

from pairs import OURS, interval, judged, ratios, turns, verdict


def test_pairs_take_turns_at_who_goes_first() -> None:
    assert turns(3, "peer") == [(OURS, "peer"), ("peer", OURS), (OURS, "peer")]


def test_a_ratio_belongs_to_its_own_pair() -> None:
    assert ratios([10.0, 40.0], [5.0, 10.0]) == [2.0, 4.0]


def test_runs_without_a_partner_are_refused() -> None:
    with pytest.raises(ValueError, match="do not make pairs"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("ours", "theirs"), [([0.0], [1.0]), ([1.0], [0.0])])
def test_a_run_that_did_nothing_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        ratios(ours, theirs)


def test_an_interval_needs_at_least_one_pair() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        interval([])


def test_equal_ratios_leave_no_doubt() -> None:
    assert interval([1.5] * 7) == (1.5, 1.5)


def test_the_same_ratios_always_give_the_same_interval() -> None:
    noisy = [0.8, 1.1, 1.3, 0.9, 1.7, 1.2, 1.0]
    assert interval(noisy, seed=3) == interval(noisy, seed=3)


def test_the_interval_holds_the_median_and_stays_within_what_was_seen() -> None:
    noisy = [0.8, 1.1, 1.3, 0.9, 1.7, 1.2, 1.0]
    low, high = interval(noisy)
    assert min(noisy) <= low < 1.1 < high <= max(noisy)


def test_asking_for_more_certainty_widens_the_interval() -> None:
    noisy = [0.5, 0.8, 1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0]
    narrow, wide = interval(noisy, level=0.5), interval(noisy, level=0.98)
    assert wide[0] < narrow[0]
    assert narrow[1] < wide[1]


def test_one_wild_pair_among_many_does_not_move_the_interval_far() -> None:
    low, high = interval([1.0, 1.1, 1.2, 1.1, 1.0, 1.1, 1.2, 1.1, 50.0])
    assert 1.0 <= low <= high <= 1.2


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.0, 1.4, "pass"),
        (0.99, 1.4, "inconclusive"),
        (0.6, 1.0, "inconclusive"),
        (0.6, 0.99, "fail"),
    ],
)
def test_the_verdict_is_read_off_the_whole_interval(low: float, high: float, said: str) -> None:
    assert verdict(low, high, bar=1.0, pairs=5) == said


@pytest.mark.parametrize(("low", "high"), [(9.0, 9.0), (0.1, 0.1)])
def test_four_pairs_are_too_few_for_a_verdict(low: float, high: float) -> None:
    assert verdict(low, high, bar=1.0, pairs=4) == "inconclusive"


def test_a_drift_of_the_machine_that_hits_both_sides_does_not_change_the_judgement() -> None:
    steady = judged([200.0] * 6, [100.0] * 6, bar=1.5)
    machine = [1.0, 0.5, 0.7, 1.2, 0.4, 0.9]
    drifting = judged([200.0 * m for m in machine], [100.0 * m for m in machine], bar=1.5)
    assert steady["verdict"] == drifting["verdict"] == "pass"
    assert drifting["median_ratio"] == pytest.approx(2.0)
    assert drifting["interval"] == pytest.approx([2.0, 2.0])


def test_a_judgement_carries_what_it_was_made_from() -> None:
    story = judged([90.0, 110.0, 100.0, 95.0, 105.0], [100.0] * 5, bar=1.0)
    assert story["ratios"] == pytest.approx([0.9, 1.1, 1.0, 0.95, 1.05])
    assert story["median_ratio"] == 1.0
    assert story["bar"] == 1.0
    assert story["verdict"] == "inconclusive"
