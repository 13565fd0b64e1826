"""App: puts the door, the crew and the registry of workflows together.

    app = App()                                   # ./simpleworkflow.db
    app = App("postgresql://user@host/database")  # or SIMPLEWORKFLOW_URL

Nothing is opened until the first call. `app.sync` is the blocking twin of everything here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, overload

from .client.client import Client
from .client.sync import SyncClient
from .config import PREFIXES_VARIABLE
from .model.duration import Duration, seconds
from .model.errors import InvalidPolicy, InvalidWorkflow
from .model.names import EVERYTHING, Span, check_type, merge_spans, parse_prefixes, span_of_prefix
from .model.retry import DEFAULT_RETRY, Retry
from .runtime.context import Context, SyncContext
from .runtime.registry import Options, Registry, Workflow, make_workflow
from .worker import Worker, WorkerOptions

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741

START_TIMEOUT = 30.0


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
    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._registry = Registry()

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
        dead_letter: str | None = None,
        on_cancel: str | None = None,
    ) -> Decorator:
        """Make a function a workflow: `async def f(ctx: Context, order: Order) -> Receipt`, or `def` with SyncContext.

        name: how runs of it are called for good; the habit is domain.action.vN. The function's name unless given.
        retry: how often and how soon a failed run is tried again.
        timeout: a run ends timed_out so long after its first claim.
        lease: how long a worker may be silent before its runs of this type are taken over.
        concurrency: at most so many at a time in one worker process.
        dead_letter: a workflow that is started with the story of each run that ends failed.
        on_cancel: a workflow that is started when a run is cancelled, with its id and payload.
        """
        if callable(name):
            raise InvalidWorkflow("write @app.workflow() or @app.workflow('domain.action.v1'), with parentheses")
        caller = sys._getframe(1).f_locals
        options = Options(retry, timeout, lease, concurrency, dead_letter, on_cancel)

        def decorate(handler: Any) -> Workflow[Any, Any]:
            workflow = make_workflow(name, handler, options, caller)
            self._registry.add(workflow)
            return workflow

        return decorate

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

    def make_worker(
        self,
        *,
        name: str | None = None,
        prefixes: str | Iterable[str] | None = None,
        concurrency: int | None = None,
        on_unknown: Literal["leave", "fail"] = "leave",
        lease: Duration | None = None,
        poll_every: Duration | None = None,
        drain: Duration | None = None,
        process_ends: bool = False,
    ) -> Worker:
        """A worker for the running event loop, not started yet. Most programs want app.worker() or the command."""
        if on_unknown not in {"leave", "fail"}:
            raise InvalidPolicy(f"on_unknown must be 'leave' or 'fail', not {on_unknown!r}")
        changes: dict[str, Any] = {"concurrency": concurrency}
        for key, value in (("lease", lease), ("poll_every", poll_every), ("drain", drain)):
            changes[key] = None if value is None else seconds(value, what=key)
        settings = replace(self.settings, **{key: value for key, value in changes.items() if value is not None})
        options = WorkerOptions(
            name=name, spans=_spans(prefixes), fail_unknown=on_unknown == "fail", process_ends=process_ends
        )
        return Worker(self._engine.ledger.twin(), self._registry, settings, options)

    def worker(self, **options: Any) -> EmbeddedWorker:
        """A worker inside this process: `async with app.worker(): ...`. Options as for make_worker.

        It runs on its own thread and event loop, and never touches signal handlers.
        """
        return EmbeddedWorker(self, options)

    def lifespan(self, *, worker: bool = False, **options: Any) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For FastAPI(lifespan=app.lifespan(worker=True)) and Starlette: opens with the server, closes with it."""

        @asynccontextmanager
        async def span(_: Any) -> AsyncIterator[None]:
            try:
                if worker:
                    async with self.worker(**options):
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

    def worker(self, **options: Any) -> EmbeddedWorker:
        """A worker inside this process: `with app.sync.worker(): ...`."""
        return EmbeddedWorker(self._app, options)


class EmbeddedWorker:
    """A worker on a thread of its own; the same object serves `with` and `async with`."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._up = threading.Event()
        self._trouble: BaseException | None = None

    def start(self) -> None:
        if self._thread is not None:
            raise InvalidPolicy("this worker has been started already")
        # Database trouble that no waiting can mend (no migration, no driver) is told here, not logged in a thread.
        self._app.sync.check()
        self._thread = threading.Thread(target=self._serve, name="simpleworkflow-worker", daemon=True)
        self._thread.start()
        self._up.wait(START_TIMEOUT)
        if self._trouble is not None:
            raise self._trouble

    def stop(self) -> None:
        """Stop gracefully and wait for it; bounded by the drain deadline."""
        if self._loop is not None and self._worker is not None and self._thread is not None:
            try:
                self._loop.call_soon_threadsafe(self._worker.stop)
            except RuntimeError:
                pass  # it has ended already
            self._thread.join()

    def _serve(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._work())
        except BaseException as error:
            self._trouble = error
        finally:
            self._up.set()

    async def _work(self) -> None:
        worker = self._worker = self._app.make_worker(**self._options)
        started = asyncio.ensure_future(worker.ready.wait())
        started.add_done_callback(lambda _: self._up.set())
        try:
            await worker.run()
        finally:
            started.cancel()

    def __enter__(self) -> EmbeddedWorker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> EmbeddedWorker:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)


def _spans(prefixes: str | Iterable[str] | None) -> list[Span]:
    if prefixes is None:
        prefixes = os.environ.get(PREFIXES_VARIABLE, "")
    if isinstance(prefixes, str):
        return parse_prefixes(prefixes) or [EVERYTHING]
    return merge_spans([span_of_prefix(prefix) for prefix in prefixes]) or [EVERYTHING]
