"""Lanes whose claims fail: tried less often than the others, and known to those who ask why a run does not start.

One row that no claim can take (a counter at its end, a user's trigger that raises) fails every claim of its lane,
and would fail those of every other lane that is claimed with it. So a claim of several lanes that failed is made lane
by lane; a lane that failed alone rests, ever longer. What explain and doctor say of it goes out with the worker's
announcement.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..clock import monotonic
from ..model.records import Lane
from ..store.operations.leases import Crashes

log = logging.getLogger("simpleworkflow.worker")

FIRST_REST, LONGEST_REST = 1.0, 60.0
MOST_TOLD = 20
LONGEST_ERROR = 200


@dataclass(slots=True)
class _Trouble:
    error: str
    since: float
    times: int = 1
    again: float = 0.0


class FailingLanes:
    def __init__(self) -> None:
        self._troubles: dict[tuple[Lane, Crashes | None], _Trouble] = {}

    def __bool__(self) -> bool:
        return bool(self._troubles)

    def has(self, lane: Lane, crashes: Crashes | None = None) -> bool:
        return (lane, crashes) in self._troubles

    def rests(self, lane: Lane, crashes: Crashes | None = None) -> bool:
        """Whether it is too early to try it again."""
        trouble = self._troubles.get((lane, crashes))
        return trouble is not None and monotonic() < trouble.again

    def failed(self, lane: Lane, error: Exception, crashes: Crashes | None = None) -> None:
        now, text = monotonic(), " ".join(str(error).split())[:LONGEST_ERROR]
        known = self._troubles.get((lane, crashes))
        trouble = _Trouble(text, now) if known is None else _Trouble(text, known.since, known.times + 1)
        trouble.again = now + min(FIRST_REST * 2 ** min(trouble.times - 1, 10), LONGEST_REST)
        self._troubles[lane, crashes] = trouble
        if known is None or known.error != text:
            told = "runs of %s, priority %d, cannot be claimed; other lanes go on, and it is tried less often: %s"
            log.error(told, lane.type, lane.priority, text)

    def worked(self, lane: Lane, crashes: Crashes | None = None) -> None:
        if self._troubles and self._troubles.pop((lane, crashes), None) is not None:
            log.info("runs of %s, priority %d, can be claimed again", lane.type, lane.priority)

    def told(self) -> dict[str, object]:
        """For people who ask; any thread may look."""
        now, troubles = monotonic(), list(self._troubles.items())[:MOST_TOLD]
        failing = [[lane.type, lane.priority, round(now - one.since, 1), one.error] for (lane, _), one in troubles]
        return {"failing": failing} if failing else {}
