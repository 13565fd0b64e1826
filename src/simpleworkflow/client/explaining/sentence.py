"""One sentence per reason: what the run is doing, or what it waits for and what will move it.

A sentence names what somebody can act on: the worker, the signal, the child, the instant, the error. It says of the
children that it waits for what each of them is doing, one level deep; what lies below is in the explanation's tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from ...model.explanation import Facts, Picture, Server
from ...model.names import child_of
from ...model.records import Step
from ...model.states import Reason, Status, StepKind, StepStatus
from .reason import more_urgent, overdue_since, reason_of, servers_of, trouble_of
from .words import (
    attempt,
    heard_of,
    is_quiet,
    line,
    name_of,
    piece,
    some,
    step_error,
    times,
    tried,
    when,
    workers_alive,
)

MOST_WAITS = 3
SAME = timedelta(seconds=1)


def sentence(run: Facts, picture: Picture) -> str:
    return f"run {run.id} ({run.type}) {predicate(run, picture, is_nested=False)}"


def predicate(run: Facts, picture: Picture, *, is_nested: bool) -> str:
    """The sentence without its subject. Inside another sentence it does not go on about its own children."""
    reason = reason_of(run, picture)
    if reason in _WAITING and run.status is Status.PAUSED:
        return _waits(run, picture, is_nested)
    return _SENTENCES[reason](run, picture)


def _ended(run: Facts, picture: Picture) -> str:
    verb = {Status.CANCELLED: "was cancelled", Status.TIMED_OUT: "timed out"}.get(run.status, str(run.status))
    spent = ""
    if reason_of(run, picture) is Reason.OUT_OF_ATTEMPTS:
        spent = f", out of attempts ({tried(run)}, {run.max_attempts} allowed)"
    because = f": {line(run.last_error)}" if run.last_error and run.status is not Status.SUCCEEDED else ""
    why = f" ({line(run.delete_reason)})" if run.delete_reason else ""
    deleted = f"; it was deleted at {when(run.deleted_at)}{why}" if run.deleted_at else ""
    return f"{verb} at {when(run.finished_at)}{spent}{because}{deleted}"


def _overdue(run: Facts, picture: Picture) -> str:
    since = overdue_since(run, picture.at)
    what = "should have ended by" if since == run.deadline_at else "should have been started by"
    return f"{what} {when(since)}; the next sweep of any live worker ends it as {Status.TIMED_OUT}{_nobody(picture)}"


def _held(run: Facts, picture: Picture) -> str:
    because = f" ({line(run.hold_reason)})" if run.hold_reason else ""
    then = "resuming it grants one more attempt" if run.is_spent else "it goes on when resumed"
    then += _when_resumed(run, picture)
    still = ""
    if run.lease_until is not None and run.lease_until < picture.at:
        still = f"; its lease on {line(run.leased_by or '')} ended at {when(run.lease_until)}"
    elif run.leased_by is not None:
        still = f"; {line(run.leased_by)} still runs it and hands it back at its next write"
    return f"is held since {when(run.held_at)}{because}; {then}{still}"


def _when_resumed(run: Facts, picture: Picture) -> str:
    """What would keep it even then."""
    if run.status is Status.LEASED:
        return ""
    is_due = run.run_at is not None and run.run_at <= picture.at
    if run.status is Status.PAUSED and not is_due:
        awaited = _awaited(run, picture, True) or when(run.run_at)
        return f", and then still waits for {awaited}{_obstacle(run, picture)}"
    return f"{'' if is_due else f', not before {when(run.run_at)}'}{_obstacle(run, picture)}"


def _running(run: Facts, picture: Picture) -> str:
    since = f" since {when(run.leased_at)}" if run.leased_at else ""
    last = picture.last.get(run.id)
    after = f", after {piece(last)}" if last else ""
    awaited = _awaited(run, picture, True) if picture.waits.get(run.id) else ""
    how = "is held in memory by" if awaited else "is running on"
    waits = f", and waits for {awaited}" if awaited else ""
    told = f"{how} {line(run.leased_by or '')}{since}, {attempt(run)}{after}{waits}"
    return f"{told}; its lease lasts until {when(run.lease_until)}{_silence(run, picture)}"


def _silence(run: Facts, picture: Picture) -> str:
    holder = picture.holders.get(run.leased_by or "")
    if holder is None or (holder.is_alive and not is_quiet(holder.seen_at, picture.at)):
        return ""
    if holder.stopped_at is not None:
        return f", but that worker has stopped at {when(holder.stopped_at)}"
    return f", but that worker was last seen at {when(holder.seen_at)}"


def _expired(run: Facts, picture: Picture) -> str:
    """Whether its worker lives is not known: one that does has renewed its leases."""
    back = "so the next sweep of any live worker takes it back"
    seen = [worker.seen_at for worker in picture.workers if worker.id == run.leased_by]
    if seen:
        back += f" unless that worker, last seen at {when(seen[0])}, renews it first"
        back += "" if len(picture.workers) > 1 else "; no other worker is alive"
    else:
        back += _nobody(picture)
    return f"was running on {line(run.leased_by or '')}; its lease ended at {when(run.lease_until)}, {back}"


def _nobody(picture: Picture) -> str:
    if not picture.workers:
        return ", but no worker is alive"
    newest = max(worker.seen_at for worker in picture.workers)
    return f", but the last that was seen of any worker was at {when(newest)}" if is_quiet(newest, picture.at) else ""


def _waits(run: Facts, picture: Picture, is_nested: bool) -> str:
    awaited = _awaited(run, picture, is_nested)
    if not awaited:
        return f"is {run.status} until {when(run.run_at)}{_obstacle(run, picture)}"
    again = "" if run.run_at is None or _is_told(run, picture) else f"; it looks again at {when(run.run_at)}"
    return f"is {run.status} and waits for {awaited}{again}{_obstacle(run, picture) if run.run_at else ''}"


def _is_told(run: Facts, picture: Picture) -> bool:
    """Whether one of the waits that are named says the instant already; the two were written a moment apart."""
    named = picture.waits.get(run.id, [])[:MOST_WAITS]
    return any(wait.due_at and run.run_at and abs(wait.due_at - run.run_at) < SAME for wait in named)


def _awaited(run: Facts, picture: Picture, is_nested: bool) -> str:
    waits = picture.waits.get(run.id, [])
    children = [] if any(child_of(wait.step_id) for wait in waits) else picture.children.get(run.id, [])
    phrases = [_wait(wait, picture, is_nested) for wait in waits[:MOST_WAITS]]
    phrases += [_child(child, picture, is_nested) for child in children[: MOST_WAITS - len(phrases)]]
    if not phrases and run.run_at is None:
        return "any signal, or the end of a child: it has no wait on record and no open child"
    more = max(run.waits_in_all, len(waits)) + len(children) - len(phrases)
    return ", ".join(phrases) + (f" and {more} more" if more > 0 else "")


def _wait(wait: Step, picture: Picture, is_nested: bool) -> str:
    child = child_of(wait.step_id)
    if child is not None:
        return _child(child, picture, is_nested)
    if wait.kind is StepKind.SIGNAL:
        limit = f" (until {when(wait.due_at)})" if wait.due_at else ""
        return f"signal {name_of(wait.step_id)!r} since {when(wait.started_at)}{limit}"
    if wait.status is StepStatus.RETRYING:
        error = step_error(wait)
        after = f" after: {error}" if error else ""
        at = f" at {when(wait.due_at)}" if wait.due_at else ""
        return f"the next attempt of step {name_of(wait.step_id)}{at}{after}"
    if wait.kind is StepKind.SLEEP:
        return f"{when(wait.due_at)} (a sleep)"
    return f"{piece(wait)} since {when(wait.started_at)}"


def _child(child: UUID, picture: Picture, is_nested: bool) -> str:
    below = picture.runs.get(child)
    if child in picture.missing:
        return f"child run {child}, whose row is gone, so that no end of it will be told"
    if is_nested or below is None:
        return f"child run {child}"
    return f"child run {child} ({below.type}), which {predicate(below, picture, is_nested=True)}"


def _pending(run: Facts, picture: Picture) -> str:
    waits = _awaited(run, picture, True) if run.status is Status.PAUSED and picture.waits.get(run.id) else ""
    is_due = run.run_at is not None and run.run_at <= picture.at
    due = f"is {run.status}{f', waited for {waits},' if waits else ''} and due {'since' if is_due else 'at'}"
    return f"{due} {when(run.run_at)}{_history(run)}{_obstacle(run, picture) or _served(run, picture)}"


def _history(run: Facts) -> str:
    told = tried(run)
    error = f", the last with: {line(run.last_error)}" if run.last_error else ""
    return f" after {told}{error}" if told else ""


def _obstacle(run: Facts, picture: Picture) -> str:
    """What would keep it from being claimed at its time."""
    if not run.is_enabled:
        return ", but its type is disabled (workflow_registry.is_enabled is false)"
    if not servers_of(run, picture):
        place = f" in the database {line(picture.database)}" if picture.database else ""
        return f", but no live worker serves its type (alive: {workers_alive(picture.workers)}){place}"
    if (trouble := trouble_of(run, picture)) is not None:
        lane = f"{line(run.type)}, priority {run.priority},"
        return f", but claiming runs of {lane} fails on {line(trouble[0].name)}: {line(trouble[1])}"
    return ""


def _served(run: Facts, picture: Picture) -> str:
    """Who will claim it, and what goes first there."""
    servers = servers_of(run, picture)
    is_due = run.run_at is not None and run.run_at <= picture.at
    room = _room(run, servers) if is_due else ""
    return f"; it is served by {some(heard_of(one, picture.at) for one in servers)}{room}{_queue(run, picture)}"


def _room(run: Facts, servers: Sequence[Server]) -> str:
    """Why it could not start even if it were its turn, as far as every one of them has said so."""
    at = when(max(one.seen_at for one in servers))
    caps = [one.full_cap(run.type) for one in servers]
    if all(cap is not None for cap in caps):
        return f", where its type has a cap of {sum(filter(None, caps))}, taken at {at}"
    if all(one.is_full for one in servers):
        return f", where all {sum(one.slots for one in servers)} slots were taken at {at}"
    if all(one.is_full or one.full_cap(run.type) is not None for one in servers):
        return f", where all slots, or all that its type may have, were taken at {at}"
    return ""


def _queue(run: Facts, picture: Picture) -> str:
    reason = reason_of(run, picture)
    if reason is Reason.OUTRANKED:
        ahead = times(sum(more_urgent(run, picture).values()), "more urgent due run goes", "more urgent due runs go")
        return f", but {ahead} first (its priority is {run.priority})"
    before = times(run.before, "due run", "due runs")
    if reason is Reason.SUSPECT:
        queue = f", behind {before} like it" if run.before else ""
        how = "suspects run one at a time" if run.crashes > 1 else "runs go first"
        return f", where such {how}{queue}"
    return f", behind {before} of its type" if reason is Reason.DUE and run.before else ""


_WAITING = {
    Reason.WAITING_FOR_SIGNAL,
    Reason.WAITING_FOR_CHILD,
    Reason.WAITING_FOR_RETRY,
    Reason.WAITING_FOR_WAKE,
    Reason.SLEEPING,
}
_SENTENCES: dict[Reason, Callable[[Facts, Picture], str]] = {
    Reason.SUCCEEDED: _ended,
    Reason.FAILED: _ended,
    Reason.OUT_OF_ATTEMPTS: _ended,
    Reason.CANCELLED: _ended,
    Reason.TIMED_OUT: _ended,
    Reason.OVERDUE: _overdue,
    Reason.HELD: _held,
    Reason.RUNNING: _running,
    Reason.LEASE_EXPIRED: _expired,
    Reason.WAITING_FOR_RETRY: _pending,
    Reason.SCHEDULED: _pending,
    Reason.DISABLED: _pending,
    Reason.NO_WORKER: _pending,
    Reason.CLAIM_FAILS: _pending,
    Reason.SUSPECT: _pending,
    Reason.OUTRANKED: _pending,
    Reason.DUE: _pending,
}
