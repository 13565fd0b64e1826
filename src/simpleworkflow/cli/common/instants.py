"""Instants and intervals as types of arguments: `10m`, `2030-01-31T12:00Z`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ...clock import SystemClock, from_micros
from ...model.duration import human, seconds
from ...model.errors import InvalidDuration


class Instant(click.ParamType[datetime]):
    """An instant: ISO 8601 with a time zone, or a duration, counted back from now."""

    name = "10m|ISO"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return now() - timedelta(seconds=seconds(value, what="instant"))
        except InvalidDuration:
            return self.iso(value, param, ctx)
        except OverflowError:
            self.fail(f"{value!r} is too long ago", param, ctx)

    def iso(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            instant = datetime.fromisoformat(value.strip())
        except ValueError:
            self.fail(f"{value!r} is neither a duration such as 10m nor ISO 8601 such as 2030-01-31T12:00Z", param, ctx)
        if instant.tzinfo is None:
            self.fail(f"{value!r} has no time zone; write {value.strip()}Z for UTC", param, ctx)
        try:
            return instant.astimezone(UTC)
        except (OverflowError, ValueError):
            self.fail(f"{value!r} lies outside of the years 1 to 9999 in UTC", param, ctx)


class ExactInstant(Instant):
    """ISO 8601 with a time zone, nothing else."""

    name = "ISO"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        return value if isinstance(value, datetime) else self.iso(value, param, ctx)


class Interval(click.ParamType[float]):
    """A length of time between looks, in seconds: "2s", "200ms", or a plain number of seconds."""

    name = "2s|200ms"

    def __init__(self, least: float, most: float = 3600.0) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            length = seconds(f"{value}s" if str(value).replace(".", "", 1).isdigit() else value, what="interval")
        except InvalidDuration as error:
            self.fail(str(error), param, ctx)
        if length < self._least:
            self.fail(f"{value} is shorter than {human(self._least)}", param, ctx)
        if length > self._most:
            self.fail(f"{value} is longer than {human(self._most)}", param, ctx)
        return length


def now() -> datetime:
    return from_micros(SystemClock().wall())
