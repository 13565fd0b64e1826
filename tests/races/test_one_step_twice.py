"""Two executions of one step: a worker that was given up for dead writes its checkpoint while its heir does the same.

The fence is the epoch, proved under the row lock (P3, P4). If the old worker's record comes before its lease is taken
back, it counts, and the heir must find it in the history that it reads after its claim, and not run the body again. If
it comes later it is lost and nothing of it is written. In either case there is one checkpoint.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import pytest
from support.ledger import create, flush, new, record, succeeded

from races.arena import Figure, Ring, Stages, Tally
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Lease
from simpleworkflow.store.operations import leases, steps

STALE_FIRST, RECLAIM_FIRST = "old worker's record before the take-over", "take-over before the old worker's record"
AT_ONCE = "both records under way at once"
STEP = "charge#1"


@dataclass
class Writes:
    """When each side's record was under way, in ticks, and how the old worker's fared."""

    tick: itertools.count[int] = field(default_factory=itertools.count)
    old: dict[UUID, tuple[int, int]] = field(default_factory=dict)
    new: dict[UUID, tuple[int, int]] = field(default_factory=dict)
    outcomes: dict[UUID, Outcome] = field(default_factory=dict)

    def overlapped(self, run_id: UUID) -> bool:
        (a, b), (c, d) = self.old[run_id], self.new[run_id]
        return a < d and c < b


async def race(ring: Ring, size: int, tally: Tally) -> None:
    type, frozen = ring.name("step"), ring.name("frozen")
    ids = await create(ring.ours, *(new(type, max_attempts=5) for _ in range(size)))
    stale = await ring.claim_all(ring.ours, type, size, worker=frozen)
    stages, writes = Stages(ring, "sweep", "claim", "history", "record", "rest"), Writes()
    heir = take_over(ring, stages, type, frozen, size, writes)
    await stages.race(heir, *(partial(write_late, ring, lease, writes, frozen) for lease in stale))
    checkpoints = ring.rows("step", "run_id", ids)
    assert len(checkpoints) == len(ids), "one checkpoint each"
    for row in checkpoints:
        run_id = UUID(str(row["run_id"]))
        first = writes.outcomes[run_id] is Outcome.DONE
        assert first or writes.outcomes[run_id] is Outcome.LOST
        winner = 1 if first else 2
        assert (int(str(row["output"])), row["lease_epoch"]) == (winner, winner), "the checkpoint is the winner's"
        assert first == (run_id not in writes.new), "the heir runs the body exactly when nothing is on record"
        tally.saw(STALE_FIRST if first else RECLAIM_FIRST)
        if not first and writes.overlapped(run_id):
            tally.saw(AT_ONCE)
    assert set(ring.statuses(ids).values()) == {"succeeded"}


async def write_late(ring: Ring, lease: Lease, writes: Writes, frozen: str) -> None:
    began = next(writes.tick)
    (writes.outcomes[lease.id],) = await flush(ring.theirs, record(lease, STEP, output="1"), worker=frozen)
    writes.old[lease.id] = began, next(writes.tick)


async def take_over(ring: Ring, stages: Stages, type: str, frozen: str, size: int, writes: Writes) -> None:
    """The heir: sweep the dead worker's leases, claim, read the history, run what is not on record, finish."""
    await stages.begin("sweep")
    swept, deadline = 0, time.monotonic() + 30.0
    while swept < size:  # a sweep passes over rows that are locked just now
        assert time.monotonic() < deadline, f"only {swept} of {size} leases could ever be taken back"
        swept += len(await ring.ours.run(leases.crash([frozen], limit=size, chance=0.0)))
    await stages.begin("claim")
    mine = await ring.claim_all(ring.ours, type, size, worker="heir", suspects=True)
    assert {lease.epoch for lease in mine} == {2}
    await stages.begin("history")
    histories = await ring.ours.run(steps.load([lease.id for lease in mine]))
    open_ones = [lease for lease in mine if STEP not in histories[lease.id].steps]
    await stages.begin("record")
    if open_ones:
        began = next(writes.tick)
        answers = await flush(ring.ours, *(record(lease, STEP, output="2") for lease in open_ones), worker="heir")
        writes.new |= {lease.id: (began, next(writes.tick)) for lease in open_ones}
        assert set(answers) == {Outcome.DONE}
    await stages.begin("rest")
    assert set(await flush(ring.ours, *map(succeeded, mine), worker="heir")) == {Outcome.DONE}


@pytest.mark.parametrize("iterations", [300, pytest.param(5_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_two_executions_of_one_step_leave_one_checkpoint(ring: Ring, figure: Figure, iterations: int) -> None:
    tally = Tally("two executions of one step", [STALE_FIRST, RECLAIM_FIRST, AT_ONCE])
    await ring.rounds(iterations, lambda ring, size: race(ring, size, tally))
    tally.close(iterations, figure, iterations=tally.seen[STALE_FIRST] + tally.seen[RECLAIM_FIRST])
