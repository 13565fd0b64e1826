"""App: puts the client, the worker and the registry of workflows together.

    app = App()                                   # ./simpleworkflow.db
    app = App("postgresql://user@host/database")  # or SIMPLEWORKFLOW_URL

The calls that everybody uses are methods here, written in three files: define_calls.py, trigger_calls.py and
run_calls.py in client/. Everything else is in a namespace, such as app.schedules. Nothing is opened until the first
call. `app.sync` is the blocking twin of everything here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import Any, Unpack

from .client.client import Client
from .client.define_calls import DefineCalls
from .client.generated.sync import (
    SyncActivity,
    SyncDefinitions,
    SyncDoctor,
    SyncMigrations,
    SyncOutbox,
    SyncPruning,
    SyncRunCalls,
    SyncSchedules,
    SyncTriggerCalls,
    SyncWorkers,
)
from .client.handle import RunHandle
from .client.namespaces.activity import Activity
from .client.namespaces.definitions import Definitions
from .client.namespaces.doctor import Doctor
from .client.namespaces.migrations import Migrations
from .client.namespaces.outbox import Outbox
from .client.namespaces.retention import Pruning
from .client.namespaces.schedules import Schedules
from .client.namespaces.workers import Workers
from .client.run_calls import RunCalls
from .client.trigger_calls import TriggerCalls
from .clock import Clock
from .config import Settings
from .model.duration import Duration
from .model.retention import Retention, rules_of
from .runtime.context import ChildHandle, Context, SyncChildHandle, SyncContext
from .runtime.miscalled import add_face
from .runtime.registry import Registry
from .runtime.step import StepFunction
from .sinks.protocol import Sink
from .worker import Worker
from .worker.choices import WorkerChoices, plan
from .worker.embedded import EmbeddedWorker
from .worker.process import own_identity
from .worker.relay import Relay
from .worker.relay_options import relay_options, sink_of


class App(DefineCalls, TriggerCalls, RunCalls):
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
        keep: Iterable[Retention] = (),
    ) -> None:
        """keep: for how long workers keep finished runs, such as [Retention("billing.*", "90 days")]; for ever unless
        given."""
        client = Client(url, schema=schema, settings=settings, clock=clock, registry=Registry())
        kept = tuple(keep)
        self._client = client
        self._keep = rules_of(kept)
        self.schedules = Schedules(client)
        self.outbox = Outbox(client)
        self.retention = Pruning(client, kept)
        self.workers = Workers(client)
        self.definitions = Definitions(client)
        self.activity = Activity(client)
        self.migrations = Migrations(client)
        self.doctor = Doctor(client)

    @property
    def settings(self) -> Settings:
        """The numbers that operators turn."""
        return self._client.settings

    @cached_property
    def sync(self) -> SyncApp:
        """The same calls, blocking."""
        return SyncApp(self)

    def worker(self, **choices: Unpack[WorkerChoices]) -> EmbeddedWorker:
        """A worker inside this process: `async with app.worker(): ...`.

        It runs on its own thread and event loop, and never touches signal handlers.
        """
        plan(choices, self.settings, self._keep)  # mistakes are told here, where they were written
        return EmbeddedWorker(self.sync.doctor.check, lambda: self._make_worker(**choices))

    def lifespan(
        self, *, worker: bool = False, **choices: Unpack[WorkerChoices]
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For FastAPI(lifespan=app.lifespan(worker=True)) and Starlette: opens with the server, closes with it.

        A database that cannot be used keeps the server from starting: better than failing every request.
        """
        plan(choices, self.settings, self._keep)

        @asynccontextmanager
        async def span(_: Any) -> AsyncIterator[None]:
            try:
                await self.doctor.check()
                if worker:
                    async with self.worker(**choices):
                        yield
                else:
                    yield
            finally:
                await self.close()

        return span

    async def migrate(self) -> list[str]:
        """Bring the tables up to this version; says what was applied."""
        return await self.migrations.up()

    async def close(self) -> None:
        """Close connections. The next call opens them again."""
        await asyncio.to_thread(self._client.close)

    def __repr__(self) -> str:
        return f"<App {self._client.address}>"

    # For our own commands, tests and benchmarks.

    def _make_worker(self, *, process_ends: bool = False, **choices: Unpack[WorkerChoices]) -> Worker:
        """A worker for the running event loop, not started yet."""
        settings, options = plan(choices, self.settings, self._keep, process_ends=process_ends)
        return Worker(self._client.engine.ledger.twin(), self._client.registry, settings, options)

    def _make_relay(self, sink: Sink | str, *, source: str | None = None, keep: Duration | None = "7 days") -> Relay:
        """A relay alone, for the running event loop, not started yet: what `simpleworkflow outbox dispatch` runs."""
        found = sink_of(sink)
        assert found is not None
        options = relay_options(self.settings, source, keep)
        ledger = self._client.engine.ledger.twin()
        ledger.watch()
        return Relay(ledger, found, own_identity("outbox").id, options)


class SyncApp(SyncTriggerCalls, SyncRunCalls):
    """The blocking twin of App."""

    def __init__(self, app: App) -> None:
        client = self._client = app._client
        self._app = self._trigger_calls = self._run_calls = app
        self.schedules = SyncSchedules(client, app.schedules)
        self.outbox = SyncOutbox(client, app.outbox)
        self.retention = SyncPruning(client, app.retention)
        self.workers = SyncWorkers(client, app.workers)
        self.definitions = SyncDefinitions(client, app.definitions)
        self.activity = SyncActivity(client, app.activity)
        self.migrations = SyncMigrations(client, app.migrations)
        self.doctor = SyncDoctor(client, app.doctor)

    def worker(self, **choices: Unpack[WorkerChoices]) -> EmbeddedWorker:
        """A worker inside this process: `with app.sync.worker(): ...`."""
        return self._app.worker(**choices)

    def migrate(self) -> list[str]:
        """Bring the tables up to this version; says what was applied."""
        return self.migrations.up()

    def close(self) -> None:
        """Close connections. The next call opens them again."""
        self._client.close()


for _face in (App, Context, SyncContext, ChildHandle, SyncChildHandle, RunHandle, StepFunction):
    add_face(_face)
