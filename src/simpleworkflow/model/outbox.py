"""Events on their way out, as the rest of the house sees them: what became of each, and the rules of what goes there.

The words of a delivery are those of the table: waiting, retrying, behind, dead, skipped, published. A run's events go
out in order, so an event that is retrying or dead keeps the later ones of its own run behind it, and nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from .errors import InvalidFilter, InvalidName
from .names import Span, span_of_prefix
from .states import EventType

LANES = tuple("0123456789abcdef")
"""Every run's events are in the lane of its id's last digit; a lane has one dispatcher at a time."""

LIFECYCLE = "simpleworkflow.run."
"""What the types of lifecycle events begin with, and nothing that a workflow emits."""


class Delivery(StrEnum):
    WAITING = "waiting"
    """To be offered next, in order."""
    RETRYING = "retrying"
    """Refused; offered again when it is due."""
    BEHIND = "behind"
    """An earlier event of its run is retrying or dead."""
    DEAD = "dead"
    """Given up: an operator skips it or offers it again."""
    SKIPPED = "skipped"
    """An operator let the later ones pass."""
    PUBLISHED = "published"


class Offered(NamedTuple):
    """An event that a dispatcher may hand to its sink."""

    id: int
    run_id: UUID
    sequence: int
    event_type: str
    created_at: datetime
    attempt: int
    payload_json: str
    workflow_type: str
    """Empty when the run has been removed since."""
    traceparent: str | None
    lane: str


class Refused(NamedTuple):
    id: int
    status: Delivery
    """Retrying or dead."""
    attempt: int
    delay: float | None
    """Seconds until the next try."""
    reason: str


class Marks(NamedTuple):
    """What became of a lane's part of a batch, by the events' row ids."""

    published: list[tuple[int, UUID]]
    refused: list[Refused]
    behind: list[int]


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """An event of a run and how far it has come; its data stays in the table."""

    run_id: UUID
    sequence: int
    type: str
    status: Delivery
    attempt: int
    """How often it was refused."""
    created_at: datetime
    published_at: datetime | None = None
    due_at: datetime | None = None
    last_error: str | None = None
    skipped_at: datetime | None = None
    skipped_by: str | None = None
    skip_reason: str | None = None


@dataclass(frozen=True, slots=True)
class LaneState:
    lane: str
    owner: str | None
    epoch: int
    is_held: bool
    """Somebody owns it and the lease has not run out."""
    lease_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class OutboxRule:
    """Lifecycle events of this kind, of runs whose type is in the span, go to the outbox."""

    event: EventType
    span: Span
    created_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    waiting: int
    retrying: int
    behind: int
    dead: int
    lag: float
    """How many seconds the oldest event that can still be delivered has waited; 0 when there is none."""
    most: int
    """Counts stop here."""
    lanes: tuple[LaneState, ...] = ()
    dispatchers: tuple[str, ...] = ()


def lifecycle_rules(prefix: str, events: Iterable[str]) -> list[OutboxRule]:
    """Rules as people write them: a prefix of types ("billing.*") and the kinds of events."""
    span = span_of_prefix(prefix)
    kinds = list(events)
    if not kinds:
        raise InvalidFilter(f"name the events of {prefix} that go to the outbox, such as succeeded and failed")
    try:
        return [OutboxRule(EventType(kind), span) for kind in dict.fromkeys(kinds)]
    except ValueError as error:
        raise InvalidFilter(f"{error}; an event is one of {', '.join(EventType)}") from None


def check_emitted(event_type: str) -> str:
    """The type itself when a workflow may emit it: receivers must be able to believe a lifecycle event."""
    if event_type.startswith(LIFECYCLE):
        raise InvalidName(
            f"{event_type[:80]!r} cannot be emitted: {LIFECYCLE}… are lifecycle events, which runs cannot tell of "
            "themselves; choose another name, or let rules send the real ones (app.outbox.emit_lifecycle)"
        )
    return event_type


def lane_of(run_id: UUID) -> str:
    return str(run_id)[-1]
