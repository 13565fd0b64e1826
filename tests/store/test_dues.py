"""What is due is due at the instant that was meant, however late the database could be told."""

from __future__ import annotations

from typing import Any

import pytest
from support.ledger import Raw, leased, paused, waiting

from simpleworkflow.model.moves import Outcome
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import writing


class Left:
    """Seconds until it is due, by the clock of the execution."""

    seconds = 3600.0

    def __call__(self) -> float:
        return self.seconds


def due_after(raw: Raw, row: dict[str, Any], column: str) -> float:
    span = row[column] - row["updated_at" if column == "run_at" else "started_at"]
    return span / 1e6 if raw.is_sqlite else float(span.total_seconds())


@pytest.mark.parametrize("fused", [False, True])
async def test_a_wait_that_is_written_late_is_due_when_it_was_meant(ledger: Ledger, raw: Raw, fused: bool) -> None:
    lease, left = await leased(ledger), Left()
    wait = waiting(lease, due_in=left(), left=left, elapsed=0.0)
    operation = writing.write([wait], "w1", fused=fused and ledger.can.fuses_writes)
    left.seconds = 60.0  # the database was away
    assert await ledger.run(operation) == [Outcome.DONE]
    (row,) = raw.steps(lease.id)
    assert due_after(raw, row, "due_at") == pytest.approx(60.0, abs=0.001)


async def test_a_pause_that_is_written_late_ends_when_it_was_meant(ledger: Ledger, raw: Raw) -> None:
    lease, left = await leased(ledger), Left()
    pause = paused(lease, waiting(lease, due_in=left(), left=left, elapsed=0.0), due_in=left())
    pause.left = left
    operation = writing.write([pause], "w1")
    left.seconds = 60.0
    assert await ledger.run(operation) == [Outcome.DONE]
    assert due_after(raw, raw.row(lease.id), "run_at") == pytest.approx(60.0, abs=0.001)
    assert due_after(raw, raw.steps(lease.id)[0], "due_at") == pytest.approx(60.0, abs=0.001)
