"""Worker processes that are quick to make: forked by a server that has imported everything already.

The fork server is multiprocessing's own: it has one thread and no connections, so that a child is as good as a new
process, with a pid of its own, and needs no second to import its modules. A worker writes its log into its folder.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

from . import faults, parcels

_context = multiprocessing.get_context("forkserver")
_drivers = [f"simpleworkflow.store.drivers.{name}" for name in ("sqlite", "postgres")]
_context.set_forkserver_preload(["simpleworkflow.cli.workers.serve", "simpleworkflow.worker.worker", *_drivers])
_guard = threading.Lock()  # multiprocessing starts one at a time


def start(url: str, folder: Path, name: str, fault: faults.Fault) -> BaseProcess:
    """A worker on that database; it is killed when this process ends."""
    process = _context.Process(target=_work, args=(url, str(folder), name, fault), daemon=True)
    with _guard:
        process.start()
    return process


def _work(url: str, folder: str, name: str, fault: faults.Fault) -> None:
    from simpleworkflow.cli.workers.serve import serve

    log = os.open(Path(folder) / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    os.environ[parcels.LOG] = str(Path(folder) / "effects.log")
    faults.install(fault, Path(folder))
    parcels.app._client.use(url)
    serve(parcels.app, concurrency=10)
