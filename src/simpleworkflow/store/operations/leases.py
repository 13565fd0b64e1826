"""Leases: find lanes, claim, renew, take back. How executions end is in writing.py.

Every write of a worker is fenced: the statement itself proves status, epoch and worker under the row lock, or
`lock_leases` does so first when something is to be inserted beside the run. Batches are sorted by run id, so that any
two operations take their locks in the same order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from ...clock import to_us
from ...model import payload as json
from ...model.records import Lane, Lease, Renewal
from ...model.states import EventType, Status
from ..protocol import Operation, Row, Steps, query, reading, statements, transaction

MICROSECONDS = 1_000_000


class Offer(NamedTuple):
    """A lane a worker is ready to serve, with what its handler's policy says of a first claim. Microseconds."""

    type: str
    priority: int
    max_attempts: int
    lease: int
    timeout: int | None
    low: datetime | None = None
    """Only what is due at this instant or later; None: from the beginning."""


class Crashes(NamedTuple):
    """How often in a row the process of a run has ended with it."""

    least: int
    most: int


MOST = 2**30
"""More crashes no row may have; one with more than these would be claimed by no worker."""

ONCE = Crashes(1, 1)
AGAIN = Crashes(2, MOST)
EVER = Crashes(1, MOST)


@reading
def find_lanes(
    spans: Sequence[tuple[str, str]], after: Lane, limit: int, *, suspects: bool = False
) -> Steps[tuple[list[Lane], Lane | None, float]]:
    """The due lanes inside the (disjoint) spans after a place, where to go on (None: the end was reached), and in how
    many seconds the next of the others will be due."""
    places = [(*max(Lane(low, -1), after), high) for low, high in sorted(spans) if high > after.type]
    rows = yield query("find_suspect_lanes" if suspects else "find_lanes", span=places, limit=limit)
    lanes = [Lane(row["type"], row["priority"]) for row in rows if row["due"]]
    last = Lane(rows[-1]["type"], rows[-1]["priority"]) if len(rows) >= limit else None
    coming = min((row["due_in"] for row in rows if row["due_in"] > 0), default=float("inf"))
    return lanes, last, coming / MICROSECONDS


def claim(
    offers: Sequence[Offer], limit: int, worker: str, *, crashes: Crashes | None = None, lane_by_lane: bool = False
) -> Operation[list[Lease]]:
    """Lease up to `limit` due runs from the lanes, in the order given: those without crashes, or with so many."""
    operation = _claim(offers, limit, worker, crashes, lane_by_lane)
    operation.name, operation.takes_leases = "claim", True
    return operation


@statements
def _claim(
    offers: Sequence[Offer], limit: int, worker: str, crashes: Crashes | None, lane_by_lane: bool
) -> Steps[list[Lease]]:
    statement = "claim_lanes" if crashes is None else "claim_suspect_lanes"
    among = {} if crashes is None else crashes._asdict()
    taken: list[Row] = []
    for group in [[offer] for offer in offers] if lane_by_lane else [list(offers)]:
        if not group or len(taken) >= limit:
            break
        taken += yield query(statement, lane=group, limit=limit - len(taken), worker=worker, **among)
    leases = [Lease(*row.values()) for row in taken]
    leases.sort(key=attrgetter("priority", "run_at", "id"))
    if leases:
        yield query("log_leased", e=[(lease.id, lease.epoch) for lease in leases], worker=worker)
    return leases


@statements
def renew(leases: Sequence[tuple[UUID, int, float]], worker: str) -> Steps[list[Renewal]]:
    """Prolong leases by so many seconds each, and tell what became of every one of them."""
    rows = sorted(leases)
    batch = [(run_id, epoch, to_us(lease)) for run_id, epoch, lease in rows]
    renewed = yield query("renew_leases", b=batch, worker=worker)
    prolonged = {row["run_id"] for row in renewed}
    states = yield from lease_states([(run_id, epoch) for run_id, epoch, _ in rows], worker)
    return [state._replace(renewed=state.owned and state.id in prolonged) for state in states]


@reading
def check_leases(leases: Sequence[tuple[UUID, int]], worker: str) -> Steps[list[Renewal]]:
    """The same news without prolonging anything."""
    return (yield from lease_states(list(leases), worker))


def lease_states(leases: list[tuple[UUID, int]], worker: str) -> Steps[list[Renewal]]:
    rows = yield query("lease_states", b=leases, worker=worker)
    known = {
        (row["id"], row["epoch"]): Renewal(row["id"], row["epoch"], bool(row["owned"]), bool(row["held"]), row["wakes"])
        for row in rows
    }
    return [known.get(lease) or Renewal(*lease, False, False, 0) for lease in leases]


@transaction
def heartbeat(run_id: UUID, epoch: int, worker: str, lease: float) -> Steps[bool]:
    """User code asks for more time: prolong and log, both under the row lock; False when the lease is lost."""
    held = yield query("lock_leases", b=[(run_id, epoch)], worker=worker)
    if not held:
        return False
    yield query("renew_leases", b=[(run_id, epoch, to_us(lease))], worker=worker)
    data = json.encode({"seconds": round(lease, 3)}, what="event data")
    yield query("log_events", e=[(run_id, EventType.HEARTBEAT, epoch, data)])
    return True


@reading
def leased_by(worker: str) -> Steps[list[tuple[UUID, int]]]:
    rows = yield query("leased_runs", worker=worker)
    return [(row["run_id"], row["epoch"]) for row in rows]


@reading
def lease_holders() -> Steps[list[str]]:
    return [row["leased_by"] for row in (yield query("lease_holders"))]


_SWEEPS = (
    ("crash_runs", [EventType.RETRIED]),
    ("hold_spent_runs", [EventType.RETRIED, EventType.HELD]),
    ("give_up_runs", [EventType.FAILED]),
)


@transaction
def crash(dead_workers: Iterable[str], *, limit: int, chance: float, me: str = "") -> Steps[list[tuple[UUID, Status]]]:
    """Take back what nobody will finish, but nothing from `me`. `chance` in [0, 1) spreads the retries of many."""
    workers = [(worker,) for worker in dead_workers]
    unit = round(MICROSECONDS * (1 + 0.5 * chance))
    excused = {row["run_id"] for row in (yield query("crashed_in_company", w=workers, me=me))}
    x = sorted((str(run_id),) for run_id in excused)  # as text: an array of uuid makes a connection ask for its type
    moved: list[tuple[UUID, Status]] = []
    for statement, told in _SWEEPS:
        rows = yield query(statement, w=workers, x=x, limit=limit, unit=unit, me=me)
        if rows:
            yield query("log_events", e=[_crash_event(row, event, excused) for row in rows for event in told])
        moved += [(row["id"], Status(row["status"])) for row in rows]
    return moved


def _crash_event(row: Row, event: EventType, excused: Container[UUID]) -> tuple[Any, ...]:
    data: dict[str, Any] = {"reason": "crash", "crashes": row["crashes"], "error": row["last_error"]}
    if row["id"] in excused:
        data["excused"] = True
    return row["id"], event, row["lease_epoch"], json.encode(data, what="event data")


@transaction
def expire(*, limit: int, grace: float = 0.0) -> Steps[list[UUID]]:
    """End every run that is past its deadline or was not started in time; one that is leased, so many seconds later."""
    chosen = {"limit": limit, "grace": to_us(grace)}
    rows = [*(yield query("expire_deadlines", **chosen)), *(yield query("expire_unstarted", **chosen))]
    if rows:
        data = [json.encode({"error": row["last_error"]}, what="event data") for row in rows]
        events = [(r["id"], EventType.TIMED_OUT, r["lease_epoch"], d) for r, d in zip(rows, data, strict=True)]
        yield query("log_events", e=events)
    return [row["id"] for row in rows]


@reading
def next_expiry() -> Steps[float]:
    """In how many seconds the next waiting run will be past its deadline, or not started in time."""
    (row,) = yield query("next_expiry")
    known = [left for left in (row["deadline_in"], row["start_in"]) if left is not None]
    return min(known, default=float("inf")) / MICROSECONDS


@statements
def hasten_undo(run_id: UUID, epoch: int, worker: str) -> Steps[bool]:
    """The worker has stopped a cancelled execution; its undo run may start now."""
    key = f"on_cancel:{run_id}:{epoch}"
    moved = yield query("hasten_undo", run_id=run_id, epoch=epoch, worker=worker, idempotency_key=key)
    return bool(moved)
