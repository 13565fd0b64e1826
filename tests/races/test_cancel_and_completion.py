"""A cancel against the end of the run it wants to stop (P8: control tells the truth).

Whoever comes first owns the final state. The canceller's reply must name it, and the worker must learn whether its
ending landed. All three roads to an end are taken: the short one, the one that locks a parent first, and the one
behind a record in the same flush.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest
from support.ledger import create, failed, flush, new, record, succeeded

from races.arena import Figure, Ring, Stages, Tally
from simpleworkflow.clock import new_id
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Lease
from simpleworkflow.store.operations import runs, writing
from simpleworkflow.store.operations.runs import Controlled

CANCEL_FIRST, ENDING_FIRST = "cancel before the ending", "ending before the cancel"


async def race(ring: Ring, size: int, tally: Tally) -> None:
    type = ring.name("cancel")
    parent = ring.dice.choice([None, new_id()])
    wanted = [new(type, parent_id=parent) for _ in range(size)]
    if parent:
        await create(ring.ours, new(ring.name("parent"), id=parent))
    ids = await create(ring.ours, *wanted)
    leases = await ring.claim_all(ring.ours, type, size)
    stages = Stages(ring, "ending", "rest")
    outcomes: dict[UUID, tuple[Outcome, str]] = {}
    replies: dict[UUID, Controlled] = {}
    await stages.race(end(ring, stages, leases, outcomes), *(partial(cancel, ring, one, replies) for one in ids))
    final = ring.statuses(ids)
    for run_id in ids:
        (outcome, wanted_status), (moved, seen) = outcomes[run_id], replies[run_id]
        assert seen is not None
        assert seen.status == final[run_id], "the reply is the state that the run ends in"
        assert moved == (final[run_id] == "cancelled")
        assert outcome is (Outcome.LOST if moved else Outcome.DONE), "exactly one of the two moved the run"
        assert moved or final[run_id] == wanted_status
        tally.saw(CANCEL_FIRST if moved else ENDING_FIRST)
    check_steps(ring, leases, outcomes)


async def end(ring: Ring, stages: Stages, leases: list[Lease], outcomes: dict[UUID, tuple[Outcome, str]]) -> None:
    endings = [ring.dice.choice([succeeded, failed])(lease) for lease in leases]
    records = [record(lease) for lease in leases] if ring.dice.random() < 0.5 else []
    entries: list[writing.Entry] = [*records, *endings]
    await stages.begin("ending")
    answers = await flush(ring.ours, *entries)
    for ending, answer in zip(endings, answers[len(records) :], strict=True):
        outcomes[ending.run_id] = answer, ending.status.value
    for written, answer in zip(records, answers, strict=False):
        assert answer is outcomes[written.run_id][0], "a record and the ending behind it share their fate"
    await stages.begin("rest")


async def cancel(ring: Ring, run_id: UUID, replies: dict[UUID, Controlled]) -> None:
    (replies[run_id],) = await ring.theirs.run(runs.cancel([run_id], "race"))


def check_steps(ring: Ring, leases: list[Lease], outcomes: dict[UUID, tuple[Outcome, str]]) -> None:
    """An execution that lost has written nothing."""
    written = {UUID(str(row["run_id"])) for row in ring.rows("step", "run_id", [lease.id for lease in leases])}
    assert not [run_id for run_id in written if outcomes[run_id][0] is Outcome.LOST]


@pytest.mark.parametrize("iterations", [300, pytest.param(5_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_the_reply_of_a_cancel_is_the_state_the_run_ends_in(ring: Ring, figure: Figure, iterations: int) -> None:
    tally = Tally("cancel against completion", [CANCEL_FIRST, ENDING_FIRST])
    await ring.rounds(iterations, lambda ring, size: race(ring, size, tally))
    tally.close(iterations, figure)
