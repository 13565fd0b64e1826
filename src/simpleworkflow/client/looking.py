"""Looking at runs: one, many, their trails, and waiting for them. Nothing here changes a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from ..clock import SystemClock, from_micros
from ..model.duration import Duration, seconds
from ..model.errors import InvalidFilter, ResultTimeout, RunNotFound, StoreUnavailable
from ..model.names import span_of_prefix
from ..model.payload import decode
from ..model.records import Count, Event, Happening, Run, Signal, Step, WorkerInfo
from ..model.states import Status
from ..store.operations import events, runs, steps, workers
from ..store.protocol import Operation
from .asking import finishes_within
from .base import Base
from .explain import explain as explain_run
from .request import RunId, aware, run_uuid, statuses

log = logging.getLogger("simpleworkflow.client")

T = TypeVar("T")


class Reading(Protocol[T]):
    """An operation that reads one page of a run's story."""

    def __call__(self, run_id: UUID, /, *, after: int, limit: int) -> Operation[list[T]]: ...


EXPLAIN_AFTER = 5.0
PAGE = 200
EVENT_PAGE = 1000


class Looking(Base):
    async def get(self, run_id: RunId) -> Run:
        """The run as it is now; RunNotFound when there is none."""
        wanted = run_uuid(run_id)
        (run,) = await self._engine.run(runs.get([wanted]))
        if run is None:
            raise RunNotFound(f"there is no run {wanted}")
        return run

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
        return await self._all_of(run_id, events.of_run, lambda event: event.id)

    async def history(self, run_id: RunId) -> list[Happening]:
        """Everything that happened to a run, in order, in the words of the workflow_history view."""
        return await self._all_of(run_id, steps.happenings, lambda line: line.idx)

    async def _all_of(self, run_id: RunId, read: Reading[T], place: Callable[[T], int]) -> list[T]:
        """Page after page; every run has at least one line, so none means that there is no such run."""
        found: list[T] = []
        while True:
            after = place(found[-1]) if found else 0
            page = await self._engine.run(read(run_uuid(run_id), after=after, limit=EVENT_PAGE))
            found += page
            if len(page) < EVENT_PAGE:
                break
        if not found:
            raise RunNotFound(f"there is no run {run_id}")
        return found

    async def read(self, run_id: RunId, name: str, as_type: Any = Any) -> Any:
        """The newest value that the run has published under that name (ctx.publish); None when it has not yet."""
        text = await self._engine.run(steps.published(run_uuid(run_id), name))
        if text is None:
            await self.get(run_id)  # a run that does not exist has published nothing for another reason
            return None
        return decode(text, as_type, what=f"published {name}")

    async def signals(self, run_id: RunId) -> list[Signal]:
        """The signals a run was sent, oldest first; consumed_at tells which it has taken."""
        return await self._engine.run(steps.signals_of(run_uuid(run_id)))

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
        waits: list[Step] = []
        if run.status is Status.PAUSED:
            history = (await self._engine.run(steps.load([run.id])))[run.id]
            waits = [step for step in history.steps.values() if step.completed_at is None]
        is_enabled = all(d.is_enabled for d in definitions)
        return explain_run(run, await self.workers(), now=now, is_enabled=is_enabled, waits=waits)

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
