"""What runs have on record: load it, look at it, and deliver signals. How entries are written is in entries.py."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...model import payload as json
from ...model.errors import AlreadyFinished, IdempotencyConflict, RunNotFound
from ...model.records import History, HistoryEvent, Renewal, Signal, Step
from ...model.states import Status, StepKind, StepStatus
from ...model.step_places import unmarked
from ..protocol import Row, Steps, query, reading, transaction
from . import leases


@reading
def load(run_ids: Sequence[UUID]) -> Steps[dict[UUID, History]]:
    """The histories of these runs. Read later than the claim, so that no wake is missed."""
    return (yield from histories(run_ids))


def histories(run_ids: Sequence[UUID]) -> Steps[dict[UUID, History]]:
    batch = sorted({(run_id,) for run_id in run_ids})
    found = {run_id: History({}, [], {}) for run_id in run_ids}
    for row in (yield query("load_steps", b=batch)):
        step, history = _step(row), found[row["run_id"]]
        if step.status is StepStatus.SUPERSEDED:
            history.redone.setdefault(unmarked(step.step_id), len(history.steps))
        else:
            history.steps[step.step_id] = step
    for row in (yield query("load_signals", b=batch)):
        found[row["run_id"]].signals.append(_signal(row))
    return found


@reading
def reload(run_id: UUID, epoch: int, worker: str) -> Steps[tuple[Renewal, History]]:
    """(state of the lease, history) of one run; the wake counter first, so that no later wake is taken for seen."""
    (state,) = yield from leases.lease_states([(run_id, epoch)], worker)
    found = yield from histories([run_id])
    return state, found[run_id]


@reading
def signals_of(run_id: UUID) -> Steps[list[Signal]]:
    return [_signal(row) for row in (yield query("signals_of_run", run_id=run_id))]


@reading
def happenings(run_id: UUID, *, after: int, limit: int) -> Steps[list[HistoryEvent]]:
    """One page of a run's history."""
    rows = yield query("history_of_run", run_id=run_id, after=after, limit=limit)
    return [HistoryEvent(row["idx"], row["event_type"], row["happened_at"], row["details_json"]) for row in rows]


@reading
def published(run_id: UUID, name: str) -> Steps[str | None]:
    """The newest value of that name, whichever branch of the run published it."""
    rows = yield query("published_values", run_id=run_id)
    ours = [row["output_json"] for row in rows if row["step_id"].rpartition("/")[2] == f"@publish {name}#0"]
    return ours[-1] if ours else None


@transaction
def send(signal_id: UUID, run_id: UUID, name: str, payload: str) -> Steps[None]:
    """Accept a signal, or say why not. One that was accepted before stays so, even if its run has finished since."""
    woken = yield query("wake_for_signal", run_id=run_id)
    if woken:
        yield query("next_in_sequence")
        if (yield query("insert_signal", id=signal_id, run_id=run_id, name=name, payload=payload)):
            return
    known = yield query("get_signal", id=signal_id)
    if woken or known:
        if any(_is_same(row, run_id, name, payload) for row in known):
            return
        raise IdempotencyConflict(f"signal id {signal_id} belongs to another signal; this one was not accepted")
    rows = yield query("get_runs", b=[(run_id,)])
    if not rows:
        raise RunNotFound(f"there is no run {run_id}; the signal was not accepted")
    ended = Status(rows[0]["status"]).already_because(rows[0]["last_error"])
    raise AlreadyFinished(f"run {run_id} {ended}; the signal {name!r} was not accepted")


def _is_same(row: Row, run_id: UUID, name: str, payload: str) -> bool:
    return (row["run_id"], row["name"]) == (run_id, name) and json.same_json(row["payload_json"], payload)


def _step(row: Row) -> Step:
    values = dict(row)
    return Step(**{**values, "kind": StepKind(values["kind"]), "status": StepStatus(values["status"])})


def _signal(row: Row) -> Signal:
    return Signal(**dict(row))
