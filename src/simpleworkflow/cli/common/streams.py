"""Standard output that is closed or cannot be written, and arguments that are not text.

A program can be started without standard output (`>&-`). The next file that it opens then gets that number, and
what is printed could end up in a database. An output can also refuse writes (a full disk, /dev/full). Both end with one
sentence and exit code 1.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

REFUSALS = {errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT, errno.EFBIG}
"""Errors of an output that cannot be written. A reader that left early (EPIPE) is no mistake, so it is not here."""
MOST_DIGITS = 5
"""Of a width."""


def prepare() -> None:
    """Replace a closed standard output by one that refuses every write, and a closed standard error by one that drops
    it. Remove a COLUMNS that is no width: rich cannot read it."""
    width = os.environ.get("COLUMNS", "1")
    if not (width.isascii() and width.isdigit() and len(width) <= MOST_DIGITS and int(width)):
        del os.environ["COLUMNS"]
    if sys.stdout is None:
        sys.stdout = _opened(1, os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = _opened(2, os.O_WRONLY)


def _opened(number: int, how: int) -> IO[str]:
    """/dev/null under that number, so that no other file gets it."""
    end = os.open(os.devnull, how)
    if end != number:
        os.dup2(end, number)
        os.close(end)
    return os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace")


def why_unwritable(error: OSError) -> str | None:
    """Why standard output cannot be written, if the error comes from it; what was not written is dropped.

    An error of a file has a file name, one of a connection has other numbers.
    """
    if error.filename is not None or error.errno not in REFUSALS:
        return None
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # or the interpreter complains once more when it ends
        os.close(nowhere)
    return error.strerror or str(error)


def not_text(arguments: Sequence[str]) -> str | None:
    """The first argument that is not UTF-8, in a form that can be printed."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            return "'" + "".join(_shown(c) for c in argument[:60]) + "'"
    return None


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else character
