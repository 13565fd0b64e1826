"""What one worker is told about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.names import EVERYTHING, Span
from .metrics_server import Address


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    name: str | None = None
    spans: Sequence[Span] = field(default_factory=lambda: [EVERYTHING])
    fail_unknown: bool = False
    """Claim every type inside the spans and fail what has no handler (the intent poller's rule)."""

    metrics: Address | None = None
    """Where to serve metrics; None: nothing is counted."""

    process_ends: bool = False
    """The process exits right after the worker: runs of threads that did not stop are handed back, since those die."""
