"""The loop of a worker's periodic roles: an error in its body does not end it; it backs off, and stops when asked."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from ..model.errors import StoreUnavailable
from ..store.outage import level

log = logging.getLogger("simpleworkflow.worker")

LONGEST_PAUSE = 5.0
DOUBLINGS = 20
"""Of a pause, at most: after a thousand a number is too large for the clock, and an outage may last."""


async def forever(
    name: str,
    every: float,
    body: Callable[[], Awaitable[object]],
    stopping: asyncio.Event,
    *,
    longest: float = LONGEST_PAUSE,
) -> None:
    """Run the body now and then every so many seconds, a little jittered so that processes do not march in step. In
    trouble the pause grows to `longest`."""
    troubles = 0
    while not stopping.is_set():
        try:
            await body()
            troubles = 0
        except StoreUnavailable as error:
            troubles += 1
            if troubles == 1:
                log.log(level(error), "%s waits for the database: %s", name, error)
        except Exception:
            troubles += 1
            log.exception("%s went wrong and will be tried again", name)
        pause = min(every * 2 ** min(troubles, DOUBLINGS), max(every, longest)) if troubles else every
        await pause_unless(stopping, pause * random.uniform(0.8, 1.0))


async def pause_unless(event: asyncio.Event, timeout: float) -> bool:
    """Wait for the event, at most so long; True when it came."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
        return True
    except TimeoutError:
        return False
