"""Pruning: look at a page of ids, remove a batch of runs, take turns.

A page is a plain read. A removal is one short transaction that locks what it will delete, in id order and without
waiting, looks again with the locks held, and deletes the runs; a trigger deletes what hangs on them, as it does for
everybody who deletes a run. Killed at any point it has removed a run with everything of it, or nothing. Two pruners
skip each other's rows.

Who may go is one text for the look and for the judgement (sql/queries/prune.sql): finished, old enough by its rule, its
parent not open, all of its outbox events published. Only the direct parent matters: a grandparent asks for its own
children, and those stay while it is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ...clock import monotonic, to_us
from ...model.retention import Kept, Rule
from ...model.states import Status
from ..protocol import Row, Steps, query, reading, transaction

STATUS_ROWS = 20


class Candidate(NamedTuple):
    id: UUID
    type: str
    status: Status
    kept: Kept | None
    rows: int
    """Rows that go with it, its own included, as far as they were counted."""


class Page(NamedTuple):
    last: UUID | None
    """The last id of the page; None when there was none."""
    examined: int
    candidates: list[Candidate]
    took: float
    """Seconds of work, without the time that it waited for its turn."""


class Removed(NamedTuple):
    runs: Counter[tuple[str, Status]]
    kept: Counter[Kept]
    took: float


class Turn(NamedTuple):
    place: UUID | None
    """Where the pass goes on; None: at the beginning."""
    passed: float
    """Seconds since the pass began."""


class PruningState(NamedTuple):
    policy: str
    is_under_way: bool
    ended: float | None
    """Seconds since the last pass came to its end; None: none has yet."""
    removed: int
    """Runs that the pass under way has removed so far."""
    last_removed: int
    late: float
    """Seconds since a worker could have taken the next turn; negative while it is too early."""


@reading
def look(rules: Sequence[Rule], first: UUID, last: UUID, *, limit: int, most: int = 0) -> Steps[Page]:
    """The next so many ids from `first` to `last`, and of their runs those that are old enough. The rows of each are
    counted up to `most` in each table."""
    began = monotonic()
    shortest = min(rule.age for rule in rules)
    rows = yield query(
        "find_prunable", rule=list(rules), first=first, last=last, limit=limit, shortest=shortest, most=most
    )
    *found, page = sorted(rows, key=lambda row: row["type"] is None)
    candidates = sorted(Candidate(*_kind(row), row["weight"]) for row in found)
    return Page(page["run_id"], page["examined"], candidates, monotonic() - began)


def _kind(row: Row) -> tuple[UUID, str, Status, Kept | None]:
    return row["run_id"], row["type"], Status(row["status"]), None if row["kept"] is None else Kept(row["kept"])


@transaction
def remove(rules: Sequence[Rule], ids: Sequence[UUID]) -> Steps[Removed]:
    """Delete these runs and all that hangs on them, as far as they are still to go."""
    began = monotonic()
    locked = yield query("lock_prunable", b=sorted((run_id,) for run_id in ids))
    kept = Counter({Kept.LOCKED: len(ids) - len(locked)} if len(locked) < len(ids) else {})
    if not locked:
        return Removed(Counter(), kept, monotonic() - began)
    judged = yield query("judge_prunable", b=[(row["run_id"],) for row in locked], rule=list(rules))
    found = [_kind(row) for row in judged]
    kept.update(why for _, _, _, why in found if why is not None)
    going = [(run_id, type, status) for run_id, type, status, why in found if why is None]
    if going:
        yield query("prune_runs", b=sorted((run_id,) for run_id, _, _ in going))
    return Removed(Counter((type, status) for _, type, status in going), kept, monotonic() - began)


@transaction
def take_turn(policy: str, holder: str, *, lease: float) -> Steps[Turn | None]:
    """Walk for this policy for so many seconds; None while another worker does, or while it is too early."""
    rows = yield query("take_prune_turn", policy=policy, holder=holder, lease=to_us(lease))
    return Turn(rows[0]["run_id"], _seconds(rows[0]["judged_at"], rows[0]["started_at"])) if rows else None


@transaction
def save_turn(policy: str, holder: str, place: UUID, *, more: int, lease: float) -> Steps[bool]:
    """Put down how far the pass has come, and go on for so long; 0 leaves it to the next worker at once. False when the
    turn was lost."""
    rows = yield query("save_prune_turn", policy=policy, holder=holder, place=place, more=more, lease=to_us(lease))
    return bool(rows)


@transaction
def end_pass(policy: str, holder: str, *, more: int, rest: float, forget_after: float) -> Steps[bool]:
    """Every id has been seen; the next pass begins after a rest. Policies long out of use are forgotten."""
    rows = yield query("end_prune_pass", policy=policy, holder=holder, more=more, rest=to_us(rest))
    yield query("forget_pruning", silence=to_us(forget_after))
    return bool(rows)


@reading
def pruning_state() -> Steps[list[PruningState]]:
    """What workers have done about pruning, the latest first."""
    return [
        PruningState(
            row["policy"],
            row["holder"] is not None,
            None if row["finished_at"] is None else _seconds(row["judged_at"], row["finished_at"]),
            row["removed"],
            row["last_removed"],
            _seconds(row["judged_at"], row["due_at"]),
        )
        for row in (yield query("pruning_status", limit=STATUS_ROWS))
    ]


def _seconds(later: datetime, earlier: datetime) -> float:
    return (later - earlier).total_seconds()
