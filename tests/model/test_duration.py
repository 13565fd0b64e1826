"""The law of durations: many spellings, one meaning; what could mean two things is refused."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleworkflow.model.duration import MAX_SECONDS, human, microseconds, seconds
from simpleworkflow.model.errors import InvalidDuration

SPELLINGS = {
    0.001: ["ms", "millisecond", "milliseconds"],
    1: ["s", "sec", "second", "seconds"],
    60: ["m", "min", "minute", "minutes"],
    3600: ["h", "hour", "hours"],
    86400: ["d", "day", "days"],
    604800: ["w", "week", "weeks"],
}


@pytest.mark.parametrize(("unit", "size"), [(unit, size) for size, units in SPELLINGS.items() for unit in units])
@pytest.mark.parametrize("form", ["{0}{1}", "{0} {1}", " {0}  {1} ", "{0}\t{1}\n"])
@pytest.mark.parametrize("number", ["0", "1", "2", "1.5", "007", ".5"])
def test_a_number_and_a_unit_mean_their_product(unit: str, size: float, form: str, number: str) -> None:
    assert seconds(form.format(number, unit)) == pytest.approx(float(number) * size)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (30, 30),
        (0.25, 0.25),
        (-0.0, 0),
        (MAX_SECONDS, MAX_SECONDS),
        (timedelta(), 0),
        (timedelta(days=3, microseconds=1), 259200.000001),
        (timedelta(days=36525), MAX_SECONDS),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("30m1h", 5400),
        ("3 days", 259200),
        ("90s", 90),
        ("1.5 h", 5400),
        ("250ms", 0.25),
        ("3ms", 0.003),
        ("2 weeks", 1209600),
        ("1d 12h", 129600),
        ("1w2d3h4m5s6ms", 604800 + 2 * 86400 + 3 * 3600 + 4 * 60 + 5.006),
        ("1 hour 30 minutes", 5400),
        ("36525 d", MAX_SECONDS),
        ("0s", 0),
    ],
)
def test_these_values_mean_these_seconds(value: Any, expected: float) -> None:
    result = seconds(value)
    assert result == expected
    assert type(result) is float
    assert math.copysign(1, result) == 1


REFUSED: list[Any] = [
    "",
    "  ",
    "abc",
    "h",
    "1x",
    "1 fortnight",
    "1 month",
    "1y",
    "5M",
    "1H",
    "1h30",
    "30 1h",
    "1h,30m",
    "1h and 30m",
    "-1s",
    "+1s",
    "- 1 s",
    "1e3s",
    "1.s",
    "1..5s",
    "1_000s",
    "nan",
    "nan s",
    "inf",
    "infs",
    "1h1h",
    "1h 2 hours",
    "1s\0",
    "\ud800",
    "١s",
    "9" * 400 + "s",
    "101 years",
    "36526d",
    -1,
    -0.001,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    -(10**400),
    10**5000,
    MAX_SECONDS + 1,
    timedelta(microseconds=-1),
    timedelta.max,
    timedelta(days=36525, microseconds=1),
    True,
    False,
    None,
    b"1s",
    [],
    1j,
    Decimal("1"),
    Fraction(1, 2),
    object(),
]


@pytest.mark.parametrize("convert", [seconds, microseconds])
@pytest.mark.parametrize("value", REFUSED, ids=[f"{i}-{type(v).__name__}" for i, v in enumerate(REFUSED)])
def test_what_is_no_duration_is_refused_with_a_name_and_examples(value: Any, convert: Any) -> None:
    with pytest.raises(InvalidDuration) as caught:
        convert(value, what="Retry.cap")
    message = str(caught.value)
    message.encode()
    assert message.startswith("Retry.cap: ")
    for example in ('"90s"', '"1h30m"', '"3 days"', "timedelta"):
        assert example in message
    assert len(message) < 300


@pytest.mark.parametrize("value", ["1 fortnight", "5M", -3, True, "-1s", 36526 * 86400])
def test_the_refused_value_is_shown(value: Any) -> None:
    with pytest.raises(InvalidDuration) as caught:
        seconds(value)
    assert repr(value) in str(caught.value)
    assert str(caught.value).startswith("duration: ")


@pytest.mark.parametrize(("text", "hint"), [("10", '"10s"'), ("1.5", '"1.5s"'), (" 10 ", '"10s"')])
def test_a_number_in_a_string_is_ambiguous_and_the_message_suggests_seconds(text: str, hint: str) -> None:
    with pytest.raises(InvalidDuration, match="no unit") as caught:
        seconds(text)
    assert f"did you mean {hint}" in str(caught.value)


def test_the_message_says_from_where_the_text_was_not_understood() -> None:
    with pytest.raises(InvalidDuration, match="not understood from '30' on"):
        seconds("1h 30")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (1, 1_000_000),
        ("250ms", 250_000),
        (0.1, 100_000),
        (1e-7, 0),
        (1.0000004, 1_000_000),
        (timedelta(days=36000, microseconds=7), 36000 * 86400 * 1_000_000 + 7),
        ("36525d", MAX_SECONDS * 1_000_000),
    ],
)
def test_microseconds_are_whole_and_exact(value: Any, expected: int) -> None:
    assert microseconds(value) == expected
    assert type(microseconds(value)) is int


@given(st.timedeltas(timedelta(), timedelta(days=36525)))
def test_a_timedelta_keeps_every_microsecond(value: timedelta) -> None:
    assert timedelta(microseconds=microseconds(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0s"),
        (1e-9, "0s"),
        (0.00025, "0.25ms"),
        (0.001, "1ms"),
        (0.25, "250ms"),
        (0.9994, "999.4ms"),
        (0.99999, "1s"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.9999, "1m"),
        (60, "1m"),
        (61.4, "1m 1s"),
        (5400, "1h 30m"),
        (3600, "1h"),
        (3599.9, "1h"),
        (86400 * 3, "3d"),
        (86400 + 3661, "1d 1h 1m 1s"),
        (86400 * 14, "14d"),
        (MAX_SECONDS, "36525d"),
        (-90, "-1m 30s"),
        (math.inf, "infs"),
        (math.nan, "nans"),
    ],
)
def test_human_writes_the_short_form(value: float, text: str) -> None:
    assert human(value) == text


@given(st.floats(0, MAX_SECONDS))
def test_what_human_writes_is_understood_again(value: float) -> None:
    assert seconds(human(value)) == pytest.approx(value, abs=0.5 if value >= 59 else 0.0005)


@given(st.text(max_size=12) | st.from_regex(r"[0-9. ]*[smhdw]{1,2}[0-9. ]*[smhdw]?", fullmatch=True))
def test_any_text_is_a_duration_within_limits_or_refused(text: str) -> None:
    try:
        result = seconds(text)
    except InvalidDuration:
        return
    assert 0 <= result <= MAX_SECONDS
