"""What the applied migrations should have left in a database: tables, indexes, triggers, views and functions.

The book of migrations says what was applied, not what is still there: a table that somebody dropped, or that a restore
left out, stands in it all the same. The migrations' own text is the only source here, read statement by statement, so
that nothing has to be kept in step by hand, and each part comes with the statement that makes it anew. A test compares
this with what a fresh database really has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache

from .migrate import Migration, migrations

_CREATE = re.compile(
    r"CREATE (?:OR REPLACE )?(?:UNIQUE )?(TABLE|INDEX|TRIGGER|VIEW|FUNCTION) (?:IF NOT EXISTS )?(?:\w+\.)?(\w+)"
)
_DROP = re.compile(r"DROP (TABLE|INDEX|TRIGGER|VIEW|FUNCTION) (?:IF EXISTS )?([^;]+)")
_RENAME = re.compile(r"ALTER TABLE (?:\w+\.)?(\w+) RENAME TO (\w+)")
_ASLEEP = re.compile(r"ALTER TABLE \S+ (DISABLE|ENABLE) TRIGGER (\w+)")
_NAME = re.compile(r"\s*(?:\w+\.)?(\w+)")
_ON = re.compile(r"\bON (?:\w+\.)?(\w+)")
_COUNTER = re.compile(r"nextval\('(?:\w+\.)?(\w+)'")


@dataclass(frozen=True, slots=True)
class Part:
    kind: str
    """table, index, trigger, view or function"""
    name: str
    table: str
    """Its table; a table's, view's or function's own name."""
    statement: str
    """Makes it anew; one line, without comments."""
    may_sleep: bool = False
    """A trigger that is disabled on purpose while nobody needs it."""


@cache
def expected(dialect: str, schema: str, applied: frozenset[str]) -> tuple[Part, ...]:
    """Every part that these migrations left, in the order in which they can be made."""
    found: dict[tuple[str, str], Part] = {}
    for migration in migrations(dialect, schema):
        if migration.version in applied:
            for statement in _statements(migration):
                _follow(statement, found)
    return tuple(found.values())


@cache
def counters(schema: str) -> tuple[str, ...]:
    """The sequences that are asked by name; those of identity columns need no right of their own."""
    text = "".join(migration.up for migration in migrations("postgres", schema))
    return tuple(sorted(set(_COUNTER.findall(text))))


def created(dialect: str, schema: str, version: str) -> Collection[tuple[str, str]]:
    """Kind and name of what one migration makes."""
    return {(part.kind, part.name) for part in expected(dialect, schema, frozenset([version]))}


def _follow(statement: str, found: dict[tuple[str, str], Part]) -> None:
    if made := _CREATE.match(statement):
        kind, name = made[1].lower(), made[2]
        on = _ON.search(statement, made.end()) if kind in {"index", "trigger"} else None
        found[kind, name] = Part(kind, name, on[1] if on else name, statement)
    elif gone := _DROP.match(statement):
        for one in re.split(r",(?![^(]*\))", gone[2]):
            if name := _NAME.match(one):
                _drop(gone[1].lower(), name[1], found)
    elif renamed := _RENAME.match(statement):
        part = found.pop(("table", renamed[1]), None)
        if part is not None:
            text = re.sub(rf"\b{renamed[1]}\b", renamed[2], part.statement, count=1)
            found["table", renamed[2]] = Part("table", renamed[2], renamed[2], text)
    elif (turned := _ASLEEP.match(statement)) and (part := found.get(("trigger", turned[2]))):
        found["trigger", part.name] = Part("trigger", part.name, part.table, part.statement, turned[1] == "DISABLE")


def _drop(kind: str, name: str, found: dict[tuple[str, str], Part]) -> None:
    found.pop((kind, name), None)
    if kind == "table":
        for key in [key for key, part in found.items() if part.table == name and part.kind in {"index", "trigger"}]:
            del found[key]


def _statements(migration: Migration) -> Iterator[str]:
    """One line each. Bodies hold semicolons: those of functions between $$, those of SQLite's triggers until END."""
    pending: list[str] = []
    for line in migration.up.splitlines():
        line = _without_comment(line).strip()
        if not line:
            continue
        pending.append(line)
        text = " ".join(pending)
        in_function = text.count("$$") % 2 == 1
        in_trigger = text.startswith("CREATE TRIGGER") and "BEGIN" in pending and line != "END;"
        if line.endswith(";") and not in_function and not in_trigger:
            yield " ".join(text[:-1].split())
            pending.clear()
    if pending:
        yield " ".join(" ".join(pending).split())


def _without_comment(line: str) -> str:
    """`--` begins a comment unless it stands inside quotes."""
    for found in re.finditer("--", line):
        if line.count("'", 0, found.start()) % 2 == 0:
            return line[: found.start()]
    return line
