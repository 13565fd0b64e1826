"""Control of one run: the reply of every call matches the state that the run is in when it returns.

Handles call these functions with the id of their run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ..clock import new_id
from ..model.errors import AlreadyFinished, IdempotencyConflict, RunNotFound
from ..model.payload import encode
from ..model.records import Definition, Run
from ..model.states import Status
from ..runtime.branches import check_name
from ..runtime.hints import Hint
from ..store.operations import runs, steps
from ..store.operations.runs import Controlled
from ..store.protocol import Operation
from .client import Client
from .inside import check_same_signal, workflow_here
from .request import RunId, reason_text, run_uuid


async def cancel(client: Client, run_id: UUID, reason: str | None) -> Run:
    operation = runs.cancel([run_id], reason_text(reason), _with_undo(client))
    run = await _control(client, operation, run_id, Hint.CONTROL)
    if run.status is not Status.CANCELLED:
        raise _already(run, "it cannot be cancelled")
    return run


async def hold(client: Client, run_id: UUID, reason: str | None) -> Run:
    run = await _control(client, runs.hold([run_id], reason_text(reason)), run_id, Hint.CONTROL)
    if run.is_finished:
        raise _already(run, "it cannot be held")
    return run


async def resume(client: Client, run_id: UUID, run_new: bool) -> Run:
    run = await _control(client, runs.resume([run_id], run_new), run_id, Hint.READY)
    if run.is_finished:
        raise _already(run, "there is nothing to resume")
    return run


async def retry(client: Client, run_id: UUID) -> Run:
    run = await _control(client, runs.revive([run_id]), run_id, Hint.READY)
    if run.is_finished:
        raise AlreadyFinished(f"run {run.id} ({run.type}) was deleted; it cannot be retried")
    return run


async def delete(client: Client, run_id: UUID, reason: str | None) -> Run:
    operation = runs.delete([run_id], reason_text(reason), _with_undo(client))
    return await _control(client, operation, run_id, Hint.CONTROL)


async def _control(client: Client, operation: Operation[list[Controlled]], run_id: UUID, hint: Hint) -> Run:
    (answer,) = await client.run(operation)
    if answer.run is None:
        raise RunNotFound(f"there is no run {run_id}")
    if answer.moved:
        await client.tell(hint)
        if answer.run.is_finished:
            await client.tell(Hint.CHANGED)
    return answer.run


def _with_undo(client: Client) -> Sequence[Definition]:
    """Those with an on_cancel: the database starts the undo run, and may not have heard of any worker's yet. Those of
    children count too, because a cancel ends them as well."""
    return [one for one in client.definitions() if one.on_cancel is not None]


def _already(run: Run, what: str) -> AlreadyFinished:
    return AlreadyFinished(f"run {run.id} ({run.type}) {run.status.already_because(run.last_error)}; {what}")


async def signal(client: Client, run_id: UUID, name: str, payload: Any, chosen_id: RunId | None) -> UUID:
    here = workflow_here(client.home)
    is_derived = chosen_id is None and here is not None
    if chosen_id is None and here is not None:
        chosen_id = await here.call(here.durable.signals.new_id)
    signal_id = new_id() if chosen_id is None else run_uuid(chosen_id)
    text = encode(payload, limit=client.settings.max_payload, what=f"payload of signal {name}")
    try:
        await client.run(steps.send(signal_id, run_id, check_name(name, "signal"), text))
    except IdempotencyConflict:
        if here is None or not is_derived:
            raise
        sent = await client.run(steps.signals_of(run_id))
        await check_same_signal(here, next((one.name for one in sent if one.id == signal_id), None), name)
    await client.tell(Hint.CONTROL, Hint.READY)
    return signal_id
