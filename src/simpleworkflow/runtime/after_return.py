"""The code of a run has returned: has it left something behind?

A durable call that was not awaited, or that runs in a task that nobody has waited for, must not be lost in silence: the
run fails with its line. What a task is going to call is not known before it has begun, so each gets its first turn
here. A task without durable calls is stopped with the run, and named in a warning.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from .labels import about
from .tasks import has_not_begun, left_behind

if TYPE_CHECKING:
    from .execute import Execution

log = logging.getLogger("simpleworkflow.execute")

PATIENCE = 10.0
"""Seconds that a durable call has to end that the code has cancelled."""
MOST_TURNS = 100
"""Turns of the loop in which tasks may begin; tasks that make tasks need several."""
MOST_TOLD = 5


async def look_back(execution: Execution) -> None:
    for _ in range(MOST_TURNS):
        if not any(has_not_begun(task) for task in execution.tasks):
            break
        await asyncio.sleep(0)
    if execution.history.steps:
        execution.durable.memo.changed.warn_of_unasked()
    if not execution.durable.memo.made.is_finished:
        await _wait_for_cancelled(execution)
        execution.durable.memo.made.refuse_unfinished()
    _warn_of_tasks(execution)


async def _wait_for_cancelled(execution: Execution) -> None:
    cancelled = [task for task in execution.tasks if isinstance(task, asyncio.Task) and task.cancelling()]
    if cancelled:
        execution.begin_work()
        try:
            await asyncio.wait(cancelled, timeout=PATIENCE)
        finally:
            execution.end_work()


def _warn_of_tasks(execution: Execution) -> None:
    if left := left_behind(execution.tasks):
        lease, many = execution.lease, f"{len(left)} task{'s' * (len(left) > 1)}"
        told = lease.id, lease.type, many, ", ".join(sorted(set(left))[:MOST_TOLD])
        log.warning("run %s (%s) has left %s under way, to be stopped now: %s", *told, extra=about(lease))
