"""Waiting for what another thread, process or task does: polling with a deadline, never a blind sleep.

A test that waits for something names it, so that a failure says what did not come.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0
PAUSE = 0.005


def until(met: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Poll until it is met; returns what it gave."""
    deadline = time.monotonic() + seconds
    while not (value := met()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(PAUSE)
    return value


async def eventually(met: Callable[[], Any], what: str = "it", seconds: float = PATIENCE) -> Any:
    """The same for tests whose event loop must go on meanwhile; `met` may be async."""
    deadline = time.monotonic() + seconds
    while True:
        value = met()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        await asyncio.sleep(PAUSE)
