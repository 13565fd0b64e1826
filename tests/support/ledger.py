"""What the store's tests share: a raw connection to either database, and short words for common moves.

The suite is written once and run on both databases, so the raw side speaks one dialect too: `?` for parameters, the
schema prefix `workflow.` (dropped on SQLite), rows as dicts. Time is moved, not waited for: `age` shifts every instant
of a run into the past, which both databases understand alike, because due-ness is judged by comparing instants.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from simpleworkflow.clock import new_id
from simpleworkflow.model import moves
from simpleworkflow.model.moves import MOVES, Ending, Outcome, Pause, Record
from simpleworkflow.model.names import EVERYTHING
from simpleworkflow.model.records import Definition, History, Lane, Lease, NewRun, Run
from simpleworkflow.model.states import OPEN, TERMINAL, EventType, Status, StepKind, StepStatus
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs, steps, workers, writing
from simpleworkflow.store.protocol import Operation

from .waiting import eventually

T = TypeVar("T")

TYPE = "test.work.v1"
ERROR = '{"type":"Boom","message":"boom"}'
LEASE_US = 30_000_000
START = Lane("", -1)
LEAVING = "run_at", "lease_until", "deadline_at", "start_by"


class Raw:
    """A blocking connection of a stranger: no driver, no catalogue, each statement commits."""

    def __init__(self, url: str) -> None:
        self.is_sqlite = "://" not in url
        self.connection: Any
        if self.is_sqlite:
            self.connection = sqlite3.connect(url, isolation_level=None, timeout=10, check_same_thread=False)
            self.connection.row_factory = sqlite3.Row
        else:
            self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def sql(self, text: str, *parameters: Any) -> list[dict[str, Any]]:
        text = text.replace("workflow.", "") if self.is_sqlite else text.replace("%", "%%").replace("?", "%s")
        values = [str(p) if isinstance(p, UUID) else p for p in parameters]
        cursor = self.connection.execute(text, values)
        return [dict(row) for row in cursor.fetchall()] if cursor.description else []

    def back(self, seconds: float) -> str:
        """SQL that is added to an instant to move it into the past (or, when negative, the future)."""
        return f"- {round(seconds * 1e6)}" if self.is_sqlite else f"- interval '{seconds} seconds'"

    @property
    def now(self) -> str:
        return str(time.time_ns() // 1000) if self.is_sqlite else "now()"

    def age(self, run_id: UUID, seconds: float, *columns: str) -> None:
        """Move the run's instants (all that decide when it moves, or the named ones) into the past."""
        shifts = ", ".join(f"{c} = {c} {self.back(seconds)}" for c in columns or LEAVING)
        self.sql(f"UPDATE workflow.workflow_run SET {shifts} WHERE id = ?", run_id)

    def put(self, run_id: UUID, **columns: Any) -> None:
        """Set columns that no law watches."""
        names = ", ".join(f"{name} = ?" for name in columns)
        self.sql(f"UPDATE workflow.workflow_run SET {names} WHERE id = ?", *columns.values(), run_id)

    def put_as_ours(self, run_id: UUID, **columns: Any) -> None:
        """Set columns that only our own statements may change: they raise the version by one."""
        names = "".join(f", {name} = ?" for name in columns)
        text = f"UPDATE workflow.workflow_run SET version = version + 1{names} WHERE id = ?"
        self.sql(text, *columns.values(), run_id)

    @contextmanager
    def without_triggers(self, table: str) -> Iterator[None]:
        """For tests that need what no statement may write: the triggers of this table do not look."""
        if not self.is_sqlite:
            self.sql("SET session_replication_role = replica")
            yield
            self.sql("SET session_replication_role = origin")
            return
        found = self.sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", table)
        for trigger in found:
            self.sql(f"DROP TRIGGER {trigger['name']}")
        yield
        for trigger in found:
            self.sql(trigger["sql"])

    def rewrite_events(self, change: str, where: str, *parameters: Any) -> None:
        """The trail is append-only; a test makes it older, or odd."""
        with self.without_triggers("workflow_event"):
            self.sql(f"UPDATE workflow.workflow_event SET {change} WHERE {where}", *parameters)

    def row(self, run_id: UUID) -> dict[str, Any]:
        (found,) = self.sql("SELECT * FROM workflow.workflow_run WHERE id = ?", run_id)
        return found

    def rows(self, where: str, *parameters: Any) -> list[dict[str, Any]]:
        return self.sql(f"SELECT * FROM workflow.workflow_run WHERE {where}", *parameters)

    def delay(self, run_id: UUID) -> float:
        """Seconds from the run's last change to its run_at: what that change decided, however long ago it was."""
        row = self.row(run_id)
        span = row["run_at"] - row["updated_at"]
        return span / 1e6 if self.is_sqlite else float(span.total_seconds())

    def events(self, run_id: UUID) -> list[str]:
        text = "SELECT event_type FROM workflow.workflow_event WHERE workflow_id = ? ORDER BY id"
        return [row["event_type"] for row in self.sql(text, run_id)]

    def steps(self, run_id: UUID) -> list[dict[str, Any]]:
        return self.sql("SELECT * FROM workflow.workflow_step WHERE run_id = ? ORDER BY step_id", run_id)

    def signals(self, run_id: UUID) -> list[dict[str, Any]]:
        tie = ", rowid" if self.is_sqlite else ""
        return self.sql(f"SELECT * FROM workflow.workflow_signal WHERE run_id = ? ORDER BY seq{tie}", run_id)

    def everything(self) -> list[list[dict[str, Any]]]:
        """All that the database holds of runs, for tests which say that nothing was written."""
        orders = {"run": "id", "step": "run_id, step_id", "signal": "id", "event": "id"}
        return [self.sql(f"SELECT * FROM workflow.workflow_{name} ORDER BY {by}") for name, by in orders.items()]

    def waiters(self, holder: psycopg.Connection[Any]) -> list[dict[str, Any]]:
        """Our own sessions that wait, at this moment, for a lock which that session holds (PostgreSQL)."""
        return self.sql(
            "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
            "AND application_name = 'simpleworkflow' AND ? = ANY (pg_blocking_pids(pid))",
            holder.info.backend_pid,
        )

    def pause(self, run_id: UUID, *, due: bool = False) -> None:
        """Pause a leased run without knowing its lease: due only when an event says so, or at once."""
        text = "UPDATE workflow.workflow_run SET status = 'paused', version = version + 1, lease_until = NULL,"
        self.sql(f"{text} leased_by = NULL, run_at = {self.now if due else 'NULL'} WHERE id = ?", run_id)
        text = "INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch) SELECT id, 'paused',"
        self.sql(f"{text} lease_epoch FROM workflow.workflow_run WHERE id = ?", run_id)

    def close(self) -> None:
        self.connection.close()


def new(type: str = TYPE, payload: str = "null", **rest: Any) -> NewRun:
    return NewRun(id=rest.pop("id", None) or new_id(), type=type, payload=payload, **rest)


async def create(ledger: Ledger, *wanted: NewRun, **one: Any) -> list[UUID]:
    answers = await ledger.run(runs.create(wanted or [new(**one)]))
    return [_made(answer) for answer in answers]


def _made(answer: Any) -> UUID:
    if isinstance(answer, Exception):
        raise answer
    made: UUID = answer.id
    return made


def offer(type: str = TYPE, priority: int = 100, attempts: int = 3, timeout: float | None = None) -> leases.Offer:
    return leases.Offer(type, priority, attempts, LEASE_US, None if timeout is None else round(timeout * 1e6))


async def claim(
    ledger: Ledger, *offers: leases.Offer, limit: int = 100, worker: str = "w1", **rest: Any
) -> list[Lease]:
    wanted = offers or (offer(),)
    if rest.pop("suspects", False):
        rest["crashes"] = leases.EVER
    rest.setdefault("lane_by_lane", not ledger.can.walks_lanes)
    return await ledger.run(leases.claim(wanted, limit, worker, **rest))


async def leased(ledger: Ledger, type: str = TYPE, **rest: Any) -> Lease:
    """One new run, claimed."""
    (run_id,) = await create(ledger, type=type, **rest)
    taken = await claim(ledger, offer(type))
    return next(lease for lease in taken if lease.id == run_id)


async def settle(ledger: Ledger, *endings: Ending, worker: str = "w1") -> list[Outcome]:
    return await ledger.run(writing.write(endings, worker))


async def get(ledger: Ledger, run_id: UUID) -> Run:
    (run,) = await ledger.run(runs.get([run_id]))
    assert run is not None
    return run


async def lanes(ledger: Ledger, *spans: tuple[str, str], **rest: Any) -> list[Lane]:
    found, _, _ = await ledger.run(leases.find_lanes(spans or (EVERYTHING,), START, 1000, **rest))
    return found


async def define(ledger: Ledger, name: str, **rest: Any) -> None:
    await ledger.run(workers.define([Definition(name, **rest)]))


async def sweep(ledger: Ledger, *dead: str, limit: int = 100) -> dict[UUID, Status]:
    return dict(await ledger.run(leases.crash(dead, limit=limit, chance=0.0)))


def stub(lease: Lease | UUID, epoch: int = 1, parent_id: UUID | None = None) -> Any:
    """What an ending needs to know of a lease, with any epoch we like."""
    run_id = lease if isinstance(lease, UUID) else lease.id
    return SimpleNamespace(id=run_id, epoch=epoch, parent_id=parent_id, wakes=0)


def succeeded(lease: Any) -> Ending:
    return moves.succeed(lease, "42", elapsed=0.01)


def failed(lease: Any) -> Ending:
    return moves.fail(lease, ERROR, "boom", elapsed=0.01)


def retried(lease: Any, delay: float = 0.0) -> Ending:
    return moves.retry(lease, ERROR, "boom", delay=delay, elapsed=0.01)


def set_aside(lease: Any) -> Ending:
    return moves.set_aside(lease, ERROR, "it does not fit", elapsed=0.01)


def exhausted(lease: Any) -> Ending:
    return moves.exhaust(lease, ERROR, "boom", elapsed=0.01)


def released(lease: Any) -> Ending:
    return moves.release(lease, elapsed=0.01)


def handed_back(lease: Any, delay: float = 0.0) -> Ending:
    """Before its code began, with a deadline that the claim has set."""
    return moves.hand_back(lease, lease.deadline_in, delay=delay)


def overran(lease: Any) -> Ending:
    return moves.overrun(lease, ERROR, "too late", elapsed=0.01)


async def flush(ledger: Ledger, *entries: writing.Entry, worker: str = "w1") -> list[Outcome]:
    return await ledger.run(writing.write(entries, worker))


def record(lease: Any, step_id: str = "charge#1", **rest: Any) -> Record:
    """A step that succeeded, unless told otherwise."""
    rest = {"kind": StepKind.STEP, "status": StepStatus.SUCCEEDED, "elapsed": 0.01} | rest
    return Record(lease.id, lease.epoch, step_id, **rest)


def waiting(lease: Any, step_id: str = "sleep#1", **rest: Any) -> Record:
    return record(lease, step_id, **{"kind": StepKind.SLEEP, "status": StepStatus.WAITING} | rest)


def paused(lease: Any, *waits: Record, due_in: float | None = None, wakes: int | None = None) -> Pause:
    """A pause as its worker asks for it: with the wake counter of the claim, unless told otherwise."""
    return Pause(lease.id, lease.epoch, lease.wakes if wakes is None else wakes, due_in, 0.01, waits)


async def history(ledger: Ledger, run_id: UUID) -> History:
    return (await ledger.run(steps.load([run_id])))[run_id]


async def tell(ledger: Ledger, run_id: UUID, name: str = "go", payload: str = "null", id: UUID | None = None) -> UUID:
    """Send a signal; its id."""
    signal_id = id or new_id()
    await ledger.run(steps.send(signal_id, run_id, name, payload))
    return signal_id


def check_invariants(row: dict[str, Any]) -> None:
    """Invariants 1 and 2 of model/moves.py, and what the other CHECKs say."""
    status = Status(row["status"])
    assert (row["finished_at"] is not None) == (status in TERMINAL), row
    assert (row["lease_until"] is not None) == (status is Status.LEASED), row
    assert (row["leased_by"] is not None) == (status is Status.LEASED), row
    assert status is not Status.PENDING or row["run_at"] is not None, row
    assert row["deleted_at"] is None or row["finished_at"] is not None, row


def check_path(events: Iterable[str]) -> Status | None:
    """Walk the events through the law; the state they lead to, or an AssertionError at the first illegal step."""
    state: Status | None = None
    for position, event in enumerate(map(EventType, events)):
        allowed = _next_states(state, event)
        assert len(allowed) == 1, f"event {position} ({event}) cannot follow state {state}"
        (state,) = allowed
    return state


def _next_states(state: Status | None, event: EventType) -> set[Status | None]:
    if event in {EventType.STARTED, EventType.HEARTBEAT, EventType.STEP_RETRIED}:
        return {state} if state is Status.LEASED else set()
    if event is EventType.DELETED:
        return {state} if state in TERMINAL else set()
    if event is EventType.WOKEN:
        return {state} if state is Status.PAUSED else set()
    found: set[Status | None] = set()
    for move in MOVES.values():
        if move.event is event and (state in move.sources or (state is None and not move.sources)):
            found |= {state} if move.targets == OPEN else set(move.targets)
    return found


def repeated(operation: Operation[T]) -> Operation[T]:
    """The operation as a driver repeats it when an earlier try may have committed unseen."""
    return Operation(operation.name, operation.mode, lambda: operation.steps(repeated=True), False)


async def held_up(raw: Raw, other: psycopg.Connection[Any], work: Awaitable[Any]) -> asyncio.Future[Any]:
    """Start the work and prove that it stands behind a lock of the other session."""
    task = asyncio.ensure_future(work)
    await eventually(lambda: task.done() or raw.waiters(other), "it waits for the other session")
    assert not task.done()
    return task
