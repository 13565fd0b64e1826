"""Retention policies: what is kept how long, which rule decides, and which ids a pass may leap over."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

import simpleworkflow as swf
from simpleworkflow.model.names import in_span, span_of_prefix
from simpleworkflow.model.retention import FIRST_ID, LAST_ID, Retention, Rule, chosen, fingerprint, rules_of, stretches
from simpleworkflow.model.states import OPEN, TERMINAL, Status

DAY = 86_400_000_000
NOW = 1_900_000_000_000_000


def kept(
    keeps: list[Retention], type: str, status: Status = Status.SUCCEEDED, *, is_deleted: bool = False
) -> int | None:
    """Days that the rules keep such a run; None: for ever."""
    found = [
        rule
        for rule in rules_of(keeps)
        if rule.low <= type < rule.high and rule.status is status and rule.is_deleted == is_deleted
    ]
    assert len(found) <= 1, "rules never overlap"
    return found[0].age // DAY if found else None


def test_an_age_goes_for_every_end_that_has_none_of_its_own() -> None:
    keeps = [Retention("*", "90 days", succeeded="30 days")]
    assert {status: kept(keeps, "a.v1", status) for status in TERMINAL} == {
        Status.SUCCEEDED: 30,
        Status.FAILED: 90,
        Status.CANCELLED: 90,
        Status.TIMED_OUT: 90,
    }


def test_an_end_without_an_age_is_kept_for_ever() -> None:
    keeps = [Retention("*", succeeded="1d")]
    assert kept(keeps, "a.v1") == 1
    assert kept(keeps, "a.v1", Status.FAILED) is None
    assert kept([Retention("*", "1d", failed="forever")], "a.v1", Status.FAILED) is None


def test_no_rule_names_an_open_run() -> None:
    assert {rule.status for rule in rules_of([Retention("*", "1d", deleted="1d")])} == TERMINAL
    assert not {rule.status for rule in rules_of([Retention("*", "1d")])} & OPEN


@pytest.mark.parametrize("turned", [False, True])
def test_the_most_specific_prefix_decides_whatever_the_order(turned: bool) -> None:
    keeps = [
        Retention("*", "365 days"),
        Retention("billing.*", "90 days"),
        Retention("billing.invoice.v1", "7 days"),
        Retention("billing.audit.*"),
    ]
    keeps = keeps[::-1] if turned else keeps
    assert kept(keeps, "billing.invoice.v1") == 7
    assert kept(keeps, "billing.invoice.v10") == 90
    assert kept(keeps, "billing.pay.v1") == 90
    assert kept(keeps, "billing") == 365
    assert kept(keeps, "billing.audit.v1") is None, "it does not fall through to a wider rule"
    assert kept(keeps, "media.cut.v1") == 365


def test_the_pieces_agree_with_a_plain_search_for_the_longest_prefix() -> None:
    """Many policies over a small alphabet, where prefixes nest deeply."""
    dice = random.Random(7)
    for _ in range(300):
        stems = {"".join(dice.choices("ab.", k=dice.randint(1, 4))).strip(".") for _ in range(6)}
        prefixes = {p for stem in stems if stem and ".." not in stem for p in (stem, stem + "*", stem + ".*")}
        chosen_ones = dice.sample(sorted(prefixes), min(len(prefixes), dice.randint(1, 5)))
        keeps = [Retention(prefix, timedelta(days=n + 1)) for n, prefix in enumerate(chosen_ones)]
        for _ in range(20):
            type = "a" + "".join(dice.choices("ab.", k=4)).replace("..", ".a") + "b"
            around = [k for k in keeps if in_span(type, span_of_prefix(k.prefix))]
            best = max(around, key=lambda k: (not k.prefix.endswith("*"), len(k.prefix)), default=None)
            assert kept(keeps, type) == (None if best is None else keeps.index(best) + 1), (type, chosen_ones)


def test_a_deleted_run_has_an_age_of_its_own_or_that_of_its_end() -> None:
    assert kept([Retention("*", "30 days", deleted="7 days")], "a.v1", is_deleted=True) == 7
    assert kept([Retention("*", "30 days", deleted="7 days")], "a.v1") == 30
    assert kept([Retention("*", succeeded="30 days")], "a.v1", is_deleted=True) == 30
    assert kept([Retention("*", deleted="7 days")], "a.v1") is None
    assert kept([Retention("*", "30 days", deleted="forever")], "a.v1", is_deleted=True) is None


@pytest.mark.parametrize("age", [30, 30.0, True, b"30 days", [], 0])
def test_an_age_without_a_unit_is_refused(age: Any) -> None:
    with pytest.raises(swf.InvalidPolicy, match=r"Retention\('\*'\)\.failed is .*'30 days'"):
        Retention("*", failed=age)


@pytest.mark.parametrize("age", ["30", "1 year", "", "-3 days", "200000 weeks", "NaN days"])
def test_an_age_that_is_no_duration_is_refused(age: str) -> None:
    with pytest.raises(swf.InvalidDuration, match=r"Retention\('a\.\*'\)\.age"):
        Retention("a.*", age)


@pytest.mark.parametrize("prefix", ["a b", "", "*.a", ".a", "a..b", 7, None])
def test_a_prefix_that_names_no_type_is_refused(prefix: Any) -> None:
    if prefix == "":
        assert Retention("", "1d").span == Retention("*", "1d").span
        return
    with pytest.raises(swf.InvalidName):
        Retention(prefix, "1d")


def test_two_rules_for_one_prefix_are_refused_however_they_are_spelled() -> None:
    with pytest.raises(swf.InvalidPolicy, match=r"two rules for 'billing\.'"):
        rules_of([Retention("billing.*", "1d"), Retention("billing.", "2d")])


def test_what_is_no_rule_is_refused_where_it_is_written() -> None:
    with pytest.raises(swf.InvalidPolicy, match=r"swf\.Retention"):
        swf.App(":memory:", keep=["30 days"])  # type: ignore[list-item]
    with pytest.raises(swf.InvalidPolicy, match="two rules"):
        swf.App(":memory:", keep=[Retention("*", "1d"), Retention("*", "2d")])


def test_one_call_chooses_by_prefix_and_end() -> None:
    rules = chosen("1d", None, ["a.*", "b.v1", "a."], [Status.FAILED])
    assert {(rule.low, rule.status, rule.is_deleted, rule.age) for rule in rules} == {
        ("a.", Status.FAILED, 0, DAY),
        ("a.", Status.FAILED, 1, DAY),
        ("b.v1", Status.FAILED, 0, DAY),
        ("b.v1", Status.FAILED, 1, DAY),
    }
    assert {rule.is_deleted for rule in chosen(None, "1d", [], [])} == {1}


def test_a_call_for_open_runs_or_without_an_age_is_refused() -> None:
    with pytest.raises(swf.InvalidPolicy, match="paused runs are open"):
        chosen("1d", None, [], [Status.PAUSED])
    with pytest.raises(swf.InvalidPolicy, match="older_than='30 days'"):
        chosen(None, None, ["a.*"], [])


def test_the_same_policy_has_the_same_name_however_it_is_written() -> None:
    one = rules_of([Retention("a.*", "1d"), Retention("*", "60 days")])
    other = rules_of([Retention("%", timedelta(days=60)), Retention("a.", "24h")])
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(rules_of([Retention("a.*", "1d"), Retention("*", "61 days")]))


def id_of(instant: int) -> UUID:
    return UUID(int=(instant // 1000 << 80) | (7 << 76) | (2 << 62))


def walked(rules: list[Rule], run_id: UUID) -> bool:
    return any(first <= run_id <= last for first, last in stretches(rules, NOW))


def test_ids_made_within_the_shortest_age_are_leapt_over_and_no_others() -> None:
    rules = rules_of([Retention("*", "60 days", succeeded="30 days")])
    for ago, seen in [(31, True), (30.0001, True), (29.999, False), (1, False), (0.001, False), (-1, True)]:
        assert walked(rules, id_of(NOW - round(ago * DAY))) is seen, ago
    assert walked(rules, FIRST_ID)
    assert walked(rules, LAST_ID)
    assert walked(rules, UUID(int=NOW))


def test_random_ids_are_walked_or_will_be_when_the_leap_has_moved_on() -> None:
    rules = rules_of([Retention("*", "30 days")])
    for run_id in [uuid4() for _ in range(100)] + [UUID(int=(NOW - DAY) // 1000 << 80 | 4 << 76)]:
        later = stretches(rules, NOW + 30 * DAY)
        assert walked(rules, run_id) or any(first <= run_id <= last for first, last in later)


def test_without_an_age_to_wait_for_nothing_is_leapt_over() -> None:
    assert stretches(rules_of([Retention("*", "0s")]), NOW) == [(FIRST_ID, LAST_ID)]


def test_a_clock_that_is_far_off_leaps_over_nothing_that_exists_or_too_little() -> None:
    rules = rules_of([Retention("*", "30 days")])
    real = id_of(NOW - 40 * DAY)
    for clock in (0, NOW - 400 * DAY, NOW + 400 * DAY):
        assert any(first <= real <= last for first, last in stretches(rules, clock)), clock
