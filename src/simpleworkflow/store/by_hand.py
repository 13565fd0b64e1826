"""Migrations as one script, for those who let no program change their schema: a person reads it and runs it.

The script is not a second telling of what `up` and `down` do. It is made by those operations themselves: they run here
against a driver that writes down every statement instead of executing it. So the script takes the same lock, keeps the
same book of applied migrations, and `migrate status` says afterwards what it would say after `migrate up`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .catalog import statements
from .migrate import Migration, down, up
from .protocol import Query, Rows, Wanted, drive

_BEGIN = {"postgres": "BEGIN;", "sqlite": "BEGIN IMMEDIATE;"}


def up_script(missing: Sequence[Migration], dialect: str, schema: str) -> str:
    """What `up` runs on a database that lacks these."""
    writer = _Writer(dialect, schema, applied=())
    drive(up(tuple(missing)).steps(), writer.write)
    return writer.text()


def down_script(applied: Sequence[Migration], dialect: str, schema: str, count: int) -> str:
    """What `down` runs on a database that has these."""
    writer = _Writer(dialect, schema, applied)
    drive(down(tuple(applied), count).steps(), writer.write)
    return writer.text()


class _Writer:
    """A driver that only writes down; the book of applied migrations is all it can be asked for."""

    def __init__(self, dialect: str, schema: str, applied: Sequence[Migration]) -> None:
        self._dialect = dialect
        self._statements = statements(dialect, schema)
        self._applied = applied
        self._lines = [_BEGIN[dialect]]

    def write(self, wanted: Wanted) -> Rows:
        if isinstance(wanted, Query):
            if wanted.name == "applied_migrations":
                return [{"version": one.version, "checksum": one.checksum} for one in self._applied]
            self._add(_filled(self._statements[wanted.name].source, wanted.parameters))
        else:
            self._add(wanted.text)
        return []

    def _add(self, text: str) -> None:
        if text.strip():
            self._lines.append(text.strip() if text.rstrip().endswith(";") else f"{text.strip()};")

    def text(self) -> str:
        return "\n\n".join([*self._lines, "COMMIT;"]) + "\n"


def _filled(text: str, parameters: dict[str, str]) -> str:
    """The statement with its values in it: versions and checksums of our own, quoted all the same."""

    def literal(match: re.Match[str]) -> str:
        return "'" + parameters[match[1]].replace("'", "''") + "'"

    return re.sub(r"(?<![:\w]):(version|checksum)\b", literal, text)
