"""What people write after a command, as values: payloads, instants, lists of runs.

Whatever cannot be read is the caller's mistake: one sentence that names it and says what would be understood, exit
code 2, and nothing has been sent.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Any

import click

from ..clock import SystemClock, from_micros
from ..model.duration import seconds
from ..model.errors import InvalidDuration, InvalidInput, PayloadError
from ..model.payload import decode
from .common import check_prefixes

STDIN = "-"


def read_payload(text: str | None, what: str = "PAYLOAD") -> Any:
    """JSON as it stands, `-` for standard input, `@file` for a file; nothing means null."""
    if text is None:
        return None
    written = _from_stdin(what) if text == STDIN else _from_file(text[1:], what) if text.startswith("@") else text
    try:
        return decode(written, what=what)
    except (PayloadError, InvalidInput) as error:
        hint = "" if text == STDIN or text.startswith("@") else "; text needs its own quotes: '\"hello\"'"
        raise click.UsageError(f"{error}{hint}") from None


def _from_stdin(what: str) -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} on standard input is not UTF-8: {error}") from None


def _from_file(name: str, what: str) -> str:
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise click.UsageError(f"{what} cannot be read from {name!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} in {name!r} is not UTF-8: {error}") from None


def read_lines() -> list[str]:
    """The words of standard input, one or several a line: ids of runs, most often."""
    return sys.stdin.read().split()


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
        return instant


class ExactInstant(Instant):
    """ISO 8601 with a time zone, nothing else."""

    name = "ISO"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        return value if isinstance(value, datetime) else self.iso(value, param, ctx)


def now() -> datetime:
    return from_micros(SystemClock().wall())
