"""The law of retries: waits grow up to a cap, jitter only adds, and nonsense is refused when it is written."""

from __future__ import annotations

import dataclasses
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleworkflow.model.errors import InvalidDuration, InvalidPolicy, PermanentError
from simpleworkflow.model.retry import DEFAULT_RETRY, Retry


def test_the_default_policy_is_three_attempts_from_one_second_to_five_minutes() -> None:
    assert Retry() == DEFAULT_RETRY
    expected = {
        "max_attempts": 3,
        "initial": 1.0,
        "backoff": 2.0,
        "max_delay": 300.0,
        "jitter": 0.5,
        "non_retryable": (),
    }
    assert dataclasses.asdict(DEFAULT_RETRY) == expected


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_RETRY.max_attempts = 4  # type: ignore[misc]


def test_the_same_policy_written_differently_is_equal_and_hashes_equal() -> None:
    policies = {
        Retry(initial="1m", max_delay=timedelta(hours=1)),
        Retry(initial=60, max_delay="60 minutes"),
        Retry(initial=60.0, backoff=2, max_delay=3600),
    }
    assert len(policies) == 1


def test_replacing_a_field_checks_the_policy_again() -> None:
    assert dataclasses.replace(DEFAULT_RETRY, initial="2s").initial == 2.0
    with pytest.raises(InvalidPolicy, match=r"Retry\.max_delay"):
        dataclasses.replace(DEFAULT_RETRY, initial="10m")


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 1},
        {"max_attempts": 1000},
        {"initial": 0},
        {"initial": 0, "max_delay": 0},
        {"initial": "5m", "max_delay": "5m"},
        {"backoff": 1},
        {"backoff": 1e300},
        {"jitter": 0},
        {"jitter": 1},
        {"non_retryable": (ValueError, KeyboardInterrupt)},
    ],
    ids=str,
)
def test_the_edges_of_every_field_are_allowed(options: dict[str, Any]) -> None:
    policy = Retry(**options)
    assert 0 <= policy.delay(1, 0.5) < math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("max_attempts", 1001),
        ("max_attempts", 3.0),
        ("max_attempts", True),
        ("max_attempts", "3"),
        ("max_attempts", None),
        ("backoff", 0.99),
        ("backoff", 0),
        ("backoff", -2),
        ("backoff", math.nan),
        ("backoff", math.inf),
        ("backoff", "2"),
        ("backoff", True),
        ("backoff", None),
        ("backoff", 10**400),
        ("max_delay", "999ms"),
        ("max_delay", 0),
        ("jitter", -0.01),
        ("jitter", 1.01),
        ("jitter", math.nan),
        ("jitter", "0.5"),
        ("jitter", True),
        ("non_retryable", (ValueError(),)),
        ("non_retryable", ("ValueError",)),
        ("non_retryable", (int,)),
        ("non_retryable", ValueError()),
        ("non_retryable", "ValueError"),
        ("non_retryable", None),
    ],
)
def test_a_contradiction_is_refused_and_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidPolicy, match=rf"^Retry\.{field} "):
        Retry(**{field: value})


@pytest.mark.parametrize("field", ["initial", "max_delay"])
@pytest.mark.parametrize("value", ["10", "soon", "", -1, math.nan, math.inf, True, None, "101 years", timedelta(-1)])
def test_a_bad_duration_is_refused_and_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidDuration, match=rf"^Retry\.{field}: "):
        Retry(**{field: value})


def test_the_message_of_a_low_cap_shows_both_durations() -> None:
    with pytest.raises(InvalidPolicy, match=r"max_delay \(1m\) is shorter than Retry\.initial \(1h 30m\)"):
        Retry(initial="1h30m", max_delay="1m")


@pytest.mark.parametrize("given_as", [(KeyError, ValueError), [KeyError, ValueError]])
def test_non_retryable_is_kept_as_a_tuple(given_as: Any) -> None:
    assert Retry(non_retryable=given_as).non_retryable == (KeyError, ValueError)


def test_a_single_exception_class_is_a_list_of_one() -> None:
    assert Retry(non_retryable=KeyError).non_retryable == (KeyError,)  # type: ignore[arg-type]


# Delays


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (11, 300), (1000, 300), (10**9, 300), (10**30, 300)],
)
def test_without_luck_the_wait_doubles_up_to_the_cap(failures: int, seconds: float) -> None:
    assert DEFAULT_RETRY.delay(failures, 0) == seconds


def test_jitter_adds_its_share_of_the_wait() -> None:
    assert Retry(jitter=0.5).delay(1, 0.5) == 1.25
    assert Retry(jitter=1).delay(10, 0.5) == 450
    assert Retry(jitter=0).delay(3, 0.999) == 4


def test_factor_one_waits_the_same_time_always() -> None:
    assert {Retry(initial="10s", backoff=1, jitter=0).delay(n, 0.5) for n in (1, 2, 50, 10**30)} == {10.0}


def test_base_zero_never_waits() -> None:
    assert {Retry(initial=0).delay(n, 0.9) for n in (1, 2, 50, 5000, 10**30)} == {0.0}


@pytest.mark.parametrize("failures", [0, -1])
def test_there_is_no_delay_before_the_first_failure(failures: int) -> None:
    with pytest.raises(InvalidPolicy, match="failures is"):
        DEFAULT_RETRY.delay(failures, 0)


@pytest.mark.parametrize("chance", [-0.1, 1, 1.5, math.nan, math.inf])
def test_a_chance_outside_of_zero_to_one_is_refused(chance: float) -> None:
    with pytest.raises(InvalidPolicy, match="chance is"):
        DEFAULT_RETRY.delay(1, chance)


POLICIES = st.builds(
    lambda base, more, factor, jitter: Retry(initial=base, max_delay=base + more, backoff=factor, jitter=jitter),
    st.floats(0, 1e6),
    st.floats(0, 1e9),
    st.floats(1, 1e300),
    st.floats(0, 1),
)
CHANCES = st.floats(0, 1, exclude_max=True)


@given(POLICIES, st.integers(1, 10**6), CHANCES)
def test_every_delay_is_finite_and_between_base_and_the_cap_with_jitter(
    policy: Retry, failures: int, chance: float
) -> None:
    delay = policy.delay(failures, chance)
    assert float(policy.initial) <= delay <= float(policy.max_delay) * (1 + policy.jitter)  # type: ignore[arg-type]


@given(POLICIES, st.integers(1, 3000), CHANCES)
def test_with_equal_luck_waits_never_shrink(policy: Retry, failures: int, chance: float) -> None:
    assert policy.delay(failures, chance) <= policy.delay(failures + 1, chance)


@given(POLICIES, st.integers(1, 3000), CHANCES)
def test_bad_luck_only_ever_lengthens_the_wait(policy: Retry, failures: int, chance: float) -> None:
    assert policy.delay(failures, 0) <= policy.delay(failures, chance)


# Which errors


class Permanent(PermanentError):
    pass


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (Exception(), True),
        (ValueError(), True),
        (OSError(), True),
        (LookupError(), True),
        (PermanentError("no"), False),
        (Permanent("no"), False),
        (KeyError("k"), False),
        (ZeroDivisionError(), False),
        (ArithmeticError(), False),
    ],
    ids=repr,
)
def test_permanent_and_listed_errors_and_their_subclasses_are_not_retried(error: Exception, retried: bool) -> None:
    assert Retry(non_retryable=(KeyError, ArithmeticError)).retries(error) is retried


def test_by_default_only_permanent_errors_are_not_retried() -> None:
    assert DEFAULT_RETRY.retries(KeyError())
    assert not DEFAULT_RETRY.retries(PermanentError())
