"""The end of a child against the pause of its parent (design, section 4: every terminal move of a child wakes it).

The parent looks at its children, finds one still open and goes to bed; the child ends in between. Whichever way the
child ends (its own worker, a cancel, the sweep of a dead worker, a deadline) the parent must learn of it: in what it
reads, by a refused pause, or by being due. With two children the last one's end makes the parent due at once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

import pytest
from support.ledger import claim, create, failed, flush, new, offer, paused, settle, succeeded, waiting

from races.arena import Figure, Ring, Stages, Tally
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Lease, NewRun, Run
from simpleworkflow.model.states import StepKind
from simpleworkflow.store.operations import leases, runs

BEFORE_CLAIM, BEFORE_LOOK = "child ends before the claim", "child ends between claim and look"
BEFORE_PAUSE, AFTER_PAUSE = "child ends between look and pause", "child ends after the pause"
FAN_OUT_WAIT = 1.0

Families = dict[UUID, list[NewRun]]
End = Callable[[], Awaitable[object]]


async def race(ring: Ring, size: int, tally: Tally) -> None:
    parents, children = ring.name("parent"), ring.name("child")
    ids = await create(ring.ours, *(new(parents) for _ in range(size)))
    families = {one: [new(children, parent_id=one, max_attempts=1) for _ in range(siblings(ring))] for one in ids}
    await create(ring.ours, *(child for family in families.values() for child in family))
    count = sum(map(len, families.values()))
    doomed = ring.name("doomed")
    taken = await ring.claim_all(ring.theirs, children, count, worker=doomed)
    stages = Stages(ring, "claim", "look", "pause", "rest")
    acts = [ring.dice.choice(ENDS)(ring, lease, doomed) for lease in taken]
    await stages.race(wait_for_children(ring, stages, parents, families, tally), *acts)
    for family in families.values():
        assert all(child.is_finished for child in await look(ring, family)), "a child was to end and did not"
    # Everyone who sleeps now must be due: nothing will ever wake them again.
    asleep = [run_id for run_id, status in ring.statuses(ids).items() if status == "paused"]
    woken = await claim(ring.ours, offer(parents), limit=size)
    assert {lease.id for lease in woken} == set(asleep), "a parent sleeps although its children have ended"
    if woken:
        await settle(ring.ours, *map(succeeded, woken))
    assert set(ring.statuses(ids).values()) == {"succeeded"}


def siblings(ring: Ring) -> int:
    return 1 if ring.dice.random() < 0.8 else 2


async def look(ring: Ring, family: list[NewRun]) -> list[Run]:
    found = await ring.ours.run(runs.get([child.id for child in family]))
    return [child for child in found if child is not None]


async def wait_for_children(ring: Ring, stages: Stages, type: str, families: Families, tally: Tally) -> None:
    await stages.begin("claim")
    mine = await ring.claim_all(ring.ours, type, len(families))
    await stages.begin("look")
    every = await look(ring, [child for family in families.values() for child in family])
    still_open = {child.parent_id for child in every if not child.is_finished}
    for lease in mine:
        if lease.id not in still_open:
            tally.saw(BEFORE_CLAIM if lease.wakes == len(families[lease.id]) else BEFORE_LOOK)
    await stages.begin("pause")
    waits = [lease for lease in mine if lease.id in still_open]
    pauses = [paused(lease, waiting(lease, "child#1", kind=StepKind.CHILD)) for lease in waits]
    outcomes = await flush(ring.ours, *pauses) if pauses else []
    for outcome in outcomes:
        tally.saw({Outcome.WOKEN: BEFORE_PAUSE, Outcome.DONE: AFTER_PAUSE}[outcome])
    await stages.begin("rest")
    # Who was told, or refused, is awake and goes on: here it simply ends.
    asleep = {lease.id for lease, outcome in zip(waits, outcomes, strict=True) if outcome is Outcome.DONE}
    awake = [lease for lease in mine if lease.id not in asleep]
    if awake:
        assert set(await settle(ring.ours, *map(succeeded, awake))) == {Outcome.DONE}


def by_success(ring: Ring, lease: Lease, doomed: str) -> End:
    return partial(settle, ring.theirs, succeeded(lease), worker=doomed)


def by_failure(ring: Ring, lease: Lease, doomed: str) -> End:
    return partial(settle, ring.theirs, failed(lease), worker=doomed)


def by_cancel(ring: Ring, lease: Lease, doomed: str) -> End:
    async def act() -> None:
        await ring.theirs.run(runs.cancel([lease.id]))

    return act


def by_crash(ring: Ring, lease: Lease, doomed: str) -> End:
    """Its worker is found dead. All of that worker's leases end with it, which the other acts must bear."""

    async def act() -> None:
        await _until_finished(ring, lease, lambda: ring.theirs.run(leases.crash([doomed], limit=50, chance=0.0)))

    return act


ENDS = [by_success, by_success, by_failure, by_cancel, by_crash]


async def _until_finished(ring: Ring, lease: Lease, sweep: Callable[[], Awaitable[object]]) -> None:
    """A sweep passes over rows that are locked just now."""
    deadline = time.monotonic() + 30.0
    while True:
        await sweep()
        if await ring.theirs.run(runs.finished_among([lease.id])):
            return
        assert time.monotonic() < deadline, f"{lease.id} could never be swept"


@pytest.mark.parametrize("iterations", [300, pytest.param(5_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_a_parent_never_sleeps_through_the_end_of_its_child(ring: Ring, figure: Figure, iterations: int) -> None:
    tally = Tally("child completion against parent pause", [BEFORE_CLAIM, BEFORE_LOOK, BEFORE_PAUSE, AFTER_PAUSE])
    await ring.rounds(iterations, lambda ring, size: race(ring, size, tally))
    tally.close(iterations, figure)
