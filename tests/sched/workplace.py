"""A database, the worker processes of sched_app.py on it, and one App of the test at a time: all can go away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import simpleworkflow as swf

HERE = Path(__file__).parent


class Site:
    """One database, its worker processes, and one App at a time."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.gate = folder / "gate"
        self.effects_file = folder / "effects"
        self.workers: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def app(self) -> Iterator[swf.App]:
        app = swf.App(self.url)
        try:
            yield app
        finally:
            app.sync.close()

    def start_worker(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "SCHED_GATE": str(self.gate), "SCHED_EFFECTS": str(self.effects_file)}
        command = [sys.executable, "-m", "simpleworkflow", "worker", "sched_app:app", "--url", self.url]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(command, cwd=HERE, env=environment, stdout=log, stderr=log)
        self.workers.append(worker)
        return worker

    def effects(self) -> Counter[str]:
        return Counter(self.effects_file.read_text().splitlines() if self.effects_file.exists() else [])

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
