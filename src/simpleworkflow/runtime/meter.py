"""What a worker counts: plain numbers in plain dicts, filled a batch at a time by the code that does the work.

A run costs some tens of microseconds of Python, so counting it must cost next to nothing. Nobody here locks, formats
or knows of Prometheus: the worker's event loop is the only one that writes, the thread that serves the numbers copies
them (a dict and a list are copied in one piece) and does the rest at its own leisure. A worker without metrics has no
meter at all: its batches pay one `is None`. A mistake in here costs a number and never a run.

Labels stay few: types, statuses, classes of errors, small numbers. Never a run's id, never the name of a step.
"""

from __future__ import annotations

import functools
import logging
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import repeat
from typing import ParamSpec
from uuid import UUID

from ..clock import monotonic
from ..model.moves import Ending, Outcome, Pause, Record, Result
from ..model.records import Lease
from ..model.states import Status, StepKind, StepStatus

DURATIONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
"""Seconds: from a run that waits for nothing to one that works for half an hour."""
LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
MOST_ATTEMPTS = 10
"""Attempts are counted one by one up to here, and together from here on: a policy may allow thousands."""
ENDS = "succeed", "fail", "overrun"
PAUSE, RELEASE = "pause", "release"
"""Moves that are counted without an Ending to tell their names."""
STARTED, SKIPPED = "started", "skipped"
"""What becomes of a schedule's slot."""
_SECOND = timedelta(seconds=1)

P = ParamSpec("P")
Entry = Record | Pause | Ending

log = logging.getLogger("simpleworkflow.metrics")


def harmless(count: Callable[P, None]) -> Callable[P, None]:
    """What has been done is done, whether or not it could be counted."""

    @functools.wraps(count)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            count(*args, **kwargs)
        except Exception:
            log.exception("counting for metrics went wrong; the numbers are a little too small")

    return attempt


class Histogram:
    """How many values fell between which bounds, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: list[float]) -> None:
        """The same for many, without a line of Python for each."""
        for place, times in Counter(map(bisect_left, repeat(self.bounds), values)).items():
            self.counts[place] += times
        self.sum += sum(values)

    @property
    def count(self) -> int:
        return sum(self.counts)


class Meter:
    """`lease_of` knows the leases that the worker holds, until their endings have been heard of."""

    def __init__(self, lease_of: Callable[[UUID], Lease | None]) -> None:
        self._lease_of = lease_of
        self.started = monotonic()
        self.polls = 0
        self.polled_at: float | None = None
        """When the worker last looked for work, or was busy with as much as it takes, without trouble."""
        self.poll_errors: Counter[str] = Counter()
        self.claimed_runs: Counter[str] = Counter()
        self.claims = Histogram(LATENCIES)
        self.wakeups: dict[str, Histogram] = {}
        self.executions: dict[tuple[str, str], Histogram] = {}
        """By type and move: how long executions took that ended so."""
        self.unexecuted: Counter[tuple[str, str]] = Counter()
        """By type and move: runs that ended so before their code was called."""
        self.failed_attempts: Counter[tuple[str, int]] = Counter()
        self.lost: Counter[str] = Counter()
        """By type: runs that were no longer ours: cancelled, or taken over."""
        self.refused: Counter[str] = Counter()
        """By type: runs that are held because the database refuses their ending for good."""
        self.steps: dict[tuple[str, StepStatus], Histogram] = {}
        self.flushes = Histogram(LATENCIES)
        self.flush_sizes = Histogram(SIZES)
        self.flush_errors: Counter[str] = Counter()
        self.swept: Counter[tuple[str, Status]] = Counter()
        """By type and status: runs of other workers, or of nobody, that the sweep moved there."""
        self.pruned: Counter[tuple[str, Status]] = Counter()
        """By type and status: finished runs that this worker has removed, being older than their App keeps them."""
        self.pruned_at: float | None = None
        """When this worker last came to the end of a pass over all runs."""
        self.slots: Counter[tuple[str, str]] = Counter()
        """By type and outcome: slots of schedules that this worker has started or skipped."""
        self.slot_lateness: dict[str, Histogram] = {}
        """By type: from a slot until its run was started."""
        self.loop_lag = Histogram(LATENCIES)
        self.unwritten: Callable[[], int] = int
        """How many entries of the journal are not durable yet."""
        self.is_stopping = False

    def serves(self, types: Iterable[str]) -> None:
        """Series of these types begin at zero: Prometheus does not see a rise from nothing to one."""
        for type in types:
            self.claimed_runs[type] += 0
            self.unexecuted.update({(type, move): 0 for move in ENDS})

    # Taking runs in.

    def polled(self, trouble: Exception | None = None) -> None:
        """One turn of looking for work."""
        self.polls += 1
        if trouble is None:
            self.polled_at = monotonic()
        else:
            self.poll_errors[type(trouble).__name__] += 1

    @harmless
    def claimed(self, taken: Sequence[Lease], seconds: float) -> None:
        """One claim that asked the database, and how long the answer took."""
        self.claims.observe(seconds)
        if not taken:
            return
        waited: defaultdict[str, list[float]] = defaultdict(list)
        for lease in taken:
            # By the database's clock until the claim, by ours since it was sent.
            waited[lease.type].append((lease.claimed_at - lease.run_at) / _SECOND + seconds)
        for type, values in waited.items():
            self.claimed_runs[type] += len(values)
            self.wakeups.setdefault(type, Histogram(LATENCIES)).observe_all(values)

    # Writing down what became of them.

    @harmless
    def flushed(self, entries: Sequence[Entry], outcomes: Sequence[Outcome], seconds: float) -> None:
        """One batch of the journal that the database has answered."""
        self.flushes.observe(seconds)
        self.flush_sizes.observe(len(entries))
        lease_of = self._lease_of
        executed: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        done: defaultdict[str, list[float]] = defaultdict(list)
        for entry, outcome in zip(entries, outcomes, strict=True):
            lease = lease_of(entry.run_id)
            if lease is None:
                continue  # it was lost meanwhile, and counted so
            if outcome is not Outcome.DONE:
                if outcome is Outcome.LOST and not isinstance(entry, Record):
                    self.lost[lease.type] += 1
            elif isinstance(entry, Record):
                if isinstance(entry, Result):
                    done[lease.type].append(entry.elapsed)  # what most of them are
                else:
                    self._recorded(lease.type, entry)
            elif isinstance(entry, Pause):
                executed[lease.type, PAUSE].append(entry.elapsed)
            else:
                if entry.started:
                    executed[lease.type, entry.move].append(entry.elapsed)
                else:
                    self.unexecuted[lease.type, entry.move] += 1
                if entry.burns:
                    self.failed_attempts[lease.type, min(lease.attempt + 1, MOST_ATTEMPTS)] += 1
        for key, values in executed.items():
            self.executions.setdefault(key, Histogram(DURATIONS)).observe_all(values)
        for type, values in done.items():
            self.steps.setdefault((type, StepStatus.SUCCEEDED), Histogram(DURATIONS)).observe_all(values)

    def _recorded(self, type: str, record: Record) -> None:
        for one in (record, *record.also):
            if one.kind is StepKind.STEP:
                self.steps.setdefault((type, one.status), Histogram(DURATIONS)).observe(one.elapsed)

    def flush_failed(self, error: Exception) -> None:
        self.flush_errors[type(error).__name__] += 1

    def gave_back(self, leases: Sequence[Lease]) -> None:
        """Claimed, but never among the leases that `lease_of` knows."""
        self.unexecuted.update((lease.type, RELEASE) for lease in leases)

    @harmless
    def scheduled(self, fired: Iterable[tuple[str, list[float], int]]) -> None:
        """Slots of schedules, by type: how late each was started, and how many were skipped."""
        for type, lateness, skipped in fired:
            self.slots[type, STARTED] += len(lateness)
            self.slots[type, SKIPPED] += skipped
            self.slot_lateness.setdefault(type, Histogram(LATENCIES)).observe_all(lateness)
