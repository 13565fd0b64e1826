"""What a doctor looks at in the tables as such: is everything there that the migrations left, and may this role use it?

The book of migrations is a claim, not a proof. A table that was dropped by hand, an index that a restore left out or a
failed build left invalid, a trigger that somebody turned off for a bulk load: each strands runs, and the usual command
cannot help, since by the book there is nothing to do. So every finding here carries what does help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...model.errors import StoreError, StoreUnavailable
from ...model.install import UPGRADE
from ...store.migrate import migrations
from ...store.operations import health, outbox_lanes
from ...store.operations.health import Lacking, There
from ...store.structure import Part, counters, expected
from .findings import Finding, Level, Look, amount

MOST_PARTS = 10
"""Parts that get a finding of their own; the rest share one."""
BOOK = "schema_migrations"
LEFT_OVER = re.compile(r"_cc(new|old)\d*$")
"""What a rebuild (REINDEX CONCURRENTLY) that broke off leaves beside the real index."""
OWNER = "as the owner of the tables: "


def _parts(look: Look) -> Sequence[Part]:
    """What is expected; of everything, when the book cannot be read."""
    url = look.ledger.url
    known = frozenset(one.version for one in migrations(url.dialect, url.schema))
    return expected(url.dialect, url.schema, known if look.applied is None else look.applied & known)


async def tables(look: Look) -> list[Finding]:
    if not look.applied:
        return []  # `migrations` has said what there is to say
    if look.is_newer:
        seen = "not compared: a newer version of simpleworkflow has changed them"
        return [Finding("tables", Level.NOTE, seen, UPGRADE)]
    parts = _parts(look)
    there = {(one.kind, one.name): one for one in await look.ask(health.structure())}
    lost = [part for part in parts if (part.kind, part.name) not in there]
    look.missing = tuple(part.name for part in lost if part.kind == "table")
    found = _missing_tables(look)
    found += _few(_missing_parts(look, lost) + _broken(look, there.values()) + await _disabled(look, parts, there))
    count = sum(part.kind == "table" for part in parts)
    told = f"all {count} are there, and {len(parts) - count} indexes, triggers and the like with them"
    return found or [Finding("tables", Level.OK, told)]


def _missing_tables(look: Look) -> list[Finding]:
    gone = look.missing
    if not gone:
        return []
    seen = f"{amount(len(gone), 'table')} {'is' if len(gone) == 1 else 'are'} missing: {', '.join(gone)}"
    fix = (
        "restore the database from a backup, rows and all: by the book of migrations "
        f"{'it is' if len(gone) == 1 else 'they are'} there, so nothing makes {'it' if len(gone) == 1 else 'them'} anew"
    )
    return [Finding("tables", Level.PROBLEM, seen, fix)]


def _missing_parts(look: Look, lost: Sequence[Part]) -> list[Finding]:
    """What went with its table comes back with it, and so do views, which cannot be made before."""
    found = []
    for part in lost:
        if part.kind == "table" or part.table in look.missing or (look.missing and part.kind == "view"):
            continue
        of = f" of {part.table}" if part.kind in {"index", "trigger"} else ""
        seen = f"{part.kind} {part.name}{of} is missing: {_means(part)}"
        found.append(Finding("tables", Level.PROBLEM, seen, part.statement, subject=part.name))
    return found


def _means(part: Part) -> str:
    if part.kind == "index":
        is_unique = part.statement.startswith("CREATE UNIQUE")
        return "what it kept unique is so no longer" if is_unique else "what it made quick reads whole tables"
    return "what it writes is not written" if part.kind == "trigger" else "what uses it fails"


def _broken(look: Look, there: Iterable[There]) -> list[Finding]:
    found = []
    for one in there:
        if one.state != "invalid":
            continue
        place = f"{look.ledger.url.schema}.{_quoted(one.name)}"
        if LEFT_OVER.search(one.name):
            seen, fix = "is what a broken rebuild left behind: it costs and serves nobody", f"DROP INDEX {place}"
        else:
            seen, fix = "is invalid: no question is answered by it", f"REINDEX INDEX CONCURRENTLY {place}"
        seen = f"index {one.name} of {one.table} {seen}"
        found.append(Finding("tables", Level.PROBLEM, seen, fix, subject=one.name))
    return found


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


async def _disabled(look: Look, parts: Sequence[Part], there: dict[tuple[str, str], There]) -> list[Finding]:
    found = []
    for part in parts:
        one = there.get((part.kind, part.name))
        if one is None or one.state != "disabled" or (part.may_sleep and not await _has_rules(look)):
            continue
        seen = f"trigger {part.name} of {part.table} is disabled: what it writes is not written"
        fix = f"ALTER TABLE {look.ledger.url.schema}.{part.table} ENABLE TRIGGER {part.name}"
        found.append(Finding("tables", Level.PROBLEM, seen, fix, subject=part.name))
    return found


async def _has_rules(look: Look) -> bool:
    """The outbox's trigger is off on purpose, exactly while nobody wants events."""
    try:
        return bool(await look.ask(outbox_lanes.rules()))
    except StoreUnavailable:
        raise
    except StoreError:
        return False  # not to be read: another finding says so


def _few(found: list[Finding]) -> list[Finding]:
    rest = found[MOST_PARTS:]
    if not rest:
        return found
    told = ", ".join(one.subject or "" for one in rest)
    fix = "mend those above and run doctor again: it names their statements then"
    return [*found[:MOST_PARTS], Finding("tables", Level.PROBLEM, f"not in order either: {told}", fix)]


async def is_already_there(look: Look, version: str) -> bool:
    """Whether the tables of a migration exist although the book does not know it: applying it would fail."""
    url = look.ledger.url
    tables = {part.name for part in expected(url.dialect, url.schema, frozenset([version])) if part.kind == "table"}
    return bool(tables & {one.name for one in await look.ask(health.structure()) if one.kind == "table"})


# Rights.


async def privileges(look: Look) -> list[Finding]:
    """Whether the role of this URL may do what an App and a worker do."""
    if look.applied is not None and not look.applied:
        return []
    wanted = [("TABLE", BOOK, "SELECT")]
    for part in _parts(look):
        if part.kind == "table":
            wanted += [("TABLE", part.name, right) for right in ("SELECT", "INSERT", "UPDATE", "DELETE")]
        elif part.kind == "view":
            wanted.append(("TABLE", part.name, "SELECT"))
    wanted += [("SEQUENCE", name, "USAGE") for name in counters(look.ledger.url.schema)]
    look.lacking = await look.ask(health.lacking_privileges(wanted))
    if not look.lacking:
        return [Finding("privileges", Level.OK, "this role may read and write our tables")]
    told = "; ".join(f"{one.privileges} on {one.what}" for one in look.lacking)
    seen = f"role {look.lacking[0].role} lacks {told}: Apps and workers that connect with it fail"
    return [Finding("privileges", Level.PROBLEM, seen, granting(look.lacking))]


def granting(lacking: Sequence[Lacking]) -> str:
    return OWNER + "; ".join(one.cure for one in lacking)


def way_past(look: Look, told: str, role: str) -> str | None:
    """The grant that helps against a refusal: of ours for what is ours, of the server's for its statistics."""
    refused = re.search(r"permission denied for (\w+) (\S+)", told)
    if refused is None:
        return None
    what, name = refused[1], refused[2].strip('"')
    helping = [one for one in look.lacking if name in re.split(r", | ", one.what)]
    if helping:
        return granting(helping)
    if name.startswith("pg_"):
        return f"as a superuser: GRANT pg_monitor TO {_quoted(role) if role else 'the role of the URL'}"
    return f"as its owner: let this role use {what} {name}"
