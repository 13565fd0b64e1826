"""One sentence that says what a run is doing or what it waits for. A run is never silently stuck."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ..model.names import child_of
from ..model.records import Run, Step, WorkerInfo
from ..model.states import Status, StepKind, StepStatus

MOST_WAITS = 3


def explain(
    run: Run, workers: Sequence[WorkerInfo], *, now: datetime, is_enabled: bool = True, waits: Sequence[Step] = ()
) -> str:
    name = f"run {run.id} ({run.type})"
    if run.is_finished:
        because = f": {run.last_error}" if run.last_error and run.status is not Status.SUCCEEDED else ""
        return f"{name} {_ENDS.get(run.status, run.status)} at {_when(run.finished_at)}{because}"
    if run.is_held:
        because = f" ({run.hold_reason})" if run.hold_reason else ""
        return f"{name} is held since {_when(run.held_at)}{because}; it goes on when resumed"
    if run.status is Status.LEASED:
        return f"{name} is running on {run.leased_by}; {_lease(run, now)}"
    awaited = _awaited(waits)
    if run.status is Status.PAUSED and run.run_at is None:
        return f"{name} is paused and waits for {awaited or 'something to happen'}"
    routed = [w for w in workers if w.serves(run.type)]
    wait = f"is {run.status}{f', waits for {awaited}' if awaited else ''} and due at {_when(run.run_at)}"
    tried = f" after {_times(run.attempt)}, the last with: {run.last_error}" if run.attempt else ""
    if not is_enabled:
        return f"{name} {wait}{tried}, but its type is disabled (workflow_registry.is_enabled is false)"
    if not routed:
        alive = ", ".join(w.name for w in workers) or "none at all"
        return f"{name} {wait}{tried}, but no live worker serves its type (alive: {alive})"
    return f"{name} {wait}{tried}; it is served by {', '.join(w.name for w in routed[:3])}"


def _awaited(waits: Sequence[Step]) -> str:
    """What the branches of a paused run wait for."""
    phrases = []
    for wait in waits:
        name = wait.step_id.rpartition("#")[0].rpartition("/")[2]
        child = child_of(wait.step_id)
        if wait.kind is StepKind.SIGNAL:
            phrases.append(f"signal {name!r} since {_when(wait.started_at)}")
        elif child is not None:
            phrases.append(f"child run {child}")
        elif wait.status is StepStatus.RETRYING:
            phrases.append(f"the next attempt of step {name}")
        elif wait.kind is StepKind.SLEEP:
            phrases.append(f"{_when(wait.due_at)} (a sleep)")
    rest = f" and {len(phrases) - MOST_WAITS} more" if len(phrases) > MOST_WAITS else ""
    return ", ".join(phrases[:MOST_WAITS]) + rest


def _lease(run: Run, now: datetime) -> str:
    if run.lease_until is not None and run.lease_until < now:
        return f"its lease ended at {_when(run.lease_until)}, so the next sweep of any live worker takes it back"
    return f"its lease lasts until {_when(run.lease_until)}"


def _times(attempts: int) -> str:
    return "1 failed attempt" if attempts == 1 else f"{attempts} failed attempts"


_ENDS: dict[Status, str] = {Status.CANCELLED: "was cancelled", Status.TIMED_OUT: "timed out"}


def _when(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else instant.strftime("%Y-%m-%d %H:%M:%S UTC")
