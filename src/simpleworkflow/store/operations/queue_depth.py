"""How deep the queue is, at a bounded price: what a scrape asks every few seconds, whatever the backlog.

Counting a million rows to draw a curve would cost the database more than the work itself. So rows are counted through
the indexes of open runs, up to a budget that the types share: small queues exactly, large ones as "at least so many",
and the reading says which is which. What no index of open runs holds is no part of the queue: finished runs, held
ones, and runs that only a signal or a child can wake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ...clock import to_us
from ...model.names import EVERYTHING
from ...model.outbox import Delivery
from ...model.states import Status
from ..protocol import Row, Steps, query, reading
from .outbox import oldest

BUDGET = 10_000
"""Rows that one reading counts, and as many again for the types that had more than their share."""
MOST_LANES = 2_000
"""Pairs of type and priority that one reading looks at."""
LATE = 60.0
"""Seconds after which a due run that nobody has claimed is late."""


@dataclass(slots=True)
class QueueDepth:
    runs: dict[tuple[str, Status], int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    """Runs of each type that have been due for longer than LATE."""
    oldest: dict[str, float] = field(default_factory=dict)
    """How long the oldest due run of each type has waited, in seconds."""
    capped: set[str] = field(default_factory=set)
    """Types of which there are more than were counted."""
    overdue: int = 0
    """Runs that are past their deadline or their start_by, and that no sweep has ended yet."""
    outbox: dict[Delivery, int] = field(default_factory=dict)
    """Events that have not gone out, by what became of them; at most the budget of each."""
    outbox_lag: float = 0.0
    """How long the oldest event that can still be delivered has waited, in seconds."""


@reading
def queue_depth(*, budget: int = BUDGET) -> Steps[QueueDepth]:
    depth = QueueDepth()
    for lanes, count in (("find_lanes", "count_queue"), ("find_suspect_lanes", "count_suspects")):
        span = [(EVERYTHING.low, -1, EVERYTHING.high)]
        types = _oldest((yield query(lanes, span=span, limit=MOST_LANES)), depth)
        yield from _count(count, types, budget, depth)
    rows = yield query("count_leased", most=budget)
    depth.runs |= {(row["type"], Status.LEASED): row["runs"] for row in rows}
    if sum(row["runs"] for row in rows) >= budget:
        depth.capped |= {row["type"] for row in rows}
    (row,) = yield query("count_overdue", most=budget)
    depth.overdue = row["runs"]
    (counts,) = yield query("outbox_counts", most=budget)
    open_ones = (Delivery.WAITING, Delivery.RETRYING, Delivery.BEHIND, Delivery.DEAD)
    depth.outbox = {status: counts[status] for status in open_ones}
    depth.outbox_lag = yield from oldest()
    return depth


def _oldest(lanes: Sequence[Row], depth: QueueDepth) -> set[str]:
    """The types of these lanes. Types that are disabled wait on purpose, however long it takes."""
    for lane in lanes:
        if lane["due"]:
            waited = max(-lane["due_in"] / 1_000_000, 0.0)
            depth.oldest[lane["type"]] = max(waited, depth.oldest.get(lane["type"], 0.0))
    return {lane["type"] for lane in lanes}


def _count(statement: str, types: set[str], budget: int, depth: QueueDepth) -> Steps[None]:
    """Everybody's share first; what small queues leave of the budget goes to the large ones."""
    if not types:
        return
    share = max(budget // len(types), 1)
    found = yield from _up_to(statement, types, share)
    full = {type for type in types if _total(found[type]) >= share}
    if full and full != types:
        share = (budget - sum(_total(found[type]) for type in types - full)) // len(full)
        found |= yield from _up_to(statement, full, share)
    depth.capped |= {type for type in full if _total(found[type]) >= share}
    for type, rows in found.items():
        for row in rows:
            place = type, Status(row["status"])
            depth.runs[place] = depth.runs.get(place, 0) + row["runs"]
        if type in depth.oldest:
            depth.late[type] = depth.late.get(type, 0) + sum(int(row["late"]) for row in rows)


def _up_to(statement: str, types: set[str], most: int) -> Steps[dict[str, list[Row]]]:
    rows = yield query(statement, t=[(type,) for type in sorted(types)], most=most, late=to_us(LATE))
    found: dict[str, list[Row]] = {type: [] for type in types}
    for row in rows:
        found[row["type"]].append(row)
    return found


def _total(rows: Sequence[Row]) -> int:
    return sum(row["runs"] for row in rows)


@reading
def types_of(run_ids: Sequence[UUID]) -> Steps[dict[tuple[str, Status], int]]:
    """How many of these runs are of which type, and in which status."""
    rows = yield query("types_of_runs", b=[(run_id,) for run_id in run_ids])
    return {(row["type"], Status(row["status"])): row["runs"] for row in rows}
