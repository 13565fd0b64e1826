"""A sink that calls a function of yours with each event, such as one that writes to a broker we have no sink for.

    async def to_nats(event: CloudEvent) -> None:
        await connection.publish("orders", structured(event).encode())

    sink = CallingSink(to_nats)

Returning means taken. An exception is a refusal and the event comes again; `PermanentError` sends it to the dead
letters at once, `RetryAfter("30s")` says when to come again. Async functions run in the relay's event loop; others run
in a thread, so that they may block. The dangers are an exception's text that holds a password, which is masked; a
cancelled task inside the function, which must not look as if the relay itself had been cancelled; a `sys.exit()` in it,
which would end the whole worker; and a function that hangs, whose threads must be nobody else's.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial

from ..model.errors import InvalidPolicy, PermanentError, RetryAfter
from ..runtime.tasks import is_being_cancelled
from ..store.url import mask_text
from .by_run import deliver_by_run
from .protocol import CloudEvent, Refusal
from .threads import SinkThreads

LONGEST_REASON = 500


class CallingSink:
    """Calls `function(event)`, for at most `at_once` runs at a time and for each run's events in order."""

    def __init__(self, function: Callable[[CloudEvent], object], *, at_once: int = 8) -> None:
        if not callable(function):
            raise InvalidPolicy(f"{function!r} is not a function; a sink calls it with each event")
        if at_once < 1:
            raise InvalidPolicy(f"at_once must be 1 or more, not {at_once}")
        self._function = function
        self._at_once = at_once
        self._threads = SinkThreads(at_once, "sink")
        # An object may have an async __call__.
        self._is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        return await deliver_by_run(events, self._deliver, self._at_once)

    async def close(self) -> None:
        """A function that has not returned is left to itself."""
        self._threads.close()

    async def _deliver(self, event: CloudEvent) -> Refusal | None:
        try:
            call = partial(self._function, event)
            answer = call() if self._is_async else await self._threads.call(call)
            if inspect.isawaitable(answer):
                await answer
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            return Refusal("CancelledError: something inside the function was cancelled")
        except (Exception, SystemExit) as error:
            return refusal_of(error)
        return None


def refusal_of(error: BaseException) -> Refusal:
    """What an exception says about an event that was not taken; of a group of one, that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    try:
        told = str(error)
    except Exception:
        told = "its message cannot be shown"
    reason = mask_text(f"{type(error).__name__}: {told}" if told else type(error).__name__)[:LONGEST_REASON]
    if isinstance(error, PermanentError):
        return Refusal(reason, is_permanent=True)
    return Refusal(reason, retry_after=error.delay if isinstance(error, RetryAfter) else None)
