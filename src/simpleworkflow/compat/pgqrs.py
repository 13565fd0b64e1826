"""pgqrs's spelling: workflow, consumer, open_store, poll_all; triggers apart from workers.

    store = open_store("postgresql://…")
    await store.create_workflow("zip_files")
    run_id = await workflow("zip_files").trigger(ZipParams(bucket, prefix)).execute(store)
    run = await workflow("zip_files").get_run(run_id, store)

    worker = consumer("worker-1", 8080, "zip_files").handler(zip_files).create(store)
    await worker.poll_forever()

What pgqrs promised and we keep: a trigger of a workflow that nobody has created fails at once, it gives a run id, the
run's row is the message, visibility alone decides when a run goes on, a step that was done is not done again. What its
code got wrong and we do not: a dead worker's runs come back by themselves, no exception ends a worker's loop, transient
errors strand nothing, a pause lasts as long as it says, and create_workflow may be called twice.

What handlers hold and may say is in pgqrs_handlers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID

from ..app import App
from ..client.request import TriggerOptions
from ..config import Settings
from ..model.duration import Duration
from ..model.errors import InvalidWorkflow, PermanentError, RunNotFound
from ..model.names import check_type
from ..model.records import Run
from ..model.states import Status
from ..python_internals import frame_above, locals_of
from ..runtime.registry import Workflow
from ..worker.choices import WorkerChoices
from .pgqrs_handlers import (
    RESUME,
    RUN_RETRY,
    Pause,
    SyncWorkflowContext,
    TransientError,
    TransientStepError,
    WorkflowContext,
    with_context,
)

__all__ = [
    "RESUME",
    "Consumer",
    "ConsumerBuilder",
    "Pause",
    "PermanentError",
    "RunRecord",
    "RunStatus",
    "Store",
    "SyncWorkflowContext",
    "TransientError",
    "TransientStepError",
    "TriggerBuilder",
    "WaitBuilder",
    "WorkflowBuilder",
    "WorkflowContext",
    "consumer",
    "open_store",
    "poll_all",
    "workflow",
]

LOOK_EVERY = 1.0
"""How often poll_forever makes sure that its worker is alive."""


class RunStatus(StrEnum):
    """pgqrs's words for the states of a run."""

    QUEUED = "QUEUED"
    PENDING = QUEUED
    """The decision record's word for it."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"


_WORDS = {
    Status.PENDING: RunStatus.QUEUED,
    Status.LEASED: RunStatus.RUNNING,
    Status.PAUSED: RunStatus.PAUSED,
    Status.SUCCEEDED: RunStatus.SUCCESS,
    Status.FAILED: RunStatus.ERROR,
    Status.TIMED_OUT: RunStatus.ERROR,
    Status.CANCELLED: RunStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as it was when it was read, in pgqrs's words; `.run` is the same in ours."""

    run: Run

    @property
    def run_id(self) -> str:
        return str(self.run.id)

    @property
    def workflow(self) -> str:
        return self.run.type

    @property
    def status(self) -> RunStatus:
        """QUEUED until a worker has picked it up for the first time; RUNNING also between two attempts."""
        if self.run.status is Status.PENDING and self.run.started_at is not None:
            return RunStatus.RUNNING
        return _WORDS[self.run.status]

    @property
    def input(self) -> Any:
        return self.run.payload

    @property
    def output(self) -> Any:
        return self.run.result

    @property
    def error(self) -> dict[str, Any] | None:
        """Why it failed, when it did."""
        return self.run.error if self.status is RunStatus.ERROR else None

    @property
    def created_at(self) -> datetime:
        return self.run.created_at

    @property
    def started_at(self) -> datetime | None:
        return self.run.started_at

    @property
    def completed_at(self) -> datetime | None:
        return self.run.finished_at

    @property
    def worker(self) -> str | None:
        """Who executes it now."""
        return self.run.leased_by


RunId = UUID | str | RunRecord


class Store:
    """The database, in pgqrs's words; `.app` is the same in ours.

    `open_store(url)` connects at its first use; `await open_store(url)` at once, and `async with` closes it at the end.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self._handlers: dict[str, tuple[Any, dict[str, Any]]] = {}

    async def install(self) -> list[str]:
        """Create or update the tables. A SQLite file does that by itself."""
        return await self.app.migrate()

    async def create_workflow(self, name: str) -> WorkflowBuilder:
        """Make the workflow known, so that it can be triggered; again and again changes nothing."""
        known = workflow(name)
        await self.app.definitions.create(name)
        return known

    async def resume(self, run: RunId, result: Any = None) -> None:
        """End the run's pause, or its next one: `ctx.pause()` returns the result. AlreadyFinished when it has ended."""
        await self.app.signal(_id(run), RESUME, result)

    async def close(self) -> None:
        await self.app.close()

    async def __aenter__(self) -> Store:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Store]:
        return self._connect().__await__()

    async def _connect(self) -> Store:
        await self.app.doctor.check()
        return self

    def _adopt(self, name: str, handler: Any, options: dict[str, Any], names: dict[str, Any]) -> None:
        """One handler per workflow, however many consumers share it."""
        if self._handlers.get(name) == (handler, options):
            return
        self.app.workflow(name, **{"retry": RUN_RETRY, **options})(with_context(handler, names))
        self._handlers[name] = (handler, options)


def open_store(url: str | None = None, *, schema: str | None = None, settings: Settings | None = None) -> Store:
    """./simpleworkflow.db, or SIMPLEWORKFLOW_URL, unless a URL is given."""
    return Store(App(url, schema=schema, settings=settings))


def _id(run: RunId) -> UUID | str:
    return run.run.id if isinstance(run, RunRecord) else run


# Triggers.


def workflow(name: str, *, input: Any = Any, output: Any = Any) -> WorkflowBuilder:
    """A workflow by its name; give its types to have inputs checked where they are sent, and results read as them."""
    return WorkflowBuilder(Workflow(check_type(name), input_type=input, output_type=output))


@dataclass(frozen=True, slots=True)
class WorkflowBuilder:
    """The noun; its verbs are trigger, get_run and result."""

    target: Workflow[Any, Any]

    @property
    def name(self) -> str:
        return self.target.name

    def trigger(self, input: Any = None, /, **options: Unpack[TriggerOptions]) -> TriggerBuilder:
        """Ask for one run. Options are those of `App.trigger`: delay=, priority=, idempotency_key=, connection= …

        require="worker" also insists on a live worker; require=None accepts a workflow that nobody has created yet.
        """
        if options.get("connection") is None:
            options = {"require": "definition", **options}
        return TriggerBuilder(self.target, input, options)

    async def get_run(self, run: RunId, store: Store) -> RunRecord:
        """The run as it is now; RunNotFound when this workflow has none with that id."""
        found = await store.app.get(_id(run))
        if found.type != self.name:
            raise RunNotFound(f"run {found.id} is one of {found.type}, not of {self.name}")
        return RunRecord(found)

    async def result(self, run: RunId, store: Store, *, timeout: Duration | None = None) -> Any:
        """Wait for a run that was triggered before, here or elsewhere, and return its output."""
        return await store.app.handle(_id(run), self.target).result(timeout)


@dataclass(frozen=True, slots=True)
class TriggerBuilder:
    """A run to be asked for."""

    target: Workflow[Any, Any]
    input: Any
    options: TriggerOptions

    async def execute(self, store: Store) -> str:
        """The run's id; the run is durable when this returns. NotRunnable when the workflow was never created."""
        handle = await store.app.trigger(self.target, self.input, **self.options)
        return str(handle.id)

    def wait(self) -> WaitBuilder:
        """Wait for the result instead of returning the id."""
        return WaitBuilder(self)


@dataclass(frozen=True, slots=True)
class WaitBuilder:
    """A run to be asked for and waited for."""

    trigger: TriggerBuilder
    limit: Duration | None = None

    def timeout(self, limit: Duration) -> WaitBuilder:
        """How long to wait: seconds, a timedelta, or "5m". The run goes on when we stop waiting."""
        return WaitBuilder(self.trigger, limit)

    async def execute(self, store: Store) -> Any:
        """The output; RunFailed and its kin when there is none, ResultTimeout when there is none yet."""
        asked = self.trigger
        return await store.app.run(asked.target, asked.input, timeout=self.limit, **asked.options)


# Workers.


def consumer(host: str, port: int, workflow: str, /, **choices: Unpack[WorkerChoices]) -> ConsumerBuilder:
    """A worker for one workflow. Host and port are its name in leases and listings; nothing listens there.

    choices: those of `App.worker`: concurrency=, lease=, poll_every=, drain=.
    """
    return ConsumerBuilder(check_type(workflow), {"name": f"{host}:{port}", "prefixes": [workflow], **choices})


class ConsumerBuilder:
    def __init__(self, workflow: str, choices: WorkerChoices) -> None:
        self._workflow = workflow
        self._choices = choices
        self._handler: tuple[Any, dict[str, Any], dict[str, Any]] | None = None

    def handler(self, handler: Callable[..., Any], /, **options: Any) -> ConsumerBuilder:
        """The code: `async def handler(ctx, params: ZipParams) -> ZipResult`, or `def`. It stays in memory.

        options: those of `@app.workflow`: retry=, timeout=, lease=, concurrency=, on_failure=, on_cancel=. An input
        that does not fit the code is an error, as it is in pgqrs; on_misfit="hold" keeps the run for code that fits.
        """
        self._handler = (handler, {"on_misfit": "fail", **options}, dict(locals_of(frame_above(1))))
        return self

    def create(self, store: Store) -> Consumer:
        """The worker, ready to poll. Awaited, it also makes the workflow known to those who trigger."""
        if self._handler is None:
            raise InvalidWorkflow(f"a consumer of {self._workflow} needs code: consumer(…).handler(function)")
        store._adopt(self._workflow, *self._handler)
        return Consumer(store, self._workflow, self._choices)


class Consumer:
    """A worker for one workflow."""

    def __init__(self, store: Store, workflow: str, choices: WorkerChoices) -> None:
        self.workflow = workflow
        self._store = store
        self._choices = choices
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __await__(self) -> Generator[Any, None, Consumer]:
        return self._advertise().__await__()

    async def _advertise(self) -> Consumer:
        await self._store.create_workflow(self.workflow)
        return self

    async def poll_forever(self) -> None:
        """Work until stop() or until this call is cancelled; running code may finish first, as `drain` allows.

        The work is done on a thread and an event loop of its own, and signal handlers stay yours.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with self._store.app.worker(**self._choices) as worker:
                while worker.is_alive and not self._stopping.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), LOOK_EVERY)
        finally:
            self._loop = None
            self._stopping.clear()

    def stop(self) -> None:
        """Make poll_forever return; from any thread."""
        if self._loop is None:
            self._stopping.set()
        else:
            self._loop.call_soon_threadsafe(self._stopping.set)


async def poll_all(*consumers: Consumer) -> None:
    """Poll with all of them until cancelled, or until each is stopped; when one breaks, the others stop as well."""
    polling = [asyncio.ensure_future(one.poll_forever()) for one in consumers]
    try:
        await asyncio.gather(*polling)
    finally:
        for one in polling:
            one.cancel()
        await asyncio.gather(*polling, return_exceptions=True)
