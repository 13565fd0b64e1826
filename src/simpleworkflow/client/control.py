"""Control of runs: the reply of every call matches the state that the run is in when it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload
from uuid import UUID

from ..clock import new_id
from ..model.errors import AlreadyFinished, IdempotencyConflict, RunNotFound
from ..model.names import check_type
from ..model.payload import encode
from ..model.records import Definition, Run
from ..model.states import Status
from ..runtime.branches import check_name
from ..runtime.hints import Hint
from ..store.operations import runs, steps, workers
from ..store.operations.runs import Controlled
from ..store.protocol import Operation
from .addressing import by_key
from .inside import awaited, check_same_signal, workflow_here
from .outbox import Outbox
from .request import RunId, reason_text, run_uuid


class Control(Outbox):
    async def cancel(self, run_id: RunId | None = None, *, reason: str | None = None, key: str | None = None) -> Run:
        """Cancel at once. Cancelling twice is fine; AlreadyFinished when it ended otherwise before."""
        text, wanted = reason_text(reason), await self._meant(run_id, key)
        run = await self._control(runs.cancel([wanted], text, self._undone()), wanted, Hint.CONTROL)
        if run.status is not Status.CANCELLED:
            raise _already(run, "it cannot be cancelled")
        return run

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
        wanted = await self._meant(run_id, key)
        here = workflow_here(self._home)
        is_derived = id is None
        if id is None and here is not None:
            id = await here.call(here.durable.new_signal_id)
        signal_id = new_id() if id is None else run_uuid(id)
        text = encode(payload, limit=self.settings.max_payload, what=f"payload of signal {name}")
        try:
            await self._engine.run(steps.send(signal_id, wanted, check_name(name, "signal"), text))
        except IdempotencyConflict:
            if here is None or not is_derived:
                raise
            sent = await self._engine.run(steps.signals_of(wanted))
            await check_same_signal(here, next((one.name for one in sent if one.id == signal_id), None), name)
        await self._engine.tell(Hint.CONTROL)
        await self._engine.tell(Hint.READY)
        return signal_id

    async def hold(self, run_id: RunId | None = None, *, reason: str | None = None, key: str | None = None) -> Run:
        """Stop it from going on until resumed; a running one is handed back by its worker."""
        text, wanted = reason_text(reason), await self._meant(run_id, key)
        run = await self._control(runs.hold([wanted], text), wanted, Hint.CONTROL)
        if run.is_finished:
            raise _already(run, "it cannot be held")
        return run

    async def resume(self, run_id: RunId | None = None, *, run_new: bool = False, key: str | None = None) -> Run:
        """Lift a hold, nothing else.

        run_new: the run is held because a step or child is new, and seems to be one on record that the code does not
        ask for any more: the new one runs. This is said of that one call.
        """
        wanted = await self._meant(run_id, key)
        run = await self._control(runs.resume([wanted], run_new), wanted, Hint.READY)
        if run.is_finished:
            raise _already(run, "there is nothing to resume")
        return run

    async def retry(self, run_id: RunId | None = None, *, key: str | None = None) -> Run:
        """Run a finished run again: attempts, crashes and deadline start anew. An open run is left as it is."""
        wanted = await self._meant(run_id, key)
        run = await self._control(runs.revive([wanted]), wanted, Hint.READY)
        if run.is_finished:
            raise AlreadyFinished(f"run {run.id} ({run.type}) was deleted; it cannot be retried")
        return run

    async def delete(self, run_id: RunId | None = None, *, reason: str | None = None, key: str | None = None) -> Run:
        """Soft-delete: hidden from listings, its idempotency key free again; an open run is cancelled first."""
        text, wanted = reason_text(reason), await self._meant(run_id, key)
        return await self._control(runs.delete([wanted], text, self._undone()), wanted, Hint.CONTROL)

    def _definitions(self) -> Sequence[Definition]:
        """What is known here of workflows."""
        return ()

    def _known(self, name: str) -> Sequence[Definition]:
        return [one for one in self._definitions() if one.name == name]

    def _undone(self) -> Sequence[Definition]:
        """Those with an on_cancel: the database starts the undo run, and may not have heard of any worker's yet. Those
        of children count too; a cancel takes them along."""
        return [one for one in self._definitions() if one.on_cancel is not None]

    async def _control(self, operation: Operation[list[Controlled]], run_id: UUID, hint: Hint) -> Run:
        engine = self._engine
        (answer,) = await engine.run(operation)
        if answer.run is None:
            raise RunNotFound(f"there is no run {run_id}")
        if answer.moved:
            await engine.tell(hint)
            if answer.run.is_finished:
                await engine.tell(Hint.CHANGED)
        return answer.run

    async def define(self, name: str, *, description: str | None = None) -> None:
        """Make a type known before any worker serves it, so that require="definition" is met. Asking twice is fine."""
        await self._engine.run(workers.create_definition(check_type(name), description, self._known(name)))

    async def enable(self, name: str, is_enabled: bool = True) -> None:
        """Allow or refuse triggers and claims of a type; runs that are under way go on."""
        await self._engine.run(workers.enable(check_type(name), is_enabled, self._known(name)))


def _already(run: Run, what: str) -> AlreadyFinished:
    return AlreadyFinished(f"run {run.id} ({run.type}) {run.status.already_because(run.last_error)}; {what}")
