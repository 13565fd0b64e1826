"""A handle: one run, held by its id or its business key, with the output type its workflow declared.

A key is looked up when the handle is first used. From then on the handle means that run, whoever has the key later.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID

from ..model.duration import Duration
from ..model.errors import InvalidInput, RunCancelled, RunFailed, RunTimedOut
from ..model.payload import decode
from ..model.records import Event, Happening, Run
from ..model.states import Status
from .inside import awaited, child_result, workflow_here

if TYPE_CHECKING:
    from .client import Client

O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")
_ENDED = {Status.FAILED: RunFailed, Status.CANCELLED: RunCancelled, Status.TIMED_OUT: RunTimedOut}


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
            found = await self._client._meant(None, self._key)
            self._id = found if self._id is None else self._id  # of two first calls at once the first one decides
        return self._id

    def _home(self) -> object:
        return self._client._home()

    @awaited("handle.result")
    async def result(self, timeout: Duration | None = None) -> O:
        """Wait for the run and return its output.

        Raises RunFailed, RunCancelled or RunTimedOut when it ended otherwise, and ResultTimeout, whose message says
        what the run is doing, when it has not finished in time (the run goes on).
        """
        run_id = await self._which()
        here = workflow_here(self._client._home)
        if here is not None and run_id in here.durable.types:
            awaited: O = await child_result(here, run_id, self._output_type, timeout)
            return awaited
        with nullcontext() if here is None else here.resting():
            run = await self._client.wait(run_id, timeout=timeout)
        if run.status is Status.SUCCEEDED:
            what = f"result of run {run.id}"
            output: O = decode(run.result_json or "null", self._output_type, what=what)
            return output
        kind = _ENDED[run.status]
        raise kind(f"run {run.id} ({run.type}) {run.status}: {run.last_error or 'no reason was given'}", run=run)

    async def get(self) -> Run:
        """The run as it is now."""
        return await self._client.get(await self._which())

    async def events(self) -> list[Event]:
        """Its audit trail, oldest first."""
        return await self._client.events(await self._which())

    async def history(self) -> list[Happening]:
        """Everything that happened to it, in order."""
        return await self._client.history(await self._which())

    @overload
    async def read(self, name: str, as_type: type[T]) -> T | None: ...

    @overload
    async def read(self, name: str, as_type: Any = Any) -> Any: ...

    async def read(self, name: str, as_type: Any = Any) -> Any:
        """The newest value it has published under that name; None when it has not yet."""
        return await self._client.read(await self._which(), name, as_type)

    @awaited("handle.signal")
    async def signal(self, name: str, payload: Any = None) -> UUID:
        """Send it a message; AlreadyFinished when it has ended."""
        return await self._client.signal(await self._which(), name, payload)

    async def cancel(self, reason: str | None = None) -> Run:
        """Cancel it at once."""
        return await self._client.cancel(await self._which(), reason=reason)

    async def hold(self, reason: str | None = None) -> Run:
        """Stop it from going on until resumed."""
        return await self._client.hold(await self._which(), reason=reason)

    async def resume(self, *, run_new: bool = False) -> Run:
        """Lift a hold, nothing else; run_new as in App.resume."""
        return await self._client.resume(await self._which(), run_new=run_new)

    async def retry(self) -> Run:
        """Run it again from a finished state."""
        return await self._client.retry(await self._which())

    async def delete(self, reason: str | None = None) -> Run:
        """Soft-delete it; cancelled first when it is open."""
        return await self._client.delete(await self._which(), reason=reason)

    async def explain(self) -> str:
        """One sentence: what it is doing, or what it waits for."""
        return await self._client.explain(await self._which())

    def __repr__(self) -> str:
        return f"<RunHandle {f'key={self._key!r}' if self._id is None else self._id}>"
