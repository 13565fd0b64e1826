"""What a piece of work wrote: bytes of WAL with and without full-page images, commits, row versions left dead.

The WAL of a stretch of time is read from the log itself with pg_waldump, which tells records and full-page images
apart; server-wide counters mix them. Full-page images depend on when the last checkpoint was, not on us, so the plain
figure leaves them out, and a checkpoint before each stretch makes the other one the worst case.

Dangers: the end of the stretch must be on disk before it is read (a small commit of our own sees to that), and the
counters of a session arrive when it ends, so the sessions of a worker are waited for. Everything that wrote in the
stretch is counted, autovacuum too if it came by; the kinds of records are kept, so that one can see it.
"""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from ground import Ground

POLL_SECONDS = 0.02
GONE_SECONDS = 15.0
MOST_KINDS = 8
_SIZES = r"(\d+) \(\s*[\d.]+\)\s+(\d+) \(\s*[\d.]+\)\s+(\d+) \(\s*[\d.]+\)\s+(\d+) \(\s*[\d.]+\)"
_KIND = re.compile(rf"^(\S+/\S+)\s+{_SIZES}$", re.MULTILINE)
_TOTAL = re.compile(r"^Total\s+(\d+)\s+(\d+) \[[^\]]*\]\s+(\d+) \[[^\]]*\]\s+(\d+) \[", re.MULTILINE)


class Unreadable(Exception):
    """The log or the counters do not say what was written."""


@dataclass(frozen=True, slots=True)
class Written:
    records: int
    """Bytes of WAL records, without full-page images."""
    images: int
    commits: int
    updates: int
    """Rows updated or deleted: each leaves a dead version."""
    hot_updates: int
    """Those whose dead version no index points at."""
    dead: int
    """Dead versions that the server still counts afterwards."""
    kinds: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Stretch:
    """From here on; `end` says what was written since."""

    ground: Ground
    url: str
    start: str = ""
    counters: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.ground.checkpoint()
        self.counters = self._counters()
        self.start = str(self.ground.ask("SELECT pg_current_wal_insert_lsn()"))

    def end(self) -> Written:
        end = str(self.ground.ask("SELECT pg_current_wal_insert_lsn()"))
        self.ground.ask("SELECT pg_logical_emit_message(true, 'bench', 'flushed')")
        records, images, kinds = self._wal(end)
        commits, updates, hot, dead = (
            after - before for after, before in zip(self._counters(), self.counters, strict=True)
        )
        return Written(records, images, commits, updates, hot, dead, kinds)

    def _wal(self, end: str) -> tuple[int, int, dict[str, int]]:
        server = self.ground.server
        command = [str(server.bin_dir / "pg_waldump"), "--path", str(server.data_dir / "pg_wal")]
        command += ["--start", self.start, "--end", end, "--stats=record"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        total = _TOTAL.search(done.stdout)
        if done.returncode != 0 or total is None:
            raise Unreadable(f"pg_waldump from {self.start} to {end}: {done.stderr.strip() or done.stdout[-500:]}")
        kinds = {found[1]: int(found[3]) for found in _KIND.finditer(done.stdout)}
        most = sorted(kinds.items(), key=lambda kind: -kind[1])[:MOST_KINDS]
        return int(total[2]), int(total[3]), dict(most)

    def _counters(self) -> tuple[int, ...]:
        """Commits, updates and deletes, heap-only updates, dead rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            _alone(connection)
            row = connection.execute(
                "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),"
                " sum(n_tup_upd + n_tup_del)::bigint, sum(n_tup_hot_upd)::bigint, sum(n_dead_tup)::bigint"
                " FROM pg_stat_user_tables"
            ).fetchone()
        if row is None or None in row:
            raise Unreadable(f"no counters for {self.url}")
        return tuple(row)


def _alone(connection: psycopg.Connection[Any]) -> None:
    """Until nobody else is connected: only then have all sessions handed in their counters."""
    question = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    deadline = time.monotonic() + GONE_SECONDS
    while (row := connection.execute(question).fetchone()) and row[0]:
        if time.monotonic() > deadline:
            raise Unreadable(f"{row[0]} sessions are still there after {GONE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
