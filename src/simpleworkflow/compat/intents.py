"""simple-workflow's spelling: Client, Intent, IntentPoller, WorkflowExecutor, WorkflowRun.

    poller = IntentPoller(db_url=url, type_prefixes=["content.%"], worker_id="thumbnails", lease_duration=30)
    poller.register_executor("content.thumbnail.v1", ThumbnailExecutor())
    poller.start()

What the seed promised and we keep: prefixes route, a claimed type without an executor fails with
`no_handler_registered`, executors run one at a time unless told otherwise, start() blocks. What the seed got wrong and
we do not: a duplicate key gives the existing id, a cancelled run stays cancelled, expired leases come back.
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..app import App
from ..clock import monotonic
from ..config import PREFIXES_VARIABLE
from ..model.errors import InvalidPolicy, StoreUnavailable
from ..model.states import Status
from ..runtime.context import SyncContext

__all__ = ["Client", "Intent", "IntentPoller", "WorkflowExecutor", "WorkflowRun"]

LOOK_EVERY = 1.0
"""How often is_cancelled() may ask the database: executors call it in tight loops."""


@dataclass(frozen=True, slots=True)
class Intent:
    """Work that should happen."""

    type: str
    payload: Any = None
    priority: int = 100
    run_after: datetime | None = None
    idempotency_key: str | None = None
    max_attempts: int = 3


class Client:
    """The producer: records intents, never runs code."""

    def __init__(self, db_url: str | None = None) -> None:
        self._app = App(db_url)

    def create(self, intent: Intent) -> str:
        """Record the intent and return its run id; a known idempotency key gives the existing run's id."""
        options: dict[str, Any] = {"priority": intent.priority, "max_attempts": intent.max_attempts}
        if intent.run_after is not None:
            options["run_at"] = _aware(intent.run_after)
        if intent.idempotency_key:
            options["idempotency_key"] = intent.idempotency_key
        return str(self._app.sync.trigger(intent.type, intent.payload, **options).id)

    def cancel(self, run_id: str) -> None:
        """Cancel a run; AlreadyFinished when it has ended otherwise, RunNotFound when there is none."""
        self._app.sync.cancel(run_id)

    def close(self) -> None:
        self._app.sync.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _aware(instant: datetime) -> datetime:
    """The seed took naive datetimes as local time; so do we, but say so to the database."""
    return instant.astimezone(UTC)


class WorkflowRun:
    """What an executor sees of its run."""

    def __init__(self, app: App, ctx: SyncContext, payload: Any) -> None:
        self._app = app
        self._ctx = ctx
        self._looked = float("-inf")
        self.id = str(ctx.run_id)
        self.type = ctx.type
        self.payload = payload
        self.attempt = ctx.attempt
        self.max_attempts = ctx.max_attempts

    def heartbeat(self, duration_seconds: float = 30) -> None:
        """Prolong the lease to at least so many seconds from now."""
        self._ctx.heartbeat(duration_seconds)

    def is_cancelled(self) -> bool:
        """Whether to stop. As in the seed the database is asked, so that a plain UPDATE is seen without delay."""
        if self._ctx.is_cancelled():
            return True
        if monotonic() - self._looked < LOOK_EVERY:
            return False
        try:
            cancelled = self._app.sync.get(self.id).status is Status.CANCELLED
        except StoreUnavailable:
            cancelled = False
        self._looked = monotonic()
        return cancelled


class WorkflowExecutor(ABC):
    @abstractmethod
    def execute(self, run: WorkflowRun) -> Any:
        """Do the work and return something that JSON can hold."""


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """In the main thread SIGTERM and Ctrl-C stop the poller; the handlers that were there come back afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class IntentPoller:
    """The worker: claims what its prefixes route and executes it; metrics_port= serves the metrics of a worker."""

    def __init__(
        self,
        db_url: str | None = None,
        type_prefixes: list[str] | None = None,
        worker_id: str | None = None,
        poll_interval: float = 2,
        lease_duration: float = 30,
        concurrency: int = 1,
        metrics_port: int | None = None,
        metrics_host: str | None = None,
    ) -> None:
        self._app = App(db_url)
        self._types: list[str] = []
        self._options: dict[str, Any] = {
            "name": worker_id,
            "poll_every": poll_interval,
            "lease": lease_duration,
            "concurrency": concurrency,
            "on_unknown": "fail",
            "metrics_port": metrics_port,
            "metrics_host": metrics_host,
        }
        self._prefixes = type_prefixes if type_prefixes is not None else os.environ.get(PREFIXES_VARIABLE)
        self._stop = threading.Event()

    def register_executor(self, workflow_type: str, executor: WorkflowExecutor) -> None:
        def execute(ctx: SyncContext, payload: Any) -> Any:
            return executor.execute(WorkflowRun(self._app, ctx, payload))

        self._app.workflow(workflow_type)(execute)
        self._types.append(workflow_type)

    def start(self) -> None:
        """Poll until stop() or, in the main thread, SIGTERM or Ctrl-C."""
        if not self._types:
            raise InvalidPolicy("register at least one executor before start()")
        prefixes = self._prefixes or self._types
        try:
            with stop_on_signals(self._stop), self._app.sync.worker(**self._options, prefixes=prefixes) as worker:
                while worker.is_alive and not self._stop.wait(1.0):
                    pass
        finally:
            self._stop.clear()
            self._app.sync.close()

    def stop(self) -> None:
        """Stop gracefully; start() returns when running executors are done."""
        self._stop.set()
