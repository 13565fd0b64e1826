"""What one relay is told about itself, checked when it is written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..config import Settings
from ..model.duration import Duration, human, seconds
from ..model.errors import InvalidPolicy
from ..model.retry import Retry
from ..sinks.protocol import Sink

LONGEST_SOURCE = 1000
NOT_IN_URIS = frozenset(' "<>\\^`{|}')
"""Receivers parse the source, and some refuse every event whose source cannot be parsed."""


@dataclass(frozen=True, slots=True)
class RelayOptions:
    source: str | None = None
    """The CloudEvents source; /simpleworkflow/SCHEMA unless given."""
    batch: int = 200
    """Events that one call of the sink gets at most."""
    retry: Retry = field(default_factory=lambda: Retry(max_attempts=20, initial="1s", backoff=4.0, max_delay="1h"))
    """1 s, 4 s, 16 s … 1 h: an endpoint may be down for half a day before anything is given up."""
    keep: float | None = 7 * 24 * 3600.0
    """Seconds after which published rows are deleted; None: never."""
    timeout: float = 60.0
    """Seconds that one call of the sink may take."""
    lease: float = 30.0
    poll_every: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 10_000:
            raise InvalidPolicy(f"batch must be between 1 and 10,000 events, not {self.batch}")
        for name in ("timeout", "lease", "poll_every"):
            if getattr(self, name) <= 0:
                raise InvalidPolicy(f"{name} must be longer than zero")
        if self.keep is not None and self.keep < 0:
            raise InvalidPolicy(f"keep cannot be negative: {human(self.keep)}")
        if self.source is not None and not (
            0 < len(self.source) <= LONGEST_SOURCE and self.source.isprintable() and not set(self.source) & NOT_IN_URIS
        ):
            raise InvalidPolicy(
                f"source must be a URI reference of at most {LONGEST_SOURCE} characters, without spaces, such as /shop "
                "or https://shop.example"
            )


def relay_options(settings: Settings, source: str | None, keep: Duration | None) -> RelayOptions:
    """Options as people write them; `keep` is a duration such as "7 days", or "forever"."""
    return RelayOptions(
        source=source,
        keep=None if keep is None or keep == "forever" else seconds(keep, what="keep_published"),
        lease=settings.lease,
        poll_every=settings.poll_every,
    )


def sink_of(sink: Sink | str | None) -> Sink | None:
    """A sink, or the one that a text names."""
    if isinstance(sink, str):
        from ..sinks.at import sink_at

        return sink_at(sink)
    if sink is not None and not all(callable(getattr(sink, name, None)) for name in ("publish", "close")):
        raise InvalidPolicy(f"sink= must be a Sink or a text such as 'stdout:', not {type(sink).__name__}")
    return sink
