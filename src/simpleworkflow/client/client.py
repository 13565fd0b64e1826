"""The calls that application code makes: trigger, look, control, wait.

Async is the source; `sync.py` is generated from the signatures here (tools/twin.py). "Touches the ledger, is awaited"
is the one rule. Bad input is refused before anything is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack, overload
from uuid import UUID

from ..clock import Clock, SystemClock, from_micros, new_id
from ..config import Settings, default_url
from ..model.duration import Duration, seconds
from ..model.errors import (
    AlreadyFinished,
    InvalidFilter,
    InvalidInput,
    ResultTimeout,
    RunNotFound,
    SimpleWorkflowError,
    StoreUnavailable,
)
from ..model.names import check_type, span_of_prefix
from ..model.payload import encode
from ..model.records import Count, Created, Event, NewRun, Run, Signal, WorkerInfo
from ..model.states import Status
from ..runtime.branches import check_name
from ..runtime.hints import Hint
from ..runtime.registry import Workflow
from ..store.migrate import Applied
from ..store.operations import events, runs, steps, workers
from ..store.operations.runs import Controlled
from ..store.protocol import Operation
from ..store.url import parse_url
from .asking import check_served, finishes_within
from .borrowing import create_on
from .engine import Engine
from .explain import explain as explain_run
from .handle import RunHandle
from .request import RunId, TriggerOptions, aware, check_options, new_run, reason_text, run_uuid, statuses, target_of

log = logging.getLogger("simpleworkflow.client")

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741

EXPLAIN_AFTER = 5.0
PAGE = 200
EVENT_PAGE = 1000

_opening = threading.Lock()
"""Two threads whose first calls meet must not open two engines."""


def _new_lock() -> None:
    global _opening
    _opening = threading.Lock()  # a forked child may have been born while another thread held it


os.register_at_fork(after_in_child=_new_lock)


class Client:
    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._url = default_url() if url is None else url
        self._schema = schema
        self._parsed = parse_url(self._url, schema=schema)
        self._clock = clock
        self._running: Engine | None = None
        self.settings = settings or Settings()

    @property
    def _engine(self) -> Engine:
        """Opened by the first call, and anew in a forked child or after close()."""
        with _opening:
            engine = self._running
            if engine is None or engine.is_closed or engine.is_inherited():
                engine = self._running = Engine(self._url, self._schema, self.settings, self._clock)
            return engine

    def use(self, url: str) -> None:
        """Point this App at another database, before its first call."""
        if self._running is not None and not self._running.is_closed:
            raise InvalidInput("this App is already open; choose its database before the first call")
        self._parsed = parse_url(url, schema=self._schema)
        self._url = url

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._parsed}>"

    # Trigger.

    @overload
    async def trigger(self, workflow: Workflow[None, O], /, **options: Unpack[TriggerOptions]) -> RunHandle[O]: ...

    @overload
    async def trigger(
        self, workflow: Workflow[I, O], input: I, /, **options: Unpack[TriggerOptions]
    ) -> RunHandle[O]: ...

    @overload
    async def trigger(
        self, workflow: str, input: Any = None, /, **options: Unpack[TriggerOptions]
    ) -> RunHandle[Any]: ...

    async def trigger(self, workflow: Any, input: Any = None, /, **options: Unpack[TriggerOptions]) -> RunHandle[Any]:
        """Accept one run; when this returns it survives the loss of everything but the database's disk."""
        check_options(options)
        target = target_of(workflow)
        new = new_run(target, input, options, limit=self.settings.max_payload)
        (created,) = await self._accept([new], options)
        return RunHandle(self, created.id, target.output_type, is_new=created.is_new)

    @overload
    async def trigger_many(
        self, workflow: Workflow[I, O], inputs: Iterable[I], /, **options: Unpack[TriggerOptions]
    ) -> list[RunHandle[O]]: ...

    @overload
    async def trigger_many(
        self, workflow: str, inputs: Iterable[Any], /, **options: Unpack[TriggerOptions]
    ) -> list[RunHandle[Any]]: ...

    async def trigger_many(
        self, workflow: Any, inputs: Iterable[Any], /, **options: Unpack[TriggerOptions]
    ) -> list[RunHandle[Any]]:
        """Accept one run per input, in few statements, in the order given.

        Every input is checked before the first run is created. Many hundreds are sent in several statements: when the
        database fails in between, the first ones exist. Inside your own transaction (connection=) it is all or none.
        """
        check_options(options)
        if options.get("id") is not None or options.get("idempotency_key") is not None:
            raise InvalidInput("trigger_many makes many runs: id= and idempotency_key= belong to trigger")
        target = target_of(workflow)
        new = [new_run(target, one, options, limit=self.settings.max_payload) for one in inputs]
        accepted = await self._accept(new, options) if new else []
        return [RunHandle(self, created.id, target.output_type, is_new=created.is_new) for created in accepted]

    @overload
    async def run(
        self, workflow: Workflow[None, O], /, *, timeout: Duration | None = None, **options: Unpack[TriggerOptions]
    ) -> O: ...

    @overload
    async def run(
        self,
        workflow: Workflow[I, O],
        input: I,
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[TriggerOptions],
    ) -> O: ...

    @overload
    async def run(
        self, workflow: str, input: Any = None, /, *, timeout: Duration | None = None, **options: Unpack[TriggerOptions]
    ) -> Any: ...

    async def run(
        self, workflow: Any, input: Any = None, /, *, timeout: Duration | None = None, **options: Unpack[TriggerOptions]
    ) -> Any:
        """Trigger, wait, and return the output."""
        if options.get("connection") is not None:
            raise InvalidInput("run(connection=) would wait for a run that exists only after your commit; use trigger")
        handle = await self.trigger(workflow, input, **options)
        return await handle.result(timeout)

    async def _accept(self, new: Sequence[NewRun], options: TriggerOptions) -> list[Created]:
        connection, require = options.get("connection"), options.get("require")
        if connection is not None:
            answers = await create_on(connection, self._parsed, new, self._clock)
        else:
            if require is not None:
                await check_served(self._engine, new[0].type, require)
            answers = await self._engine.create(new)
        for answer in answers:
            if isinstance(answer, SimpleWorkflowError):
                raise answer
        return [answer for answer in answers if isinstance(answer, Created)]

    # Look.

    async def get(self, run_id: RunId) -> Run:
        """The run as it is now; RunNotFound when there is none."""
        wanted = run_uuid(run_id)
        (run,) = await self._engine.run(runs.get([wanted]))
        if run is None:
            raise RunNotFound(f"there is no run {wanted}")
        return run

    def handle(self, run_id: RunId, workflow: Workflow[Any, O] | None = None) -> RunHandle[O]:
        """A handle for a run that was triggered elsewhere; give its workflow to have the output typed."""
        return RunHandle(self, run_uuid(run_id), Any if workflow is None else workflow.output_type)

    async def runs(
        self,
        *,
        type: str | None = None,
        prefix: str | None = None,
        status: str | Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        idempotency_key: str | None = None,
        with_deleted: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Run]:
        """Runs, newest first, fetched a page at a time; filters combine."""
        wanted = statuses(status)
        for name, instant in (("since", since), ("until", until)):
            if instant is not None:
                aware(name, instant, InvalidFilter)
        if limit is not None and limit < 0:
            raise InvalidFilter(f"limit={limit} is negative; leave it out to get every run")
        before: UUID | None = None
        left = limit if limit is not None else float("inf")
        while left > 0:
            size = int(min(PAGE, left))
            page = await self._engine.run(
                runs.list_page(
                    statuses=wanted,
                    type=type,
                    span=None if prefix is None else span_of_prefix(prefix),
                    since=since,
                    until=until,
                    idempotency_key=idempotency_key,
                    with_deleted=with_deleted,
                    before=before,
                    limit=size,
                )
            )
            for run in page:
                yield run
            if len(page) < size:
                return
            before, left = page[-1].id, left - len(page)

    async def events(self, run_id: RunId) -> list[Event]:
        """A run's audit trail, oldest first; RunNotFound when there is no such run."""
        found: list[Event] = []
        while True:
            after = found[-1].id if found else 0
            page = await self._engine.run(events.of_run(run_uuid(run_id), after=after, limit=EVENT_PAGE))
            found += page
            if len(page) < EVENT_PAGE:
                break
        if not found:
            raise RunNotFound(f"there is no run {run_id}")
        return found

    async def events_since(self, instant: datetime, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """One page of everybody's audit trail; go on with after=the last id you saw."""
        moment = aware("instant", instant, InvalidFilter)
        return await self._engine.run(events.since(moment, after=after, limit=limit))

    async def counts(self) -> list[Count]:
        """How many runs there are of each type and status."""
        return await self._engine.run(runs.count())

    async def workers(self) -> list[WorkerInfo]:
        """The workers heard of lately."""
        return await self._engine.run(workers.alive(silence=self.settings.worker_silence))

    async def explain(self, run_id: RunId) -> str:
        """One sentence: what the run is doing, or what it waits for."""
        run = await self.get(run_id)
        definitions = await self._engine.run(workers.definitions([run.type]))
        now = from_micros((self._clock or SystemClock()).wall())
        return explain_run(run, await self.workers(), now=now, is_enabled=all(d.is_enabled for d in definitions))

    async def wait(self, run_id: RunId, *, timeout: Duration | None = None) -> Run:
        """Wait until the run has finished, however it ends; ResultTimeout says what it is doing instead."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + seconds(timeout, what="timeout")
        told = False
        while not (run := await self.get(run_id)).is_finished:  # a retry may have opened it again meanwhile
            left = EXPLAIN_AFTER if deadline is None else max(deadline - loop.time(), 0.0)
            if await finishes_within(self._engine, run.id, None if told else left):
                continue
            if deadline is not None:
                raise ResultTimeout(await self.explain(run.id))
            told = True
            await self._log_waiting(run.id)
        return run

    async def _log_waiting(self, run_id: UUID) -> None:
        try:
            log.warning("still waiting: %s", await self.explain(run_id))
        except StoreUnavailable as error:
            log.warning("still waiting for run %s: %s", run_id, error)

    # Control.

    async def cancel(self, run_id: RunId, *, reason: str | None = None) -> Run:
        """Cancel at once. Cancelling twice is fine; AlreadyFinished when it ended otherwise before."""
        run = await self._control(runs.cancel([run_uuid(run_id)], reason_text(reason)), run_id, Hint.CONTROL)
        if run.status is not Status.CANCELLED:
            raise AlreadyFinished(f"run {run.id} ({run.type}) has already {run.status}; it cannot be cancelled")
        return run

    async def signal(self, run_id: RunId, name: str, payload: Any = None, *, id: RunId | None = None) -> UUID:
        """Send a message to a run. Accepted is delivered: consumed once, in order per name, or listed as unconsumed.

        AlreadyFinished when the run has ended; give id= to make a repeated call harmless. Returns the signal's id.
        """
        signal_id = new_id() if id is None else run_uuid(id)
        text = encode(payload, limit=self.settings.max_payload, what=f"payload of signal {name}")
        await self._engine.run(steps.send(signal_id, run_uuid(run_id), check_name(name, "signal"), text))
        await self._engine.tell(Hint.CONTROL)
        await self._engine.tell(Hint.READY)
        return signal_id

    async def signals(self, run_id: RunId) -> list[Signal]:
        """The signals a run was sent, oldest first; consumed_at tells which it has taken."""
        return await self._engine.run(steps.signals_of(run_uuid(run_id)))

    async def hold(self, run_id: RunId, *, reason: str | None = None) -> Run:
        """Stop it from going on until resumed; a running one is handed back by its worker."""
        run = await self._control(runs.hold([run_uuid(run_id)], reason_text(reason)), run_id, Hint.CONTROL)
        if run.is_finished:
            raise AlreadyFinished(f"run {run.id} ({run.type}) has already {run.status}; it cannot be held")
        return run

    async def resume(self, run_id: RunId) -> Run:
        """Lift a hold, nothing else."""
        run = await self._control(runs.resume([run_uuid(run_id)]), run_id, Hint.READY)
        if run.is_finished:
            raise AlreadyFinished(f"run {run.id} ({run.type}) has already {run.status}; there is nothing to resume")
        return run

    async def retry(self, run_id: RunId) -> Run:
        """Run a finished run again: attempts, crashes and deadline start anew. An open run is left as it is."""
        run = await self._control(runs.revive([run_uuid(run_id)]), run_id, Hint.READY)
        if run.is_finished:
            raise AlreadyFinished(f"run {run.id} ({run.type}) was deleted; it cannot be retried")
        return run

    async def delete(self, run_id: RunId, *, reason: str | None = None) -> Run:
        """Soft-delete: hidden from listings, its idempotency key free again; an open run is cancelled first."""
        return await self._control(runs.delete([run_uuid(run_id)], reason_text(reason)), run_id, Hint.CONTROL)

    async def _control(self, operation: Operation[list[Controlled]], run_id: RunId, hint: Hint) -> Run:
        engine = self._engine
        (answer,) = await engine.run(operation)
        if answer.run is None:
            raise RunNotFound(f"there is no run {run_id}")
        if answer.moved:
            await engine.tell(hint)
            if answer.run.is_finished:
                await engine.tell(Hint.CHANGED)
        return answer.run

    async def enable(self, name: str, is_enabled: bool = True) -> None:
        """Allow or refuse triggers and claims of a type; runs that are under way go on."""
        await self._engine.run(workers.enable(check_type(name), is_enabled))

    # The database itself.

    async def check(self) -> None:
        """Reach the database and make sure that its tables fit; a SQLite file is migrated on the spot."""
        await self._engine.check()

    async def migrate(self) -> list[str]:
        """Bring the tables up to this version; says what was applied."""
        await self.migration_status()  # a database that cannot be reached is told at once, not after minutes
        return [f"{m.version}_{m.name}" for m in await self._engine.migrate(None)]

    async def migrate_down(self, count: int = 1) -> list[str]:
        """Take back the newest migrations, with their data."""
        await self.migration_status()
        return [f"{m.version}_{m.name}" for m in await self._engine.migrate(count)]

    async def migration_status(self) -> list[Applied]:
        """Every migration of this version, and when it was applied."""
        return await self._engine.migration_status()

    async def close(self) -> None:
        """Close connections. The next call opens them again."""
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        with _opening:
            engine, self._running = self._running, None
        if engine is not None and not engine.is_inherited():
            engine.close()
