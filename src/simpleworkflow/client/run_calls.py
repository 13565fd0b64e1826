"""The calls of App about runs that are there: list them, find one by its id or key, look at it, control it.

Each call that takes a run makes a handle and asks it, so whatever is true of a handle is true here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any, TypeVar, overload
from uuid import UUID

from ..model.errors import InvalidFilter
from ..model.names import span_of_prefix
from ..model.records import Run
from ..runtime.registry import Workflow
from ..store.operations import runs
from .client import Client, by_key, check_address
from .handle import RunHandle
from .inside import awaited
from .request import RunId, aware, run_uuid, statuses

O = TypeVar("O")  # noqa: E741 - output

PAGE = 200


class RunCalls:
    _client: Client

    @overload
    def handle(
        self, run_id: RunId | None = None, workflow: None = None, *, key: str | None = None
    ) -> RunHandle[Any]: ...

    @overload
    def handle(self, run_id: RunId | None, workflow: Workflow[Any, O], *, key: str | None = None) -> RunHandle[O]: ...

    @overload
    def handle(self, *, workflow: Workflow[Any, O], key: str) -> RunHandle[O]: ...

    def handle(
        self, run_id: RunId | None = None, workflow: Workflow[Any, Any] | None = None, *, key: str | None = None
    ) -> RunHandle[Any]:
        """A handle for a run that was triggered elsewhere, by its id or by the idempotency key it was triggered with
        (looked up at the first call); give its workflow to have the output typed."""
        wanted = check_address(run_id, key)
        return RunHandle(self._client, wanted, Any if workflow is None else workflow.output_type, key=key)

    async def get(self, run_id: RunId | None = None, *, key: str | None = None) -> Run:
        """The run as it is now; RunNotFound when there is none. By its id, or by the idempotency key it was triggered
        with; so with every call that takes a run."""
        return await self.handle(run_id, key=key).get()

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
            page = await self._client.run(
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

    async def explain(self, run_id: RunId | None = None, *, key: str | None = None) -> str:
        """One sentence: what the run is doing, or what it waits for."""
        return await self.handle(run_id, key=key).explain()

    @overload
    async def signal(
        self, run_id: RunId | None, name: str, payload: Any = None, *, id: RunId | None = None, key: str | None = None
    ) -> UUID: ...

    @overload
    async def signal(self, name: str, payload: Any = None, /, *, key: str, id: RunId | None = None) -> UUID: ...

    @overload
    async def signal(self, name: str, /, *, payload: Any, key: str, id: RunId | None = None) -> UUID: ...

    @overload
    async def signal(self, *, name: str, payload: Any = None, key: str, id: RunId | None = None) -> UUID: ...

    @awaited("app.signal")
    async def signal(
        self,
        run_id: Any = None,
        name: Any = None,
        payload: Any = None,
        *,
        id: RunId | None = None,
        key: str | None = None,
    ) -> UUID:
        """Send a message to a run. Accepted is delivered: consumed once, in order per name, or listed as unconsumed.

        AlreadyFinished when the run has ended; give id= to make a repeated call harmless. Returns the signal's id. By
        business key: signal("approved", payload, key="order-4711").
        """
        if key is not None:
            run_id, (name, payload) = None, by_key(run_id, name, payload, None)
        return await self.handle(run_id, key=key).signal(name, payload, id=id)

    async def cancel(self, run_id: RunId | None = None, *, reason: str | None = None, key: str | None = None) -> Run:
        """Cancel at once. Cancelling twice is fine; AlreadyFinished when it ended otherwise before."""
        return await self.handle(run_id, key=key).cancel(reason)

    async def hold(self, run_id: RunId | None = None, *, reason: str | None = None, key: str | None = None) -> Run:
        """Stop it from going on until resumed; a running one is handed back by its worker."""
        return await self.handle(run_id, key=key).hold(reason)

    async def resume(self, run_id: RunId | None = None, *, run_new: bool = False, key: str | None = None) -> Run:
        """Lift a hold, nothing else.

        run_new: the run is held because a step or child is new, and seems to be one on record that the code does not
        ask for any more: the new one runs. This is said of that one call.
        """
        return await self.handle(run_id, key=key).resume(run_new=run_new)

    async def retry(self, run_id: RunId | None = None, *, key: str | None = None) -> Run:
        """Run a finished run again: attempts, crashes and deadline start anew. An open run is left as it is."""
        return await self.handle(run_id, key=key).retry()

    async def delete(self, run_id: RunId | None = None, *, reason: str | None = None, key: str | None = None) -> Run:
        """Soft-delete: hidden from listings, its idempotency key free again; an open run is cancelled first."""
        return await self.handle(run_id, key=key).delete(reason)
