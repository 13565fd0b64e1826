"""The states of a run, and the words of its audit trail: the only place in Python that spells them.

    pending     waits for run_at, then for a worker; holds no lease
    leased      a worker owns it until lease_until, fenced by lease_epoch
    paused      waits for run_at (a timer) or for an event (run_at NULL); holds no lease
    succeeded   finished with a result
    failed      finished with an error: attempts spent, or permanent
    cancelled   finished by an operator, a parent or plain SQL
    timed_out   finished because its deadline passed

A hold is orthogonal: a held run keeps its state and is not claimed. Terminal <=> finished_at is set; leased <=>
lease_until and leased_by are set: the tables carry both as CHECK constraints.
"""

from __future__ import annotations

from enum import StrEnum

REASON_SHOWN = 300
"""Characters of a recorded error that a sentence about something else repeats."""


class Status(StrEnum):
    PENDING = "pending"
    LEASED = "leased"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @property
    def already(self) -> str:
        """How a sentence says that a run has ended so: "run X was already cancelled"."""
        if self is Status.CANCELLED:
            return "was already cancelled"
        return f"has already {self.replace('_', ' ')}"

    def already_because(self, why: str | None) -> str:
        """The same with the reason on record: "has already failed (ValueError: no such order)"."""
        if not why or self is Status.SUCCEEDED:
            return self.already
        return f"{self.already} ({why if len(why) <= REASON_SHOWN else why[:REASON_SHOWN] + '…'})"


OPEN = frozenset({Status.PENDING, Status.LEASED, Status.PAUSED})
TERMINAL = frozenset(Status) - OPEN
CLAIMABLE = frozenset({Status.PENDING, Status.PAUSED})


class EventType(StrEnum):
    """One line of the audit trail each; written in the transaction of the move it tells of."""

    CREATED = "created"
    LEASED = "leased"
    STARTED = "started"
    HEARTBEAT = "heartbeat"
    STEP_RETRIED = "step_retried"
    RETRIED = "retried"
    RELEASED = "released"
    PAUSED = "paused"
    WOKEN = "woken"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    HELD = "held"
    RESUMED = "resumed"
    DELETED = "deleted"


class StepKind(StrEnum):
    """What a recorded piece of a run is. A recorded entry whose kind changed cannot be replayed."""

    STEP = "step"
    SLEEP = "sleep"
    SIGNAL = "signal"
    CHILD = "child"
    RESULT = "result"
    EMIT = "emit"
    PUBLISH = "publish"
    RACE = "race"
    VALUE = "value"


class StepStatus(StrEnum):
    WAITING = "waiting"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    """Failed, and done again by a retry of the run; kept for the history."""


class Reason(StrEnum):
    """Why a run stands where it stands: exactly one for every run at every moment (client/explaining/reason.py)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """For good: a permanent error, with attempts left."""
    OUT_OF_ATTEMPTS = "out_of_attempts"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    OVERDUE = "overdue"
    """Its deadline or start_by has passed; the next sweep ends it."""
    HELD = "held"
    RUNNING = "running"
    LEASE_EXPIRED = "lease_expired"
    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_CHILD = "waiting_for_child"
    WAITING_FOR_RETRY = "waiting_for_retry"
    """Backing off: the run after a failed execution, or one of its steps after a failed attempt."""
    WAITING_FOR_WAKE = "waiting_for_wake"
    """Paused without a time and without a wait on record: any signal, or the end of a child, makes it look again."""
    SLEEPING = "sleeping"
    SCHEDULED = "scheduled"
    DISABLED = "disabled"
    NO_WORKER = "no_worker"
    CLAIM_FAILS = "claim_fails"
    """Due, but the database refuses what would claim it; its workers go on trying, ever less often."""
    SUSPECT = "suspect"
    """Due after crashes: workers take such runs first, and from the second crash on one at a time."""
    OUTRANKED = "outranked"
    """Due, but more urgent runs go first."""
    DUE = "due"


NO_HANDLER = "no_handler_registered"
"""last_error of a run that a worker claimed without knowing its type (the intent poller's rule)."""
