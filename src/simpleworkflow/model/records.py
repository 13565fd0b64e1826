"""The rows as Python sees them: frozen, slotted, without behaviour beyond reading themselves.

`Run` is what users hold; `Lease` is what a worker holds (the claim's answer, no more than execution needs); `NewRun`
is what a trigger asks for. Instants are aware datetimes in UTC, identities are UUIDs, JSON stays text until someone
asks for the value: most runs are listed, moved and pruned without anyone looking inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from . import payload as _payload
from .names import Span, in_span
from .states import EventType, Status, StepKind, StepStatus

DEFAULT_PRIORITY = 100
"""Lower runs first; 0 to 999."""


class NewRun(NamedTuple):
    """One run to create. The id is always chosen by the client, so that asking twice creates once."""

    id: UUID
    type: str
    payload: str
    priority: int = DEFAULT_PRIORITY
    run_at: datetime | None = None
    delay: float = 0.0
    idempotency_key: str | None = None
    max_attempts: int | None = None
    start_within: float | None = None
    parent_id: UUID | None = None
    has_new_id: bool = False
    """The id was made for this request a moment ago: nothing can have it already."""
    traceparent: str | None = None
    """The span that asked for it, in W3C's notation."""


class Created(NamedTuple):
    """The answer to one NewRun: whose id it is, and whether this call made it."""

    id: UUID
    is_new: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a workflow, as the database had it when it was read."""

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
    idempotency_key: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deleted_at: datetime | None
    delete_reason: str | None
    last_error: str | None
    error_json: str | None = field(repr=False)
    result_json: str | None = field(repr=False)
    payload_json: str = field(repr=False)
    traceparent: str | None = field(default=None, repr=False)
    """The span that asked for it, in W3C's notation; anything, when a stranger wrote it."""

    @property
    def payload(self) -> Any:
        return _payload.decode(self.payload_json)

    @property
    def result(self) -> Any:
        return None if self.result_json is None else _payload.decode(self.result_json, what="result")

    @property
    def error(self) -> dict[str, Any] | None:
        return None if self.error_json is None else _payload.decode(self.error_json, what="error")

    @property
    def is_finished(self) -> bool:
        return self.finished_at is not None

    @property
    def is_held(self) -> bool:
        return self.held_at is not None


class Lease(NamedTuple):
    """A worker's claim on a run, in the order of the claim's columns. `lease_seconds` and `deadline_in` are seconds by
    the database's clock at the claim."""

    id: UUID
    type: str
    epoch: int
    attempt: int
    crashes: int
    max_attempts: int
    priority: int
    payload: str
    lease_seconds: float
    deadline_in: float | None
    parent_id: UUID | None
    wakes: int
    idempotency_key: str | None
    run_at: datetime
    claimed_at: datetime
    traceparent: str | None = None

    @property
    def is_fresh(self) -> bool:
        """Nothing can be on record: it was never claimed before and nobody has told it anything."""
        return self.epoch == 1 and self.wakes == 0

    @property
    def is_suspect(self) -> bool:
        """Its process ended twice in a row: run it apart from others like it until it has proved itself."""
        return self.crashes > 1


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded piece of a run: what replay reads instead of running code again."""

    run_id: UUID
    step_id: str
    kind: StepKind
    status: StepStatus
    attempt: int = 0
    due_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    input_json: str | None = field(default=None, repr=False)
    output_json: str | None = field(default=None, repr=False)
    error_json: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Signal:
    """A message to a run."""

    id: UUID
    run_id: UUID
    name: str
    created_at: datetime
    consumed_at: datetime | None
    payload_json: str = field(repr=False)

    @property
    def payload(self) -> Any:
        return _payload.decode(self.payload_json, what="signal")


class History(NamedTuple):
    """What a run has recorded so far, and the signals that nobody has consumed yet, oldest first."""

    steps: dict[str, Step]
    signals: list[Signal]
    redone: dict[str, int]
    """The steps whose failure ended an execution, which the retry does again, and how many records came before each."""


class Renewal(NamedTuple):
    """What a renewal learned about one lease."""

    id: UUID
    epoch: int
    owned: bool
    held: bool
    wakes: int
    renewed: bool = False
    """Prolonged just now; a lease that is owned and not renewed was locked by somebody at that moment."""


class Lane(NamedTuple):
    """All due runs of one type and priority."""

    type: str
    priority: int


@dataclass(frozen=True, slots=True)
class Definition:
    """What the database must know of a workflow so that any process can end its runs properly."""

    name: str
    description: str | None = None
    on_cancel: str | None = None
    dead_letter: str | None = None
    on_exhausted: str | None = None
    runtime: str = "python"
    is_enabled: bool = True


BEAT = 10.0
"""Seconds between two announcements of a worker that is well."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One live worker, as it announced itself; informative only, no rule depends on it."""

    id: str
    name: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime
    spans_json: str

    @property
    def spans(self) -> list[Span]:
        return [Span(low, high) for low, high in _payload.decode(self.spans_json)]

    def serves(self, type: str) -> bool:
        return any(in_span(type, span) for span in self.spans)


@dataclass(frozen=True, slots=True)
class WorkerState(WorkerInfo):
    """A worker on record, alive or not, and how many runs it holds."""

    stopped_at: datetime | None
    runs: int
    is_alive: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the audit trail."""

    id: int
    run_id: UUID
    type: EventType
    epoch: int | None
    data_json: str | None = field(repr=False)
    created_at: datetime

    @property
    def data(self) -> Any:
        return None if self.data_json is None else _payload.decode(self.data_json, what="event data")


@dataclass(frozen=True, slots=True)
class EventLine(Event):
    """One line of everybody's audit trail; the run may be gone while its events are still there."""

    run_type: str | None


class EventPage(NamedTuple):
    """A window of the trail: the lines that fit, where to go on, and whether the end was reached."""

    lines: list[EventLine]
    last: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One line of a run's history: events, steps, timers and signals in one order, in sched's words."""

    idx: int
    type: str
    at: datetime
    details_json: str | None = field(repr=False)

    @property
    def details(self) -> Any:
        return None if self.details_json is None else _payload.decode(self.details_json, what="details")


class Count(NamedTuple):
    type: str
    status: Status
    runs: int


class Pulse(NamedTuple):
    """What went on since the pulse before: events by kind, and by how many seconds the most overdue run is late."""

    last_event: int
    events: dict[EventType, int]
    is_partial: bool
    """There were more events than one look counts: the numbers are a floor."""
    late: float | None
    late_type: str | None
