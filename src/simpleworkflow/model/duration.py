"""Lengths of time as people write them: 30, "90s", "1h30m", "3 days", timedelta(days=3).

Timeouts, leases, sleeps and retry delays all come through `seconds`, so that every one of them understands the same
spellings and refuses the same mistakes.

The danger is a duration that means something else than its author thought: "10" (seconds? minutes?), True (1 s?),
"5M" (minutes or months?), a NaN that compares false with every deadline and so never ends. All of them are refused,
with examples of what is understood. Months and years are not units, because they have no fixed length. The limit of
100 years keeps every sum with a date of our time inside what datetime and both databases can hold.
"""

from __future__ import annotations

import re
from datetime import timedelta
from math import isfinite

from .errors import InvalidDuration

Duration = timedelta | int | float | str

MAX_SECONDS = 36525 * 86400
"""100 years of 365.25 days."""

_UNITS: dict[str, float] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 604800),
}
# [0-9], not \d, which also matches digits of other scripts.
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]+)\s*")
_PLAIN_NUMBER = re.compile(r"\s*[0-9]+(?:\.[0-9]+)?\s*")
EXAMPLES = 'write 30 (seconds), "90s", "250ms", "1h30m", "3 days" or a timedelta'
_LONGEST_SHOWN = 60


def seconds(value: Duration, *, what: str = "duration") -> float:
    """The duration in seconds, or InvalidDuration naming `what`, the value and what would be understood."""
    if isinstance(value, str):
        return _in_limits(_parse(value, what), value, what)
    if isinstance(value, timedelta):
        return _in_limits(value.total_seconds(), value, what)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _in_limits(value, value, what)
    raise _refusal(what, value, "is not a duration")


def microseconds(value: Duration, *, what: str = "duration") -> int:
    """The duration in whole microseconds, the resolution of both databases."""
    exact = seconds(value, what=what)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return round(exact * 1_000_000)


def human(seconds: float) -> str:
    """A duration for messages: "1h 30m", "250ms", "3d". Whole seconds from a minute on, milliseconds below."""
    if not isfinite(seconds):
        return f"{seconds}s"
    if seconds < 0:
        return "-" + human(-seconds)
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return _trimmed(seconds * 1000, "ms")
    if milliseconds < 60_000:
        return _trimmed(milliseconds / 1000, "s")
    return _split(round(seconds))


def _trimmed(number: float, unit: str) -> str:
    digits = f"{number:.3f}".rstrip("0").rstrip(".")
    return "0s" if digits == "0" else f"{digits}{unit}"


def _split(whole: int) -> str:
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, whole = divmod(whole, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


def _parse(text: str, what: str) -> float:
    if not text.strip():
        raise _refusal(what, text, "is empty")
    if _PLAIN_NUMBER.fullmatch(text):
        shown = text.strip() if len(text.strip()) <= _LONGEST_SHOWN else "30"
        told = f'did you mean "{shown}s"? Minutes are "{shown}m", hours "{shown}h", days "{shown}d"'
        raise InvalidDuration(f"{what}: {_shown(text)} has no unit; {told}")
    total, position, used = 0.0, 0, set[float]()
    while position < len(text):
        part = _PART.match(text, position)
        unit = _UNITS.get(part[2]) if part else None
        if part is None or unit is None:
            raise _refusal(what, text, f"is not understood from {_shown(text[position:].strip())} on")
        if unit in used:
            raise _refusal(what, text, f"names the unit {part[2]!r} twice")
        used.add(unit)
        # Dividing by 1000 is exact where multiplying by 0.001 is not: 3ms must equal 0.003.
        total += float(part[1]) / 1000 if unit == 0.001 else float(part[1]) * unit
        position = part.end()
    return total


def _in_limits(number: float, value: object, what: str) -> float:
    if number != number:
        raise _refusal(what, value, "is not a number")
    if number < 0:
        raise _refusal(what, value, "is negative")
    if number > MAX_SECONDS:
        raise _refusal(what, value, "is longer than 100 years")
    return abs(float(number))  # abs: -0.0 is 0.0


def _refusal(what: str, value: object, why: str) -> InvalidDuration:
    return InvalidDuration(f"{what}: {_shown(value)} {why}; {EXAMPLES}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
