"""Every number that an operator may turn, in one frozen record, checked once.

The defaults are chosen together: a dead worker's runs are claimable within lease + sweep (35 s), a renewal may fail
twice before a lease ends, and a stop takes at most drain + a few seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from .model.duration import human
from .model.errors import InvalidPolicy
from .model.limits import MAX_BYTES
from .model.policies import ON_CHANGED, ON_MISFIT, OnChanged, OnMisfit, check_choice

URL_VARIABLE = "SIMPLEWORKFLOW_URL"
PREFIXES_VARIABLE = "WORKER_TYPE_PREFIXES"
LOG_ERRORS_VARIABLE = "SIMPLEWORKFLOW_LOG_ERRORS"
DEFAULT_URL = "simpleworkflow.db"

LogErrors = Literal["traceback", "message", "type"]
"""How much of an error that user code raised is written to the log."""
LOG_ERRORS: tuple[LogErrors, ...] = get_args(LogErrors)


def default_log_errors() -> LogErrors:
    """What the environment says. Failures that nobody sees cost more than texts that somebody may switch off."""
    chosen = os.environ.get(LOG_ERRORS_VARIABLE) or "traceback"
    return cast(LogErrors, check_choice(LOG_ERRORS_VARIABLE, chosen, LOG_ERRORS))


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds, counts and bytes."""

    lease: float = 30.0
    sweep_every: float = 5.0
    poll_every: float = 1.0
    local_check_every: float = 1.0
    drain: float = 20.0
    concurrency: int = 100
    suspect_seconds: float = 2.0
    store_timeout: float = 10.0
    max_payload: int = MAX_BYTES
    worker_silence: float = 45.0
    prune_every: float = 300.0
    on_changed: OnChanged = "hold"
    """What becomes of a run whose code is about to run a step that seems to be a renamed one that is on record."""
    on_misfit: OnMisfit = "hold"
    """What becomes of a run whose input or records its code cannot read."""
    log_errors: LogErrors = field(default_factory=default_log_errors)

    def __post_init__(self) -> None:
        for name in ("lease", "sweep_every", "poll_every", "local_check_every", "store_timeout", "prune_every"):
            if getattr(self, name) <= 0:
                raise InvalidPolicy(f"{name} must be longer than zero")
        if self.drain < 0:
            raise InvalidPolicy("drain cannot be negative; 0 hands runs back at once")
        if not 1 <= self.concurrency <= 10_000:
            raise InvalidPolicy(f"concurrency must be between 1 and 10,000, not {self.concurrency}")
        check_choice("on_changed", self.on_changed, ON_CHANGED)
        check_choice("on_misfit", self.on_misfit, ON_MISFIT)
        check_choice("log_errors", self.log_errors, LOG_ERRORS)
        if self.lease < 0.3:
            raise InvalidPolicy(f"a lease of {human(self.lease)} is too short to be renewed in time; use 300ms or more")


class DefaultURL(str):
    """The database of an App that names none itself."""

    __slots__ = ()


guards: list[Callable[[DefaultURL], None]] = []
"""Asked before a DefaultURL is opened; raise to refuse. The test kit's: tests must not write to the real database."""


def default_url() -> DefaultURL:
    return DefaultURL(os.environ.get(URL_VARIABLE) or DEFAULT_URL)
