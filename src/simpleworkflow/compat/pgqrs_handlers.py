"""What a handler in pgqrs's spelling holds and may say: its ctx, Pause, transient errors.

    async def zip_files(ctx: WorkflowContext, params: ZipParams) -> ZipResult:
        files = await ctx.step("list_files", lambda: list_files(params))
        answer = await ctx.pause("may I?")

The danger here is two layers of retries. Steps have three attempts, as in pgqrs, so a run whose step has spent them is
over: it is not tried three times again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_type_hints

from ..model.duration import Duration, human, seconds
from ..model.errors import InvalidDuration, RetryAfter, SignalTimeout, StepFailed
from ..model.retry import Retry
from ..runtime.context import Context, SyncContext
from ..runtime.step import StepFunction, step

RESUME = "simpleworkflow.resume"
"""The one signal that ends a pause: `store.resume` sends it, and so may plain SQL."""

STEP_RETRY = Retry(max_attempts=3)
RUN_RETRY = Retry(max_attempts=3, non_retryable=(StepFailed,))

SOON = 0.05
SHORTEST_CHECK = 0.1


class TransientError(RetryAfter):
    """Raised by steps and handlers: try again after `retry_after`, without waiting here.

    Any other exception is transient too, with a growing delay; PermanentError is not.
    """

    def __init__(self, message: str | None = None, *, retry_after: Duration = 1, code: str | None = None) -> None:
        super().__init__(retry_after, message)
        self.code = code

    @property
    def retry_after(self) -> float:
        """Seconds; may be set as well, as in pgqrs's guide: `err.retry_after = 30.0`."""
        return self.delay

    @retry_after.setter
    def retry_after(self, delay: Duration) -> None:
        self.delay = seconds(delay, what="retry_after")


TransientStepError = TransientError


@dataclass(frozen=True, slots=True)
class Pause:
    """What a handler returns to be called again later, from the top: after `check_every`, or when it is resumed.

    The run is PAUSED meanwhile, and its finished steps are not repeated; what the handler looks at outside of steps is
    looked at anew. `await ctx.pause(...)` is the better choice where somebody can say when to go on.
    """

    message: str = ""
    check_every: Duration = 60

    def __post_init__(self) -> None:
        if seconds(self.check_every, what="check_every") < SHORTEST_CHECK:
            raise InvalidDuration(f"check_every={self.check_every!r} is too often; use {human(SHORTEST_CHECK)} or more")


class WorkflowContext(Context):
    """The ctx of an `async def` handler: ours, with pgqrs's pause, and three attempts for every step."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx._stage)

    if not TYPE_CHECKING:  # for checkers it is Context's own, with all its overloads

        def step(self, first: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            """Run a function once for good: `await ctx.step("list_files", lambda: list_files(prefix))`."""
            return super().step(*_patient(first, args), **kwargs)

    def pause(
        self, message: str = "", as_type: Any = Any, /, *, resume_after: Duration | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Wait for `store.resume(run, result)` or for the documented SQL, and return that result.

        With resume_after it goes on by itself after so long, with None, and not a moment earlier.
        """
        waiting = self.wait_for_signal(RESUME, as_type, timeout=resume_after)
        self.log.info("paused: %s", message or "until it is resumed")
        return _or_none(waiting)


class SyncWorkflowContext(SyncContext):
    """The ctx of a plain `def` handler."""

    def __init__(self, ctx: SyncContext) -> None:
        super().__init__(ctx._stage)

    if not TYPE_CHECKING:

        def step(self, first: Any, /, *args: Any, **kwargs: Any) -> Any:
            """As `WorkflowContext.step`."""
            return super().step(*_patient(first, args), **kwargs)

    def pause(self, message: str = "", as_type: Any = Any, /, *, resume_after: Duration | None = None) -> Any:
        """As `WorkflowContext.pause`."""
        self.log.info("paused: %s", message or "until it is resumed")
        try:
            return self.wait_for_signal(RESUME, as_type, timeout=resume_after)
        except SignalTimeout:
            return None


def _patient(first: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """The call with pgqrs's three attempts, unless the function brings options of its own."""
    name, call = ((first,), rest) if isinstance(first, str) else ((), (first, *rest))
    if call and callable(call[0]) and not isinstance(call[0], StepFunction):
        call = (step(retry=STEP_RETRY)(call[0]), *call[1:])
    return (*name, *call)


async def _or_none(waiting: Awaitable[Any]) -> Any:
    try:
        return await waiting
    except SignalTimeout:
        return None


def with_context(handler: Any, names: dict[str, Any]) -> Any:
    """The handler as App takes it. What cannot be a workflow is passed on for App to say so."""
    plain = inspect.isroutine(handler) or isinstance(handler, functools.partial)
    if not plain or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        return handler
    called: Any
    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def call_async(ctx: Context, *input: Any) -> Any:
            outcome = await handler(WorkflowContext(ctx), *input)
            if isinstance(outcome, Pause):
                await _call_again(ctx, outcome)
            return outcome

        called = call_async
    else:

        @functools.wraps(handler)
        def call(ctx: SyncContext, *input: Any) -> Any:
            outcome = handler(SyncWorkflowContext(ctx), *input)
            if isinstance(outcome, Pause):
                _call_again_sync(ctx, outcome)
            return outcome

        called = call
    called.__annotations__ = _annotations(handler, names)
    return called


def _annotations(handler: Any, names: dict[str, Any]) -> dict[str, Any]:
    """What App has to know of the types: our ctx is one of its own, and a Pause is never a result."""
    function = handler.func if isinstance(handler, functools.partial) else handler
    try:
        hints = get_type_hints(function, localns=names, include_extras=True)
    except Exception:
        return dict(getattr(function, "__annotations__", {}))  # App says what is wrong with it
    if hints.get("return") is Pause or Pause in get_args(hints.get("return")):
        hints["return"] = Any
    return {name: hint for name, hint in hints.items() if hint not in (WorkflowContext, SyncWorkflowContext)}


async def _call_again(ctx: Context, pause: Pause) -> NoReturn:
    """Wait, and be unwound meanwhile: when the wait is over, the run and with it the handler start from the top.

    Waits that ended before are on record and pass at once; the first new one lasts. A resume may have come too early
    for the handler to see what it announced: that costs one more look, soon.
    """
    limit = pause.check_every
    while True:
        try:
            await ctx.wait_for_signal(RESUME, timeout=limit)
            limit = SOON
        except SignalTimeout:
            limit = pause.check_every


def _call_again_sync(ctx: SyncContext, pause: Pause) -> NoReturn:
    """The same in a thread."""
    limit = pause.check_every
    while True:
        try:
            ctx.wait_for_signal(RESUME, timeout=limit)
            limit = SOON
        except SignalTimeout:
            limit = pause.check_every
