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

from ..clock import Clock
from ..config import Settings
from ..model.duration import human
from ..model.records import WorkerInfo
from ..store import Ledger
from ..store.operations import workers
from ..store.protocol import Operation

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
    fresh_silence: float = 3600.0
    counted: int = 1_000
    """Runs that one count counts; more are told as "more than"."""
    looked_at: int = 20_000
    """The newest runs, among which the held ones are looked for."""


LIMITS = Limits()


@dataclass(slots=True)
class Look:
    """Where the checks look."""

    ledger: Ledger
    settings: Settings
    clock: Clock
    limits: Limits
    has_tables: bool = False
    """Found out on the way: all of our tables are there."""
    _alive: list[WorkerInfo] | None = field(default=None)

    @property
    def at(self) -> str:
        """The option that names this database, fit for a shell; its password is masked."""
        return f"--url {quote(str(self.ledger.url))}"

    async def ask(self, operation: Operation[T]) -> T:
        return await self.ledger.look(operation, timeout=self.limits.answer)

    async def alive(self) -> list[WorkerInfo]:
        """The workers heard of lately; asked once."""
        if self._alive is None:
            self._alive = await self.ask(workers.alive(silence=self.settings.worker_silence))
        return self._alive


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
