"""Text, numbers and times that JSON or a database cannot hold, each with what to do about it."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from decimal import Decimal

from .payload_refusals import Lost, Refused

_MINUTE = timedelta(minutes=1)


def refuse_surrogates(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused("a string contains a lone surrogate, which is not text; clean it with errors='replace'") from None


def non_finite(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise Refused(f"Decimal('{value}') has no JSON form; use None, or a string that your code understands")
    return str(value)


def check_zone(value: datetime | time) -> None:
    """Lost when its zone cannot be written as an offset in whole minutes, which is all that its text has room for."""
    offset = value.utcoffset()
    name = type(value).__name__
    if offset is None:
        if value.tzinfo is not None:
            raise Lost(
                f"a {name} with a zone that has no offset without a date would come back without a zone",
                remedy="store the name of the zone as text beside it, or give it a fixed timezone(timedelta(hours=…))",
            )
    elif offset % _MINUTE:
        as_utc = ".astimezone(UTC)" if isinstance(value, datetime) else "a time in UTC"
        raise Lost(
            f"a {name} with the offset {value:%z} would come back as another one: JSON has offsets in whole minutes",
            remedy=f"store {as_utc}, and the name of the zone as text beside it",
        )
