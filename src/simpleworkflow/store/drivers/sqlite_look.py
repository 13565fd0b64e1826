"""A look at a SQLite file before anything of ours touches it, and a way out that leaves it as it was.

Opening a file as ours migrates it, and turns its journal into a write-ahead log. Who only wants to look, and may have
mistyped a name, must not do that to the file of another program.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def has_our_tables(path: str) -> bool:
    """Whether this file has been migrated by us. What cannot be read is left for the real opening to explain."""
    try:
        connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?{_how(path)}", uri=True, timeout=1.0)
    except (sqlite3.Error, OSError):
        return True
    try:
        return connection.execute("PRAGMA table_info(workflow_run)").fetchone() is not None
    except sqlite3.Error:
        return True
    finally:
        connection.close()


@contextmanager
def keeping_the_log(path: str) -> Iterator[None]:
    """Connections that are closed in here leave the write-ahead log as it is.

    SQLite empties and removes the log when the last connection closes, and a log of many megabytes is what somebody
    may want to see. A read-only connection that is closed last cannot do that. (3.12 has a switch for it, 3.11 not.)
    An empty log is not worth keeping: it goes, as ever.
    """
    last = _reader(path)
    try:
        yield
    finally:
        if last is not None:
            last.close()


def _reader(path: str) -> sqlite3.Connection | None:
    try:
        if os.stat(path + "-wal").st_size == 0:
            return None
        connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        connection.execute("PRAGMA schema_version").fetchone()  # from now on it counts among the file's readers
    except (OSError, sqlite3.Error):
        return None
    return connection


def _how(path: str) -> str:
    """Even who only reads a write-ahead log leaves its files behind. Without such a log beside it nobody has the file
    open, and it can be read as it lies there."""
    with open(path, "rb") as file:
        is_wal = file.read(20)[18:20] == b"\2\2"
    return "mode=ro&immutable=1" if is_wal and not Path(f"{path}-wal").exists() else "mode=ro"
