"""The machine: random operations of clients, two workers, a sweeper and an operator on one database.

Each rule runs one operation of the store, foretells its answer by the law, and compares; afterwards everything that
the database holds is compared (agreement.py). Leases are kept for ever, so that late workers with old epochs try their
luck all the time. Durations are multiples of 50 s, far beyond what an example takes in real time.

Left out on purpose, because the databases may rightly differ there: two relatives that end in one statement (each may
end by itself or be taken along), and who comes first among runs that are equally due.
"""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from machine import agreement
from machine.entries import Batch
from machine.law import Law, Run, Signal, new_run
from machine.world import World
from simpleworkflow.clock import new_id
from simpleworkflow.model.errors import AlreadyFinished, IdempotencyConflict
from simpleworkflow.model.records import Created, Lease, NewRun, Renewal
from simpleworkflow.model.states import Status
from simpleworkflow.store.operations import leases, runs, steps, writing

WORKERS = ["anna", "bert"]
TYPES = ["machine.a.v1", "machine.b.v1"]
PRIORITY = 100
CRASH_UNIT = 50.0
LARGE = 100

picks = st.integers(0, 2**16)
delays = st.sampled_from([0.0, 0.0, 50.0, 150.0])
types = st.sampled_from(TYPES)
kinds = st.sampled_from(["step", "signal", "child", "pause", "end"])
workers = st.sampled_from(WORKERS)
# Time goes on in steps of 50 s; whatever runs out lies between two of them, so that no reading of a clock decides.
lease_times = st.sampled_from([160.0, 1060.0])
timeouts = st.sampled_from([None, None, None, 460.0])
wishes = st.lists(st.tuples(picks, kinds, picks), min_size=1, max_size=4)
"""What a flush shall hold: whose lease, what, and details of it."""
has_runs = precondition(lambda self: bool(self.law.runs))
has_leases = precondition(lambda self: bool(self.leases))


class Machine(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.law = Law()
        self.leases: list[Lease] = []
        self.workers: dict[tuple[UUID, int], str] = {}
        """Who took each of them."""
        self.seen: dict[tuple[UUID, int], int] = {}
        """The wake counter that each execution read last."""
        world.begin()

    @initialize()
    def open_the_shop(self) -> None:
        """Some runs, some of them under way: an example whose rules came in a dull order is not wasted."""
        for type, payload in itertools.product(TYPES, ["0", "1"]):
            self._create(NewRun(new_id(), type, payload))
        for type, worker in zip(TYPES, WORKERS, strict=True):
            self._claim(type, worker, 1 + (type == TYPES[0]), suspects=False, lease=160.0, timeout=None)

    @invariant()
    def agree(self) -> None:
        self.world.seen["steps"] += 1
        agreement.check(self.law, self.world)

    def teardown(self) -> None:
        for run in self.law.runs.values():
            self.world.seen.update(run.events)
            self.world.seen["signals consumed"] += len(run.signals) - len(run.unread)
            self.world.seen["children"] += run.parent is not None

    def any_run(self, pick: int) -> Run:
        """Mostly an open one; now and then any."""
        runs = list(self.law.runs.values())
        open_ones = [run for run in runs if run.is_open]
        among = open_ones if open_ones and pick % 4 else runs
        return among[-1 - (pick // 4) % len(among)]

    def any_lease(self, pick: int) -> Lease:
        """Mostly one that still holds; now and then any, however old."""
        live = [lease for lease in self.leases if self.law.owns(lease.id, lease.epoch)]
        among = live if live and pick % 8 < 7 else self.leases
        return among[-1 - (pick // 8) % len(among)]

    def worker_of(self, lease: Lease) -> str:
        return self.workers[lease.id, lease.epoch]

    # Clients.

    @rule(
        type=types,
        key=st.sampled_from([None, None, "k1", "k2"]),
        payload=st.sampled_from(["0", "0", "1"]),
        delay=delays,
        attempts=st.sampled_from([None, 1, 2, 4]),
        within=st.sampled_from([None, None, 160.0]),
    )
    def create(
        self, type: str, key: str | None, payload: str, delay: float, attempts: int | None, within: float | None
    ) -> None:
        rest: dict[str, Any] = {"delay": delay, "max_attempts": attempts, "start_within": within}
        self._create(NewRun(new_id(), type, payload, idempotency_key=key, **rest))

    def _create(self, wanted: NewRun) -> None:
        (answer,) = self.world.run(runs.create([wanted]))
        owner = self.law.keyed(wanted.idempotency_key)
        if owner is None:
            assert answer == Created(wanted.id, True)
            self.law.create(new_run(wanted, self.law.now))
        elif (owner.type, owner.payload) == (wanted.type, wanted.payload):
            assert answer == Created(owner.id, False)
        else:
            assert isinstance(answer, IdempotencyConflict)

    @has_runs
    @rule(pick=picks, name=st.sampled_from(["go", "stop"]))
    def signal(self, pick: int, name: str) -> None:
        self._send(self.any_run(pick), Signal(new_id(), name, "0"))

    @has_runs
    @rule(pick=picks)
    def ask_again(self, pick: int) -> None:
        """The same request once more, after an answer that was lost: nothing new, even if the run has ended since."""
        run = self.any_run(pick)
        (answer,) = self.world.run(runs.create([NewRun(run.id, run.type, run.payload)]))
        assert answer == Created(run.id, False)
        if run.signals:
            self._send(run, run.signals[pick % len(run.signals)])

    def _send(self, run: Run, signal: Signal) -> None:
        try:
            self.world.run(steps.send(signal.id, run.id, signal.name, signal.payload))
            accepted = True
        except AlreadyFinished:
            accepted = False
        assert accepted == self.law.signal(run, signal)

    # Workers.

    @rule(pick=picks, worker=workers, limit=st.integers(1, 3), lease=lease_times, timeout=timeouts)
    def claim(self, pick: int, worker: str, limit: int, lease: float, timeout: float | None) -> None:
        type, suspects = self.any_lane(pick)
        self._claim(type, worker, limit, suspects=suspects, lease=lease, timeout=timeout)

    @rule(pick=picks, worker=workers, wanted=wishes)
    def serve(self, pick: int, worker: str, wanted: list[tuple[int, str, int]]) -> None:
        """What a worker does all day: claim, and flush what comes of it."""
        type, suspects = self.any_lane(pick)
        self._claim(type, worker, 2, suspects=suspects, lease=160.0, timeout=None)
        if self.leases:
            self._flush(wanted)

    def any_lane(self, pick: int) -> tuple[str, bool]:
        """A type, and whether its suspects are wanted; mostly a lane that has something to do."""
        lanes = [(type, suspects) for type in TYPES for suspects in (False, True)]
        due = [lane for lane in lanes if self.law.claimable(lane[0], suspects=lane[1], slack=0.0)[0]]
        among = due if due and pick % 8 else lanes
        return among[pick // 8 % len(among)]

    def _claim(
        self, type: str, worker: str, limit: int, *, suspects: bool, lease: float, timeout: float | None
    ) -> None:
        micros = None if timeout is None else round(timeout * 1e6)
        offer = leases.Offer(type, PRIORITY, 3, round(lease * 1e6), micros)
        lanes = {"crashes": leases.EVER if suspects else None, "lane_by_lane": self.world.lane_by_lane}
        taken = self.world.run(leases.claim([offer], limit, worker, **lanes))
        due, perhaps = self.law.claimable(type, suspects=suspects, slack=self.world.slack)
        ids = {one.id for one in taken}
        assert len(ids) == len(taken) <= limit
        assert ids <= perhaps
        assert len(taken) == limit or due <= ids, "something due was left although there was room"
        for one in taken:
            run = self.law.runs[one.id]
            self.law.claim(run, worker, lease, 3, timeout)
            assert (one.epoch, one.attempt, one.crashes) == (run.epoch, run.attempt, run.crashes)
            assert (one.wakes, one.max_attempts, one.parent_id) == (run.wakes, run.max_attempts, run.parent)
            self.workers[one.id, one.epoch] = worker
        self.leases += taken

    @has_leases
    @rule(pick=picks)
    def look(self, pick: int) -> None:
        """Read the history, as an execution does after its claim and after a refused pause."""
        lease = self.any_lease(pick)
        run = self.law.runs[lease.id]
        state, history = self.world.run(steps.reload(lease.id, lease.epoch, self.worker_of(lease)))
        wakes = state.wakes
        assert wakes == run.wakes
        assert {name: step.status.value for name, step in history.steps.items()} == {
            name: step.status for name, step in run.steps.items() if step.status != "superseded"
        }
        assert [signal.id for signal in history.signals] == [signal.id for signal in run.unread]
        self.seen[lease.id, lease.epoch] = wakes

    @has_leases
    @rule(wanted=wishes)
    def flush(self, wanted: list[tuple[int, str, int]]) -> None:
        """Records, pauses and endings of several executions in one transaction."""
        self._flush(wanted)

    @has_leases
    @rule(pick=picks, detail=picks)
    def pause(self, pick: int, detail: int) -> None:
        self._flush([(pick, "pause", detail)])

    @has_leases
    @rule(pick=picks, detail=picks)
    def end(self, pick: int, detail: int) -> None:
        self._flush([(pick, "end", detail)])

    @has_leases
    @rule(pick=picks, detail=picks)
    def consume(self, pick: int, detail: int) -> None:
        self._flush([(pick, "signal", detail)])

    def _flush(self, wanted: list[tuple[int, str, int]]) -> None:
        batch, worker = Batch(self.law, self.seen), None
        for pick, kind, detail in wanted:
            lease = self.any_lease(pick)
            worker = worker or self.worker_of(lease)
            if self.worker_of(lease) == worker:  # a worker writes for itself alone
                batch.add(lease, kind, detail)
        if batch.entries:
            outcomes = self.world.run(writing.write(batch.entries, worker))
            assert outcomes == batch.foretell()
            for entry, outcome in zip(batch.entries, outcomes, strict=True):
                self.world.seen[f"{type(entry).__name__} {outcome}"] += 1

    @has_leases
    @rule(pick=picks, other=picks, seconds=st.sampled_from([60.0, 1060.0]))
    def renew(self, pick: int, other: int, seconds: float) -> None:
        one, two = self.any_lease(pick), self.any_lease(other)
        worker = self.worker_of(one)
        two = two if self.worker_of(two) == worker else one
        asked = list({(lease.id, lease.epoch): (lease.id, lease.epoch, seconds) for lease in (one, two)}.values())
        if len({run_id for run_id, *_ in asked}) < len(asked):
            return  # a worker never holds two leases of one run
        said = []
        for run_id, epoch, _ in sorted(asked):
            run = self.law.runs[run_id]
            owned = self.law.renew(run, epoch, seconds)
            said.append(Renewal(run_id, epoch, owned, run.held, run.wakes, owned))
        assert self.world.run(leases.renew(asked, worker)) == said
        assert not self.world.run(leases.heartbeat(one.id, one.epoch, "a stranger", 360.0))
        self._heartbeat(one)

    def _heartbeat(self, lease: Lease) -> None:
        run = self.law.runs[lease.id]
        owned = self.law.renew(run, lease.epoch, 360.0)
        run.events += ["heartbeat"] if owned else []
        assert self.world.run(leases.heartbeat(lease.id, lease.epoch, self.worker_of(lease), 360.0)) == owned

    # The sweep, and time.

    @rule(dead=st.lists(workers, max_size=1), me=st.sampled_from(["", *WORKERS]))
    def sweep(self, dead: list[str], me: str) -> None:
        gone = self.law.lost_leases(dead, me)
        excused = self.law.excused(gone)
        limit = 1 if self._are_related([run for run in gone if self.law.is_spent(run)]) else LARGE
        spread = (CRASH_UNIT - 1) * 2  # the operation makes of it a unit of 50 s instead of one
        moved = self.world.run(leases.crash(dead, limit=limit, chance=spread, me=me))
        said = []
        for run in [run for run in gone if run.id in excused or not self.law.is_spent(run)][:limit]:
            self.law.crash(run, CRASH_UNIT, run.id in excused)
            said.append((run.id, Status.PENDING))
        left = [run for run in self.law.lost_leases(dead, me) if run.id not in excused]
        for run in [run for run in left if self.law.is_spent(run)][:limit]:
            self.law.give_up(run)
            said.append((run.id, Status.FAILED))
        assert sorted(moved) == sorted(said)

    @rule()
    def expire(self) -> None:
        late = [*self.law.overdue(), *self.law.unstarted()]
        limit = 1 if self._are_related(late) else LARGE
        ended = self.world.run(leases.expire(limit=limit))
        assert len(set(ended)) == len(ended)
        assert set(ended) <= {run.id for run in late}
        assert len(ended) >= min(limit, len({run.id for run in late}))
        for run_id in ended:
            self.law.finish(self.law.runs[run_id], Status.TIMED_OUT)

    def _are_related(self, some: list[Run]) -> bool:
        ids = {run.id for run in some}
        return any(self.law.below(run) & ids for run in some)

    @rule(seconds=st.sampled_from([50.0, 100.0, 200.0, 500.0]))
    def advance(self, seconds: float) -> None:
        self.law.now += seconds
        self.world.advance(seconds)

    # Operators.

    @has_runs
    @rule(pick=picks, name=st.sampled_from(["resume", "hold", "cancel", "delete", "revive"]))
    def control(self, pick: int, name: str) -> None:
        self._control(name, self.any_run(pick))

    @has_runs
    @rule(pick=picks)
    def hold(self, pick: int) -> None:
        """Hold what goes on, let go what is held: held runs would pile up too."""
        run = self.any_run(pick)
        self._control("resume" if run.held else "hold", run)

    @rule(pick=picks)
    def revive(self, pick: int) -> None:
        """Finished runs would pile up."""
        finished = [run for run in self.law.runs.values() if not run.is_open]
        if finished:
            self._control("revive", finished[pick % len(finished)])

    def _control(self, name: str, run: Run) -> None:
        """The reply tells whether it moved the run, and the state that the run is in now."""
        operation: Any = getattr(runs, name)
        ((moved, found),) = self.world.run(operation([run.id]))
        assert moved == getattr(self.law, name)(run)
        assert found is not None
        assert (found.status, found.is_held, found.lease_epoch) == (run.status, run.held, run.epoch)
