"""The calls of App that stand beside the code: make a function a workflow, give it a schedule, hear of its errors.

They change the registry of this program only. Workers write down what they serve when they start.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol, TypeVar, overload

from ..model.duration import Duration
from ..model.errors import InvalidSchedule, InvalidWorkflow
from ..model.names import check_type
from ..model.policies import OnChanged, OnMisfit
from ..model.retry import DEFAULT_RETRY, Retry
from ..python_internals import frame_above, locals_of
from ..runtime.context import Context, SyncContext
from ..runtime.failing import ErrorHook
from ..runtime.registry import Options, Workflow, make_workflow
from .client import Client
from .namespaces.schedules import make_schedule

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741
W = TypeVar("W", bound=Workflow[Any, Any])
Hook = TypeVar("Hook", bound=ErrorHook)


class Decorator(Protocol):
    """What @app.workflow(...) does to a function, as type checkers should see it."""

    @overload
    def __call__(self, handler: Callable[[Context], Coroutine[Any, Any, O]], /) -> Workflow[None, O]: ...
    @overload
    def __call__(self, handler: Callable[[Context, I], Coroutine[Any, Any, O]], /) -> Workflow[I, O]: ...
    @overload
    def __call__(self, handler: Callable[[SyncContext], O], /) -> Workflow[None, O]: ...
    @overload
    def __call__(self, handler: Callable[[SyncContext, I], O], /) -> Workflow[I, O]: ...


class DefineCalls:
    _client: Client

    def workflow(
        self,
        name: str | None = None,
        /,
        *,
        retry: Retry = DEFAULT_RETRY,
        timeout: Duration | None = None,
        lease: Duration | None = None,
        concurrency: int | None = None,
        on_failure: Workflow[Any, Any] | str | None = None,
        on_cancel: Workflow[Any, Any] | str | None = None,
        on_exhausted: Literal["fail", "hold"] = "fail",
        on_changed: OnChanged | None = None,
        on_misfit: OnMisfit | None = None,
    ) -> Decorator:
        """Make a function a workflow: `async def f(ctx: Context, order: Order) -> Receipt`, or `def` with SyncContext.

        name: how runs of it are called for good; the habit is domain.action.vN. The function's name unless given.
        retry: how often and how soon a failed run is tried again.
        timeout: a run ends timed_out so long after a worker first took it to start it.
        lease: how long a worker may be silent before its runs of this type are taken over.
        concurrency: at most so many at a time in one worker process.
        on_failure: a workflow, or its name, that is started with id, payload and error of each run that ends failed.
        on_cancel: a workflow, or its name, that is started when a run is cancelled, with its id and payload.
        on_exhausted: "hold" keeps a run that is out of attempts for an operator; app.resume grants one attempt more.
        on_changed: "hold" (or "warn", or "run") when a step is new and one that is on record seems to be the same under
            its old name; the App's Settings decide unless given.
        on_misfit: "hold" (or "fail") when the code cannot read the input or a record; likewise.
        """
        if callable(name):
            raise InvalidWorkflow("write @app.workflow() or @app.workflow('domain.action.v1'), with parentheses")
        caller = dict(locals_of(frame_above(1)))
        options = Options(
            retry, timeout, lease, concurrency, on_failure, on_cancel, on_exhausted, on_changed, on_misfit
        )

        def decorate(handler: Any) -> Workflow[Any, Any]:
            workflow = make_workflow(name, handler, options, caller)
            self._client.registry.add(workflow)
            return workflow

        return decorate

    def on_error(self, hook: Hook, /) -> Hook:
        """Call this with a `Failure` for every failed attempt of a step or a run, in the worker's loop."""
        self._client.registry.add_error_hook(hook)
        return hook

    @overload
    def declare(self, name: str, /) -> Workflow[Any, Any]: ...
    @overload
    def declare(self, name: str, /, *, input: type[I]) -> Workflow[I, Any]: ...
    @overload
    def declare(self, name: str, /, *, output: type[O]) -> Workflow[Any, O]: ...
    @overload
    def declare(self, name: str, /, *, input: type[I], output: type[O]) -> Workflow[I, O]: ...
    def declare(self, name: str, /, *, input: Any = Any, output: Any = Any) -> Workflow[Any, Any]:
        """A workflow whose code lives in another service: it can be triggered from here, with its types checked."""
        workflow: Workflow[Any, Any] = Workflow(check_type(name), input_type=input, output_type=output)
        self._client.registry.add(workflow)
        return workflow

    def schedule(
        self,
        cron: str | None = None,
        /,
        *,
        every: Duration | None = None,
        tz: str = "UTC",
        payload: Any = None,
        name: str | None = None,
        overlap: Literal["allow", "skip", "cancel"] = "allow",
        catch_up: Literal["none", "one", "all"] = "one",
        window: Duration | None = None,
    ) -> Callable[[W], W]:
        """Start a workflow by the clock: write it above @app.workflow, as often as the workflow has schedules.

        cron: five fields such as "0 9 * * MON-FRI", or @hourly, @daily, @midnight, @weekly, @monthly, @yearly.
        every: an interval instead, such as "15m"; its slots are the multiples of it since 1970, in UTC.
        tz: the zone whose clocks the expression means, such as "Europe/Berlin".
        payload: the input of every run. Which slot it is for, the handler reads from ctx.schedule.
        name: how the schedule is called for good; the workflow's name unless given.
        overlap: when the run of the slot before is still open, start this one too, skip it, or cancel the other.
        catch_up: of the slots that were missed (nobody was there, or it was paused), start none, the last one, or all.
        window: slots that were missed longer ago are not started any more.

        Workers write it down by this name when they start; see docs/schedules.md.
        """
        options = {"every": every, "tz": tz, "overlap": overlap, "catch_up": catch_up, "window": window}

        def decorate(workflow: W) -> W:
            if not isinstance(workflow, Workflow):
                raise InvalidSchedule("write @app.schedule(...) above @app.workflow(...), not below it")
            known = self._client.registry.find(workflow.name)
            if known is None or known.handler is None:
                raise InvalidSchedule(
                    f"{workflow.name} has no handler in this App, so that none of its workers would write it down; "
                    "write @app.schedule(...) where the handler is, or call app.schedules.put(...)"
                )
            limit = self._client.settings.max_payload
            made = make_schedule(name or workflow.name, workflow, cron, payload=payload, limit=limit, **options)
            self._client.registry.add_schedule(made)
            return workflow

        if cron is not None and not isinstance(cron, str):
            raise InvalidSchedule(f'write @app.schedule("0 9 * * *") with a cron expression, not with {cron!r}')
        return decorate
