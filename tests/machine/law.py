"""The law as a small machine of its own: what every operation does to runs, in plain Python.

Written from the design's section 4 and the table in model/moves.py, not from the SQL: it knows nothing of statements,
triggers or locks, so that a mistake there is not repeated here. One thread, seconds as floats, instants counted from
the start of an example. Where the databases may rightly differ, the law leaves it open and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from simpleworkflow.model.moves import MOVES, Outcome
from simpleworkflow.model.records import NewRun
from simpleworkflow.model.states import OPEN, Status

FAN_OUT_WAIT = 1.0
"""A child that ends while siblings are open makes its parent due after this many seconds."""
DEFAULT_ATTEMPTS = 3


@dataclass
class Step:
    kind: str
    status: str
    attempt: int
    output: str | None
    epoch: int


@dataclass
class Signal:
    id: UUID
    name: str
    payload: str
    consumed_by: str | None = None


@dataclass
class Run:
    """What the law knows of one run."""

    id: UUID
    type: str
    payload: str
    key: str | None
    parent: UUID | None
    max_attempts: int | None
    run_at: float | None
    start_by: float | None
    status: Status = Status.PENDING
    attempt: int = 0
    crashes: int = 0
    epoch: int = 0
    claimed: int = 0
    """Its place among all claims."""
    wakes: int = 0
    lease_until: float | None = None
    worker: str | None = None
    deadline: float | None = None
    lost_by: str | None = None
    """The worker that its last error names."""
    started: bool = False
    """A claim says so, unless it comes back before anything was ever begun."""
    held: bool = False
    taken_along: bool = False
    deleted: bool = False
    steps: dict[str, Step] = field(default_factory=dict)
    signals: list[Signal] = field(default_factory=list)
    events: list[str] = field(default_factory=lambda: ["created"])

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def unread(self) -> list[Signal]:
        return [signal for signal in self.signals if signal.consumed_by is None]

    def to(self, status: Status, *events: str) -> None:
        self.status = status
        self.lease_until = self.worker = None
        self.events += events


def new_run(wanted: NewRun, now: float) -> Run:
    run_at = now + wanted.delay
    start_by = None if wanted.start_within is None else run_at + wanted.start_within
    key, parent = wanted.idempotency_key, wanted.parent_id
    return Run(wanted.id, wanted.type, wanted.payload, key, parent, wanted.max_attempts, run_at, start_by)


class Law:
    """All runs of one example, and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.claims = 0
        self.runs: dict[UUID, Run] = {}

    # Creation and claims.

    def keyed(self, key: str | None) -> Run | None:
        """The run that owns a key; a deleted one has given it up."""
        return next((run for run in self.runs.values() if key and run.key == key and not run.deleted), None)

    def create(self, run: Run) -> None:
        self.runs[run.id] = run

    def claimable(self, type: str, *, suspects: bool, slack: float) -> tuple[set[UUID], set[UUID]]:
        """(those that must be due, those that may be due already) in one lane."""
        lane = [
            run
            for run in self.runs.values()
            if run.status in {Status.PENDING, Status.PAUSED}
            and (run.type, run.crashes > 0, run.held) == (type, suspects, False)
            and (run.deadline is None or run.deadline > self.now)
            and (run.start_by is None or run.start_by > self.now or run.started)
            and run.run_at is not None
        ]
        due = {run.id for run in lane if (run.run_at or 0.0) <= self.now}
        return due, {run.id for run in lane if (run.run_at or 0.0) <= self.now + slack}

    def claim(self, run: Run, worker: str, lease: float, attempts: int, timeout: float | None) -> None:
        run.events += ["woken", "leased"] if run.status is Status.PAUSED else ["leased"]
        run.status, run.worker, run.lease_until = Status.LEASED, worker, self.now + lease
        run.epoch += 1
        run.claimed = self.claims = self.claims + 1
        run.started = True
        run.max_attempts = run.max_attempts or attempts
        if run.deadline is None and timeout is not None:
            run.deadline = self.now + timeout

    # What a worker writes under its lease.

    def owns(self, run_id: UUID, epoch: int) -> bool:
        run = self.runs[run_id]
        return run.status is Status.LEASED and run.epoch == epoch

    def record(self, run: Run, step_id: str, step: Step, signal_id: UUID | None, *, clears: bool) -> None:
        kind = run.steps[step_id].kind if step_id in run.steps else step.kind
        run.steps[step_id] = Step(kind, step.status, step.attempt, step.output, step.epoch)
        for signal in run.signals:
            if signal.id == signal_id and signal.consumed_by is None:
                signal.consumed_by = step_id
        if clears:
            run.crashes = 0

    def pause(self, run: Run, epoch: int, wakes: int, due_in: float | None) -> Outcome:
        if not self.owns(run.id, epoch):
            return Outcome.LOST
        if run.wakes != wakes:
            return Outcome.WOKEN
        run.to(Status.PAUSED, "started", "paused")
        run.crashes = 0
        run.run_at = None if due_in is None else self.now + due_in
        return Outcome.DONE

    def hand_back(self, run: Run, epoch: int, delay: float, anew: bool) -> Outcome:
        """The code did not begin; if it never has, it is as if nobody had claimed the run, but for the epoch, and for
        its deadline unless that is to be set anew."""
        if not self.owns(run.id, epoch):
            return Outcome.LOST
        signs = {"started", "retried", "heartbeat"}.intersection(run.events)
        if not (run.attempt or run.crashes or run.steps or signs):
            run.started = False
            run.deadline = None if anew else run.deadline
        run.to(Status.PENDING, "released")
        run.run_at = self.now + delay
        return Outcome.DONE

    def end(self, run: Run, epoch: int, move: str, delay: float) -> Outcome:
        if not self.owns(run.id, epoch):
            return Outcome.LOST
        run.attempt += move in {"fail", "retry", "exhaust"}
        (target,) = MOVES[move].targets
        run.events.append("started")
        if target is Status.PENDING:
            run.to(target, MOVES[move].event.value)
            run.lost_by = None if move in {"retry", "exhaust"} else run.lost_by
            run.run_at = self.now + delay
            if move in {"exhaust", "set_aside"}:
                run.held = True
                run.events.append("held")
        else:
            self.finish(run, target)
        return Outcome.DONE

    def clear(self, run: Run, epoch: int, culprits: Iterable[str]) -> None:
        """What failed makes room for another try, and stays on record under another name."""
        if self.owns(run.id, epoch):
            for name in culprits:
                old = run.steps.pop(name)
                run.steps[f"@superseded {old.epoch} {name}"] = Step(
                    old.kind, "superseded", old.attempt, old.output, old.epoch
                )

    def renew(self, run: Run, epoch: int, seconds: float) -> bool:
        if not self.owns(run.id, epoch):
            return False
        run.lease_until = max(run.lease_until or 0.0, self.now + seconds)
        return True

    # Ends, and what they owe to others.

    def finish(self, run: Run, status: Status) -> None:
        run.to(status, status.value)
        run.taken_along = False
        parent = self.runs.get(run.parent) if run.parent else None
        if parent is not None and parent.is_open:
            self.wake(parent, FAN_OUT_WAIT if any(self.open_children(parent)) else 0.0)
        if status is not Status.SUCCEEDED:
            for child in list(self.open_children(run)):
                self.finish(child, Status.CANCELLED)
                child.taken_along = True

    def open_children(self, run: Run) -> Iterable[Run]:
        return (child for child in self.runs.values() if child.parent == run.id and child.is_open)

    def wake(self, run: Run, after: float) -> None:
        run.wakes += 1
        if run.status is Status.PAUSED:
            at = self.now + after
            run.run_at = at if run.run_at is None else min(run.run_at, at)

    def below(self, run: Run) -> set[UUID]:
        """All descendants."""
        children = [child for child in self.runs.values() if child.parent == run.id]
        return {child.id for child in children}.union(*map(self.below, children)) if children else set()

    def signal(self, run: Run, signal: Signal) -> bool:
        """Accepted or not. One that is sent again wakes again and is kept once."""
        known = any(signal.id == old.id for old in run.signals)
        if run.is_open:
            self.wake(run, 0.0)
            if not known:
                run.signals.append(signal)
        return run.is_open or known

    # The sweep.

    def lost_leases(self, dead: Iterable[str], me: str) -> list[Run]:
        """Leases that ran out or whose worker is gone, in the order in which a sweep takes them."""
        gone = [
            run
            for run in self.runs.values()
            if run.status is Status.LEASED
            and run.worker != me
            and ((run.lease_until or 0.0) < self.now or run.worker in dead)
        ]
        return sorted(gone, key=lambda run: (run.worker, run.id))

    def is_spent(self, run: Run) -> bool:
        return run.attempt + run.crashes + 1 >= (run.max_attempts or DEFAULT_ATTEMPTS)

    def excused(self, gone: list[Run]) -> set[UUID]:
        """Those whose process more likely ended because of another suspect."""
        return {run.id for run in gone if 1 <= run.crashes <= 3 and any(self._is_blamed(o, run) for o in self._open())}

    def _is_blamed(self, other: Run, run: Run) -> bool:
        if other is run:
            return False
        with_it = [other.crashes] if other.status is Status.LEASED and other.worker == run.worker else []
        is_seen = other.status is Status.LEASED or (not other.held and other.run_at is not None)
        with_it += [other.crashes - 1] if other.lost_by == run.worker and is_seen else []
        least = 1 if run.crashes == 1 else 2
        return max(with_it, default=0) >= least and (run.crashes == 1 or other.claimed > run.claimed)

    def crash(self, run: Run, unit: float, is_excused: bool) -> None:
        run.lost_by = run.worker
        run.to(Status.PENDING, "retried")
        run.max_attempts = (run.max_attempts or DEFAULT_ATTEMPTS) + 1 if is_excused else run.max_attempts
        run.run_at = self.now + unit * (0 if run.crashes == 0 else min(300, 2 ** (run.crashes - 1)))
        run.crashes += 1

    def give_up(self, run: Run) -> None:
        run.crashes += 1
        self.finish(run, Status.FAILED)

    def overdue(self) -> list[Run]:
        return [
            run for run in self.runs.values() if run.is_open and run.deadline is not None and run.deadline <= self.now
        ]

    def unstarted(self) -> list[Run]:
        return [
            run for run in self._open() if not run.started and run.start_by is not None and run.start_by <= self.now
        ]

    def _open(self) -> list[Run]:
        return [run for run in self.runs.values() if run.is_open]

    # Control. Each tells whether it moved the run.

    def cancel(self, run: Run) -> bool:
        if not run.is_open:
            return False
        self.finish(run, Status.CANCELLED)
        return True

    def hold(self, run: Run) -> bool:
        return self._flag(run, True, "held")

    def resume(self, run: Run) -> bool:
        return self._flag(run, False, "resumed")

    def _flag(self, run: Run, held: bool, event: str) -> bool:
        if not run.is_open or run.held == held:
            return False
        run.held = held
        run.events.append(event)
        return True

    def revive(self, run: Run) -> bool:
        if run.is_open or run.deleted:
            return False
        run.to(Status.PENDING, "retried")
        run.attempt = run.crashes = 0
        run.lost_by = None
        run.deadline = run.start_by = None
        run.held = False
        run.run_at = self.now
        for child in [child for child in self.runs.values() if child.parent == run.id and child.taken_along]:
            self.revive(child)
        return True

    def delete(self, run: Run) -> bool:
        if run.deleted:
            return False
        self.cancel(run)
        run.deleted = True
        run.key = None
        run.events.append("deleted")
        return True
