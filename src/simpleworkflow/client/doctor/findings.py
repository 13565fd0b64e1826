"""What a doctor says: findings, each a sentence with numbers and, where something is to be done, another one with the
exact command. And what the checks share: where they look (`Look`) and from when on a number is too large (`Limits`).

A level is a promise to scripts: a *problem* loses runs, strands them or soon will; a *warning* wants an eye on it; a
*note* is worth knowing and needs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from shlex import quote
from typing import TypeVar

from ...clock import Clock
from ...config import Settings
from ...model.duration import human
from ...model.errors import MissingMigration
from ...model.records import WorkerInfo
from ...store import Ledger
from ...store.operations import health, workers
from ...store.operations.health import Lacking
from ...store.protocol import Operation

T = TypeVar("T")


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what was seen there, and what to do about it."""

    check: str
    """The name of the check, such as "durability"; one check may have several findings."""
    level: Level
    seen: str
    fix: str | None = None
    subject: str | None = None
    """The type, table or session that it is about, where there is one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something is worth a word. Seconds, bytes and counts."""

    answer: float = 5.0
    """How long one question may take."""
    hint: float = 2.0
    skew_warning: float = 1.0
    skew_problem: float = 5.0
    idle_transaction: float = 60.0
    long_transaction: float = 300.0
    old_transaction: float = 3600.0
    """Whatever it is, after this long it is a problem."""
    held_back_xids: int = 1_000_000
    slot_bytes: int = 1 << 30
    dead_rows: int = 50_000
    dead_factor: int = 10
    """So many times the dead rows at which autovacuum should have come."""
    connections_left: int = 10
    xids_warning: int = 500_000_000
    xids_problem: int = 1_500_000_000
    log_bytes: int = 64 << 20
    space_warning: int = 1 << 30
    space_problem: int = 100 << 20
    overdue: float = 30.0
    outbox_lag: float = 300.0
    fresh_silence: float = 3600.0
    prune_late: float = 3600.0
    """Workers that prune look every half minute whether a pass is due."""
    beat: float = 15.0
    """Live workers say so every 10 s; of one that is later than this it is told when it was seen."""
    counted: int = 1_000
    """Runs that one count counts; more are told as "more than"."""
    looked_at: int = 20_000
    """The newest runs, among which the held ones are looked for."""
    finished_runs: int = 100_000
    """So many finished runs are worth a word on pruning, when nobody does it."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Sighting:
    """A worker that was heard of lately, which does not yet mean that it lives."""

    worker: WorkerInfo
    ago: float
    """Seconds since it was last seen, by the database's clock."""
    expired: int
    """Leases of its that ran out and that nobody has taken back."""
    is_doubtful: bool
    """It missed its beat and its leases ran out: most likely dead."""


MOST_SIGHTINGS = 1_000


@dataclass(slots=True)
class Look:
    """Where the checks look."""

    ledger: Ledger
    settings: Settings
    clock: Clock
    limits: Limits
    has_tables: bool = False
    """Found out on the way: all migrations are applied, by the book."""
    applied: frozenset[str] | None = None
    """The applied migrations; None while that is not known."""
    is_newer: bool = False
    """A newer version of ours has been here."""
    missing: tuple[str, ...] = ()
    """Tables that the applied migrations made and that are gone."""
    lacking: Sequence[Lacking] = ()
    """What this role may not do."""
    log_bytes: int = 0
    """The length of a SQLite file's log before anything was opened, since opening and closing may change it."""
    _last_seen: dict[str, float] | None = field(default=None)
    _sightings: list[Sighting] | None = field(default=None)

    @property
    def at(self) -> str:
        """The option that names this database, fit for a shell; its password is masked."""
        return f"--url {quote(str(self.ledger.url))}"

    async def ask(self, operation: Operation[T]) -> T:
        return await self.ledger.look(operation, timeout=self.limits.answer)

    def need(self, table: str) -> None:
        """For checks that would not notice by themselves that a table is gone."""
        if table in self.missing:
            raise MissingMigration(f"{table} is missing")

    async def alive(self) -> list[WorkerInfo]:
        """The workers heard of lately, without those that are most likely dead."""
        return [one.worker for one in await self.sightings() if not one.is_doubtful]

    async def sightings(self) -> list[Sighting]:
        """Every worker heard of lately; asked once."""
        if self._sightings is None:
            crew = await self.ask(workers.alive(silence=self.settings.worker_silence))
            late = await self.ask(health.expired_leases(grace=0.0, limit=self.limits.counted)) if crew else []
            expired = {one.what: one.runs for one in late}
            ages = await self.last_seen() if crew else {}
            self._sightings = [self._judged(one, ages.get(one.id, 0.0), expired.get(one.id, 0)) for one in crew]
        return self._sightings

    def _judged(self, worker: WorkerInfo, ago: float, expired: int) -> Sighting:
        return Sighting(worker, ago, expired, is_doubtful=bool(expired) and ago > self.limits.beat)

    async def last_seen(self) -> dict[str, float]:
        """For how many seconds each worker on record has been silent, without those that said goodbye."""
        if self._last_seen is None:
            seen = await self.ask(health.silent_workers(silence=0.0, limit=MOST_SIGHTINGS))
            self._last_seen = {one.id: one.silent for one in seen}
        return self._last_seen


def amount(count: int, thing: str, limit: int | None = None) -> str:
    """1 run, 2 runs, more than 1,000 runs."""
    if limit is not None and count >= limit:
        return f"{limit:,} or more {thing}s"
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def names(found: Sequence[str], most: int = 5) -> str:
    """A few by name, the rest by number."""
    rest = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + rest


def ago(seconds: float) -> str:
    return human(round(seconds) if seconds >= 1 else max(round(seconds, 3), 0.001))


def size(count: int) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"
