"""Our own worker in a process of its own, through the same driver that runs beside the peers.

One place that starts `peers/drive_ours.py`, so that every measure of ours alone drains as the comparisons do: fresh
process, default settings, the clock from the first handler to the last run complete in the database. A driver that
ends badly, or that counts other runs than it was asked for, raises: there is no figure then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from ground import BENCH, Ground

SECONDS = 900
CHUNK = 50_000
"""Runs that one process triggers: more would only fill its memory."""
DRIVER = "peers/drive_ours.py"


class DriverFailed(Exception):
    """A process of ours did not do its work."""


@dataclass(frozen=True, slots=True)
class Drained:
    runs: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.runs / self.seconds

    @property
    def detail(self) -> dict[str, float]:
        """Who used the processor, per run, in microseconds."""
        return {
            "worker_cpu_us": round(self.cpu_seconds / self.runs * 1e6, 1),
            "server_cpu_us": round(self.server_cpu_seconds / self.runs * 1e6, 1),
        }


def stories(drained: Sequence[Drained]) -> list[dict[str, float]]:
    """For the record: how fast each was, and what it cost."""
    return [{"rate": one.rate, **one.detail} for one in drained]


def prepare(url: str, runs: int = 0) -> None:
    """The tables, if they are not there yet, and so many runs more, triggered in bulk."""
    if not runs:
        program(DRIVER, "prepare", url)
    for start in range(0, runs, CHUNK):
        program(DRIVER, "prepare", url, str(min(CHUNK, runs - start)))


def prepared(ground: Ground, url: str, runs: int) -> None:
    """A database with so many runs more that wait to be worked off, tidied as for the comparisons, the disk at rest."""
    prepare(url, runs)
    ground.tidy(url)
    ground.checkpoint()


def drain(ground: Ground, url: str, runs: int) -> Drained:
    return timed(ground, DRIVER, "drain", url, runs)


def steps(ground: Ground, url: str, runs: int) -> Drained:
    """Ten steps each; the runs are triggered by the same process, before its clock starts."""
    return timed(ground, DRIVER, "steps", url, runs)


def timed(ground: Ground, script: str, *words: str | int) -> Drained:
    """A program of the benchmark that prints jobs, seconds and cpu_seconds; the last word is the number of runs."""
    before = ground.processor_seconds()
    told = program(script, *map(str, words))
    used = ground.processor_seconds() - before
    if told["jobs"] != words[-1]:
        raise DriverFailed(f"{script} {words[0]} did {told['jobs']} runs instead of {words[-1]}")
    return Drained(told["jobs"], told["seconds"], told["cpu_seconds"], used)


def program(script: str, *words: str) -> dict[str, Any]:
    """Run one of bench's programs and read the last line it prints, if it prints one."""
    command = [sys.executable, str(BENCH / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise DriverFailed(f"{script} {words[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else {}


def rate_by_dates(url: str, since: str, runs: int) -> float:
    """Runs per second between the first start and the last finish after an instant, as the database dated them.

    For a database that held finished runs before: the driver's own clock counts those too and would stop early.
    """
    question = (
        "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at)) FROM workflow.workflow_run"
        " WHERE created_at >= %s AND status = 'succeeded'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question, (since,)).fetchone()
    if row is None or row[0] != runs:
        raise DriverFailed(f"{runs} runs were to be finished since {since}, not {row}")
    return runs / float(row[1])
