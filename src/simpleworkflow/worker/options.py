"""What one worker is told about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.names import EVERYTHING, Span
from ..model.retention import Rule
from ..sinks.protocol import Sink
from .metrics_server import Address
from .relay_options import RelayOptions


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    name: str | None = None
    spans: Sequence[Span] = field(default_factory=lambda: [EVERYTHING])
    fail_unknown: bool = False
    """Claim every type inside the spans and fail what has no handler (the intent poller's rule)."""

    metrics: Address | None = None
    """Where to serve metrics; None: nothing is counted."""

    keep: Sequence[Rule] = ()
    """Which finished runs to remove when; none: all are kept."""

    sink: Sink | None = None
    """Where this worker takes events of the outbox; None: it leaves them to others."""
    relay: RelayOptions = field(default_factory=RelayOptions)

    schedules: bool = True
    """Whether it writes down the schedules beside its code, and starts slots of any schedule."""

    process_ends: bool = False
    """The process exits right after the worker: runs of threads that did not stop are handed back, since those die."""
