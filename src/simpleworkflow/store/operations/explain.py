"""One look that explains a run: where it stands, what it waits for, who could serve it.

Everything comes from one snapshot and is judged by the database's clock, so that no sentence is put together from two
moments: a run that was claimed between two looks would be "due" and "running" at once. Children that are waited for
are looked up level by level, bounded in depth and in number; a run that was seen is not looked up again, whatever a
stranger may have written into the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...clock import to_us
from ...model.explanation import Facts, Found, Holder, Picture, Server
from ...model.names import child_of, merge_spans
from ...model.records import Lane, Step
from ...model.states import CLAIMABLE, Status, StepKind, StepStatus
from ..protocol import Row, Steps, beholding, query, reading
from .workers import introduction

MOST_WAITS = 20
"""Waits that are looked at, per run."""
MOST_RUNS = 50
"""Runs in one picture: the one that was asked for and its children, theirs, and so on."""
MOST_COUNTED = 1000
"""Where counting stops: "1000 or more" is answer enough."""
MOST_LANES = 100


@beholding
def picture(run_id: UUID, *, depth: int, silence: float) -> Steps[Picture | None]:
    """Everything about a run and, `depth` levels down, about the children it waits for; None when there is no run."""
    drawn: Picture | None = None
    level = [run_id]
    for _ in range(depth + 1):
        rows = yield query("explain_runs", b=[(one,) for one in sorted(level)], most=MOST_COUNTED)
        if drawn is None:
            if not rows:
                return None
            drawn = Picture(rows[0]["judged_at"])
        found = [_facts(row) for row in rows]
        drawn.runs.update((run.id, run) for run in found)
        drawn.missing.update(set(level) - drawn.runs.keys())
        yield from _look_closer(drawn, found)
        room = MOST_RUNS - len(drawn.runs)
        below = dict.fromkeys(child for run in found for child in drawn.children.get(run.id, ()))
        level = [child for child in below if child not in drawn.runs][:room]
        if not level:
            break
    assert drawn is not None, "the first level was read"
    yield from _look_around(drawn, silence)
    return drawn


def _look_closer(drawn: Picture, found: Sequence[Facts]) -> Steps[None]:
    """What the open runs among these wait for, and how far they have come."""
    open_ones = sorted((run.id,) for run in found if run.finished_at is None)
    if not open_ones:
        return
    yield from _look_at_waits(drawn, found)
    for row in (yield query("explain_last_steps", b=open_ones)):
        drawn.last[row["run_id"]] = step_of(row)
    for row in (yield query("explain_signals", b=open_ones)):
        drawn.unread.setdefault(row["run_id"], []).append((row["name"], row["signals"]))
    silent = []
    for run in found:
        if run.status is Status.PAUSED:
            waits = drawn.waits.get(run.id, [])
            drawn.children[run.id] = [child for wait in waits if (child := child_of(wait.step_id)) is not None]
            if not drawn.children[run.id] and (not waits or any(wait.kind is StepKind.CHILD for wait in waits)):
                silent.append((run.id,))
    if silent:
        for row in (yield query("explain_children", b=sorted(silent), most=MOST_WAITS)):
            drawn.children[row["parent_id"]].append(row["id"])


def _look_at_waits(drawn: Picture, found: Sequence[Facts]) -> Steps[None]:
    """A row that waits is no proof that anybody waits for it: code may have given it up. A pause has said what it waits
    for; an execution that waits in memory has put that on record itself; a run that is pending waits for its time."""
    said = sorted((run.id, one) for run in found for one in (run.awaited or ()))
    unsaid = [run for run in found if run.awaited is None and run.status in {Status.PAUSED, Status.LEASED}]
    looks = sorted((run.id, run.lease_epoch if run.status is Status.LEASED else None) for run in unsaid)
    rows = (yield query("explain_awaited", b=said)) if said else []
    rows = [*rows, *(yield query("explain_waits", b=looks, most=MOST_WAITS))] if looks else rows
    for row in rows:
        drawn.waits.setdefault(row["run_id"], []).append(step_of(row))


def _look_around(drawn: Picture, silence: float) -> Steps[None]:
    """Who is alive, and what else they have to do."""
    holders = sorted({(run.leased_by,) for run in drawn.runs.values() if run.leased_by is not None})
    for row in (yield query("explain_workers", w=holders, silence=to_us(silence))):
        drawn.holders[row["worker_id"]] = Holder(
            row["name"], row["host"], row["pid"], row["seen_at"], row["stopped_at"], bool(row["is_alive"])
        )
        if row["is_alive"]:
            drawn.workers.append(server_of(row))
    due = {run.type for run in drawn.runs.values() if _is_due(run, drawn)}
    busy = [worker for worker in drawn.workers if any(map(worker.serves, due))]
    spans = merge_spans(span for worker in busy for span in worker.spans)
    if not spans:
        return
    rows = yield query("find_lanes", span=[(low, -1, high) for low, high in spans], limit=MOST_LANES)
    lanes = [(row["type"], row["priority"]) for row in rows if row["due"]]
    for row in (yield query("count_due", lane=lanes, most=MOST_COUNTED)) if lanes else ():
        drawn.lanes[Lane(row["type"], row["priority"])] = row["due"]


def _is_due(run: Facts, drawn: Picture) -> bool:
    return run.status in CLAIMABLE and run.run_at is not None and run.run_at <= drawn.at and run.held_at is None


@reading
def runs_between(low: UUID, high: UUID, *, limit: int) -> Steps[list[Found]]:
    """The runs whose ids lie between two, ends included."""
    rows = yield query("runs_between", low=low, high=high, limit=limit)
    return [Found(row["id"], row["type"], Status(row["status"])) for row in rows]


def _facts(row: Row) -> Facts:
    values = dict(row)
    del values["judged_at"]
    return Facts(**{**values, "status": Status(values["status"]), "is_enabled": bool(values["is_enabled"])})


def step_of(row: Row) -> Step:
    values = dict(row)
    return Step(**{**values, "kind": StepKind(values["kind"]), "status": StepStatus(values["status"])})


def server_of(row: Row) -> Server:
    return Server(**introduction(row), load_json=row["load_json"])
