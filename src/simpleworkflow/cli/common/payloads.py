"""Arguments that are read from JSON, a file or standard input: payloads, and lists of runs.

What cannot be read is a mistake of the caller: one sentence, exit code 2, and nothing was sent.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from ...model.errors import InvalidInput, PayloadError
from ...model.payload import MAX_BYTES, decode, encode

STDIN = "-"


def read_payload(text: str | None, what: str = "PAYLOAD") -> Any:
    """JSON as written, `-` for standard input, `@file` for a file; None means null."""
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
    """The words of standard input, one or several a line; ids of runs, usually."""
    return _from_stdin("what stands").split()
