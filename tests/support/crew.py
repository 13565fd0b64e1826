"""Real worker processes, killed, frozen and stopped by the test that started them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import simpleworkflow as swf

HERE = Path(__file__).parent.parent / "crash"


class Effect(NamedTuple):
    what: str
    run_id: str
    epoch: int
    pid: int
    at: float


def freeze(process: subprocess.Popen[Any], url: str) -> None:
    """Stop a process where it stands, but not in the middle of a write to SQLite: it would keep the file's lock, and
    nobody could write until it goes on. That is SQLite's nature, and told in docs/guarantees.md."""
    while True:
        process.send_signal(signal.SIGSTOP)
        if "://" in url:
            return
        with closing(sqlite3.connect(url, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
                time.sleep(0.01)


@dataclass
class Crew:
    """Starts workers on one database and reads what they left behind."""

    url: str
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def effects_file(self) -> Path:
        return self.folder / "effects.log"

    def start(self, *options: str, host: str | None = None) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "CRASH_EFFECTS": str(self.effects_file), **self.settings}
        if host is not None:
            environment["CRASH_HOST"] = host
        command = [sys.executable, "-m", "simpleworkflow", "worker", "crash_app:app", "--url", self.url, *options]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(command, cwd=HERE, env=environment, stdout=log, stderr=log)
        self.workers.append(worker)
        return worker

    def effects(self, what: str | None = None) -> list[Effect]:
        if not self.effects_file.exists():
            return []
        found = []
        for line in self.effects_file.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # it is being written
            kind, run_id, epoch, pid, at = line.split()
            if what is None or kind == what:
                found.append(Effect(kind, run_id, int(epoch), int(pid), float(at)))
        return found

    def logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("worker-*.log")))

    def until(self, condition: Callable[[], object], what: str, timeout: float = 30.0) -> float:
        """Poll until it holds; returns the seconds it took."""
        started = time.monotonic()
        while not condition():
            if time.monotonic() - started > timeout:
                pytest.fail(f"{what}: not within {timeout:g}s\n{self.logs()}")
            time.sleep(0.02)
        return time.monotonic() - started

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()


class Watched:
    """A database, the App that the test uses on it, and the crew."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.app = swf.App(crew.url)

    def statuses(self) -> Counter[str]:
        merged: Counter[str] = Counter()
        for count in self.app.sync.activity.counts():
            merged[str(count.status)] += count.runs
        return merged

    def all_ended(self) -> bool:
        return not self.statuses().keys() & {"pending", "leased", "paused"}
