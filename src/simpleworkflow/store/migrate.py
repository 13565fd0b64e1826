"""Migrations: plain SQL files with up and down, in dbmate's format, applied by one small runner.

The lock is taken before the book of applied migrations is read, so any number of processes may start at once: one
works, the others find nothing left to do. SQLite files migrate themselves when opened; PostgreSQL only when asked,
and meanwhile every call says which command to run.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..model.errors import MissingMigration, StoreError
from .catalog import place
from .protocol import Script, Steps, query, reading, transaction
from .url import DatabaseURL


@dataclass(frozen=True, slots=True)
class Migration:
    version: str
    name: str
    up: str
    down: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256((self.up + self.down).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Applied:
    version: str
    name: str
    applied: str | None
    """When it was applied; None when it is still to come."""
    is_changed: bool = False
    """It was applied with another text than this version has: by a different build."""


@cache
def migrations(dialect: str, schema: str) -> tuple[Migration, ...]:
    folder = files(__package__) / "sql" / "migrations" / dialect
    found = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        match = re.fullmatch(r"(\d+)_(\w+)\.sql", entry.name)
        if match is None:
            raise StoreError(f"{entry.name} is not a migration file; name it NNNN_what_it_does.sql")
        up, down = _sections(place(entry.read_text(encoding="utf-8"), dialect, schema), entry.name)
        found.append(Migration(match[1], match[2], up, down))
    return tuple(found)


def _sections(text: str, where: str) -> tuple[str, str]:
    parts = re.split(r"^-- migrate:(up|down).*$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if set(sections) != {"up", "down"}:
        raise StoreError(f"{where} needs one `-- migrate:up` and one `-- migrate:down` section")
    return sections["up"].strip(), sections["down"].strip()


@transaction
def up(known: tuple[Migration, ...]) -> Steps[list[Migration]]:
    """Apply everything that is missing, all or nothing."""
    applied = yield from _open_book()
    return (yield from _apply(known, applied))


@transaction
def down(known: tuple[Migration, ...], count: int) -> Steps[list[Migration]]:
    """Take back the newest `count` migrations. Where there is no book there is nothing to take back, nor to create."""
    yield query("lock_schema")
    applied = yield from _read_book()
    return (yield from _take_back(known, applied, count))


@transaction
def reset(known: tuple[Migration, ...]) -> Steps[tuple[list[Migration], list[Migration]]]:
    """Take everything back and apply it again; in one transaction, so that nobody meets a database without tables."""
    applied = yield from _open_book()
    undone = yield from _take_back(known, applied, len(known))
    return undone, (yield from _apply(known, {}))


def _apply(known: tuple[Migration, ...], applied: dict[str, str]) -> Steps[list[Migration]]:
    done = []
    for migration in known:
        checksum = applied.get(migration.version)
        if checksum is None:
            yield Script(migration.up)
            yield query("record_migration", version=migration.version, checksum=migration.checksum)
            done.append(migration)
        elif checksum != migration.checksum:
            raise StoreError(
                f"migration {migration.version}_{migration.name} was applied with another text; "
                "this database was made by a different build"
            )
    return done


def _take_back(known: tuple[Migration, ...], applied: dict[str, str], count: int) -> Steps[list[Migration]]:
    """The newest first. What a newer version has built upon them is not ours to break."""
    strangers = sorted(applied.keys() - {migration.version for migration in known})
    if strangers:
        raise StoreError(
            f"this database has migrations that this version of simpleworkflow does not know ({', '.join(strangers)}); "
            "take them back with the version that applied them"
        )
    undone = [migration for migration in reversed(known) if migration.version in applied][:count]
    for migration in undone:
        yield Script(migration.down)
        yield query("forget_migration", version=migration.version)
    return undone


def _open_book() -> Steps[dict[str, str]]:
    yield query("lock_schema")
    yield query("create_schema")
    yield query("create_migrations")
    return (yield from _read_book())


def _read_book() -> Steps[dict[str, str]]:
    return {row["version"]: row["checksum"] for row in (yield query("applied_migrations"))}


def foreign_book(error: MissingMigration, url: DatabaseURL) -> StoreError | None:
    """What is wrong when the book is there but lacks what ours has: another program keeps it. Otherwise None."""
    if "m.checksum" not in str(error):
        return None
    way_out = "a file of its own" if url.dialect == "sqlite" else "another schema (?schema=jobs) or another database"
    return StoreError(
        f"{url} has a table schema_migrations that another program keeps (dbmate and Rails call theirs so); nothing "
        f"was changed. simpleworkflow cannot share it; use {way_out}"
    )


def in_the_way(error: StoreError, url: DatabaseURL) -> StoreError | None:
    """What to do when another program has a table of our name, as simple-workflow has. Otherwise None."""
    found = re.search(r"\b((?:workflow|outbox)_\w+)\W+already exists", str(error))
    if found is None:
        return None
    way_out = "a file of its own" if url.dialect == "sqlite" else "another schema (?schema=jobs) or another database"
    return StoreError(
        f"{url} has a table {found[1]} that simpleworkflow did not make; simple-workflow has tables of these names. "
        f"Nothing was changed, and its runs are not converted: let them end where they are, and use {way_out}"
    )


@reading
def status(known: tuple[Migration, ...]) -> Steps[list[Applied]]:
    book = {row["version"]: row for row in (yield query("applied_migrations"))}
    return [
        Applied(m.version, m.name, row["applied"], is_changed=row["checksum"] != m.checksum)
        if (row := book.get(m.version))
        else Applied(m.version, m.name, None)
        for m in known
    ]


def require_current(report: list[Applied], where: str) -> None:
    missing = [f"{m.version}_{m.name}" for m in report if m.applied is None]
    if missing:
        raise MissingMigration(
            f"the database at {where} lacks {', '.join(missing)}; run: simpleworkflow migrate up --url {where}"
        )
