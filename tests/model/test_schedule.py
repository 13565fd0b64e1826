"""Slots against an oracle that knows no calendar: it walks two years minute by minute and looks at the clock.

The oracle uses neither cronsim nor anything of ours. It simulates what a cron daemon sees: for every minute of UTC,
what the clocks of the zone show. Expressions come as structure (text, fitting values): nothing has to be parsed.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simpleworkflow.model.cron import MACROS, Cron, Interval, between, timing, zone_of
from simpleworkflow.model.errors import InvalidSchedule
from simpleworkflow.model.schedule import (
    GRACE,
    CatchUp,
    Overlap,
    Schedule,
    ScheduledSlot,
    due,
    key_of,
    new_schedule,
    slot_of,
)

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
START, END = datetime(2022, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # by 30 minutes
    "America/Santiago",  # southern, at midnight, and 2022 a week later than usual
    "Asia/Kolkata",  # never
    "Asia/Tehran",  # at midnight, given up in 2022
)
ODD = {
    "America/St_Johns": datetime(2010, 11, 6, tzinfo=UTC),  # at one minute past midnight, back into the day before
    "Antarctica/Casey": datetime(2010, 3, 4, tzinfo=UTC),  # by three hours, back into the day before
    "Pacific/Apia": datetime(2011, 12, 28, tzinfo=UTC),  # a whole day is left out
    "Europe/Lisbon": datetime(1992, 9, 26, tzinfo=UTC),  # a change of zone and of summer time at once
}


# The oracle


class Field(NamedTuple):
    text: str
    values: frozenset[int]

    @property
    def is_star(self) -> bool:
        return self.text.startswith("*")


class Expression(NamedTuple):
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self)

    def fits_day(self, day: date) -> bool:
        in_month, weekday = day.month in self.month.values, day.isoweekday() % 7
        by_date = day.day in self.day.values
        by_week = weekday in self.weekday.values
        both = self.day.is_star or self.weekday.is_star
        return in_month and (by_date and by_week if both else by_date or by_week)

    @property
    def ever_fits(self) -> bool:
        """The thirtieth of February never comes, and such a schedule is refused."""
        return any(self.fits_day(date(2028, 1, 1) + n * DAY) for n in range(366))


@cache
def readings(zone: str, start: datetime, end: datetime) -> list[int]:
    """What the clocks show at every minute: minutes since the first day of the calendar."""
    where, found = ZoneInfo(zone), []
    moment = start - DAY
    while moment < end:
        shown, later = moment.astimezone(where), (moment + 14 * MINUTE).astimezone(where)
        if shown.utcoffset() == later.utcoffset():
            first = shown.toordinal() * 1440 + shown.hour * 60 + shown.minute
            found += range(first, first + 15)
        else:
            for n in range(15):
                one = (moment + n * MINUTE).astimezone(where)
                found.append(one.toordinal() * 1440 + one.hour * 60 + one.minute)
        moment += 15 * MINUTE
    return found


@cache
def walk(zone: str, start: datetime, end: datetime) -> tuple[list[tuple[int, int]], list[tuple[int, range]]]:
    """A daemon that looks at the clock every minute: what it sees for the first time, and what it never saw."""
    fresh, leaps = [], []
    latest = None
    for n, reading in enumerate(readings(zone, start, end)):
        if latest is None or reading > latest:
            fresh.append((n, reading))
            if latest is not None and reading > latest + 1:
                leaps.append((n, range(latest + 1, reading)))
            latest = reading
    return fresh, leaps


def oracle(expression: Expression, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The minutes at which the daemon would start something; it begins a day early, so that it knows what it saw."""
    shown = readings(zone, start, end)
    minutes = {hour * 60 + minute for hour in expression.hour.values for minute in expression.minute.values}
    days = {
        day for day in range(min(shown) // 1440, max(shown) // 1440 + 1) if expression.fits_day(date.fromordinal(day))
    }
    if expression.minute.is_star or expression.hour.is_star:
        found = [n for n, one in enumerate(shown) if one % 1440 in minutes and one // 1440 in days]
    else:
        fresh, leaps = walk(zone, start, end)
        seen = {n for n, one in fresh if one % 1440 in minutes and one // 1440 in days}
        seen |= {n for n, span in leaps if any(one % 1440 in minutes and one // 1440 in days for one in span)}
        found = sorted(seen)
    return [start + (n - 1440) * MINUTE for n in found if n >= 1440]


def field(low: int, high: int, most: int | None = None) -> st.SearchStrategy[Field]:
    """One field of an expression with the values that it means; those that are named are at most so large."""
    every = range(low, high + 1)
    high = high if most is None else most
    one = st.integers(low, high).map(lambda value: Field(str(value), frozenset([value])))
    star = st.just(Field("*", frozenset(every)))
    step = st.integers(2, 20).map(lambda by: Field(f"*/{by}", frozenset(every[::by])))
    span = st.tuples(st.integers(low, high), st.integers(low, high), st.integers(1, 7)).map(_span)
    some = st.lists(st.integers(low, high), min_size=2, max_size=4, unique=True).map(
        lambda values: Field(",".join(map(str, values)), frozenset(values))
    )
    return st.one_of(one, star, step, span, some)


def _span(parts: tuple[int, int, int]) -> Field:
    low, high, by = min(parts[:2]), max(parts[:2]), parts[2]
    if low == high:
        return Field(str(low), frozenset([low]))
    return Field(f"{low}-{high}/{by}" if by > 1 else f"{low}-{high}", frozenset(range(low, high + 1)[::by]))


def wide(which: st.SearchStrategy[Field], low: int, high: int) -> st.SearchStrategy[Field]:
    """Mostly every value: expressions that are due on few days find no clock change."""
    return st.one_of(st.just(Field("*", frozenset(range(low, high + 1)))), which)


HOURS = st.one_of(field(0, 23), field(0, 23, 3), field(0, 23, 3))  # where the clocks are changed
EXPRESSIONS = st.builds(
    Expression, field(0, 59), HOURS, wide(field(1, 31), 1, 31), wide(field(1, 12), 1, 12), wide(field(0, 6), 0, 6)
).filter(lambda wanted: wanted.ever_fits)


def star(low: int, high: int) -> Field:
    return Field("*", frozenset(range(low, high + 1)))


def expression(minute: Field | int, hour: Field | int, **rest: Field) -> Expression:
    def plain(value: Field | int) -> Field:
        return value if isinstance(value, Field) else Field(str(value), frozenset([value]))

    every = {"day": star(1, 31), "month": star(1, 12), "weekday": star(0, 6)}
    return Expression(plain(minute), plain(hour), **{**every, **rest})


TENS = Field("*/10", frozenset(range(0, 60, 10)))
KNOWN = (
    expression(30, 2),
    expression(15, 0),
    expression(TENS, 2),
    expression(0, star(0, 23)),
    expression(0, 0),
    expression(TENS, 0),
    expression(45, Field("1,2,3", frozenset([1, 2, 3]))),
    expression(Field("0-59/20", frozenset([0, 20, 40])), Field("0-3", frozenset(range(4)))),
    expression(5, 23, weekday=Field("6", frozenset([6]))),
    expression(0, 12, day=Field("31", frozenset([31]))),
    expression(30, 1, day=Field("13", frozenset([13])), weekday=Field("5", frozenset([5]))),
)


def check(wanted: Expression, zone: str, start: datetime, end: datetime) -> int:
    ours = list(between(Cron(wanted.text, ZoneInfo(zone)), start, end))
    assert ours == oracle(wanted, zone, start, end), f"{wanted.text} in {zone}"
    return len(ours)


@pytest.mark.parametrize("zone", ZONES)
def test_two_years_of_slots_are_those_that_a_look_at_the_clock_every_minute_finds(zone: str) -> None:
    assert sum(check(one, zone, START, END) for one in KNOWN[:4]) > 20_000


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_two_years_of_more_slots_are_those_that_the_clock_shows(zone: str) -> None:
    assert sum(check(one, zone, START, END) for one in KNOWN[4:]) > 10_000


@pytest.mark.parametrize("zone", ODD)
def test_stranger_clock_changes_are_followed_too(zone: str) -> None:
    for one in (*KNOWN, expression(star(0, 59), star(0, 23))):
        check(one, zone, ODD[zone], ODD[zone] + 5 * DAY)


def changes(zone: str) -> list[datetime]:
    """The days around which the clocks of a zone are changed; a quiet week for one that never does."""
    days = [START + n * DAY for n in range((END - START) // DAY)]
    where = ZoneInfo(zone)
    found = [d for d in days if d.astimezone(where).utcoffset() != (d + DAY).astimezone(where).utcoffset()]
    return found or [START + 100 * DAY]


@pytest.mark.parametrize("zone", ZONES)
@settings(deadline=None, max_examples=15)
@example(
    wanted=expression(star(0, 59), star(0, 23), day=Field("29", frozenset([29])), month=Field("2", frozenset([2])))
)
@given(wanted=EXPRESSIONS)
def test_any_expression_is_right_around_clock_changes(zone: str, wanted: Expression) -> None:
    for change in changes(zone)[:4]:
        check(wanted, zone, change - DAY, change + 2 * DAY)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@settings(deadline=None, max_examples=60)
@given(wanted=EXPRESSIONS)
def test_any_expression_is_right_for_two_years(zone: str, wanted: Expression) -> None:
    check(wanted, zone, START, END)


@settings(deadline=None, max_examples=50)
@given(wanted=EXPRESSIONS, zone=st.sampled_from(ZONES), minute=st.integers(0, 2 * 365 * 1440))
def test_the_next_and_the_last_slot_are_neighbours_of_any_instant(wanted: Expression, zone: str, minute: int) -> None:
    times, instant = Cron(wanted.text, ZoneInfo(zone)), START + minute * MINUTE
    coming = times.following(instant)
    if coming is None:
        assert times.latest(instant) is None
        return
    assert coming > instant
    last = times.latest(instant)
    assert last is not None
    assert last <= instant
    assert times.following(last) == coming
    assert times.latest(coming) == coming


def test_from_inside_a_repeated_hour_no_slot_lies_in_the_past() -> None:
    """The second half past two in Berlin: the slot of the first one is over."""
    second = datetime(2030, 10, 27, 1, 20, tzinfo=UTC)
    assert timing("30 2 * * *", None, "Europe/Berlin").following(second) == datetime(2030, 10, 28, 1, 30, tzinfo=UTC)


# Words


@pytest.mark.parametrize(("macro", "text"), MACROS.items())
def test_macros_mean_what_cron_says_they_do(macro: str, text: str) -> None:
    ours, theirs = timing(macro, None, "Europe/Berlin"), timing(text, None, "Europe/Berlin")
    assert list(islice(between(ours, START, END), 50)) == list(islice(between(theirs, START, END), 50))
    assert timing(macro.upper(), None, "UTC").following(START) == timing(text, None, "UTC").following(START)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 9 L * *", "2022-01-31T09:00Z"),
        ("0 9 LW * *", "2022-01-31T09:00Z"),
        ("0 9 * * MON#2", "2022-01-10T09:00Z"),
        ("0 9 * FEB MON-FRI", "2022-02-01T09:00Z"),
        ("0 0 29 2 *", "2024-02-29T00:00Z"),
        ("0 0 * 2 MON#5", "2044-02-29T00:00Z"),
        ("0 0 * * 7", "2022-01-02T00:00Z"),
    ],
)
def test_rare_dates_are_found(text: str, first: str) -> None:
    assert timing(text, None, "UTC").following(START) == datetime.fromisoformat(first)


@given(every=st.integers(1_000_000, 40 * 86_400_000_000), at=st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
def test_intervals_never_drift(every: int, at: datetime) -> None:
    times, instant = Interval(every), at.replace(tzinfo=UTC)
    last, coming = times.latest(instant), times.following(instant)
    assert last <= instant < coming
    assert coming - last == timedelta(microseconds=every)
    assert (coming - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(microseconds=every) == timedelta(0)


def made(name: str = "nightly", type: str = "demo.v1", cron: Any = None, **rest: Any) -> Any:
    options = {"every": None, "tz": "UTC", "payload_json": "null", "overlap": "allow", "catch_up": "one"}
    return new_schedule(name, type, cron, **{**options, "window": None, **rest})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": "0 0 31 4,6 *"}, "Bad day-of-month"),
        ({"cron": "* * *"}, "has 3 fields"),
        ({"cron": ""}, "has 0 fields"),
        ({"cron": "0 0 9 * * *"}, "six fields"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "*/0 * * * *"}, "Bad minute"),
        ({"cron": "9-5 * * * *"}, "Bad minute"),
        ({"cron": "* * * * FUNDAY"}, "Bad day-of-week"),
        ({"cron": "@reboot"}, "1 fields"),
        ({"cron": "*/90 * * * *"}, 'every="90m"'),
        ({"cron": "0 0-23/36 * * *"}, 'every="36h"'),
        ({"cron": "1" * 5000 + " * * * *"}, "the limit is 200"),
        ({"cron": "0 9 * * *\x1b[31m"}, "Bad day-of-week"),
        ({"cron": 9}, "not a cron expression"),
        ({}, "one of the two"),
        ({"cron": "@daily", "every": "1h"}, "one of the two"),
        ({"every": "500ms"}, "shorter than a second"),
        ({"every": "soon"}, "every of schedule nightly"),
        ({"every": "1h", "tz": "Europe/Berlin"}, "same in every time zone"),
        ({"cron": "@daily", "tz": "Europe/Atlantis"}, "no time zone"),
        ({"cron": "@daily", "tz": "Europe"}, "no time zone"),
        ({"cron": "@daily", "tz": "../../etc/passwd"}, "no time zone"),
        ({"cron": "@daily", "tz": "/etc/localtime"}, "no time zone"),
        ({"cron": "@daily", "tz": "a\0b"}, "no time zone"),
        ({"cron": "@daily", "tz": ""}, "no time zone"),
        ({"cron": "@daily", "tz": "localtime"}, "something else on every host"),
        ({"cron": "@daily", "tz": "right/Europe/Berlin"}, "something else on every host"),
        ({"cron": "@daily", "tz": None}, "not the name of a time zone"),
        ({"cron": "@daily", "name": "two words"}, "schedule name 'two words'"),
        ({"cron": "@daily", "name": "a:b"}, "schedule name"),
        ({"cron": "@daily", "name": ""}, "schedule name"),
        ({"cron": "@daily", "name": "x" * 201}, "the limit is 200"),
        ({"cron": "@daily", "type": "no type"}, "workflow type"),
        ({"cron": "@daily", "overlap": "queue"}, "allow, skip, cancel"),
        ({"cron": "@daily", "catch_up": "some"}, "none, one, all"),
        ({"cron": "@daily", "catch_up": "none", "window": "1h"}, "a window means nothing"),
        ({"cron": "@daily", "window": -1}, "window of schedule nightly"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_with_a_sentence(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        made(**wrong)
    assert says in str(refused.value)
    assert str(refused.value).isprintable()


@given(text=st.text(max_size=40), zone=st.text(max_size=20))
def test_no_text_breaks_the_reading_of_expressions_and_zones(text: str, zone: str) -> None:
    for attempt in (lambda: Cron(text, UTC), lambda: Cron(f"0 0 {text} * *", UTC), lambda: zone_of(zone)):
        with contextlib.suppress(InvalidSchedule):
            attempt()


# What is due


def stored(cron: str | None = "0 * * * *", next_at: datetime | None = START, **rest: Any) -> Schedule:
    new = made(cron=cron, **rest)
    return Schedule(
        *(getattr(new, name) for name in new.__dataclass_fields__),
        next_at=next_at,
        paused_at=None,
        pause_reason=None,
        origin="code",
        last_slot_at=None,
        last_fired_at=None,
        last_run_id=UUID(int=1),
        extra_run_id=None,
        last_skipped_at=None,
        fired=0,
        skipped=0,
        trouble=None,
        created_at=START,
        updated_at=START,
    )


def hours(*numbers: int) -> list[datetime]:
    return [START + number * timedelta(hours=1) for number in numbers]


LATE = START + timedelta(hours=3, minutes=20)
"""Slots 0, 1, 2 and 3 have passed."""


@pytest.mark.parametrize(
    ("policy", "slots"),
    [
        ({"catch_up": "one"}, [3]),
        ({"catch_up": "all"}, [0, 1, 2, 3]),
        ({"catch_up": "none"}, []),
        ({"catch_up": "all", "window": "2h"}, [2, 3]),
        ({"catch_up": "all", "window": "200m"}, [0, 1, 2, 3]),
        ({"catch_up": "all", "window": "5m"}, []),
        ({"catch_up": "one", "window": "20m"}, [3]),
        ({"catch_up": "one", "window": "19m"}, []),
    ],
)
def test_missed_slots_follow_the_policy(policy: dict[str, Any], slots: list[int]) -> None:
    assert due(stored(**policy), LATE) == (hours(*slots), hours(4)[0])


@pytest.mark.parametrize("catch_up", CatchUp)
def test_a_slot_that_has_just_come_is_started_under_every_policy(catch_up: str) -> None:
    schedule = stored(catch_up=catch_up)
    for late in (timedelta(0), timedelta(milliseconds=3), GRACE):
        assert due(schedule, START + late) == (hours(0), hours(1)[0])
    assert due(schedule, START - MINUTE) == ([], START), "never early"


@pytest.mark.parametrize("policy", [{"catch_up": one} for one in CatchUp] + [{"window": 0}, {"window": "3s"}])
def test_no_slot_is_missed_that_is_less_than_a_minute_late(policy: dict[str, Any]) -> None:
    """A worker that restarts, or a database that is slow for some seconds, costs an interval of seconds nothing."""
    schedule = stored(cron=None, every="10s", **policy)
    tens = [START + n * timedelta(seconds=10) for n in range(8)]
    assert due(schedule, START + timedelta(seconds=35)) == (tens[:4], tens[4])
    assert due(schedule, START + GRACE) == (tens[:7], tens[7])
    missed = due(schedule, START + GRACE + timedelta(seconds=1))
    assert missed == (tens[:7] if schedule.catch_up is CatchUp.ALL else tens[6:7], tens[7])


def test_many_missed_slots_are_taken_in_portions_from_the_oldest_on() -> None:
    schedule = stored(catch_up="all")
    slots, coming = due(schedule, LATE, most=3)
    assert (slots, coming) == (hours(0, 1, 2), hours(3)[0])
    again = stored(catch_up="all", next_at=coming)
    assert due(again, LATE, most=3) == (hours(3), hours(4)[0])


def test_a_promised_slot_counts_even_if_the_rules_have_changed_since() -> None:
    odd = START + 7 * MINUTE
    assert due(stored(next_at=odd), odd + MINUTE) == ([odd], hours(1)[0])
    assert due(stored(next_at=odd, catch_up="all"), LATE) == ([odd, *hours(1, 2, 3)], hours(4)[0])


def test_a_schedule_that_nobody_has_computed_yet_begins_with_its_next_slot() -> None:
    assert due(stored(next_at=None), LATE) == ([], hours(4)[0])


def test_a_host_without_any_zones_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simpleworkflow.model.cron.ZoneInfo", _without_zones)
    with pytest.raises(InvalidSchedule, match="no database of zones; pip install tzdata"):
        zone_of("Europe/Berlin")
    assert zone_of("UTC") is UTC, "needs none"


def _without_zones(name: str) -> ZoneInfo:
    raise ZoneInfoNotFoundError(f"No time zone found with key {name}")


def test_an_interval_beyond_the_calendar_has_no_slot() -> None:
    assert Interval(2**62).following(START) is None


def test_a_zone_that_is_gone_is_told_by_name() -> None:
    from dataclasses import replace

    with pytest.raises(InvalidSchedule, match="Mars/Phobos"):
        due(replace(stored(), tz="Mars/Phobos"), LATE)


# Keys


@given(
    name=st.from_regex(r"[a-z][a-z0-9._-]{0,30}[a-z0-9]", fullmatch=True),
    at=st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1)),
    is_extra=st.booleans(),
)
def test_a_run_can_tell_which_slot_it_is_for(name: str, at: datetime, is_extra: bool) -> None:
    slot = ScheduledSlot(name, at.replace(tzinfo=UTC), is_extra)
    assert slot_of(key_of(slot)) == slot
    assert len(key_of(slot)) <= 255


@pytest.mark.parametrize(
    "key",
    [None, "", "schedule", "schedule:", "schedule::2030-01-01T00:00Z", "schedule:x:soon", "schedule:x:2030-01-01"],
)
def test_other_keys_tell_of_no_slot(key: str | None) -> None:
    assert slot_of(key) is None


def test_policies_are_spelled_as_they_are_written() -> None:
    assert [*Overlap] == ["allow", "skip", "cancel"]
    assert [*CatchUp] == ["none", "one", "all"]
