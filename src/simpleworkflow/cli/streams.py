"""Where a command prints when there is nowhere to print, and arguments that are not text.

A program can be started without standard output (`>&-`): Python then has none at all, the next file that is opened gets
its number, and whatever is printed could end up in a database. And an output may take nothing (a full disk, /dev/full).
Both end in one sentence and exit code 1, and whoever prints what must not be lost (an id) says it on standard error.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

REFUSALS = {errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT, errno.EFBIG}
"""How an output says that it takes nothing. A reader that has left (EPIPE) is not among them: that is no mistake."""
WIDEST = 5
"""Digits of a width."""


def prepare() -> None:
    """Give standard output and error a place: the first refuses every write, the second forgets. Forget a width that
    is none, at which others would stumble."""
    width = os.environ.get("COLUMNS", "1")
    if not (width.isascii() and width.isdigit() and len(width) <= WIDEST and int(width)):
        del os.environ["COLUMNS"]
    if sys.stdout is None:
        sys.stdout = _opened(1, os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = _opened(2, os.O_WRONLY)


def _opened(number: int, how: int) -> IO[str]:
    """Nothing, under that very number, so that no other file gets it."""
    end = os.open(os.devnull, how)
    if end != number:
        os.dup2(end, number)
        os.close(end)
    return os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")


def why_unwritable(error: OSError) -> str | None:
    """Why standard output takes nothing, if this error says so. What was not written is forgotten: nobody can have it.

    An error of a file names the file, one of a connection has other numbers.
    """
    if error.filename is not None or error.errno not in REFUSALS:
        return None
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # or the interpreter complains once more when it ends
        os.close(nowhere)
    return error.strerror or str(error)


def not_text(arguments: Sequence[str]) -> str | None:
    """The first argument that holds bytes which are not UTF-8, as it can be shown."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            return "'" + "".join(_shown(c) for c in argument[:60]) + "'"
    return None


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else character
