"""The lines below the sentence: what an operator looks at next, in a fixed order, nothing that is not so.

Each line is a label and a value; a label may come more than once (one line per wait). Lines that have nothing to say
are left out, so that what stands there matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ...model.explanation import Detail, Facts, Picture, Server
from ...model.names import child_of
from ...model.records import Step
from ...model.schedule import slot_of
from ...model.states import CLAIMABLE, Status, StepStatus
from .reason import more_urgent, servers_of
from .words import attempt, line, name_of, piece, prefixes, some, step_error, times, tried, when, workers_alive


def details(run: Facts, picture: Picture) -> tuple[Detail, ...]:
    parts = [_story(run, picture)]
    if run.finished_at is None:
        parts += [_lease(run, picture), _waits(run, picture), _limits(run, picture), _service(run, picture)]
    return tuple(Detail(label, value) for part in parts for label, value in part if value)


def _story(run: Facts, picture: Picture) -> Iterator[tuple[str, str]]:
    yield "status", f"{run.status}{', held' if run.held_at else ''}{', deleted' if run.deleted_at else ''}"
    yield "created", when(run.created_at)
    yield "started", when(run.started_at) if run.started_at else ""
    yield "finished", when(run.finished_at) if run.finished_at else ""
    yield "deleted", _dated(run.deleted_at, run.delete_reason) if run.deleted_at else ""
    yield "parent", str(run.parent_id or "")
    slot = slot_of(run.idempotency_key)
    if slot is not None:
        yield "schedule", f"{line(slot.name)}, {'asked for' if slot.is_extra else 'slot'} {when(slot.at)}"
    allowed = f"{run.max_attempts} allowed" if run.max_attempts is not None else "as many as its handler allows"
    yield "attempts", f"{tried(run)}; {allowed}" if tried(run) else ""
    yield "last error", line(run.last_error or "")
    last = picture.last.get(run.id)
    if last is not None:
        yield "last record", f"{piece(last)} {last.status} at {when(last.completed_at)}"
    yield "records", times(run.steps_done, "finished", "finished") if run.steps_done else ""


def _dated(instant: datetime, reason: str | None) -> str:
    return f"{when(instant)} ({line(reason)})" if reason else when(instant)


def _lease(run: Facts, picture: Picture) -> Iterator[tuple[str, str]]:
    if run.held_at is not None:
        yield "held", _dated(run.held_at, run.hold_reason)
    if run.leased_by is None:
        return
    yield "worker", line(run.leased_by)
    holder = picture.holders.get(run.leased_by)
    if holder is not None:
        state = f"stopped at {when(holder.stopped_at)}" if holder.stopped_at else f"last seen at {when(holder.seen_at)}"
        yield "worker process", f"{holder.pid} on {line(holder.host)}, {state}"
    else:
        yield "worker process", "not registered: it never said so, or has been silent for days"
    yield "running since", when(run.leased_at) if run.leased_at else ""
    yield "execution", f"{attempt(run)}, epoch {run.lease_epoch}"
    yield "heartbeat", when(run.heartbeat_at) if run.heartbeat_at else ""
    yield "lease until", when(run.lease_until)


def _waits(run: Facts, picture: Picture) -> Iterator[tuple[str, str]]:
    waits = picture.waits.get(run.id, [])
    for wait in waits:
        yield "waits for", _wait(wait)
    if run.waits_in_all > len(waits):
        yield "waits for", f"{run.waits_in_all - len(waits)} more"
    unread = picture.unread.get(run.id, [])
    yield "unread signals", some(f"{line(name)} ({count})" for name, count in unread)


def _wait(wait: Step) -> str:
    child = child_of(wait.step_id)
    if child is not None:
        return f"child run {child} since {when(wait.started_at)}"
    if wait.status is StepStatus.RETRYING:
        error = step_error(wait)
        told = f", after: {error}" if error else ""
        at = f" at {when(wait.due_at)}" if wait.due_at else ""
        return f"step {name_of(wait.step_id)}, attempt {wait.attempt + 1}{at}{told}"
    limit = f" until {when(wait.due_at)}" if wait.due_at else ""
    return f"{piece(wait)} since {when(wait.started_at)}{limit}"


def _limits(run: Facts, picture: Picture) -> Iterator[tuple[str, str]]:
    if run.status in CLAIMABLE:
        yield "due", when(run.run_at) if run.run_at else "as soon as what it waits for has come"
    yield "must start by", when(run.start_by) if run.start_by and run.started_at is None else ""
    yield "must end by", when(run.deadline_at) if run.deadline_at else ""


def _load(worker: Server) -> str:
    return f", {worker.taken} of {worker.slots} slots taken" if worker.slots else ""


def _service(run: Facts, picture: Picture) -> Iterator[tuple[str, str]]:
    if run.status is Status.LEASED:
        return
    yield "priority", str(run.priority)
    yield (
        "type",
        "" if run.is_enabled else f"{run.type} is disabled: app.definitions.enable({run.type!r}) lets it go on",
    )
    servers = servers_of(run, picture)
    for worker in servers[:3]:
        told = f"{line(worker.name)} ({prefixes(worker.spans)}), last seen at {when(worker.seen_at)}"
        yield "served by", f"{told}{_load(worker)}"
    if len(servers) > 3:
        yield "served by", f"{len(servers) - 3} more"
    if not servers:
        yield "served by", f"nobody; alive: {workers_alive(picture.workers)}"
    yield "stands behind", f"{times(run.before, 'run', 'runs')} of its type and priority" if run.before else ""
    urgent = more_urgent(run, picture)
    yield (
        "more urgent",
        some(f"{times(due, 'run', 'runs')} of {lane.type}, priority {lane.priority}" for lane, due in urgent.items()),
    )
