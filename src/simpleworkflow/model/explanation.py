"""What one look at the database told about a run and what it waits for, and the explanation made of it.

A `Picture` is raw: rows of one snapshot, judged by the database's own clock (`at`). An `Explanation` is for people and
programs: one reason, one sentence, some lines of detail, and the same again for every child that is waited for. The
picture leaves payloads and results where they are: nobody needs them to say where a run stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from . import payload
from .errors import SimpleWorkflowError
from .records import Lane, Step, WorkerInfo
from .states import Reason, Status


@dataclass(frozen=True, slots=True)
class Facts:
    """One run, as far as an explanation needs it."""

    id: UUID
    type: str
    status: Status
    priority: int
    run_at: datetime | None
    attempt: int
    crashes: int
    max_attempts: int | None
    lease_until: datetime | None
    leased_by: str | None
    lease_epoch: int
    held_at: datetime | None
    hold_reason: str | None
    deadline_at: datetime | None
    start_by: datetime | None
    parent_id: UUID | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deleted_at: datetime | None
    delete_reason: str | None
    last_error: str | None
    idempotency_key: str | None
    is_enabled: bool
    leased_at: datetime | None
    """When the current lease began; None when its event is not there."""
    heartbeat_at: datetime | None
    steps_done: int
    open_waits: int
    """Those on record; what a pause has said is told by `awaited`."""
    awaited_json: str | None
    """What the newest pause said of itself; None for runs that are not paused, or paused by somebody else."""
    before: int
    """Due runs of its type and priority that stand before it; counted only while it is due, and not for ever."""

    @property
    def is_spent(self) -> bool:
        return self.max_attempts is not None and self.attempt + self.crashes >= self.max_attempts

    @property
    def awaited(self) -> tuple[str, ...] | None:
        """The places that a paused run waits at, some of them; None: whatever is on record."""
        places = _told(self.awaited_json).get("waits_for")
        if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
            return None
        return tuple(places)

    @property
    def waits_in_all(self) -> int:
        if self.awaited is None:
            return self.open_waits
        return max(_number(_told(self.awaited_json).get("of")), len(self.awaited))


def _told(text: str | None) -> dict[str, Any]:
    """What somebody wrote into a column that is there for telling; strangers may write anything."""
    try:
        told = payload.decode(text or "null")
    except SimpleWorkflowError:
        return {}
    return told if isinstance(told, dict) else {}


def _number(told: Any) -> int:
    return told if isinstance(told, int) else 0


def _seconds(told: Any) -> float:
    return float(told) if isinstance(told, int | float) else 0.0


class FailingClaim(NamedTuple):
    """A lane that a worker could not claim when it was last seen."""

    worker: str
    type: str
    priority: int
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class Server(WorkerInfo):
    """A live worker and how full it was when it was last seen."""

    load_json: str | None

    @property
    def slots(self) -> int:
        return _number(_told(self.load_json).get("slots"))

    @property
    def taken(self) -> int:
        return _number(_told(self.load_json).get("taken"))

    @property
    def is_full(self) -> bool:
        return 0 < self.slots <= self.taken

    def trouble_with(self, type: str, priority: int) -> str | None:
        """Why its claims of that lane fail, if they do, in the database's words."""
        return next((one.error for one in self.failing if (one.type, one.priority) == (type, priority)), None)

    @property
    def failing(self) -> list[FailingClaim]:
        told = _told(self.load_json).get("failing")
        each = [one for one in told if isinstance(one, list) and len(one) == 4] if isinstance(told, list) else []
        return [
            FailingClaim(self.name, str(kind), _number(priority), _seconds(seconds), str(error))
            for kind, priority, seconds, error in each
        ]

    def full_cap(self, type: str) -> int | None:
        """The cap of that type, when as many runs of it as it allows are under way there."""
        caps = _told(self.load_json).get("caps")
        told = caps.get(type) if isinstance(caps, dict) else None
        cap, taken = map(_number, told) if isinstance(told, list) and len(told) == 2 else (0, 0)
        return cap if 0 < cap <= taken else None


class Holder(NamedTuple):
    """A worker that a lease names, alive or not."""

    name: str
    host: str
    pid: int
    seen_at: datetime
    stopped_at: datetime | None
    is_alive: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that one look told: the run that was asked for and the children that it waits for."""

    at: datetime
    runs: dict[UUID, Facts] = field(default_factory=dict)
    waits: dict[UUID, list[Step]] = field(default_factory=dict)
    last: dict[UUID, Step] = field(default_factory=dict)
    """The newest finished record of each run."""
    unread: dict[UUID, list[tuple[str, int]]] = field(default_factory=dict)
    children: dict[UUID, list[UUID]] = field(default_factory=dict)
    """The children that a paused run waits for."""
    missing: set[UUID] = field(default_factory=set)
    """Children that were looked for and are not there any more."""
    workers: list[Server] = field(default_factory=list)
    """Those alive."""
    holders: dict[str, Holder] = field(default_factory=dict)
    lanes: dict[Lane, int] = field(default_factory=dict)
    """How many due runs there are in the lanes that the workers serve; counted only when a run is due."""
    database: str = ""
    """Which one was looked at, without its password: perhaps the workers use another one."""


class Found(NamedTuple):
    """A run whose id begins as somebody typed it."""

    id: UUID
    type: str
    status: Status


class Detail(NamedTuple):
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a run stands and why, as it was at one instant by the database's clock."""

    run_id: UUID
    type: str
    status: Status
    reason: Reason
    sentence: str
    details: tuple[Detail, ...]
    children: tuple[Explanation, ...]
    """The children it waits for, each explained; at most some of them, down to some depth."""
    at: datetime

    def walk(self) -> Iterator[Explanation]:
        """This one and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()
