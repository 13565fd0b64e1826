"""One page of law: every legal move of a run, who makes it, and what it leaves behind.

            create                  claim                     succeed
  (none) ───────────▶ pending ───────────────▶ leased ───────────────────▶ succeeded
                        ▲                      ▲ │ │ ├── fail ───────────▶ failed
                        ├──── retry, release ──┼─┘ │ ├── cancel ─────────▶ cancelled
                        │            crash     │   │ └── expire ─────────▶ timed_out
                        │                claim │   ▼ pause
                        │                     paused
  terminal ── revive ───┘                             (cancel and expire also end pending and paused runs)

The invariants, which tests check after every operation and the tables keep by CHECK:

  1. finished_at is set exactly in terminal states.
  2. lease_until and leased_by are set exactly while leased.
  3. lease_epoch never decreases; each claim adds one.
  4. A move that needs a lease lands only with the epoch and the worker of the current lease, proved under the row lock.
  5. The events of a run, read in order, are a path through this table.

Moves with `holds` leave a `held` event too: the run is held at once.
CONTRIBUTING.md tells how to add a move. tests/tidy/test_law.py compares the table with the statements in store/sql and
with the files that ask for them, tests/store/test_matrix.py tries every move from every state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any
from uuid import UUID

from .states import CLAIMABLE, OPEN, TERMINAL, EventType, Status, StepKind, StepStatus


class Needs(StrEnum):
    """What a move must prove about the lease."""

    NOTHING = "nothing"
    LEASE = "the current lease"
    ENDED_LEASE = "a lease that ran out, or whose process is gone"


PLAIN_SQL = "plain SQL"
"""Statements of other programs, on both databases."""
PLAIN_SQL_ON_POSTGRES = "plain SQL on PostgreSQL"
"""Triggers of PostgreSQL complete more moves of other programs; SQLite refuses these."""
TRIGGERS = "triggers"
"""What the end of one run owes to others."""


@dataclass(frozen=True, slots=True)
class Move:
    name: str
    sources: frozenset[Status]
    targets: frozenset[Status]
    needs: Needs
    event: EventType
    performers: tuple[str, ...]
    """The files that ask the store for it, and who makes it besides."""
    holds: bool = False


_LEASED = frozenset({Status.LEASED})
_PENDING = frozenset({Status.PENDING})

_CREATORS = (
    "client/caller_connection.py",
    "client/triggers/batcher.py",
    "client/namespaces/schedules.py",
    "runtime/journal.py",  # child runs
    "worker/schedule.py",
    TRIGGERS,
    PLAIN_SQL,
)
_JOURNAL = ("runtime/journal.py",)
_ENDERS = (*_JOURNAL, "worker/run_followups.py", "worker/shutdown.py", "worker/renew.py")
"""The others hand back runs when the journal cannot."""
_SWEEP = ("worker/sweep.py",)
_OVERDUE = ("testing/env.py", "worker/overdue.py")
_CANCELLERS = ("client/control.py", "runtime/journal.py", "worker/schedule.py", TRIGGERS, PLAIN_SQL)
_HOLDERS = ("client/control.py", "worker/run_followups.py", "worker/histories.py")
_OPERATORS = ("client/control.py",)


def _to(status: Status) -> frozenset[Status]:
    return frozenset({status})


def _ends(name: str, targets: frozenset[Status], event: EventType, *others: str, holds: bool = False) -> Move:
    """The end of an execution, told by the worker that has the lease."""
    return Move(name, _LEASED, targets, Needs.LEASE, event, (*_ENDERS, *others), holds)


MOVES: dict[str, Move] = {
    move.name: move
    for move in (
        Move("create", frozenset(), _PENDING, Needs.NOTHING, EventType.CREATED, _CREATORS),
        Move("claim", CLAIMABLE, _LEASED, Needs.NOTHING, EventType.LEASED, ("worker/claim.py", PLAIN_SQL_ON_POSTGRES)),
        _ends("succeed", _to(Status.SUCCEEDED), EventType.SUCCEEDED, PLAIN_SQL_ON_POSTGRES),
        _ends("fail", _to(Status.FAILED), EventType.FAILED, PLAIN_SQL_ON_POSTGRES),
        _ends("retry", _PENDING, EventType.RETRIED, PLAIN_SQL_ON_POSTGRES),
        _ends("exhaust", _PENDING, EventType.RETRIED, holds=True),
        _ends("set_aside", _PENDING, EventType.RELEASED, holds=True),
        _ends("release", _PENDING, EventType.RELEASED),
        _ends("overrun", _to(Status.TIMED_OUT), EventType.TIMED_OUT),
        Move("pause", _LEASED, _to(Status.PAUSED), Needs.LEASE, EventType.PAUSED, _JOURNAL),
        Move("crash", _LEASED, _PENDING, Needs.ENDED_LEASE, EventType.RETRIED, (*_SWEEP, PLAIN_SQL_ON_POSTGRES)),
        Move("give_up", _LEASED, _to(Status.FAILED), Needs.ENDED_LEASE, EventType.FAILED, _SWEEP),
        Move("hold_spent", _LEASED, _PENDING, Needs.ENDED_LEASE, EventType.RETRIED, _SWEEP, holds=True),
        Move("expire", OPEN, _to(Status.TIMED_OUT), Needs.NOTHING, EventType.TIMED_OUT, _OVERDUE),
        Move("cancel", OPEN, _to(Status.CANCELLED), Needs.NOTHING, EventType.CANCELLED, _CANCELLERS),
        Move("hold", OPEN, OPEN, Needs.NOTHING, EventType.HELD, _HOLDERS, holds=True),
        Move("resume", OPEN, OPEN, Needs.NOTHING, EventType.RESUMED, _OPERATORS),
        Move("revive", TERMINAL, _PENDING, Needs.NOTHING, EventType.RETRIED, (*_OPERATORS, PLAIN_SQL_ON_POSTGRES)),
    )
}


# Looking up a member of an enum takes longer than making a tuple, and these are needed for every run and every step.
_SUCCEEDED, _SAYS_SO = Status.SUCCEEDED, EventType.SUCCEEDED
_STEP, _STEP_DONE = StepKind.STEP, StepStatus.SUCCEEDED


@dataclass(slots=True, eq=False)
class Ending:
    """How a worker wants an execution to end: one entry of the journal, made only by the constructors below.

    `elapsed` is how long the handler ran, so that the `started` event can be dated by the database's clock.
    """

    move: str
    run_id: UUID
    epoch: int
    status: Status
    event: EventType
    elapsed: float = 0.0
    started: bool = True
    burns: int = 0
    delay: float = 0.0
    result: str | None = None
    error: str | None = None
    last_error: str | None = None
    has_parent: bool = False
    hold_reason: str | None = None
    """The run stays for an operator to look at."""
    clears: tuple[str, ...] = ()
    """The failed steps whose errors led here: the next execution does them again."""
    anew: bool = False
    """Its deadline is that of a claim that comes to nothing: the next claim sets another."""

    @property
    def is_plain_success(self) -> bool:
        """Nobody else needs to hear of it."""
        return self.move == "succeed" and not self.has_parent


@dataclass(slots=True, eq=False)
class Record:
    """One row for the memo of a run: a finished step, a failed attempt, a wait. Written under the run's own lease."""

    run_id: UUID
    epoch: int
    step_id: str
    kind: StepKind
    status: StepStatus
    attempt: int = 0
    elapsed: float = 0.0
    due_in: float | None = None
    """Seconds until it is due; None: only an event ends the wait."""
    left: Callable[[], float | None] | None = None
    """The same, asked anew whenever it is sent: an entry may wait for the database for long."""
    input: str | None = None
    output: str | None = None
    error: str | None = None
    signal_id: UUID | None = None
    """The signal that this record consumes."""
    child: Any = None
    """The NewRun that this record starts."""
    emits: tuple[str, str] | None = None
    """(type, payload) of an event for the outbox."""
    told: str | None = None
    """What the audit trail should say of a failed attempt."""
    cancels: tuple[UUID, ...] = ()
    """Children that nobody waits for any more."""
    also: tuple[Record, ...] = ()
    """Records of the same run that are written with this one or not at all."""
    clears_suspicion: bool = False
    """The run had crashed before; this write proves that it makes progress."""

    @property
    def is_first_success(self) -> bool:
        """What most records are: a step that came to its end at the first attempt."""
        return (
            self.kind is _STEP
            and self.status is _STEP_DONE
            and self.attempt == 0
            and self.due_in is None
            and self.error is None
        )

    @property
    def is_plain(self) -> bool:
        """It leaves nothing but its own row."""
        return not (
            self.clears_suspicion
            or self.also
            or self.cancels
            or self.signal_id is not None
            or self.child is not None
            or self.emits is not None
            or self.told is not None
        )


class Result(Record):
    """What most records are: a step came to its end at the first attempt, and its row is all there is to write. The
    rest of a record is the same for all of them, and takes no time to set. `taking_along` makes a full record of one;
    `replace` would not."""

    __slots__ = ()

    kind, status, attempt, due_in, left, error = _STEP, _STEP_DONE, 0, None, None, None
    signal_id, child, emits, told, cancels, also, clears_suspicion = None, None, None, None, (), (), False

    def __init__(self, run_id: UUID, epoch: int, step_id: str, elapsed: float, input: str | None, output: str) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.step_id = step_id
        self.elapsed = elapsed
        self.input = input
        self.output = output


@dataclass(slots=True, eq=False)
class Pause:
    """The run gives up its slot until `due_in` seconds from now, or until something wakes it (None)."""

    run_id: UUID
    epoch: int
    wakes: int
    """The wake counter as it was when the history that led here was read."""
    due_in: float | None
    elapsed: float
    waits: tuple[Record, ...] = ()
    """Those that are not on record yet."""
    left: Callable[[], float | None] | None = None
    """What `due_in` is when it is sent."""
    awaited: tuple[str, ...] = ()
    """All that it waits for: what is on record as open may have been given up by the code."""


GIVEN_UP = '{"given_up":true}'
"""What a waiting row has for an error while its execution goes on without waiting for it any more."""


def _ending(move: str, lease: Any, elapsed: float | None, **rest: Any) -> Ending:
    law = MOVES[move]
    (status,) = law.targets
    return Ending(
        move,
        lease.id,
        lease.epoch,
        status,
        law.event,
        elapsed=elapsed or 0.0,
        started=elapsed is not None,
        has_parent=lease.parent_id is not None,
        **rest,
    )


def succeed(lease: Any, result: str, *, elapsed: float) -> Ending:
    """The usual end, made without a detour: a worker does little else."""
    has_parent = lease.parent_id is not None
    return Ending("succeed", lease.id, lease.epoch, _SUCCEEDED, _SAYS_SO, elapsed, result=result, has_parent=has_parent)


def remember(lease: Any, step_id: str, attempt: int, elapsed: float, input: str | None, output: str) -> Record:
    """The usual record: a step has come to its end."""
    if not attempt and not lease.crashes:
        return Result(lease.id, lease.epoch, step_id, elapsed, input, output)
    record = Record(lease.id, lease.epoch, step_id, _STEP, _STEP_DONE, attempt, elapsed, None, None, input, output)
    record.clears_suspicion = lease.crashes > 0
    return record


def taking_along(record: Record, others: tuple[Record, ...]) -> Record:
    """The same record, written with these or not at all."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return Record(**(values | {"also": (*record.also, *others)}))


def fail(lease: Any, error: str, last_error: str, *, elapsed: float | None) -> Ending:
    """The last execution: the attempt is burned and the run ends."""
    return _ending("fail", lease, elapsed, burns=1, error=error, last_error=last_error)


def retry(
    lease: Any, error: str, last_error: str, *, delay: float, elapsed: float, clears: tuple[str, ...] = ()
) -> Ending:
    return _ending("retry", lease, elapsed, burns=1, delay=delay, error=error, last_error=last_error, clears=clears)


def exhaust(lease: Any, error: str, last_error: str, *, elapsed: float, clears: tuple[str, ...] = ()) -> Ending:
    """Out of attempts, but an operator shall decide: the run is held; resuming it grants one attempt."""
    reason = f"out of attempts; the last error: {last_error}"
    rest: dict[str, Any] = {"error": error, "last_error": last_error, "hold_reason": reason, "clears": clears}
    return _ending("exhaust", lease, elapsed, burns=1, **rest)


def set_aside(lease: Any, error: str, last_error: str, *, elapsed: float) -> Ending:
    """What is on record does not fit the code. Nothing is burned: the run is held until an operator, or code that fits,
    lets it go on."""
    return _ending("set_aside", lease, elapsed, error=error, last_error=last_error, hold_reason=last_error)


def release(lease: Any, *, elapsed: float, delay: float = 0.0) -> Ending:
    """Hand back without burning anything what has begun: a graceful stop, a hold."""
    return _ending("release", lease, elapsed, delay=delay)


def hand_back(lease: Any, timeout: float | None, *, delay: float = 0.0) -> Ending:
    """Release what did not begin under this lease, so that the claim counts as no start. With the claim goes its
    deadline, known by the workflow's `timeout`, but no other one, and not that of a run which cannot be served (it
    comes back with a delay): nothing else would ever end such a run."""
    is_its_own = timeout is not None and lease.deadline_in is not None and abs(lease.deadline_in - timeout) < 1e-5
    return _ending("release", lease, None, delay=delay, anew=is_its_own and not delay)


def release_stranger(run_id: UUID, epoch: int) -> Ending:
    """Hand back a run that was leased to us without our knowing: a claim whose answer was lost. Its deadline stays: if
    answers are lost again and again, nothing else will end it."""
    return Ending("release", run_id, epoch, Status.PENDING, EventType.RELEASED, started=False, has_parent=True)


def overrun(lease: Any, error: str, last_error: str, *, elapsed: float) -> Ending:
    """The owning worker saw the deadline pass."""
    return _ending("overrun", lease, elapsed, error=error, last_error=last_error)


class Outcome(StrEnum):
    """What became of one journal entry."""

    DONE = "done"
    WOKEN = "woken"
    LOST = "lost"
    BUSY = "busy"
