"""Sleeping costs nothing: 100,000 runs wait, and the worker that put them to sleep is as small as before.

They are put to sleep by one real worker process, so that its memory can be asked of the kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.crew import Watched

from simpleworkflow.model.states import Status

RUNS = 100_000
MOST_GROWTH = 60
"""MiB that a worker may be larger afterwards; the runs' payloads alone would be more."""


def memory(pid: int) -> float:
    """Resident MiB of a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) / 1024


def statuses(watched: Watched) -> dict[str, int]:
    return {count.status: count.runs for count in watched.app.sync.activity.counts()}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_sleepers_take_no_memory_and_no_slot(watched: Watched, figure: Any) -> None:
    crew, app = watched.crew, watched.app
    worker = crew.start()
    warm = app.sync.trigger_many("crash.sleep.v1", ["x" * 1000] * 2_000)
    crew.until(lambda: statuses(watched).get(Status.PAUSED) == len(warm), "the first runs sleep", 60)
    before = memory(worker.pid)
    app.sync.trigger_many("crash.sleep.v1", ["x" * 1000] * (RUNS - len(warm)))
    crew.until(lambda: statuses(watched).get(Status.PAUSED) == RUNS, "all runs sleep", 300)
    growth = memory(worker.pid) - before
    figure("MiB that a worker grew by while 98,000 runs fell asleep", round(growth, 1))
    assert growth < MOST_GROWTH
    # None of them holds a slot: new work is done at once.
    assert app.sync.run("crash.quick.v1", 7, timeout="10s") == 7
