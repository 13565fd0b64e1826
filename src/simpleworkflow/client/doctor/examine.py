"""`app.doctor.examine()`: is this installation sound, and do runs move as they should?

The dangers of such a tool are three. It may change what it examines: so it asks through `Ledger.look`, which migrates
nothing, and it does not open a SQLite file that is not there, which would make one. It may be the load that breaks a
tired database: every question is bounded (store/operations/health.py). And it may fail itself just when it is needed:
each check stands alone, one that cannot be made says why, and a database that goes away in between ends the
examination with that finding.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from shlex import quote
from urllib.parse import unquote, urlsplit

from ...clock import Clock, SystemClock, monotonic
from ...config import Settings
from ...model.errors import MissingExtra, MissingMigration, SimpleWorkflowError, StoreBusy, StoreError, StoreUnavailable
from ...model.install import UPGRADE, install
from ...store import Ledger
from ...store.migrate import foreign_book, migrations
from ...store.operations import health
from ...store.url import MEMORY, DatabaseURL, mask_text
from . import file, outbox, runs, schedules, server, structure
from .findings import LIMITS, Finding, Level, Limits, Look

Check = Callable[[Look], Awaitable[list[Finding]]]

SERVER: dict[str, Check] = {
    "tables": structure.tables,
    "privileges": structure.privileges,
    "version": server.version,
    "durability": server.durability,
    "clock": server.clock,
    "connections": server.connections,
    "hints": server.hints,
    "snapshots": server.snapshots,
    "wraparound": server.wraparound,
    "vacuum": server.vacuum,
}
FILE: dict[str, Check] = {
    "tables": structure.tables,
    "version": file.version,
    "durability": server.durability,
    "clock": server.clock,
    "hints": server.hints,
    "file-system": file.file_system,
    "disk-space": file.disk_space,
    "log": file.log,
}
TABLES: dict[str, Check] = {
    "workers": runs.alive,
    "silent-workers": runs.silent,
    "unserved-types": runs.unserved,
    "overdue-runs": runs.overdue,
    "expired-leases": runs.leases,
    "deadlines": runs.deadlines,
    "held-runs": runs.held,
    "crashed-runs": runs.crashed,
    "schedules": schedules.late_or_broken,
    "outbox": outbox.outbox_events,
    "size": runs.sizes,
}
"""What needs our tables; left out while those are not in order."""


async def examine(
    ledger: Ledger, settings: Settings, clock: Clock | None = None, limits: Limits | None = None
) -> list[Finding]:
    """Every finding, in a fixed order; when the database cannot be reached, the first is the only one."""
    look = Look(ledger, settings, clock or SystemClock(), limits or LIMITS)
    if ledger.url.dialect == "sqlite" and ledger.url.target != MEMORY:
        look.log_bytes = await asyncio.to_thread(file.log_bytes, ledger.url.target)
    findings = [await reach(look)]
    if findings[0].level is Level.PROBLEM:
        return findings
    on_server = ledger.url.dialect == "postgres"
    try:
        findings += await _made(look, "migrations", migrated)
        for name, check in (SERVER if on_server else FILE).items():
            findings += await _made(look, name, check)
        for name, check in (TABLES if look.has_tables else {}).items():
            findings += await _made(look, name, check)
    except StoreUnavailable as error:
        fix = (
            "run doctor again" if on_server else f"find the program that locks it: fuser -v {quote(ledger.url.target)}"
        )
        findings.append(Finding("database", Level.PROBLEM, f"it stopped answering: {error}", fix))
    return findings


async def _made(look: Look, name: str, check: Check) -> list[Finding]:
    """Make one check, whatever comes of it; only a database that is gone ends the examination."""
    try:
        return await check(look)
    except StoreBusy as error:
        return [Finding(name, Level.NOTE, f"could not be checked: {error}", "run doctor again in a quiet moment")]
    except StoreUnavailable:
        raise
    except MissingMigration as error:
        return [_without(look, name, error)]
    except Exception as error:  # whatever it is, the other checks are worth having
        return [_unchecked(look, name, error)]


def _without(look: Look, name: str, error: MissingMigration) -> Finding:
    """A check whose table is gone. The error's own advice, to migrate, is no help: by the book all is there."""
    told = str(error.__cause__ or error)
    gone = [table for table in look.missing if table in re.findall(r"\w+", told)]
    if gone:
        return Finding(name, Level.NOTE, f"could not be checked: {', '.join(gone)} is missing", "see tables above")
    fix = "restore the database from a backup, or ask somebody who knows what was changed in it by hand"
    return Finding(name, Level.NOTE, f"could not be checked: {mask_text(told)}", fix)


def _unchecked(look: Look, name: str, error: Exception) -> Finding:
    told = str(error) if isinstance(error, SimpleWorkflowError) else f"{type(error).__name__}: {mask_text(str(error))}"
    role = unquote(urlsplit(look.ledger.url.target).username or "")
    return Finding(name, Level.NOTE, f"could not be checked: {told}", structure.way_past(look, told, role))


# Before everything else: is it there, and is it ours?


def cannot_open(error: SimpleWorkflowError) -> Finding:
    """There is no driver for it here."""
    fix = install("postgres") if isinstance(error, MissingExtra) else "see the message"
    return Finding("database", Level.PROBLEM, str(error), fix)


async def reach(look: Look) -> Finding:
    url = look.ledger.url
    if url.dialect == "sqlite" and url.target != MEMORY and not await asyncio.to_thread(os.path.exists, url.target):
        fix = f"name the right file, or make this one: simpleworkflow migrate up {look.at}"
        return Finding("database", Level.PROBLEM, f"there is no file {url.target}", fix)
    before = monotonic()
    try:
        facts = await look.ask(health.server())
        if facts is None:
            await look.ask(health.file_facts())  # its first page must be that of a database
    except StoreBusy as error:
        return Finding("database", Level.PROBLEM, str(error), "end the transaction that is in the way")
    except StoreError as error:
        return Finding("database", Level.PROBLEM, str(error), _way_in(error, url))
    took = (monotonic() - before) * 1000
    if facts is None:
        where = "in memory: it ends with this process" if url.target == MEMORY else url.target
        return Finding("database", Level.OK, f"SQLite, {where}")
    if facts.is_standby:
        return Finding(
            "database",
            Level.PROBLEM,
            f"{url} is a standby: nothing can be written there",
            "name the primary server in the URL; with several hosts, add target_session_attrs=primary",
        )
    if facts.is_read_only:
        return Finding(
            "database",
            Level.PROBLEM,
            f"transactions at {url} are read-only by default",
            f'ALTER DATABASE "{facts.database}" RESET default_transaction_read_only, or likewise ROLE "{facts.role}"',
        )
    return Finding("database", Level.OK, f"{url} answered within {took:.0f} ms")


def _way_in(error: Exception, url: DatabaseURL) -> str:
    """What to do about a database that does not let us in, by what the server said."""
    if url.dialect == "sqlite":
        return (
            f"see that {url.target} is a SQLite database, that this user may write to it and its folder, or restore it"
        )
    code = _sqlstate(error)
    parts = urlsplit(url.target)
    host, port, name = parts.hostname or "localhost", parts.port or 5432, unquote(parts.path.lstrip("/"))
    user = f" -U {unquote(parts.username)}" if parts.username else ""
    if code.startswith("28"):
        return (
            "check user and password in the URL (percent-encode / ? # [ @ in them), and the server's pg_hba.conf; "
            f"by hand: psql -h {host} -p {port}{user} {name}"
        )
    if code == "3D000":
        return f"name the right database in the URL, or make this one: createdb -h {host} -p {port}{user} {name}"
    if code.startswith("53"):
        return "the server has no room: end idle sessions, or raise max_connections and restart it"
    if "pgbouncer=true" in str(error):
        return "add ?pgbouncer=true to the URL"
    return f"start the server, or mend host, port and firewall; by hand: pg_isready -h {host} -p {port}"


def _sqlstate(error: BaseException | None) -> str:
    while error is not None:
        code = getattr(error, "sqlstate", None)
        if code:
            return str(code)
        error = error.__cause__
    return ""


async def migrated(look: Look) -> list[Finding]:
    """Whether the tables are those of this version."""
    url = look.ledger.url
    known = {one.version: one for one in migrations(url.dialect, url.schema)}
    try:
        book = await look.ask(health.applied())
    except MissingMigration as error:
        if (foreign := foreign_book(error, url)) is not None:
            fix = "name a place of its own in the URL; whose book that is, the tables around it tell"
            return [Finding("migrations", Level.PROBLEM, str(foreign), fix)]
        book = {}
    except StoreUnavailable:
        raise
    except StoreError as error:
        fix = "grant what `privileges` names below, or connect as the owner of the tables"
        return [Finding("migrations", Level.PROBLEM, f"the tables cannot be read: {error}", fix)]
    missing = [f"{one.version}_{one.name}" for one in known.values() if one.version not in book]
    changed = [
        f"{one.version}_{one.name}" for one in known.values() if book.get(one.version, one.checksum) != one.checksum
    ]
    strangers = sorted(book.keys() - known.keys())
    look.has_tables = not missing
    look.applied, look.is_newer = frozenset(book), bool(strangers)
    found = []
    if missing:
        forgotten = [one for one in missing if await structure.is_already_there(look, one.partition("_")[0])]
        found.append(_forgotten(forgotten) if forgotten else _missing(look, missing, len(known)))
    if changed:
        fix = "use the build that made this database, or move its runs to a new one"
        seen = f"{', '.join(changed)} was applied with another text: this database was made by a different build"
        found.append(Finding("migrations", Level.PROBLEM, seen, fix))
    if strangers:
        seen = (
            f"the database is newer than this version: it has {', '.join(strangers)}, this knows {max(known)} at most"
        )
        found.append(Finding("migrations", Level.WARNING, seen, UPGRADE))
    return found or [Finding("migrations", Level.OK, f"all {len(known)} are applied")]


def _forgotten(those: list[str]) -> Finding:
    seen = f"by the book, schema_migrations, {', '.join(those)} was not applied, yet its tables are there"
    fix = "restore schema_migrations from the newest backup; applying what is there already would fail"
    return Finding("migrations", Level.PROBLEM, seen, fix)


def _missing(look: Look, missing: list[str], of: int) -> Finding:
    """SQLite files migrate themselves, but until then nothing about runs can be told."""
    itself = look.ledger.migrates_itself
    later = "the next App that opens it applies them" if itself else "every call will fail until they are"
    seen = f"{len(missing)} of {of} are not applied ({', '.join(missing)}); {later}"
    level = Level.WARNING if itself else Level.PROBLEM
    return Finding("migrations", level, seen, f"simpleworkflow migrate up {look.at}")
