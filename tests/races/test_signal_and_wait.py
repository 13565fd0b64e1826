"""A signal against a run that is about to wait for it (P6, and "no lost wake-up" of the design's section 4).

The signal may come before the claim, between the claim and the reading of the history, between that reading and the
pause, or after the pause. The third is the dangerous one: the run has looked, found nothing, and is on its way to bed.
The wake counter must refuse that pause. Whatever happens, every signal is consumed once and its run finishes.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest
from support.ledger import claim, create, flush, new, offer, paused, record, succeeded, tell, waiting

from races.arena import Figure, Ring, Stages, Tally
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Lease, Signal
from simpleworkflow.model.states import StepKind
from simpleworkflow.store.operations import steps, writing

BEFORE_CLAIM, BEFORE_HISTORY = "signal before the claim", "signal between claim and history"
BEFORE_PAUSE, AFTER_PAUSE = "signal between history and pause", "signal after the pause"
WAIT = "signal:go#1"


async def race(ring: Ring, size: int, tally: Tally) -> None:
    type = ring.name("signal")
    ids = await create(ring.ours, *(new(type) for _ in range(size)))
    stages = Stages(ring, "claim", "history", "pause", "rest")
    senders = [partial(tell, ring.theirs, run_id, payload=f'"{run_id}"') for run_id in ids]
    await stages.race(wait_for_signal(ring, stages, type, size, tally), *senders)
    # What sleeps now must be due at once: nobody else will ever wake it.
    woken = await claim(ring.ours, offer(type), limit=size)
    histories = await ring.ours.run(steps.load([lease.id for lease in woken]))
    await consume(ring, [(lease, *histories[lease.id].signals) for lease in woken])
    check(ring, ids)


async def wait_for_signal(ring: Ring, stages: Stages, type: str, size: int, tally: Tally) -> None:
    """One execution of each run, as a worker does it: claim, read, and pause where nothing was found."""
    await stages.begin("claim")
    leases = await ring.claim_all(ring.ours, type, size)
    await stages.begin("history")
    histories = await ring.ours.run(steps.load([lease.id for lease in leases]))
    told = [(lease, *histories[lease.id].signals) for lease in leases if histories[lease.id].signals]
    quiet = [lease for lease in leases if not histories[lease.id].signals]
    assert not [lease for lease in quiet if lease.wakes], "a signal that the claim counted is in the history"
    for lease, *_ in told:
        tally.saw(BEFORE_CLAIM if lease.wakes else BEFORE_HISTORY)
    await stages.begin("pause")
    pauses = [paused(lease, waiting(lease, WAIT, kind=StepKind.SIGNAL)) for lease in quiet]
    outcomes = await flush(ring.ours, *pauses) if pauses else []
    for lease, outcome in zip(quiet, outcomes, strict=True):
        tally.saw({Outcome.WOKEN: BEFORE_PAUSE, Outcome.DONE: AFTER_PAUSE}[outcome])
        if outcome is Outcome.WOKEN:
            state, history = await ring.ours.run(steps.reload(lease.id, lease.epoch, "w1"))
            wakes = state.wakes
            assert wakes > lease.wakes
            told.append((lease, *history.signals))
    await stages.begin("rest")
    await consume(ring, told)


async def consume(ring: Ring, told: list[tuple[Lease, Signal]]) -> None:
    entries: list[writing.Entry] = []
    for lease, signal in told:
        output = signal.payload_json
        entries += [record(lease, WAIT, kind=StepKind.SIGNAL, output=output, signal_id=signal.id), succeeded(lease)]
    if entries:
        assert set(await flush(ring.ours, *entries)) == {Outcome.DONE}


def check(ring: Ring, ids: list[UUID]) -> None:
    assert set(ring.statuses(ids).values()) == {"succeeded"}
    signals = ring.rows("signal", "run_id", ids)
    assert {UUID(str(signal["run_id"])) for signal in signals} == set(ids)
    assert len(signals) == len(ids)
    assert all(signal["consumed_at"] is not None and signal["consumed_by"] == WAIT for signal in signals)
    recorded = {UUID(str(step["run_id"])): step["output"] for step in ring.rows("step", "run_id", ids)}
    assert {str(output).strip('"') for output in recorded.values()} == {str(run_id) for run_id in ids}
    assert len(recorded) == len(ids)


@pytest.mark.parametrize("iterations", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_no_signal_is_lost_however_it_meets_the_wait(ring: Ring, figure: Figure, iterations: int) -> None:
    tally = Tally("signal against wait", [BEFORE_CLAIM, BEFORE_HISTORY, BEFORE_PAUSE, AFTER_PAUSE])
    await ring.rounds(iterations, lambda ring, size: race(ring, size, tally))
    tally.close(iterations, figure)
