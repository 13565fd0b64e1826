"""Looking at runs: one, many, their trails, and waiting for them. Nothing here changes a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from string import hexdigits
from typing import Any, Protocol, TypeVar, overload
from uuid import UUID

from ..model.duration import Duration, seconds
from ..model.errors import InvalidFilter, ResultTimeout, RunNotFound, StoreUnavailable
from ..model.explanation import Detail, Explanation, Found, Picture
from ..model.names import span_of_prefix
from ..model.payload import decode
from ..model.records import Count, Event, Happening, Run, Signal, WorkerInfo
from ..store.operations import events, explain, outbox, runs, steps, workers
from ..store.protocol import Operation
from ..store.url import mask_text
from .addressing import Addressing, by_key
from .asking import finished_within
from .explain import DEPTH
from .explain import explain as explain_run
from .explain_sentence import sentence
from .explain_words import outbox_line
from .request import RunId, aware, run_uuid, statuses

log = logging.getLogger("simpleworkflow.client")

T = TypeVar("T")


class Reading(Protocol[T]):
    """An operation that reads one page of a run's story."""

    def __call__(self, run_id: UUID, /, *, after: int, limit: int) -> Operation[list[T]]: ...


EXPLAIN_AFTER = 5.0
PAGE = 200
EVENT_PAGE = 1000


class Looking(Addressing):
    async def get(self, run_id: RunId | None = None, *, key: str | None = None) -> Run:
        """The run as it is now; RunNotFound when there is none. By its id, or by the idempotency key it was triggered
        with; so with every call that takes a run."""
        wanted = await self._meant(run_id, key)
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
        held: bool = False,
        before: RunId | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Run]:
        """Runs, newest first by creation, fetched a page at a time; filters combine. `held`: only those that are held;
        `before`: only those older than this run, so that a listing can go on where another one stopped."""
        wanted = statuses(status)
        for name, instant in (("since", since), ("until", until)):
            if instant is not None:
                aware(name, instant, InvalidFilter)
        if limit is not None and limit < 0:
            raise InvalidFilter(f"limit={limit} is negative; leave it out to get every run")
        last: UUID | Run | None = None if before is None else run_uuid(before)
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
                    held=held,
                    before=last,
                    limit=size,
                )
            )
            for run in page:
                yield run
            if len(page) < size:
                return
            last, left = page[-1], left - len(page)

    async def events(self, run_id: RunId | None = None, *, key: str | None = None) -> list[Event]:
        """A run's audit trail, oldest first; RunNotFound when there is no such run."""
        return await self._all_of(await self._meant(run_id, key), events.of_run, lambda event: event.id)

    async def history(self, run_id: RunId | None = None, *, after: int = 0, key: str | None = None) -> list[Happening]:
        """Everything that happened to a run, in order, in the words of the workflow_history view; or what came after
        the last idx you saw."""
        return await self._all_of(await self._meant(run_id, key), steps.happenings, lambda line: line.idx, after)

    async def _all_of(self, run_id: UUID, read: Reading[T], place: Callable[[T], int], start: int = 0) -> list[T]:
        """Page after page; every run has at least one line, so none means that there is no such run."""
        found: list[T] = []
        while True:
            after = place(found[-1]) if found else start
            page = await self._engine.run(read(run_id, after=after, limit=EVENT_PAGE))
            found += page
            if len(page) < EVENT_PAGE:
                break
        if not found and not start:
            raise RunNotFound(f"there is no run {run_id}")
        return found

    @overload
    async def read(self, run_id: RunId | None, name: str, as_type: type[T], *, key: str | None = None) -> T | None: ...

    @overload
    async def read(self, run_id: RunId | None, name: str, as_type: Any = Any, *, key: str | None = None) -> Any: ...

    @overload
    async def read(self, name: str, as_type: type[T], /, *, key: str) -> T | None: ...

    @overload
    async def read(self, name: str, /, *, as_type: type[T], key: str) -> T | None: ...

    @overload
    async def read(self, name: str, as_type: Any = Any, /, *, key: str) -> Any: ...

    @overload
    async def read(self, name: str, /, *, as_type: Any, key: str) -> Any: ...

    @overload
    async def read(self, *, name: str, as_type: type[T], key: str) -> T | None: ...

    @overload
    async def read(self, *, name: str, as_type: Any = Any, key: str) -> Any: ...

    async def read(self, run_id: Any = None, name: Any = None, as_type: Any = Any, *, key: str | None = None) -> Any:
        """The newest value that the run has published under that name (ctx.publish); None when it has not yet."""
        if key is not None:
            run_id, (name, as_type) = None, by_key(run_id, name, as_type, Any)
        wanted = await self._meant(run_id, key)
        text = await self._engine.run(steps.published(wanted, name))
        if text is None:
            await self.get(wanted)  # a run that does not exist has published nothing for another reason
            return None
        return decode(text, as_type, what=f"published {name}")

    async def signals(self, run_id: RunId | None = None, *, key: str | None = None) -> list[Signal]:
        """The signals a run was sent, oldest first; consumed_at tells which it has taken."""
        return await self._engine.run(steps.signals_of(await self._meant(run_id, key)))

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

    async def explain(self, run_id: RunId | None = None, *, key: str | None = None) -> str:
        """One sentence: what the run is doing, or what it waits for."""
        wanted = await self._meant(run_id, key)
        picture = await self._picture(wanted, depth=1)
        return sentence(picture.runs[wanted], picture)

    async def explanation(self, run_id: RunId | None = None, *, key: str | None = None) -> Explanation:
        """The sentence of `explain` with its reason and details, and the same for the children that are waited for."""
        wanted = await self._meant(run_id, key)
        told = explain_run(wanted, await self._picture(wanted, depth=DEPTH))
        stuck = await self._engine.run(outbox.stuck_of(wanted))
        return replace(told, details=(*told.details, Detail("outbox", outbox_line(stuck)))) if stuck else told

    async def find(self, beginning: str, *, limit: int = 10) -> list[Found]:
        """The runs whose ids begin like this: 1 to 32 hexadecimal digits, dashes as you like; oldest first."""
        digits = beginning.replace("-", "").lower()
        if not 1 <= len(digits) <= 32 or not set(digits) <= set(hexdigits):
            raise InvalidFilter(f"{beginning!r} is not the beginning of an id: use up to 32 digits 0-9, a-f")
        low, high = (UUID(digits.ljust(32, fill)) for fill in "0f")
        return await self._engine.run(explain.runs_between(low, high, limit=limit))

    async def _picture(self, wanted: UUID, *, depth: int) -> Picture:
        silence = self.settings.worker_silence
        picture = await self._engine.run(explain.picture(wanted, depth=depth, silence=silence))
        if picture is None:
            raise RunNotFound(f"there is no run {wanted}")
        return replace(picture, database=str(self._parsed))

    async def wait(
        self, run_id: RunId | None = None, *, timeout: Duration | None = None, key: str | None = None
    ) -> Run:
        """Wait until the run has finished, however it ends; ResultTimeout says what it is doing instead."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + seconds(timeout, what="timeout")
        told = False
        run = await self.get(run_id, key=key)
        while not run.is_finished:
            left = EXPLAIN_AFTER if deadline is None else max(deadline - loop.time(), 0.0)
            finished = await finished_within(self._engine, run.id, None if told else left)
            if finished is not None:
                return finished
            if deadline is not None:
                raise ResultTimeout(await self.explain(run.id))
            told = True
            await self._log_waiting(run.id)
            run = await self.get(run.id)
        return run

    async def _log_waiting(self, run_id: UUID) -> None:
        """With log_errors="type" without the sentence of explain, which quotes the texts of errors."""
        try:
            if self.settings.log_errors == "type":
                run = await self.get(run_id)
                told = f"run {run_id} ({run.type}) is {run.status}; simpleworkflow explain {run_id} says more"
            else:
                told = mask_text(await self.explain(run_id))
            log.warning("still waiting: %s", told, extra={"run_id": str(run_id)})
        except StoreUnavailable as error:
            log.warning("still waiting for run %s: %s", run_id, error, extra={"run_id": str(run_id)})
