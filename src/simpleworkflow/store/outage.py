"""Whether the database is there: the one place that knows, and that says so in the log.

A worker asks its database for many things at once. When it goes away each of them fails, and when it is back each of
them succeeds: that is two lines in the log, not twenty. What the roles say about it meanwhile is for DEBUG.

What began before an outage may be answered in it, and may fail when it is over: neither counts. A database that comes
and goes again and again is told less and less often: after an outage that follows closely upon another one, there must
be no failure for a while before it counts as back.

The lines come from whichever thread notices first; a worker renews its leases in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..clock import monotonic
from ..model.duration import human
from ..model.errors import StoreBusy, StoreSlow, StoreUnavailable

log = logging.getLogger("simpleworkflow.database")

SOON = 60.0
"""Seconds after an outage within which another one makes us doubt that it is really back."""
LONGEST_DOUBT = 30.0


class Outage:
    def __init__(self, database: str) -> None:
        self._database = database
        self.waits: Callable[[], str] = str
        """What waits for it, in words."""
        self._guard = threading.Lock()
        self._since: float | None = None
        self._told = self._failed = self._answered = self._back = float("-inf")
        """When it was said that it is away, and when an operation last failed, had its answer, ended an outage."""
        self._doubt = 0.0

    @property
    def is_on(self) -> bool:
        return self._since is not None

    def answered(self, began: float) -> None:
        """An operation that began then has succeeded. Cheap as long as all is well."""
        self._answered = now = monotonic()
        if self._since is None or began < self._told or now - self._failed < self._doubt:
            return
        with self._guard:
            since, self._since, self._back = self._since, None, now
        if since is not None:
            log.warning("the database %s is back after %s", self._database, _length(now - since))

    def failed(self, error: Exception, began: float) -> None:
        """An operation that began then has failed, or has had no answer for a while. One that was merely too slow, or
        in the way of a lock, says nothing about the others."""
        if isinstance(error, StoreBusy) or (isinstance(error, StoreSlow) and began < self._answered):
            return
        if isinstance(error, StoreUnavailable):
            error.is_told = True
        if began <= self._back:
            return
        with self._guard:
            first, self._failed = self._since is None, monotonic()
            if first:
                self._doubt = min(max(2 * self._doubt, 1.0), LONGEST_DOUBT) if began - self._back < SOON else 0.0
                self._since, self._told = began, self._failed
        if first:
            log.warning("%s; %s", self._words(error), self.waits() or "it is tried again until it is back")

    def _words(self, error: Exception) -> str:
        why = str(error) or type(error).__name__
        return why if self._database in why else f"the database {self._database} is away: {why}"


def level(error: StoreUnavailable) -> int:
    """At which level a role says that it waits: what the outage has told already is for DEBUG."""
    return logging.DEBUG if error.is_told else logging.WARNING


def _length(seconds: float) -> str:
    return human(round(seconds, 1) if seconds < 10 else round(seconds)) if seconds >= 0.1 else "a moment"
