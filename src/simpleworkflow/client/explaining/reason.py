"""The one reason why a run stands where it stands.

The order of the questions is the order in which the database decides: what has finished has finished; what is overdue
is ended by the next sweep, held or not; a hold keeps everything else waiting; then come the lease, the wait, the time,
and last of all the reasons for which a run that is due may still not be claimed. Every branch ends in a reason: there
is no "something else".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...model.explanation import Facts, Picture, Server
from ...model.records import Lane, Step
from ...model.states import Reason, Status, StepKind

_ENDS = {
    Status.SUCCEEDED: Reason.SUCCEEDED,
    Status.FAILED: Reason.FAILED,
    Status.CANCELLED: Reason.CANCELLED,
    Status.TIMED_OUT: Reason.TIMED_OUT,
}
_AWAITED = {
    StepKind.SIGNAL: Reason.WAITING_FOR_SIGNAL,
    StepKind.RESULT: Reason.WAITING_FOR_CHILD,
    StepKind.CHILD: Reason.WAITING_FOR_CHILD,
    StepKind.STEP: Reason.WAITING_FOR_RETRY,
    StepKind.SLEEP: Reason.SLEEPING,
}
"""In the order in which they give a run its reason when it waits for several things at once."""


def reason_of(run: Facts, picture: Picture) -> Reason:
    now = picture.at
    if run.finished_at is not None:
        is_spent = run.status is Status.FAILED and run.is_spent
        return Reason.OUT_OF_ATTEMPTS if is_spent else _ENDS[run.status]
    if overdue_since(run, now) is not None:
        return Reason.OVERDUE
    if run.held_at is not None:
        return Reason.HELD
    if run.lease_until is not None:
        return Reason.LEASE_EXPIRED if run.lease_until < now else Reason.RUNNING
    if run.run_at is None or run.run_at > now:
        return _waiting(run, picture.waits.get(run.id, ()))
    return _not_claimed(run, picture)


def overdue_since(run: Facts, now: datetime) -> datetime | None:
    """When the sweep should have ended it; the same test as the sweep's own."""
    limits = [run.deadline_at, run.start_by if run.started_at is None else None]
    return min((limit for limit in limits if limit is not None and limit <= now), default=None)


def _waiting(run: Facts, waits: Sequence[Step]) -> Reason:
    if run.status is Status.PENDING:
        return Reason.WAITING_FOR_RETRY if run.attempt or run.crashes else Reason.SCHEDULED
    kinds = {wait.kind for wait in waits}
    for kind, reason in _AWAITED.items():
        if kind in kinds:
            return reason
    return Reason.WAITING_FOR_WAKE if run.run_at is None else Reason.SLEEPING


def _not_claimed(run: Facts, picture: Picture) -> Reason:
    if not run.is_enabled:
        return Reason.DISABLED
    if not servers_of(run, picture):
        return Reason.NO_WORKER
    if trouble_of(run, picture) is not None:
        return Reason.CLAIM_FAILS
    if run.crashes:
        return Reason.SUSPECT
    return Reason.OUTRANKED if more_urgent(run, picture) else Reason.DUE


def servers_of(run: Facts, picture: Picture) -> list[Server]:
    """The live workers that may claim it."""
    return [worker for worker in picture.workers if worker.serves(run.type)]


def trouble_of(run: Facts, picture: Picture) -> tuple[Server, str] | None:
    """A worker that could not claim its lane when it was last seen, and why."""
    for server in servers_of(run, picture):
        if (error := server.trouble_with(run.type, run.priority)) is not None:
            return server, error
    return None


def more_urgent(run: Facts, picture: Picture) -> dict[Lane, int]:
    """Due runs that go first wherever this one could go: priority is strict, across types too.

    A type whose own cap is reached on a worker starts nothing there, and keeps nobody from starting.
    """
    servers = servers_of(run, picture)

    def goes_first(lane: Lane) -> bool:
        return all(worker.serves(lane.type) and worker.full_cap(lane.type) is None for worker in servers)

    urgent = {lane: due for lane, due in picture.lanes.items() if due and lane.priority < run.priority}
    return {lane: due for lane, due in urgent.items() if goes_first(lane)}
