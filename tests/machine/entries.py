"""One flush: what several executions want to write, and what the law says becomes of it.

The order inside a flush is part of the law: leases are proved first; then records; endings that send a run back; the
ending that ends one; pauses last. So a parent's pause in the flush of its child's end must look again, and what a
failing parent takes along is lost to its own worker.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from support.ledger import (
    exhausted,
    failed,
    handed_back,
    overran,
    paused,
    record,
    released,
    retried,
    set_aside,
    succeeded,
    waiting,
)

from machine.law import Law, Step, new_run
from simpleworkflow.clock import new_id
from simpleworkflow.model.moves import Ending, Outcome, Pause, Record
from simpleworkflow.model.records import Lease, NewRun
from simpleworkflow.model.states import StepKind, StepStatus
from simpleworkflow.store.operations.writing import Entry

NAMES = 4
DONE = {StepStatus.SUCCEEDED.value, StepStatus.FAILED.value}
RESULTS = [StepStatus.SUCCEEDED, StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.RETRYING]
ENDINGS = [released, retried, succeeded, failed, overran, exhausted, set_aside, handed_back, retried]
DELAYS = [0.0, 50.0]
DUE = [None, 50.0, 150.0]


class Batch:
    def __init__(self, law: Law, seen: dict[tuple[UUID, int], int]) -> None:
        self.entries: list[Entry] = []
        self._law = law
        self._seen = seen
        self._written: set[tuple[UUID, str]] = set()
        self._leaving: set[UUID] = set()
        self._consumed: set[UUID] = set()
        self._has_end = False

    def add(self, lease: Lease, kind: str, detail: int) -> None:
        {
            "step": self._add_step,
            "signal": self._add_signal,
            "child": self._add_child,
            "pause": self._add_pause,
            "end": self._add_end,
        }[kind](lease, detail)

    def _free(self, lease: Lease, prefix: str, detail: int) -> str | None:
        """A step that is not finished and not in this flush yet; replay never asks for one that is on record."""
        name = f"{prefix}{detail % NAMES}"
        known = self._law.runs[lease.id].steps.get(name)
        if (lease.id, name) in self._written or (known and known.status in DONE):
            return None
        self._written.add((lease.id, name))
        return name

    def _add_step(self, lease: Lease, detail: int) -> None:
        if name := self._free(lease, "step", detail):
            status = RESULTS[detail // NAMES % len(RESULTS)]
            told = '{"attempt":1}' if status is StepStatus.RETRYING else None
            self._record(lease, name, StepKind.STEP, status, attempt=detail % 3, output=str(detail), told=told)

    def _add_signal(self, lease: Lease, detail: int) -> None:
        """Consume the oldest unread signal of a name."""
        unread = self._law.runs[lease.id].unread
        oldest = [signal for signal in unread if signal.name == unread[detail % len(unread)].name][:1]
        if not oldest or oldest[0].id in self._consumed:
            return
        if name := self._free(lease, "wait", detail):
            self._consumed.add(oldest[0].id)
            rest = {"output": oldest[0].payload, "signal_id": oldest[0].id}
            self._record(lease, name, StepKind.SIGNAL, StepStatus.SUCCEEDED, **rest)

    def _add_child(self, lease: Lease, detail: int) -> None:
        if name := self._free(lease, "child", detail):
            attempts = [None, 1, 2][detail % 3]
            child = NewRun(new_id(), lease.type, str(detail), parent_id=lease.id, max_attempts=attempts)
            self._record(lease, name, StepKind.CHILD, StepStatus.WAITING, child=child)

    def _record(self, lease: Lease, name: str, kind: StepKind, status: StepStatus, **rest: object) -> None:
        clears = lease.crashes > 0
        self.entries.append(record(lease, name, kind=kind, status=status, clears_suspicion=clears, **rest))

    def _add_pause(self, lease: Lease, detail: int) -> None:
        if lease.id in self._leaving:
            return
        self._leaving.add(lease.id)
        name = self._free(lease, "wait", detail)
        waits = [waiting(lease, name, kind=StepKind.SIGNAL)] if name else []
        wakes = self._seen.get((lease.id, lease.epoch), lease.wakes)
        self.entries.append(paused(lease, *waits, due_in=DUE[detail // NAMES % len(DUE)], wakes=wakes))

    def _add_end(self, lease: Lease, detail: int) -> None:
        """At most one that ends a run, so that no two relatives end in one statement."""
        make = ENDINGS[detail % len(ENDINGS)]
        delay = DELAYS[detail // len(ENDINGS) % len(DELAYS)]
        ending = make(lease, delay) if make in (retried, handed_back) else make(lease)
        if make in (retried, exhausted):
            ending = replace(ending, clears=self._culprits(lease, detail))
        if lease.id in self._leaving or (ending.status.is_terminal and self._has_end):
            return
        self._leaving.add(lease.id)
        self._has_end |= ending.status.is_terminal
        self.entries.append(ending)

    def _culprits(self, lease: Lease, detail: int) -> tuple[str, ...]:
        """Some of the steps that have failed: the ending says that they led to it."""
        steps = self._law.runs[lease.id].steps
        failed_ones = sorted(name for name, step in steps.items() if step.status == StepStatus.FAILED)
        return tuple(name for name in failed_ones if (lease.id, name) not in self._written)[: detail % 3]

    # The law's part.

    def foretell(self) -> list[Outcome]:
        """Apply the flush to the law; the outcome of each entry."""
        mine = [entry for entry in self.entries if self._law.owns(entry.run_id, entry.epoch)]
        outcomes = {id(entry): Outcome.LOST for entry in self.entries}
        for entry in mine:
            if isinstance(entry, Record):
                outcomes[id(entry)] = self._apply_record(entry)
        endings = [entry for entry in mine if isinstance(entry, Ending)]
        for entry in sorted(endings, key=lambda ending: (ending.status.is_terminal, ending.run_id)):
            run = self._law.runs[entry.run_id]
            self._law.clear(run, entry.epoch, entry.clears)
            if entry.started:
                outcomes[id(entry)] = self._law.end(run, entry.epoch, entry.move, entry.delay)
            else:
                outcomes[id(entry)] = self._law.hand_back(run, entry.epoch, entry.delay, entry.anew)
        for entry in mine:
            if isinstance(entry, Pause):
                outcomes[id(entry)] = self._apply_pause(entry)
        return [outcomes[id(entry)] for entry in self.entries]

    def _apply_record(self, entry: Record) -> Outcome:
        run = self._law.runs[entry.run_id]
        self._law.record(run, entry.step_id, _step(entry), entry.signal_id, clears=entry.clears_suspicion)
        if entry.told is not None:
            run.events.append("step_retried")
        if entry.child is not None:
            self._law.create(new_run(entry.child, self._law.now))
        return Outcome.DONE

    def _apply_pause(self, entry: Pause) -> Outcome:
        run = self._law.runs[entry.run_id]
        outcome = self._law.pause(run, entry.epoch, entry.wakes, entry.due_in)
        for wait in entry.waits if outcome is Outcome.DONE else ():
            self._law.record(run, wait.step_id, _step(wait), None, clears=False)
        return outcome


def _step(entry: Record) -> Step:
    return Step(entry.kind.value, entry.status.value, entry.attempt, entry.output, entry.epoch)
