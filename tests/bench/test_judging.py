"""The arithmetic of a verdict: who is paired with whom, how sure we are, and what is then said."""

from __future__ import annotations

import json

import pytest
from judging import OURS, Bar, Finding, interval, paired, ratios, turns

NOISY = [0.8, 1.1, 1.3, 0.9, 1.7, 1.2, 1.0]


def test_pairs_take_turns_at_who_goes_first() -> None:
    assert turns(3, "peer") == [(OURS, "peer"), ("peer", OURS), (OURS, "peer")]


def test_in_a_larger_company_everybody_goes_first_once() -> None:
    assert [order[0] for order in turns(3, "one", "two")] == [OURS, "one", "two"]
    assert all(sorted(order) == sorted((OURS, "one", "two")) for order in turns(5, "one", "two"))


def test_a_ratio_belongs_to_its_own_pair() -> None:
    assert ratios([10.0, 40.0], [5.0, 10.0]) == [2.0, 4.0]


def test_runs_without_a_partner_are_refused() -> None:
    with pytest.raises(ValueError, match="do not make pairs"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("ours", "theirs"), [([0.0], [1.0]), ([1.0], [0.0])])
def test_a_run_that_did_nothing_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        ratios(ours, theirs)


def test_an_interval_needs_at_least_one_value() -> None:
    with pytest.raises(ValueError, match="no values"):
        interval([])


def test_equal_values_leave_no_doubt() -> None:
    assert interval([1.5] * 7) == (1.5, 1.5)


def test_the_same_values_always_give_the_same_interval() -> None:
    assert interval(NOISY, seed=3) == interval(NOISY, seed=3)


def test_the_interval_holds_the_median_and_stays_within_what_was_seen() -> None:
    low, high = interval(NOISY)
    assert min(NOISY) <= low < 1.1 < high <= max(NOISY)


@pytest.mark.parametrize(("values", "low", "high"), [(3, 1, 3), (7, 2, 6), (9, 3, 7), (15, 5, 11)])
def test_of_few_values_the_interval_reaches_from_one_of_them_to_another(values: int, low: int, high: int) -> None:
    assert interval(range(1, values + 1)) == (low, high)


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
def test_a_floor_is_judged_by_the_whole_interval(low: float, high: float, said: str) -> None:
    assert Bar(at_least=1.0).verdict(low, high, 3) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.7, 1.1, "pass"),
        (0.7, 1.2, "inconclusive"),
        (1.1, 1.3, "inconclusive"),
        (1.2, 1.3, "fail"),
    ],
)
def test_a_ceiling_is_judged_by_the_whole_interval(low: float, high: float, said: str) -> None:
    assert Bar(at_most=1.1).verdict(low, high, 3) == said


@pytest.mark.parametrize("value", [9.0, 0.1])
def test_two_values_are_too_few_for_a_verdict(value: float) -> None:
    assert Bar(at_least=1.0).verdict(value, value, 2) == "inconclusive"


@pytest.mark.parametrize("both", [{}, {"at_least": 1.0, "at_most": 2.0}])
def test_a_bar_is_either_a_floor_or_a_ceiling(both: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="either a floor or a ceiling"):
        Bar(**both)


def test_a_bar_reads_as_what_it_asks_for() -> None:
    assert (str(Bar(at_least=1.5)), str(Bar(at_most=1.1))) == ("≥ 1.5", "≤ 1.1")


def test_a_finding_without_a_bar_is_only_reported() -> None:
    assert Finding("key", "title", "runs/s", 1.0, None, (1.0, 1.0, 1.0)).verdict == "reported"


def test_a_drift_of_the_machine_that_hits_both_sides_does_not_change_the_judgement() -> None:
    bar = Bar(at_least=1.5)
    machine = [1.0, 0.5, 0.7, 1.2, 0.4, 0.9]
    steady = paired("key", "title", "runs/s", [200.0] * 6, [100.0] * 6, bar=bar)
    drifting = paired("key", "title", "runs/s", [200.0 * m for m in machine], [100.0 * m for m in machine], bar=bar)
    assert steady.verdict == drifting.verdict == "pass"
    assert drifting.median == pytest.approx(2.0)
    assert drifting.interval == pytest.approx((2.0, 2.0))


def test_a_finding_carries_what_it_was_made_from_into_the_report() -> None:
    ours, theirs = [90.0, 110.0, 100.0, 95.0, 105.0], [100.0] * 5
    found = paired("key", "title", "runs/s", ours, theirs, bar=Bar(at_least=1.0), detail={"runs": 10})
    story = json.loads(json.dumps(found.as_json()))
    assert story["values"] == pytest.approx([0.9, 1.1, 1.0, 0.95, 1.05])
    assert (story["ours"], story["theirs"], story["median"]) == (100.0, 100.0, 1.0)
    assert (story["bar"], story["verdict"], story["detail"]) == ("≥ 1", "inconclusive", {"runs": 10})
