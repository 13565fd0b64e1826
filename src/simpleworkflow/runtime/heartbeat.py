"""Asking for more time: a handler may prolong its lease itself, and learns so that the run is no longer its own.

Neither call returns when the run is lost: the execution is being stopped.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING

from ..model.errors import ExecutionStopped
from .stop import Stop

if TYPE_CHECKING:
    from .execute import Execution


async def heartbeat(execution: Execution, lease: float) -> None:
    if not await execution.apart(execution.services.prolong(execution.lease, lease)):
        execution.stop(Stop.LOST)
        await asyncio.Event().wait()


def heartbeat_blocking(execution: Execution, lease: float) -> None:
    """For a handler that runs in a thread of its own."""
    loop = execution.services.loop
    if execution.reason is Stop.LOST or execution.is_abandoned:
        execution.is_stopping()
        raise ExecutionStopped
    answer = asyncio.run_coroutine_threadsafe(execution.services.prolong(execution.lease, lease), loop)
    if not _wait_for(execution, answer):
        loop.call_soon_threadsafe(execution.stop, Stop.LOST)
        raise ExecutionStopped


def _wait_for(execution: Execution, answer: concurrent.futures.Future[bool]) -> bool:
    """In this thread; in slices, because a worker that has ended answers no more."""
    while True:
        try:
            return answer.result(1.0)
        except concurrent.futures.TimeoutError:
            if execution.is_abandoned:
                raise ExecutionStopped from None
