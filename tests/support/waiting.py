"""Waiting for what another thread or process does: polling with a deadline, never a blind sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def eventually(holds: Callable[[], object], what: str = "it", timeout: float = 10.0) -> None:
    """Poll until something that another thread does has happened."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout:g}s"
        await asyncio.sleep(0.005)
