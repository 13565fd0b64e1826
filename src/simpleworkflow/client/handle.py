"""A handle: one run, held by its id or its business key, with the output type its workflow declared.

Everything that concerns one run is a method here; `app.get(…)`, `app.cancel(…)` and the other calls of App that take a
run make a handle and ask it. A key is looked up when the handle is first used. From then on the handle means that run,
even if another run has the key later.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Generic, TypeVar, overload
from uuid import UUID

from ..model.duration import Duration
from ..model.errors import InvalidFilter, InvalidInput, RunCancelled, RunFailed, RunTimedOut
from ..model.explanation import Explanation
from ..model.payload import decode
from ..model.records import Event, HistoryEvent, Run, Signal, Step
from ..model.states import Status
from ..store.operations import board, steps
from . import control, reading
from .client import Client
from .inside import awaited, child_result, workflow_here
from .request import RunId, run_uuid

O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")
_ENDED = {Status.FAILED: RunFailed, Status.CANCELLED: RunCancelled, Status.TIMED_OUT: RunTimedOut}

MOST_CHILDREN = 1_000


class RunHandle(Generic[O]):
    """A run that was triggered: wait for its result, look at it, control it."""

    def __init__(
        self,
        client: Client,
        run_id: UUID | None,
        output_type: Any = Any,
        *,
        is_new: bool | None = None,
        key: str | None = None,
    ) -> None:
        self._id = run_id
        self._key = key
        self.is_new = is_new
        """Whether this call created the run (False: its idempotency key or id was known; None: not asked)."""
        self._client = client
        self._output_type = output_type

    @property
    def id(self) -> UUID:
        """The run's id. A handle made by key has none before its first call."""
        if self._id is None:
            raise InvalidInput(f"which run has the key {self._key!r} is not known yet: await handle.get() before .id")
        return self._id

    async def _which(self) -> UUID:
        if self._id is None:
            found = await self._client.find(None, self._key)
            self._id = found if self._id is None else self._id  # of two first calls at once the first one decides
        return self._id

    # Its outcome.

    @awaited("handle.result")
    async def result(self, timeout: Duration | None = None) -> O:
        """Wait for the run and return its output.

        Raises RunFailed, RunCancelled or RunTimedOut when it ended otherwise, and ResultTimeout, whose message says
        what the run is doing, when it has not finished in time (the run goes on).
        """
        run_id = await self._which()
        here = workflow_here(self._client.home)
        if here is not None and run_id in here.durable.children.types:
            awaited: O = await child_result(here, run_id, self._output_type, timeout)
            return awaited
        with nullcontext() if here is None else here.resting():
            run = await reading.wait(self._client, run_id, timeout)
        if run.status is Status.SUCCEEDED:
            what = f"result of run {run.id}"
            output: O = decode(run.result_json or "null", self._output_type, what=what)
            return output
        kind = _ENDED[run.status]
        raise kind(f"run {run.id} ({run.type}) {run.status}: {run.last_error or 'no reason was given'}", run=run)

    async def wait(self, timeout: Duration | None = None) -> Run:
        """Wait until the run has finished, however it ends; ResultTimeout says what it is doing instead."""
        return await reading.wait(self._client, await self._which(), timeout)

    # Looking at it.

    async def get(self) -> Run:
        """The run as it is now; RunNotFound when there is none."""
        return await reading.get(self._client, await self._which())

    async def explain(self) -> str:
        """One sentence: what the run is doing, or what it waits for."""
        return await reading.explain(self._client, await self._which())

    async def explanation(self) -> Explanation:
        """The sentence of `explain` with its reason and details, and the same for the children that are waited for."""
        return await reading.explanation(self._client, await self._which())

    async def events(self) -> list[Event]:
        """Its audit trail, oldest first; RunNotFound when there is no such run."""
        return await reading.all_events(self._client, await self._which())

    async def history(self, *, after: int = 0) -> list[HistoryEvent]:
        """Everything that happened to it, in order, in the words of the workflow_history view; or what came after the
        last idx you saw."""
        return await reading.history(self._client, await self._which(), after)

    async def steps(self) -> list[Step]:
        """Everything that it has on record, in the order of recording, superseded failures included."""
        return await self._client.run(board.steps_of(await self._which()))

    async def children(self, *, after: RunId | None = None, limit: int = 100) -> list[Run]:
        """One page of the runs that it has started, oldest first; go on with after=the last id you saw."""
        if not 1 <= limit <= MOST_CHILDREN:
            raise InvalidFilter(f"limit={limit} is not between 1 and {MOST_CHILDREN}; ask page by page")
        place = None if after is None else run_uuid(after)
        found = await self._client.run(board.children(await self._which(), after=place, limit=limit))
        if place is not None and not found:
            await reading.get(self._client, place)  # behind a run that is gone nothing would come, as at the end
        return found

    async def signals(self) -> list[Signal]:
        """The signals it was sent, oldest first; consumed_at tells which it has taken."""
        return await self._client.run(steps.signals_of(await self._which()))

    @overload
    async def get_value(self, name: str, as_type: type[T]) -> T | None: ...

    @overload
    async def get_value(self, name: str, as_type: Any = Any) -> Any: ...

    async def get_value(self, name: str, as_type: Any = Any) -> Any:
        """The newest value it has published under that name (ctx.set_value); None when it has not yet."""
        return await reading.published(self._client, await self._which(), name, as_type)

    # Control.

    @awaited("handle.signal")
    async def signal(self, name: str, payload: Any = None, *, id: RunId | None = None) -> UUID:
        """Send it a message. Accepted is delivered: consumed once, in order per name, or listed as unconsumed.

        AlreadyFinished when the run has ended; give id= to make a repeated call harmless. Returns the signal's id.
        """
        return await control.signal(self._client, await self._which(), name, payload, id)

    async def cancel(self, reason: str | None = None) -> Run:
        """Cancel it at once. Cancelling twice is fine; AlreadyFinished when it ended otherwise before."""
        return await control.cancel(self._client, await self._which(), reason)

    async def hold(self, reason: str | None = None) -> Run:
        """Stop it from going on until resumed; a running one is handed back by its worker."""
        return await control.hold(self._client, await self._which(), reason)

    async def resume(self, *, run_new: bool = False) -> Run:
        """Lift a hold, nothing else.

        run_new: the run is held because a step or child is new, and seems to be one on record that the code does not
        ask for any more: the new one runs. This is said of that one call.
        """
        return await control.resume(self._client, await self._which(), run_new)

    async def retry(self) -> Run:
        """Run it again from a finished state: attempts, crashes and deadline start anew. An open run stays as it is."""
        return await control.retry(self._client, await self._which())

    async def delete(self, reason: str | None = None) -> Run:
        """Soft-delete: hidden from listings, its idempotency key free again; an open run is cancelled first."""
        return await control.delete(self._client, await self._which(), reason)

    def __repr__(self) -> str:
        return f"<RunHandle {f'key={self._key!r}' if self._id is None else self._id}>"
