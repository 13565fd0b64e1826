"""What people write after a command, as values: payloads, instants, lists of runs.

Whatever cannot be read is the caller's mistake: one sentence that names it and says what would be understood, exit
code 2, and nothing has been sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ..clock import SystemClock, from_micros
from ..model.duration import human, seconds
from ..model.errors import InvalidDuration, InvalidInput, InvalidName, PayloadError
from ..model.names import check_key, check_type
from ..model.payload import MAX_BYTES, decode, encode
from .common import check_prefixes

STDIN = "-"


def read_payload(text: str | None, what: str = "PAYLOAD") -> Any:
    """JSON as it stands, `-` for standard input, `@file` for a file; nothing means null."""
    if text is None:
        return None
    written = _from_stdin(what) if text == STDIN else _from_file(text[1:], what) if text.startswith("@") else text
    try:
        value = decode(written, what=what)
    except (PayloadError, InvalidInput) as error:
        hint = "" if text == STDIN or text.startswith("@") else "; text needs its own quotes: '\"hello\"'"
        raise click.UsageError(f"{error}{hint}") from None
    try:
        encode(value, limit=MAX_BYTES, what=what)
    except PayloadError as error:  # it can be read, but not stored
        raise click.UsageError(str(error)) from None
    return value


def _from_stdin(what: str) -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} on standard input is not UTF-8: {error}") from None


def _from_file(name: str, what: str) -> str:
    try:
        with open(name, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise click.UsageError(f"{what} cannot be read from {name!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} in {name!r} is not UTF-8: {error}") from None


def read_lines() -> list[str]:
    """The words of standard input, one or several a line: ids of runs, most often."""
    return _from_stdin("what stands").split()


def check_prefix(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    check_prefixes(ctx, param, () if value is None else (value,))
    return value


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


def check_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return _checked(check_type, value)


def check_one_key(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return _checked(check_key, value)


def check_signal(_: click.Context, __: click.Parameter, value: str) -> str | None:
    from ..runtime.branches import check_name as check_step_name

    return _checked(lambda name: check_step_name(name, "signal"), value)


def _checked(check: Callable[[str], str], value: str | None) -> str | None:
    try:
        return None if value is None else check(value)
    except InvalidName as error:
        raise click.BadParameter(str(error)) from None


def now() -> datetime:
    return from_micros(SystemClock().wall())
