"""What is exported: every metric's name, kind, labels and meaning, and how it is read off a worker's numbers.

The first ten are simple-workflow's, name by name and label by label; docs/metrics.md tells all of them. `worker_id` is
the worker's *name* (`--name`, or the host's), not the identity in its leases: that one is new at every start, and each
start would leave a set of dead series behind. Workers that share a name are told apart by Prometheus's own `instance`.

Nothing here knows Prometheus either: `read` gives numbers, `metrics_server.py` gives them a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

from ..clock import SystemClock, monotonic
from ..model.moves import MOVES, Outcome
from ..model.states import EventType, Status
from ..runtime.meter import MOST_ATTEMPTS, Histogram, Meter
from .metrics_database import Reading

Value = float | Histogram
K = TypeVar("K")


class Family(NamedTuple):
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


class Sample(NamedTuple):
    name: str
    labels: tuple[str, ...]
    value: Value


class Vitals(NamedTuple):
    """What a worker has under way at this moment."""

    slots: int
    executing: int
    resident: int
    leases: int
    unwritten: int


_WORKER = ("worker_id",)
_TYPE = ("workflow_type", "worker_id")
_TYPE_STATUS = ("workflow_type", "worker_id", "status")

FAMILIES: dict[str, Family] = {
    "workflow_run_claimed_total": Family("counter", _TYPE, "Runs claimed"),
    "workflow_run_completed_total": Family("counter", _TYPE_STATUS, "Runs that ended here, by final status"),
    "workflow_run_failed_total": Family("counter", _TYPE, "Runs that failed for good"),
    "workflow_run_failed_attempts_total": Family(
        "counter", ("workflow_type", "worker_id", "attempt"), "Executions that failed, by number of the attempt"
    ),
    "workflow_run_execution_duration_seconds": Family(
        "histogram", _TYPE_STATUS, "How long executions took, by the status they left the run in"
    ),
    "workflow_worker_poll_cycle_total": Family("counter", _WORKER, "Turns of looking for work"),
    "workflow_worker_poll_errors_total": Family("counter", ("worker_id", "error_type"), "Turns that went wrong"),
    "workflow_run_queue_depth": Family(
        "gauge", ("workflow_type", "status"), "Runs in the queue (at least, where capped), and leased ones"
    ),
    "workflow_worker_uptime_seconds": Family("gauge", _WORKER, "Seconds since the worker started"),
    "workflow_worker_last_poll_timestamp": Family(
        "gauge", _WORKER, "Unix time of the last turn of looking for work that went well"
    ),
    # Ours.
    "workflow_run_yielded_total": Family(
        "counter", ("workflow_type", "worker_id", "reason"), "Runs that left this worker without having ended"
    ),
    "workflow_run_wakeup_latency_seconds": Family(
        "histogram", _TYPE, "From the moment a run was due until this worker had it"
    ),
    "workflow_run_swept_total": Family(
        "counter", _TYPE_STATUS, "Runs that the sweep took from dead workers or ended overdue, by the status it gave"
    ),
    "workflow_run_pruned_total": Family(
        "counter", _TYPE_STATUS, "Finished runs removed because they were older than their App keeps them"
    ),
    "workflow_prune_last_pass_timestamp": Family(
        "gauge", _WORKER, "Unix time at which this worker last finished a pass of pruning"
    ),
    "workflow_schedule_slot_total": Family(
        "counter", ("workflow_type", "worker_id", "outcome"), "Slots of schedules that were started or skipped here"
    ),
    "workflow_schedule_lateness_seconds": Family("histogram", _TYPE, "From a schedule's slot to the start of its run"),
    "workflow_step_total": Family("counter", _TYPE_STATUS, "Attempts of steps on record, by outcome"),
    "workflow_step_duration_seconds": Family("histogram", _TYPE_STATUS, "How long attempts of steps took"),
    "workflow_worker_claim_duration_seconds": Family("histogram", _WORKER, "How long claims took"),
    "workflow_worker_loop_lag_seconds": Family("histogram", _WORKER, "How late the worker's event loop wakes up"),
    "workflow_worker_slots": Family("gauge", _WORKER, "Runs that may execute at a time"),
    "workflow_worker_slots_used": Family("gauge", _WORKER, "Slots taken by executing runs"),
    "workflow_worker_runs_resident": Family(
        "gauge", _WORKER, "Runs that wait in memory, without a slot, because they cannot be unwound"
    ),
    "workflow_worker_leases": Family("gauge", _WORKER, "Leases held, endings on their way to the database included"),
    "workflow_journal_flush_duration_seconds": Family("histogram", _WORKER, "How long flushes of the journal took"),
    "workflow_journal_flush_entries": Family("histogram", _WORKER, "Entries that shared a flush"),
    "workflow_journal_flush_errors_total": Family("counter", ("worker_id", "error_type"), "Flushes that went wrong"),
    "workflow_journal_unwritten": Family("gauge", _WORKER, "Entries that wait for the database"),
    "workflow_run_queue_depth_capped": Family(
        "gauge", ("workflow_type",), "1 where the queue is deeper than was counted"
    ),
    "workflow_run_late": Family("gauge", ("workflow_type",), "Runs due for more than a minute that nobody has claimed"),
    "workflow_run_oldest_due_age_seconds": Family(
        "gauge", ("workflow_type",), "How long the oldest due run has waited to be claimed"
    ),
    "workflow_run_overdue": Family("gauge", (), "Open runs past their deadline that no sweep has ended yet"),
    "workflow_outbox_events": Family(
        "gauge", ("status",), "Events that have not gone out: waiting, retrying, behind a stuck one of their run, dead"
    ),
    "workflow_outbox_lag_seconds": Family(
        "gauge", (), "How long the oldest event that can still be delivered has waited"
    ),
    "workflow_database_bytes": Family(
        "gauge", (), "Room taken: the SQLite file, or the PostgreSQL tables that grow with the work, indexes included"
    ),
    "workflow_database_free_bytes": Family("gauge", (), "SQLite: how much of the file is free for reuse"),
    "workflow_table_bytes": Family("gauge", ("table",), "PostgreSQL: room taken by a table, its indexes included"),
    "workflow_table_rows": Family("gauge", ("table",), "PostgreSQL: about how many rows a table has"),
    "workflow_database_up": Family("gauge", (), "1 when the queue could be read"),
    "workflow_database_read_seconds": Family("gauge", (), "How long reading the queue took"),
}

_LEAVES = {
    "retry": EventType.RETRIED,
    "exhaust": EventType.HELD,
    "set_aside": EventType.HELD,
    "release": EventType.RELEASED,
    "pause": EventType.PAUSED,
}
"""Moves by which a run leaves its worker without having ended, and the reason that is told for each."""


def read(meter: Meter, name: str, vitals: Callable[[], Vitals], reading: Reading) -> Iterator[Sample]:
    """Everything there is to tell at this moment. Called from another thread than the one that counts."""
    yield from _runs(meter, name)
    yield from _steps(meter, name)
    yield from _schedules(meter, name)
    yield from _worker(meter, name, vitals())
    yield from _journal(meter, name)
    yield from _queue(reading)
    yield from _sizes(reading)


def _runs(meter: Meter, me: str) -> Iterator[Sample]:
    completed: dict[tuple[str, Status], int] = {}
    yielded: dict[tuple[str, str], int] = {}
    durations: dict[tuple[str, Status], Histogram] = {}
    executions = dict(meter.executions)
    moved = [(type, move, histogram.count) for (type, move), histogram in executions.items()]
    moved += [(type, move, count) for (type, move), count in dict(meter.unexecuted).items()]
    for type, move, count in moved:
        (status,) = MOVES[move].targets
        if status.is_terminal:
            _add(completed, (type, status), count)
        else:
            _add(yielded, (type, _LEAVES[move]), count)
    for (type, move), histogram in executions.items():
        (status,) = MOVES[move].targets
        durations[type, status] = _joined(durations.get((type, status)), histogram)
    for type, count in dict(meter.lost).items():
        _add(yielded, (type, Outcome.LOST), count)
    for type, count in dict(meter.refused).items():
        _add(yielded, (type, EventType.HELD), count)
    for (type, status), count in dict(meter.swept).items():
        yield Sample("workflow_run_swept_total", (type, me, status), count)
        if status.is_terminal:
            _add(completed, (type, status), count)

    for (type, status), count in dict(meter.pruned).items():
        yield Sample("workflow_run_pruned_total", (type, me, status), count)

    for type, count in dict(meter.claimed_runs).items():
        yield Sample("workflow_run_claimed_total", (type, me), count)
    for (type, status), count in completed.items():
        yield Sample("workflow_run_completed_total", (type, me, status), count)
        if status is Status.FAILED:
            yield Sample("workflow_run_failed_total", (type, me), count)
    for (type, reason), count in yielded.items():
        yield Sample("workflow_run_yielded_total", (type, me, reason), count)
    for (type, attempt), count in dict(meter.failed_attempts).items():
        told = str(attempt) if attempt < MOST_ATTEMPTS else f"{MOST_ATTEMPTS}+"
        yield Sample("workflow_run_failed_attempts_total", (type, me, told), count)
    for (type, status), histogram in durations.items():
        yield Sample("workflow_run_execution_duration_seconds", (type, me, status), histogram)
    for type, histogram in dict(meter.wakeups).items():
        yield Sample("workflow_run_wakeup_latency_seconds", (type, me), histogram)


def _steps(meter: Meter, me: str) -> Iterator[Sample]:
    for (type, status), histogram in dict(meter.steps).items():
        yield Sample("workflow_step_total", (type, me, status), histogram.count)
        yield Sample("workflow_step_duration_seconds", (type, me, status), histogram)


def _schedules(meter: Meter, me: str) -> Iterator[Sample]:
    for (type, outcome), count in dict(meter.slots).items():
        yield Sample("workflow_schedule_slot_total", (type, me, outcome), count)
    for type, histogram in dict(meter.slot_lateness).items():
        yield Sample("workflow_schedule_lateness_seconds", (type, me), histogram)


def _worker(meter: Meter, me: str, vitals: Vitals) -> Iterator[Sample]:
    now = monotonic()
    yield Sample("workflow_worker_poll_cycle_total", (me,), meter.polls)
    for error, count in dict(meter.poll_errors).items():
        yield Sample("workflow_worker_poll_errors_total", (me, error), count)
    yield Sample("workflow_worker_uptime_seconds", (me,), now - meter.started)
    if meter.polled_at is not None:
        wall = SystemClock().wall() / 1_000_000
        yield Sample("workflow_worker_last_poll_timestamp", (me,), wall - (now - meter.polled_at))
    if meter.pruned_at is not None:
        wall = SystemClock().wall() / 1_000_000
        yield Sample("workflow_prune_last_pass_timestamp", (me,), wall - (now - meter.pruned_at))
    yield Sample("workflow_worker_claim_duration_seconds", (me,), meter.claims)
    yield Sample("workflow_worker_loop_lag_seconds", (me,), meter.loop_lag)
    yield Sample("workflow_worker_slots", (me,), vitals.slots)
    yield Sample("workflow_worker_slots_used", (me,), vitals.executing)
    yield Sample("workflow_worker_runs_resident", (me,), vitals.resident)
    yield Sample("workflow_worker_leases", (me,), vitals.leases)
    yield Sample("workflow_journal_unwritten", (me,), vitals.unwritten)


def _journal(meter: Meter, me: str) -> Iterator[Sample]:
    yield Sample("workflow_journal_flush_duration_seconds", (me,), meter.flushes)
    yield Sample("workflow_journal_flush_entries", (me,), meter.flush_sizes)
    for error, count in dict(meter.flush_errors).items():
        yield Sample("workflow_journal_flush_errors_total", (me, error), count)


def _queue(reading: Reading) -> Iterator[Sample]:
    yield Sample("workflow_database_up", (), 0 if reading.depth is None else 1)
    yield Sample("workflow_database_read_seconds", (), reading.seconds)
    depth = reading.depth
    if depth is None:
        return  # an old number would look like a queue that does not move
    for (type, status), count in depth.runs.items():
        yield Sample("workflow_run_queue_depth", (type, status), count)
    for type in _types(depth.runs):
        yield Sample("workflow_run_queue_depth_capped", (type,), int(type in depth.capped))
        yield Sample("workflow_run_late", (type,), depth.late.get(type, 0))
        yield Sample("workflow_run_oldest_due_age_seconds", (type,), depth.oldest.get(type, 0.0))
    yield Sample("workflow_run_overdue", (), depth.overdue)
    for delivery, count in depth.outbox.items():
        yield Sample("workflow_outbox_events", (delivery,), count)
    yield Sample("workflow_outbox_lag_seconds", (), depth.outbox_lag)


def _sizes(reading: Reading) -> Iterator[Sample]:
    sizes = reading.sizes
    if sizes is None:
        return
    yield Sample("workflow_database_bytes", (), sizes.bytes)
    if sizes.free is not None:
        yield Sample("workflow_database_free_bytes", (), sizes.free)
    for table, count in sizes.tables.items():
        yield Sample("workflow_table_bytes", (table,), count)
    for table, count in sizes.rows.items():
        yield Sample("workflow_table_rows", (table,), count)


def _types(places: Iterable[tuple[str, Status]]) -> list[str]:
    return sorted({type for type, _ in places})


def _add(counts: dict[K, int], key: K, count: int) -> None:
    counts[key] = counts.get(key, 0) + count


def _joined(one: Histogram | None, other: Histogram) -> Histogram:
    """Moves that leave a run in the same status, such as a retry and a hand-back, are one series."""
    if one is None:
        return other
    joined = Histogram(one.bounds)
    joined.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
    joined.sum = one.sum + other.sum
    return joined
