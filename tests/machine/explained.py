"""The machine with somebody at its side who asks, in every state that it reaches, why each run stands where it stands.

Beyond the machine's own moves, workers say what they serve, fall silent and stop, runs pause for everything that real
runs pause for, other types have more urgent work, and an operator disables a type for the length of a look.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from support.ledger import ERROR, paused, record, succeeded, waiting

from machine import oracle
from machine.entries import Batch
from machine.machine import WORKERS, Machine, picks, types
from machine.world import World
from simpleworkflow.client.explaining.explain import DEPTH, explain
from simpleworkflow.clock import new_id
from simpleworkflow.model.explanation import Explanation
from simpleworkflow.model.moves import GIVEN_UP, Record
from simpleworkflow.model.names import parse_prefixes
from simpleworkflow.model.records import Lease, NewRun
from simpleworkflow.model.states import StepKind, StepStatus
from simpleworkflow.store.operations import explain as looks
from simpleworkflow.store.operations import workers, writing
from simpleworkflow.store.operations.writing import Entry

URGENT_TYPE = "machine.urgent.v1"
"""Nobody ever claims it, so its runs stand before the others for ever."""
SERVED = ["machine.a.v1", "machine.", "machine.a.v1,machine.b.v1", "elsewhere."]

LOADS: list[dict[str, Any] | None] = [
    None,
    {"slots": 4, "taken": 1},
    {"slots": 4, "taken": 4},
    {"slots": 4, "taken": 2, "caps": {URGENT_TYPE: [2, 2]}},
    {"slots": 4, "taken": 4, "caps": {"machine.a.v1": [1, 1], "machine.b.v1": [2, 1]}},
]

OPEN_STEPS = {StepStatus.WAITING.value, StepStatus.RETRYING.value}

PAUSES: list[tuple[str, ...]] = [
    (),
    ("sleep",),
    ("signal",),
    ("step",),
    ("result",),
    ("result", "signal"),
    ("signal", "sleep", "step"),
    ("result", "sleep", "result"),
]


class ExplainedWorld(World):
    def begin(self) -> None:
        super().begin()
        for table in ("worker", "registry"):
            self.raw.sql(f"DELETE FROM workflow.workflow_{table}")

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        if not self.clock:
            self.raw.sql(f"UPDATE workflow.workflow_worker SET seen_at = seen_at {self.raw.back(seconds)}")

    def explanation(self, run_id: UUID) -> Explanation:
        picture = self.run(looks.picture(run_id, depth=DEPTH, silence=oracle.SILENCE))
        assert picture is not None
        return explain(run_id, picture)


class ExplainedMachine(Machine):
    world: ExplainedWorld

    def __init__(self, world: ExplainedWorld) -> None:
        super().__init__(world)
        self._numbers = itertools.count()
        for worker in WORKERS:
            self._announce(worker, "machine.")

    @invariant()
    def explained(self) -> None:
        """Each run, in each state that is reached."""
        tables = oracle.Tables.of(self.world)
        for run_id in self.law.runs:
            told = self.world.explanation(run_id)
            said = self.world.instant(told.at)
            assert said is not None
            assert abs(said - self.law.now) <= self.world.slack, "judged by the database's own clock"
            oracle.check(told, self.world, tables)

    @rule(worker=st.sampled_from(WORKERS), served=st.sampled_from(SERVED), load=st.sampled_from(LOADS))
    def announce(self, worker: str, served: str, load: dict[str, Any] | None) -> None:
        self._announce(worker, served, load)

    def _announce(self, worker: str, served: str, load: dict[str, Any] | None = None) -> None:
        self.world.run(workers.announce(worker, f"{worker}'s crew", "here", 4711, parse_prefixes(served), load))

    @rule(load=st.sampled_from(LOADS))
    def everybody_is_as_full(self, load: dict[str, Any] | None) -> None:
        for worker in WORKERS:
            self._announce(worker, "machine.", load)

    @rule()
    def everybody_is_there(self) -> None:
        """Silence would be the rule: time goes on in steps that are longer than a worker's patience."""
        for worker in WORKERS:
            self._announce(worker, "machine.")

    @rule(worker=st.sampled_from(WORKERS))
    def retire(self, worker: str) -> None:
        self.world.run(workers.retire(worker))

    @rule(type=types)
    def disable_for_a_look(self, type: str) -> None:
        self.world.run(workers.enable(type, False))
        self.explained()
        self.world.run(workers.enable(type, True))

    @rule()
    def create_something_urgent(self) -> None:
        self._create(NewRun(new_id(), URGENT_TYPE, "0", priority=5))

    @rule(pick=picks, worker=st.sampled_from(WORKERS), type=types)
    def crash(self, pick: int, worker: str, type: str) -> None:
        """Claimed, and lost: suspects would be rare."""
        self._claim(type, worker, 1, suspects=bool(pick % 2), lease=160.0, timeout=None)
        self.sweep([worker], "")

    @rule(seconds=st.sampled_from([200.0, 500.0]))
    def wait_long(self, seconds: float) -> None:
        """Leases and limits that have run out would be rare too."""
        self.advance(seconds)

    @rule(type=types, pick=picks)
    def limit_and_hold(self, type: str, pick: int) -> None:
        """A hold does not stop the time that a run was given."""
        wanted = NewRun(new_id(), type, str(pick), start_within=160.0)
        self._create(wanted)
        self._control("hold", self.law.runs[wanted.id])

    @rule(pick=picks, gives_up=st.booleans())
    def wait_in_memory(self, pick: int, gives_up: bool) -> None:
        """A wait of a run that cannot be unwound, and perhaps the end of its patience."""
        lease = self.any_lease(pick)
        name = f"word{next(self._numbers)}#0" if gives_up else f"go{next(self._numbers)}#0"
        self._put(waiting(lease, name, kind=StepKind.SIGNAL))
        if gives_up:
            self._put(waiting(lease, name, kind=StepKind.SIGNAL, error=GIVEN_UP))

    def _put(self, entry: Entry) -> None:
        batch = Batch(self.law, self.seen)
        batch.entries.append(entry)
        worker = self.workers[entry.run_id, entry.epoch]
        assert self.world.run(writing.write(batch.entries, worker)) == batch.foretell()

    @rule(
        type=types, worker=st.sampled_from(WORKERS), pick=picks, kinds=st.sampled_from(PAUSES), gives_up=st.booleans()
    )
    def work_until_it_waits(self, type: str, worker: str, pick: int, kinds: tuple[str, ...], gives_up: bool) -> None:
        """A pause as real runs make it: for a signal, a time, a step's next attempt, a child; or for nothing at all.
        What was waited for before and given up stays on record."""
        self._claim(type, worker, 1, suspects=False, lease=160.0, timeout=None)
        lease = self.any_lease(pick)
        if not self.law.owns(lease.id, lease.epoch):
            return
        if "result" in kinds:
            batch = Batch(self.law, self.seen)
            batch.add(lease, "child", pick)
            assert (
                not batch.entries
                or self.world.run(writing.write(batch.entries, self.worker_of(lease))) == batch.foretell()
            )
        waits = [wait for kind in kinds if (wait := self._wait(lease, kind)) is not None]
        if not waits and any(step.status in OPEN_STEPS for step in self.law.runs[lease.id].steps.values()):
            return  # who says nothing of what it waits for is taken to wait for what is on record
        if gives_up and waits:
            self._put(waiting(lease, f"word{next(self._numbers)}#0", kind=StepKind.SIGNAL))
        due_in = 150.0 if {"sleep", "step"} & set(kinds) else None  # a time has a wait with that time
        wakes = self.law.runs[lease.id].wakes
        batch = Batch(self.law, self.seen)
        pause = replace(paused(lease, *waits, due_in=due_in, wakes=wakes), awaited=tuple(w.step_id for w in waits))
        batch.entries.append(pause)
        assert self.world.run(writing.write(batch.entries, self.worker_of(lease))) == batch.foretell()

    @rule(type=types, worker=st.sampled_from(WORKERS), pick=picks, sleeps=st.booleans())
    def wait_for_time_or_nobody(self, type: str, worker: str, pick: int, sleeps: bool) -> None:
        """A sleep alone, or only a wake from outside: drawn from so many pauses, they would be rare."""
        self.work_until_it_waits(type, worker, pick, ("sleep",) if sleeps else (), False)

    @rule(type=types, worker=st.sampled_from(WORKERS), pick=picks)
    def work_to_the_end(self, type: str, worker: str, pick: int) -> None:
        """Success would be rare among all the ways to end."""
        self._claim(type, worker, 1, suspects=False, lease=160.0, timeout=None)
        self._put(succeeded(self.any_lease(pick)))

    def _wait(self, lease: Lease, kind: str) -> Record | None:
        number = next(self._numbers)
        if kind == "signal":
            return waiting(lease, f"go{number}#0", kind=StepKind.SIGNAL)
        if kind == "sleep":
            return waiting(lease, f"@sleep#{number}", due_in=150.0)
        if kind == "step":
            rest = {"status": StepStatus.RETRYING, "attempt": 1, "due_in": 150.0, "error": ERROR}
            return record(lease, f"charge#{number}", **rest)
        children = [child for child in self.law.runs.values() if child.parent == lease.id]
        if not children:
            return None
        child = children[number % len(children)].id
        return waiting(lease, f"@result {child}#{number}", kind=StepKind.RESULT)
