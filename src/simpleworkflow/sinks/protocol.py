"""What a place for events must be able to do: one small protocol, so that NATS, Kafka and yours can follow.

The relay (worker/relay.py) hands over events that have been committed, a few at a time, in order per run. A sink
answers for each: taken, or refused and why. Taken must mean that the other side has it: the relay marks it as published
and never offers it again. A sink that dies in between is offered the same events again, so receivers drop
what it has seen before, by the event's `id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ..model.errors import InvalidPolicy, SimpleWorkflowError
from ..model.failure import storable


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One event as CloudEvents 1.0 sees it. `id` is unique within `source` and the same at every delivery."""

    id: str
    source: str
    type: str
    time: datetime
    run_id: UUID
    """Its subject; events of one run are handed over in the order of `sequence`."""
    sequence: int
    workflow_type: str
    data: str
    """JSON text, passed on as it was stored."""
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an event was not taken. Never holds a secret: it is stored, shown and logged."""

    reason: str
    is_permanent: bool = False
    """Trying again cannot help: the event goes to the dead letters at once."""
    retry_after: float | None = None
    """Seconds that the other side asked for."""
    is_untried: bool = False
    """The other side has not been asked, for want of time: nothing counts against the event."""

    def __post_init__(self) -> None:
        """Checked where it is made: what cannot be written down would keep the whole batch from being marked."""
        if not isinstance(self.reason, str):
            raise InvalidPolicy(f"the reason of a Refusal is text, not {type(self.reason).__name__}; write str(error)")
        if self.retry_after is not None and not isinstance(self.retry_after, int | float):
            raise InvalidPolicy("retry_after of a Refusal is a number of seconds, such as 30.0")
        object.__setattr__(self, "reason", storable(self.reason))


class SinkGone(SimpleWorkflowError):
    """The place will not come back in this process. The relay ends, and what was not taken waits for another one."""


class Sink(Protocol):
    """A place that takes events."""

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        """One answer per event, in the same order; None: taken. Raising means that none is known to be taken.

        Several events of one run come in their order; after a refusal the rest of that run's must not be sent.
        `SinkGone` says that there is no use in coming again.
        """

    async def close(self) -> None: ...
