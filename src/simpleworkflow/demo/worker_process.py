"""A worker of the demo: `simpleworkflow worker` in a process of its own, so that it can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .orders import DATABASE

WORKER_LOG = "worker.log"
OWN_VARIABLES = ("SIMPLEWORKFLOW_", "WORKER_TYPE_PREFIXES")


class WorkerProcess:
    """In a session of its own, so that Ctrl-C reaches only the demo process."""

    def __init__(self, name: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "simpleworkflow", "worker", "simpleworkflow.demo.orders:app"]
        command += ["--name", name, "--url", str(Path(DATABASE).resolve()), "--prefix", "orders.*"]
        # What the environment says about real workers, such as where their events go, must not reach the demo.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OWN_VARIABLES)}
        with Path(WORKER_LOG).open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def last_lines_of_log() -> str:
    return Path(WORKER_LOG).read_text(errors="replace")[-4000:] if Path(WORKER_LOG).exists() else ""
