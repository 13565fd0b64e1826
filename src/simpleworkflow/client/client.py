"""The calls that application code makes: trigger, look, control, wait.

Async is the source; `sync.py` is generated from the signatures here (tools/twin.py). "Touches the ledger, is awaited"
is the one rule. Bad input is refused before anything is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload
from uuid import UUID

from ..clock import Clock, new_id
from ..config import Settings, default_url
from ..model import payload
from ..model.duration import Duration, seconds
from ..model.errors import (
    AlreadyFinished,
    InvalidFilter,
    InvalidInput,
    NotRunnable,
    ResultTimeout,
    RunNotFound,
    SimpleWorkflowError,
)
from ..model.names import check_key, check_type, span_of_prefix
from ..model.records import Count, Created, Event, NewRun, Run, WorkerInfo
from ..model.states import Status
from ..runtime.hints import Hint
from ..runtime.registry import Workflow
from ..store.drivers.borrowed import run_on
from ..store.migrate import Applied
from ..store.operations import events, runs, workers
from ..store.operations.runs import Controlled
from ..store.protocol import Operation
from ..store.url import parse_url
from .engine import Engine
from .explain import explain as explain_run
from .handle import RunHandle

log = logging.getLogger("simpleworkflow.client")

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741

EXPLAIN_AFTER = 5.0
PAGE = 200
RunId = UUID | str


class TriggerOptions(TypedDict, total=False):
    """How a run is to be created; every one of them optional."""

    id: UUID | str
    """Chosen by you: asking again after a lost answer creates nothing twice."""
    idempotency_key: str
    """One run per key: a second trigger with the same key and payload gets the first run's handle."""
    priority: int
    """0 to 999; lower runs first; 100 unless told."""
    run_at: datetime
    """Not before this instant (with a time zone)."""
    delay: Duration
    """Not before so long from now."""
    max_attempts: int
    """Executions before it ends failed; the workflow's own policy unless told."""
    start_within: Duration
    """Ends timed_out when no worker has started it so long after it was due."""
    require: Literal["definition", "worker"]
    """Fail at once when nobody has ever served this type, or nobody does now."""
    connection: Any
    """Your own open connection: the run exists if and only if your transaction commits."""


class Client:
    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._url = url or default_url()
        self._schema = schema
        self._parsed = parse_url(self._url, schema=schema)
        self._clock = clock
        self._running: Engine | None = None
        self.settings = settings or Settings()

    @property
    def _engine(self) -> Engine:
        """Opened by the first call, and anew in a forked child or after close()."""
        engine = self._running
        if engine is None or engine.is_closed or engine.is_inherited():
            engine = self._running = Engine(self._url, self._schema, self.settings, self._clock)
        return engine

    def use(self, url: str) -> None:
        """Point this App at another database, before its first call."""
        if self._running is not None and not self._running.is_closed:
            raise InvalidInput("this App is already open; choose its database before the first call")
        self._url = url
        self._parsed = parse_url(url, schema=self._schema)

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
        target = self._target(workflow)
        new = self._new_run(target, input, options)
        (created,) = await self._accept([new], options)
        return RunHandle(self, created.id, target.output_type, is_new=created.is_new)

    async def trigger_many(
        self, workflow: Workflow[I, O] | str, inputs: Iterable[I], /, **options: Unpack[TriggerOptions]
    ) -> list[RunHandle[O]]:
        """Accept one run per input, in few statements."""
        if options.keys() & {"id", "idempotency_key"}:
            raise InvalidInput("trigger_many makes many runs: id= and idempotency_key= belong to trigger")
        target = self._target(workflow)
        new = [self._new_run(target, one, options) for one in inputs]
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
        if "connection" in options:
            raise InvalidInput("run(connection=) would wait for a run that exists only after your commit; use trigger")
        handle = await self.trigger(workflow, input, **options)
        return await handle.result(timeout)

    def _target(self, workflow: Workflow[Any, Any] | str) -> Workflow[Any, Any]:
        if isinstance(workflow, Workflow):
            return workflow
        if isinstance(workflow, str):
            return Workflow(check_type(workflow))
        raise InvalidInput(
            f"trigger takes a workflow (decorated with @app.workflow, or app.declare) or its name, not {workflow!r}"
        )

    def _new_run(self, target: Workflow[Any, Any], input: Any, options: TriggerOptions) -> NewRun:
        unknown = options.keys() - TriggerOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"trigger has no option {', '.join(sorted(unknown))}")
        if not target.takes_input and input is not None:
            raise InvalidInput(f"{target.name} takes no input, but got {type(input).__name__}")
        what = f"payload of {target.name}"
        text = payload.encode(input, limit=self.settings.max_payload, what=what)
        if target.takes_input:
            payload.decode(text, target.input_type, what=what)
        run_at, delay = options.get("run_at"), options.get("delay")
        if run_at is not None and delay is not None:
            raise InvalidInput("give run_at= or delay=, not both")
        if run_at is not None and run_at.tzinfo is None:
            raise InvalidInput(f"run_at={run_at!r} has no time zone; write datetime(..., tzinfo=UTC)")
        start_within = options.get("start_within")
        key = options.get("idempotency_key")
        return NewRun(
            id=_uuid(options["id"]) if "id" in options else new_id(),
            type=target.name,
            payload=text,
            priority=_in_range("priority", options.get("priority", 100), 0, 999),
            run_at=run_at,
            delay=0.0 if delay is None else seconds(delay, what="delay"),
            idempotency_key=None if key is None else check_key(key),
            max_attempts=None
            if "max_attempts" not in options
            else _in_range("max_attempts", options["max_attempts"], 1, 1000),
            start_within=None if start_within is None else seconds(start_within, what="start_within"),
        )

    async def _accept(self, new: Sequence[NewRun], options: TriggerOptions) -> list[Created]:
        connection = options.get("connection")
        if connection is not None:
            if "require" in options:
                raise InvalidInput(
                    "require= looks at the database outside your transaction; it cannot go with connection="
                )
            answers = await run_on(connection, self._parsed, runs.create(new), self._clock)
        else:
            if "require" in options:
                await self._require(new[0].type, options["require"])
            answers = await self._engine.create(new)
        for answer in answers:
            if isinstance(answer, SimpleWorkflowError):
                raise answer
        return [answer for answer in answers if isinstance(answer, Created)]

    async def _require(self, type: str, what: str) -> None:
        if what not in {"definition", "worker"}:
            raise InvalidInput(f"require={what!r} is neither 'definition' nor 'worker'")
        if not await self._engine.run(workers.definitions([type])):
            raise NotRunnable(f"no worker has ever served {type}; check the name, or start a worker that has it")
        if what == "worker" and not any(worker.serves(type) for worker in await self.workers()):
            raise NotRunnable(f"no live worker serves {type} now; nothing was created")

    # Look.

    async def get(self, run_id: RunId) -> Run:
        """The run as it is now; RunNotFound when there is none."""
        wanted = _uuid(run_id)
        (run,) = await self._engine.run(runs.get([wanted]))
        if run is None:
            raise RunNotFound(f"there is no run {wanted}")
        return run

    def handle(self, run_id: RunId, workflow: Workflow[Any, O] | None = None) -> RunHandle[O]:
        """A handle for a run that was triggered elsewhere; give its workflow to have the output typed."""
        return RunHandle(self, _uuid(run_id), Any if workflow is None else workflow.output_type)

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
        statuses = _statuses(status)
        for name, instant in (("since", since), ("until", until)):
            if instant is not None and instant.tzinfo is None:
                raise InvalidFilter(f"{name}={instant!r} has no time zone; write datetime(..., tzinfo=UTC)")
        before: UUID | None = None
        left = limit if limit is not None else float("inf")
        while left > 0:
            size = int(min(PAGE, left))
            page = await self._engine.run(
                runs.list_page(
                    statuses=statuses,
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
        """A run's audit trail, oldest first."""
        found: list[Event] = []
        while True:
            after = found[-1].id if found else 0
            page = await self._engine.run(events.of_run(_uuid(run_id), after=after))
            found += page
            if len(page) < 1000:
                return found

    async def events_since(self, instant: datetime, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """One page of everybody's audit trail; go on with after=the last id you saw."""
        return await self._engine.run(events.since(instant, after=after, limit=limit))

    async def counts(self) -> list[Count]:
        """How many runs there are of each type and status."""
        return await self._engine.run(runs.count())

    async def workers(self) -> list[WorkerInfo]:
        """The workers heard of lately."""
        return await self._engine.run(workers.alive(silence=self.settings.worker_silence))

    async def explain(self, run_id: RunId) -> str:
        """One sentence: what the run is doing, or what it waits for."""
        return explain_run(await self.get(run_id), await self.workers())

    async def wait(self, run_id: RunId, *, timeout: Duration | None = None) -> Run:
        """Wait until the run has finished, however it ends; ResultTimeout says what it is doing instead."""
        run = await self.get(run_id)
        limit = None if timeout is None else seconds(timeout, what="timeout")
        if run.is_finished:
            return run
        engine = self._engine
        waiting = asyncio.ensure_future(engine.call(lambda: engine.waiters.finished(run.id)))
        try:
            first = EXPLAIN_AFTER if limit is None else limit
            done, _ = await asyncio.wait({waiting}, timeout=first)
            if not done and limit is None:
                log.warning("still waiting: %s", await self.explain(run.id))
                await asyncio.wait({waiting})
            if not waiting.done():
                raise ResultTimeout(await self.explain(run.id))
            waiting.result()
        finally:
            waiting.cancel()
        return await self.get(run.id)

    # Control.

    async def cancel(self, run_id: RunId, *, reason: str | None = None) -> Run:
        """Cancel at once. Cancelling twice is fine; AlreadyFinished when it ended otherwise before."""
        run = await self._control(runs.cancel([_uuid(run_id)], reason), run_id, Hint.CONTROL)
        if run.status is not Status.CANCELLED:
            raise AlreadyFinished(f"run {run.id} ({run.type}) has already {run.status}; it cannot be cancelled")
        return run

    async def hold(self, run_id: RunId, *, reason: str | None = None) -> Run:
        """Stop it from going on until resumed; a running one is handed back by its worker."""
        run = await self._control(runs.hold([_uuid(run_id)], reason), run_id, Hint.CONTROL)
        if run.is_finished:
            raise AlreadyFinished(f"run {run.id} ({run.type}) has already {run.status}; it cannot be held")
        return run

    async def resume(self, run_id: RunId) -> Run:
        """Lift a hold, nothing else."""
        run = await self._control(runs.resume([_uuid(run_id)]), run_id, Hint.READY)
        if run.is_finished:
            raise AlreadyFinished(f"run {run.id} ({run.type}) has already {run.status}; there is nothing to resume")
        return run

    async def retry(self, run_id: RunId) -> Run:
        """Run a finished run again: attempts, crashes and deadline start anew. An open run is left as it is."""
        return await self._control(runs.revive([_uuid(run_id)]), run_id, Hint.READY)

    async def delete(self, run_id: RunId, *, reason: str | None = None) -> Run:
        """Soft-delete: hidden from listings, its idempotency key free again; an open run is cancelled first."""
        return await self._control(runs.delete([_uuid(run_id)], reason), run_id, Hint.CONTROL)

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
        engine = self._engine
        await engine.call(lambda: engine.ledger.check())

    async def migrate(self) -> list[str]:
        """Bring the tables up to this version; says what was applied."""
        engine = self._engine
        return [f"{m.version}_{m.name}" for m in await engine.call(lambda: engine.ledger.migrate_up())]

    async def migrate_down(self, count: int = 1) -> list[str]:
        """Take back the newest migrations, with their data."""
        engine = self._engine
        return [f"{m.version}_{m.name}" for m in await engine.call(lambda: engine.ledger.migrate_down(count))]

    async def migration_status(self) -> list[Applied]:
        engine = self._engine
        return await engine.call(lambda: engine.ledger.migration_status())

    async def close(self) -> None:
        """Close connections. The next call opens them again."""
        engine, self._running = self._running, None
        if engine is not None and not engine.is_inherited():
            await engine.close()


def _uuid(value: RunId) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError:
        raise RunNotFound(f"{value!r} is not a run id; ids are UUIDs") from None


def _in_range(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def _statuses(status: str | Iterable[str] | None) -> list[Status]:
    wanted = [] if status is None else [status] if isinstance(status, str) else list(status)
    try:
        return [Status(one) for one in wanted]
    except ValueError as error:
        raise InvalidFilter(f"{error}; a status is one of {', '.join(Status)}") from None
