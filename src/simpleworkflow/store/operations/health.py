"""What a doctor asks a database: its settings, its clock, its housekeeping, and whether runs move as they should.

Everything here only looks, on the tables as they are: through `Ledger.look`, since the usual way in would migrate a
SQLite file before anybody has seen what it lacks. Every question is cheap on a table of millions: statistics and
bounded counts over the small indexes of open runs, never a scan. Questions that make no sense for a database have no
answer there: None, or an empty list.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ...clock import to_us
from ...model.explanation import FailingClaim
from ...model.names import EVERYTHING
from ..protocol import Row, Steps, query, reading, statements
from .explain import server_of

SAFE = {
    "fsync": {"on"},
    "synchronous_commit": {"on", "local", "remote_write", "remote_apply"},
    "full_page_writes": {"on"},
    "synchronous": {"full", "extra"},
    "journal_mode": {"wal", "delete", "truncate", "persist"},
}
"""What each setting must be so that a run that was accepted survives a loss of power."""

MOST_LANES = 1_000
"""Lanes (types and priorities) that one look considers."""


def unsafe(name: str, value: str) -> bool:
    """Whether a loss of power may take accepted runs along because of this setting."""
    return value not in SAFE.get(name, {value})


class Setting(NamedTuple):
    name: str
    value: str
    cure: str | None
    """How to set it right, in words or in SQL."""


class ServerFacts(NamedTuple):
    version: str
    version_number: int
    database: str
    role: str
    is_standby: bool
    is_read_only: bool
    vacuums: bool
    """Autovacuum is on, and so is the counting that it goes by."""
    xids: int
    multixacts: int
    """How many transactions ago the oldest row that was never frozen may have been written."""
    lagging: int = 0
    """Standbys for which no commit waits."""


class There(NamedTuple):
    """A table, index, trigger, view or function that is really there."""

    kind: str
    name: str
    table: str
    state: str
    """well; an index may be invalid, a trigger disabled"""


class Lacking(NamedTuple):
    """What the role of this session may not do."""

    role: str
    what: str
    privileges: str
    cure: str


class ConnectionUse(NamedTuple):
    scope: str
    used: int
    allowed: int


class TableHealth(NamedTuple):
    name: str
    estimated: int
    """Rows, by the last count of the statistics."""
    finished: int | None
    """Of those, the rows that have finished; None where that means nothing or nobody has counted."""
    live: int
    dead: int
    vacuumed_ago: float | None
    dead_allowed: int
    """With more dead rows than this, autovacuum should have come."""
    vacuums: bool
    bytes: int
    cure: str
    vacuum: str


class Blocker(NamedTuple):
    """Something that keeps dead rows, or the write-ahead log, from being cleaned up."""

    kind: str
    pid: int | None
    who: str
    seconds: float | None
    xids: int
    bytes: int
    cure: str


class FileFacts(NamedTuple):
    version: str
    bytes: int
    free: int


class DueLane(NamedTuple):
    type: str
    priority: int
    late: float
    """For how many seconds its oldest run has been due."""
    due: int
    run_id: UUID | None
    is_enabled: bool


class Late(NamedTuple):
    """So many runs of one kind that should have moved on; the oldest for so many seconds."""

    what: str
    runs: int
    late: float


class Held(NamedTuple):
    looked: int
    runs: int
    misfits: int
    """Those of them whose code and records do not fit."""
    oldest: float | None


class Silent(NamedTuple):
    id: str
    name: str
    host: str
    pid: int
    silent: float


@statements
def durability() -> Steps[list[Setting]]:
    """The version and the settings that decide what a commit is worth. Asked where writes are done, not beside them."""
    return [Setting(str(row["name"]), str(row["setting"]), row["cure"]) for row in (yield query("durability"))]


@reading
def structure() -> Steps[list[There]]:
    rows = yield query("structure")
    return [There(row["kind"], row["name"], row["on_table"], row["state"]) for row in rows]


@reading
def lacking_privileges(wanted: Sequence[tuple[str, str, str]]) -> Steps[list[Lacking]]:
    """Of these (TABLE or SEQUENCE, name, privilege) and of the schema, what is not granted."""
    return [Lacking(**row) for row in (yield query("lacking_privileges", wanted=list(wanted)))]


@reading
def server() -> Steps[ServerFacts | None]:
    rows = yield query("server_facts")
    return ServerFacts(**rows[0]) if rows else None


@reading
def server_clock() -> Steps[datetime | None]:
    """The server's time at this moment; None where the host's clock is the database's."""
    rows = yield query("server_clock")
    return rows[0]["happened_at"] if rows else None


@reading
def connections() -> Steps[list[ConnectionUse]]:
    return [ConnectionUse(**row) for row in (yield query("connection_use"))]


@reading
def tables() -> Steps[list[TableHealth]]:
    return [TableHealth(**row) for row in (yield query("table_health"))]


@reading
def blockers(*, older: float) -> Steps[list[Blocker]]:
    """Transactions older than so many seconds, and replication slots that nobody reads."""
    return [Blocker(**row) for row in (yield query("vacuum_blockers", older=to_us(older)))]


@reading
def file_facts() -> Steps[FileFacts | None]:
    rows = yield query("file_facts")
    return FileFacts(**rows[0]) if rows else None


@reading
def rows_ever() -> Steps[dict[str, int]]:
    return {row["name"]: row["reach"] or 0 for row in (yield query("rows_ever"))}


@reading
def applied() -> Steps[dict[str, str]]:
    """The checksums of all applied migrations by version, known to this version of ours or not."""
    return {row["version"]: row["checksum"] for row in (yield query("applied_migrations"))}


@reading
def due_lanes(*, limit: int) -> Steps[list[DueLane]]:
    """Lanes with runs that are due, crashed ones apart; up to `limit` runs are counted in each."""
    return (yield from _due_lanes("find_lanes", "due_lanes", limit)) + (
        yield from _due_lanes("find_suspect_lanes", "due_suspect_lanes", limit)
    )


def _due_lanes(find: str, count: str, limit: int) -> Steps[list[DueLane]]:
    everywhere = [(EVERYTHING.low, -1, EVERYTHING.high)]
    found = {
        (row["type"], row["priority"]): row
        for row in (yield query(find, span=everywhere, limit=MOST_LANES))
        if row["due_in"] <= 0
    }
    if not found:
        return []
    counted = yield query(count, lane=sorted(found), limit=limit)
    return [_due_lane(found[row["type"], row["priority"]], row) for row in counted if row["due"]]


def _due_lane(lane: Row, counted: Row) -> DueLane:
    late = -lane["due_in"] / 1_000_000
    return DueLane(lane["type"], lane["priority"], late, counted["due"], counted["run_id"], bool(lane["due"]))


@reading
def failing_claims(*, silence: float) -> Steps[list[FailingClaim]]:
    """Lanes that live workers could not claim when they were last seen."""
    rows = yield query("explain_workers", w=[], silence=to_us(silence))
    return [trouble for row in rows if row["is_alive"] for trouble in server_of(row).failing]


@reading
def crashed(*, limit: int) -> Steps[dict[str, int]]:
    """Runs that crashed and wait for their next execution, by type."""
    return {row["type"]: row["runs"] for row in (yield query("crashed_runs", limit=limit))}


@reading
def expired_leases(*, grace: float, limit: int) -> Steps[list[Late]]:
    rows = yield query("expired_leases", grace=to_us(grace), limit=limit)
    return [Late(r["leased_by"], r["runs"], (r["judged_at"] - r["lease_until"]).total_seconds()) for r in rows]


@reading
def missed_deadlines(*, grace: float, limit: int) -> Steps[list[Late]]:
    rows = yield query("missed_deadlines", grace=to_us(grace), limit=limit)
    return [Late(r["kind"], r["runs"], (r["judged_at"] - r["due_at"]).total_seconds()) for r in rows if r["runs"]]


@reading
def held(*, limit: int) -> Steps[Held]:
    """Held runs among the newest so many."""
    (row,) = yield query("held_runs", limit=limit)
    oldest = None if row["held_at"] is None else (row["judged_at"] - row["held_at"]).total_seconds()
    return Held(row["looked"], row["runs"] or 0, row["misfits"] or 0, oldest)


@reading
def silent_workers(*, silence: float, limit: int) -> Steps[list[Silent]]:
    """Workers not seen for so many seconds that never said goodbye, the latest first."""
    rows = yield query("silent_workers", silence=to_us(silence), limit=limit)
    return [
        Silent(r["worker_id"], r["name"], r["host"], r["pid"], (r["judged_at"] - r["seen_at"]).total_seconds())
        for r in rows
    ]
