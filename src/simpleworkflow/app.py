"""App: puts the door, the crew and the registry of workflows together.

    app = App()                                   # ./simpleworkflow.db
    app = App("postgresql://user@host/database")  # or SIMPLEWORKFLOW_URL

Nothing is opened until the first call. `app.sync` is the blocking twin of everything here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

from .client.client import Client
from .client.handle import RunHandle
from .client.sync import SyncClient
from .clock import Clock
from .config import PREFIXES_VARIABLE, LogErrors, Settings
from .model.duration import Duration, seconds
from .model.errors import InvalidPolicy, InvalidWorkflow
from .model.keeping import Keep, rules_of
from .model.names import EVERYTHING, Span, check_type, merge_spans, parse_prefixes, span_of_prefix
from .model.outbox import lifecycle_rules
from .model.policies import OnChanged, OnMisfit
from .model.records import Definition
from .model.retry import DEFAULT_RETRY, Retry
from .runtime.context import ChildHandle, Context, SyncChildHandle, SyncContext
from .runtime.failing import ErrorHook
from .runtime.miscalled import add_face
from .runtime.registry import Options, Registry, Workflow, make_workflow
from .runtime.step import StepFunction
from .sinks.protocol import Sink
from .worker import Worker, WorkerOptions
from .worker.embedded import EmbeddedWorker
from .worker.metrics_server import address
from .worker.process import own_identity
from .worker.relay import Relay
from .worker.relay_options import relay_options, sink_of

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741
Hook = TypeVar("Hook", bound=ErrorHook)

log = logging.getLogger("simpleworkflow.worker")


class WorkerChoices(TypedDict, total=False):
    """How a worker is to work; every one of them optional."""

    name: str | None
    """How it calls itself in leases, logs and listings."""
    prefixes: str | Iterable[str] | None
    """Serve only types with these prefixes ("billing.,media.*"); WORKER_TYPE_PREFIXES, or everything, unless given."""
    concurrency: int | None
    """Runs at a time."""
    on_unknown: Literal["leave", "fail"]
    """What to do with routed types that have no handler here: leave them to others, or fail them."""
    lease: Duration | None
    """How long it may be silent before its runs are taken over."""
    poll_every: Duration | None
    """How often it looks for work when no hint comes."""
    drain: Duration | None
    """How long running code may go on after a stop."""
    schedules: bool
    """False: neither writes down the schedules beside the code nor starts the slots of any; others do."""
    sink: Sink | str | None
    """Take events of the outbox there: a Sink, or what `outbox dispatch --sink` takes ("https://…", "stdout:")."""
    sink_source: str | None
    """The source that these CloudEvents name; /simpleworkflow/SCHEMA unless given."""
    keep_published: Duration | None
    """How long published events stay in the outbox: "7 days" unless given, "forever" for good."""
    log_errors: LogErrors | None
    """How much of an error of user code is logged: "traceback", "message" or "type"."""
    metrics_port: int | None
    """Serve Prometheus metrics and a health check on this port; 0 for any that is free, which the log tells."""
    metrics_host: str | None
    """The address that they are served on: 127.0.0.1, this machine only, unless given."""


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


class App(Client):
    """The workflows of a program and the database that they live in: define, start, look at and run them here.

        app = swf.App()  # SIMPLEWORKFLOW_URL, or ./simpleworkflow.db

        @app.workflow("orders.fulfil.v1")
        async def fulfil(ctx: swf.Context, order: Order) -> str: ...

        handle = await app.trigger(fulfil, order)  # accepted: it survives everything from here on
        async with app.worker():  # or the command: simpleworkflow worker MODULE:app
            print(await handle.result())

    url: a SQLite file or postgresql://user@host/database. schema: the schema of its tables on PostgreSQL ("workflow").
    settings: numbers that operators turn. clock: for tests. keep: how long workers keep finished runs.
    Nothing is opened before the first call. `app.sync` has the same calls, blocking.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        keep: Iterable[Keep] = (),
    ) -> None:
        """keep: how long workers keep finished runs, such as [Keep("billing.*", "90 days")]; for ever unless given."""
        super().__init__(url, schema=schema, settings=settings, clock=clock)
        self._registry = Registry()
        self._keep = tuple(keep)
        self._rules = rules_of(self._keep)

    @cached_property
    def sync(self) -> SyncApp:
        """The same calls, blocking."""
        return SyncApp(self)

    def workflow(
        self,
        name: str | None = None,
        /,
        *,
        retry: Retry = DEFAULT_RETRY,
        timeout: Duration | None = None,
        lease: Duration | None = None,
        concurrency: int | None = None,
        dead_letter: Workflow[Any, Any] | str | None = None,
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
        dead_letter: a workflow, or its name, that is started with id, payload and error of each run that ends failed.
        on_cancel: a workflow, or its name, that is started when a run is cancelled, with its id and payload.
        on_exhausted: "hold" keeps a run that is out of attempts for an operator; app.resume grants one attempt more.
        on_changed: "hold" (or "warn", or "run") when a step is new and one that is on record seems to be the same under
            its old name; the App's Settings decide unless given.
        on_misfit: "hold" (or "fail") when the code cannot read the input or a record; likewise.
        """
        if callable(name):
            raise InvalidWorkflow("write @app.workflow() or @app.workflow('domain.action.v1'), with parentheses")
        caller = sys._getframe(1).f_locals
        options = Options(
            retry, timeout, lease, concurrency, dead_letter, on_cancel, on_exhausted, on_changed, on_misfit
        )

        def decorate(handler: Any) -> Workflow[Any, Any]:
            workflow = make_workflow(name, handler, options, caller)
            self._registry.add(workflow)
            return workflow

        return decorate

    def emit_lifecycle(self, prefix: str, /, *events: str) -> None:
        """Put these lifecycle events of runs whose type is below the prefix into the outbox, in the transaction of the
        move: app.emit_lifecycle("billing.*", "succeeded", "failed").

        Known to the database once a worker of this App has started, and from then on whoever moves a run. Taking the
        line away leaves the rule, since other programs may want it: `simpleworkflow outbox rules delete` ends it.
        """
        self._registry.outbox_rules += lifecycle_rules(prefix, events)

    def on_error(self, hook: Hook, /) -> Hook:
        """Call this with a `Failure` for every failed attempt of a step or a run, in the worker's loop."""
        self._registry.add_error_hook(hook)
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
        self._registry.add(workflow)
        return workflow

    def _definitions(self) -> Sequence[Definition]:
        return [workflow.definition for workflow in self._registry.served()]

    def serves(self, name: str) -> bool:
        """Whether there is a handler for this type here."""
        workflow = self._registry.find(name)
        return workflow is not None and workflow.handler is not None

    @contextmanager
    def served_by(self, workflow: Workflow[Any, Any]) -> Iterator[None]:
        """Let another handler serve a type for a while, as tests do."""
        before = self._registry.replace(workflow)
        try:
            yield
        finally:
            if before is not None:
                self._registry.replace(before)

    def make_worker(self, *, process_ends: bool = False, **choices: Unpack[WorkerChoices]) -> Worker:
        """A worker for the running event loop, not started yet. Most programs want app.worker() or the command."""
        settings, options = self._worker_plan(choices, process_ends)
        return Worker(self._engine.ledger.twin(), self._registry, settings, options)

    def _worker_plan(self, choices: WorkerChoices, process_ends: bool) -> tuple[Settings, WorkerOptions]:
        unknown = choices.keys() - WorkerChoices.__annotations__.keys()
        if unknown:
            raise TypeError(f"a worker has no option {', '.join(sorted(unknown))}")
        on_unknown = choices.get("on_unknown", "leave")
        if on_unknown not in {"leave", "fail"}:
            raise InvalidPolicy(f"on_unknown must be 'leave' or 'fail', not {on_unknown!r}")
        changes: dict[str, Any] = {key: choices.get(key) for key in ("concurrency", "log_errors")}
        for key, value in (("lease", choices.get("lease")), ("poll_every", choices.get("poll_every"))):
            changes[key] = None if value is None else seconds(value, what=key)
        drain = choices.get("drain")
        changes["drain"] = None if drain is None else seconds(drain, what="drain")
        settings = replace(self.settings, **{key: value for key, value in changes.items() if value is not None})
        return settings, WorkerOptions(
            name=choices.get("name"),
            spans=_spans(choices.get("prefixes")),
            fail_unknown=on_unknown == "fail",
            metrics=address(choices.get("metrics_host"), choices.get("metrics_port")),
            schedules=bool(choices.get("schedules", True)),
            process_ends=process_ends,
            keep=self._rules,
            sink=sink_of(choices.get("sink")),
            relay=relay_options(settings, choices.get("sink_source"), choices.get("keep_published", "7 days")),
        )

    def make_relay(self, sink: Sink | str, *, source: str | None = None, keep: Duration | None = "7 days") -> Relay:
        """A relay alone, for the running event loop, not started yet: what `simpleworkflow outbox dispatch` runs."""
        found = sink_of(sink)
        assert found is not None
        options = relay_options(self.settings, source, keep)
        ledger = self._engine.ledger.twin()
        ledger.watch()
        return Relay(ledger, found, own_identity("outbox").id, options)

    def worker(self, **choices: Unpack[WorkerChoices]) -> EmbeddedWorker:
        """A worker inside this process: `async with app.worker(): ...`.

        It runs on its own thread and event loop, and never touches signal handlers.
        """
        self._worker_plan(choices, False)  # mistakes are told here, where they were written
        return EmbeddedWorker(self.sync.check, lambda: self.make_worker(**choices))

    def lifespan(
        self, *, worker: bool = False, **choices: Unpack[WorkerChoices]
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For FastAPI(lifespan=app.lifespan(worker=True)) and Starlette: opens with the server, closes with it.

        A database that cannot be used keeps the server from starting: better than failing every request.
        """
        self._worker_plan(choices, False)

        @asynccontextmanager
        async def span(_: Any) -> AsyncIterator[None]:
            try:
                await self.check()
                if worker:
                    async with self.worker(**choices):
                        yield
                else:
                    yield
            finally:
                await self.close()

        return span


class SyncApp(SyncClient):
    """The blocking twin of App."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self._app = app

    def worker(self, **choices: Unpack[WorkerChoices]) -> EmbeddedWorker:
        """A worker inside this process: `with app.sync.worker(): ...`."""
        return self._app.worker(**choices)


def _spans(prefixes: str | Iterable[str] | None) -> list[Span]:
    if prefixes is None:
        prefixes = os.environ.get(PREFIXES_VARIABLE, "")
    if isinstance(prefixes, str):
        return parse_prefixes(prefixes) or [EVERYTHING]
    return merge_spans([span_of_prefix(prefix) for prefix in prefixes]) or [EVERYTHING]


for _face in (App, Context, SyncContext, ChildHandle, SyncChildHandle, RunHandle, StepFunction):
    add_face(_face)
