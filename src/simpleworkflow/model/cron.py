"""When something is due: cron expressions on the clocks of a zone, and intervals.

cronsim reads the expressions (fields, names, `L`, `LW`, `#`) and says which dates fit; the walk from slot to slot is
our own, because around clock changes cronsim's leaves slots out and makes some up (`*/10 2 * * *` on Lord Howe Island,
where the clocks move by 30 minutes; hour 0 where they move at midnight), and asked from inside a repeated hour it
answers with an instant that is over.

What a clock change means is Debian cron's rule, which tells two kinds of expressions apart:

- *Fixed times* (neither minute nor hour begins with `*`): every reading of the clock counts once. In spring, readings
  that are left out are made up for by one slot at the moment of the change; in autumn, a reading that comes twice
  counts the first time.
- *Repetitions* (minute or hour begins with `*`): every real minute whose reading fits. What is left out in spring does
  not happen, what comes twice in autumn happens twice.

Intervals know no zone and no beginning: their slots are the multiples of the interval since 1970, so they never drift,
and everybody who computes them gets the same ones.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from .errors import InvalidSchedule

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_CRON_LENGTH = 200
NEVER = 50 * 366
"""Days without a slot after which there will be none: the rarest dates (a fifth Monday in February) come every 28 or,
around 2100, 40 years."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _SECOND, _MINUTE = timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=1)
_DAY = timedelta(days=1)
_LOOKS_BACK = tuple(timedelta(days=days) for days in (1 / 24, 1, 8, 32, 367, 9 * 366, NEVER))
_STRADDLE = 3
"""Clocks that are set back just after midnight show the day before once more: never from later than this hour."""
_HOST_ZONES = {"localtime", "posixrules", "Factory"}
"""Files of the zone database that mean something else on every host, or nothing."""
_ANY_ZONE = "Etc/UTC"
"""Wherever zones are known, this one is."""
_EXAMPLE = 'write five fields such as "0 9 * * MON-FRI", or @hourly, @daily, @weekly, @monthly, @yearly'


class Timing(Protocol):
    """The slots of a schedule, as a pure function of instants."""

    def following(self, after: datetime) -> datetime | None:
        """The first slot later than this instant; None when there is none."""
        ...

    def latest(self, until: datetime) -> datetime | None:
        """The last slot that is not later than this instant."""
        ...


@functools.lru_cache(maxsize=4096)
def timing(cron: str | None, every: int | None, tz: str) -> Timing:
    """The slots that a schedule's columns mean; InvalidSchedule when they mean none on this host."""
    if cron is not None:
        return Cron(cron, zone_of(tz))
    if every is None:
        raise InvalidSchedule("a schedule needs a cron expression or an interval")
    return Interval(every)


def between(times: Timing, start: datetime, end: datetime) -> Iterator[datetime]:
    """The slots from `start` on and before `end`."""
    slot = times.following(start - _MICROSECOND)
    while slot is not None and slot < end:
        yield slot
        slot = times.following(slot)


def zone_of(name: str) -> tzinfo:
    """The zone of that name; InvalidSchedule when this host does not know it."""
    if name == "UTC":
        return UTC  # the only one that needs no database of zones
    if not isinstance(name, str):
        raise InvalidSchedule(f"tz={name!r} is not the name of a time zone; write for example Europe/Berlin")
    if name in _HOST_ZONES or name.startswith(("posix/", "right/")):
        raise InvalidSchedule(f"time zone {name!r} means something else on every host; write for example Europe/Berlin")
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        if not _knows(_ANY_ZONE):
            raise InvalidSchedule(
                f"time zone {name[:80]!a} cannot be looked up: this host has no database of zones; "
                "pip install tzdata, or install the tzdata package of its distribution"
            ) from None
        raise InvalidSchedule(
            f"there is no time zone {name[:80]!a} on this host; write a name of the IANA database such as Europe/Berlin"
        ) from None


def _knows(name: str) -> bool:
    try:
        return ZoneInfo(name).key == name
    except (ValueError, LookupError, OSError):
        return False


class Interval:
    def __init__(self, every: int) -> None:
        self._every = every
        """Microseconds."""

    def following(self, after: datetime) -> datetime | None:
        try:
            return self._at((after - _EPOCH) // _MICROSECOND // self._every + 1)
        except OverflowError:
            return None  # the calendar ends with the year 9999

    def latest(self, until: datetime) -> datetime:
        return self._at((until - _EPOCH) // _MICROSECOND // self._every)

    def _at(self, number: int) -> datetime:
        return _EPOCH + timedelta(microseconds=number * self._every)


class Cron:
    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._sim = _parsed(expression)
        self._zone = zone
        _, minute, hour, *_ = self._sim.parts
        self._is_fixed = not minute.startswith("*") and not hour.startswith("*")
        self._times = [time(h, m) for h in sorted(self._sim.hours) for m in sorted(self._sim.minutes)]

    def following(self, after: datetime) -> datetime | None:
        try:
            return self._next_reading(after) if self._is_fixed else self._next_minute(after)
        except OverflowError:
            return None  # the calendar ends with the year 9999

    def latest(self, until: datetime) -> datetime | None:
        """Forward from further and further back: frequent slots are found near, rare ones are few."""
        for span in _LOOKS_BACK:
            found, slot = None, self.following(until - span - _MICROSECOND)
            while slot is not None and slot <= until:
                found, slot = slot, self.following(slot)
            if found is not None:
                return found
        return None

    def _fits(self, day: date) -> bool:
        return day.month in self._sim.months and bool(self._sim.match_day(day))

    def _days(self, start: date) -> Iterator[date]:
        return (day for n in range(NEVER) if self._fits(day := start + timedelta(days=n)))

    # Fixed times: readings of the clock, each of which has one instant. Later readings never come earlier.

    def _next_reading(self, after: datetime) -> datetime | None:
        for day in self._days(after.astimezone(self._zone).date() - _DAY):
            place = bisect_right(self._times, after, key=lambda at, day=day: self._instant(day, at))  # type: ignore[misc]
            if place < len(self._times):
                return self._instant(day, self._times[place])
        return None

    def _instant(self, day: date, at: time) -> datetime:
        """When the clocks show this: the first time, or, when they never do, the moment at which they leap over it."""
        reading = datetime.combine(day, at)
        first = reading.replace(tzinfo=self._zone).astimezone(UTC)
        if first.astimezone(self._zone).replace(tzinfo=None) == reading:
            return first
        before, since = reading.replace(tzinfo=self._zone, fold=1).astimezone(UTC), first
        summer = since.astimezone(self._zone).utcoffset()
        while since - before > _SECOND:
            middle = before + ((since - before) // 2 // _SECOND) * _SECOND
            if middle.astimezone(self._zone).utcoffset() == summer:
                since = middle
            else:
                before = middle
        return since

    # Repetitions: real minutes, of which those are passed over quickly whose hour or day cannot fit.

    def _next_minute(self, after: datetime) -> datetime | None:
        moment: datetime | None = after.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
        while moment is not None:
            local = moment.astimezone(self._zone)
            fits = self._fits(local.date())
            if fits and local.hour in self._sim.hours:
                if local.minute in self._sim.minutes:
                    return moment
                moment += _MINUTE
            elif fits or local.hour < _STRADDLE:
                moment = self._next_hour(moment, local)
            else:
                moment = self._next_day(moment, local)
        return None

    def _next_hour(self, moment: datetime, local: datetime) -> datetime:
        """The beginning of the next hour, unless the clocks are changed before it."""
        ahead = moment + (60 - local.minute) * _MINUTE
        unchanged = ahead.astimezone(self._zone).utcoffset() == local.utcoffset()
        return ahead if unchanged else moment + _MINUTE

    def _next_day(self, moment: datetime, local: datetime) -> datetime | None:
        """The beginning of the next day that fits; where its midnight is left out or comes twice, the earlier guess."""
        day = next(self._days(local.date() + _DAY), None)
        if day is None:
            return None
        midnight = datetime.combine(day, time())
        guesses = [midnight.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        return max(min(guesses).replace(second=0, microsecond=0), moment + _MINUTE)


def _parsed(expression: str) -> CronSim:
    if not isinstance(expression, str):
        raise InvalidSchedule(f"{expression!r} is not a cron expression; {_EXAMPLE}")
    text = MACROS.get(expression.strip().lower(), expression)
    shown = ascii(expression if len(expression) <= 80 else expression[:80] + "…")
    if len(expression) > MAX_CRON_LENGTH:
        raise InvalidSchedule(
            f"cron expression {shown} has {len(expression)} characters; the limit is {MAX_CRON_LENGTH}"
        )
    fields = len(text.split())
    if fields == 6:
        raise InvalidSchedule(f'cron expression {shown} has six fields; for seconds, use an interval: every="10s"')
    if fields != 5:
        raise InvalidSchedule(f"cron expression {shown} has {fields} fields; {_EXAMPLE}")
    try:
        return CronSim(text, _EPOCH)
    except (CronSimError, ValueError) as error:
        why = str(error) if isinstance(error, CronSimError) else "a number is too long"
        raise InvalidSchedule(f"cron expression {shown} is not understood: {why}; {_EXAMPLE}") from None
