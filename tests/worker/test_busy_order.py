"""Entries of one run reach the database in the order in which they were written, whoever stands in the way.

A row that a stranger's transaction has locked must hold up nobody else, so its entry is tried again apart from the
others. The danger is its own run's next entry: let past, a pause would give up the lease under which the record before
it was written, and that record would be lost, a sleep begun anew, a step done twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from support.ledger import Raw, leased, paused, record, succeeded, waiting
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.errors import StoreBusy
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Lease
from simpleworkflow.model.states import Status, StepKind, StepStatus
from simpleworkflow.runtime.hints import Hinter
from simpleworkflow.runtime.journal import Journal
from simpleworkflow.store import Ledger, open_ledger

LOCK = "SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE"


def count_refusals(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, then: Callable[[int], object] = lambda _: None
) -> list[str]:
    """The operations that met a locked row, as they come; `then` hears how many there were, in that very instant."""
    met: list[str] = []
    run = ledger.run

    async def counting(operation: Any, **rest: Any) -> Any:
        try:
            answer = await run(operation, **rest)
        except StoreBusy:
            met.append(operation.name)
            then(len(met))
            raise
        if isinstance(answer, list) and Outcome.BUSY in answer:
            met.append(operation.name)
            then(len(met))
        return answer

    monkeypatch.setattr(ledger, "run", counting)
    return met


@pytest.fixture
async def ledger(postgres_url: str) -> AsyncIterator[Ledger]:
    """Here alone rows can be locked by others while we work."""
    opened = open_ledger(postgres_url)
    await opened.check()
    yield opened
    await opened.close()


NEXT: dict[str, Callable[[Lease], Any]] = {
    "pause": lambda lease: paused(lease, due_in=3600),
    "ending": succeeded,
    "record": lambda lease: record(lease, "sleep#1", kind=StepKind.SLEEP),
}


@pytest.mark.parametrize("kind", NEXT)
async def test_an_entry_that_met_a_locked_row_is_not_overtaken_by_the_next_of_its_run(
    ledger: Ledger, postgres_url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lease = await leased(ledger)
    neighbour = await leased(ledger)
    met = count_refusals(ledger, monkeypatch)
    hinter = Hinter(ledger)
    journal = Journal(ledger, hinter, "w1", capacity=100)
    raw = Raw(postgres_url)
    with psycopg.connect(postgres_url) as stranger:
        stranger.execute(LOCK, (lease.id,))
        first = journal.write(waiting(lease, due_in=3600))
        await eventually(lambda: len(met) >= 2, "the locked row")
        stranger.rollback()
        second = journal.write(NEXT[kind](lease))
        assert await asyncio.wait_for(asyncio.gather(first, second), 5) == [Outcome.DONE, Outcome.DONE]
        assert await asyncio.wait_for(journal.write(record(neighbour)), 5) is Outcome.DONE
    (step,) = raw.steps(lease.id)
    assert step["status"] == (StepStatus.SUCCEEDED if kind == "record" else StepStatus.WAITING)
    told = {"pause": Status.PAUSED, "ending": Status.SUCCEEDED, "record": Status.LEASED}
    assert raw.row(lease.id)["status"] == told[kind]
    raw.close()
    assert await journal.drain(5)
    await hinter.stop()


@pytest.mark.parametrize(("moment", "let_go_at"), [("its first try", 2), ("a later try", 3)])
async def test_a_pause_written_during_a_try_stays_behind_it_though_the_row_is_let_go_as_that_fails(
    ledger: Ledger, postgres_url: str, monkeypatch: pytest.MonkeyPatch, moment: str, let_go_at: int
) -> None:
    """The worst moment: the entry has just been refused, the next one of its run stands ready, and the way is free."""
    lease = await leased(ledger)
    hinter = Hinter(ledger)
    journal = Journal(ledger, hinter, "w1", capacity=100)
    raw = Raw(postgres_url)
    written: list[asyncio.Future[Outcome]] = []

    def let_go(count: int) -> None:
        """While the try that was refused has not been heard of."""
        if count == let_go_at:
            if moment == "a later try":
                written.append(journal.write(paused(lease, due_in=3600)))
            stranger.rollback()

    with psycopg.connect(postgres_url) as stranger:
        count_refusals(ledger, monkeypatch, let_go)
        stranger.execute(LOCK, (lease.id,))
        first = journal.write(waiting(lease, due_in=3600))
        if moment == "its first try":
            await eventually(lambda: raw.waiters(stranger), "a try that waits for the row")
            written.append(journal.write(paused(lease, due_in=3600)))
        await eventually(lambda: written, "the next entry of the run")
        (second,) = written
        assert await asyncio.wait_for(asyncio.gather(first, second), 8) == [Outcome.DONE, Outcome.DONE]
    (step,) = raw.steps(lease.id)
    assert (step["status"], raw.row(lease.id)["status"]) == (StepStatus.WAITING, Status.PAUSED)
    raw.close()
    assert await journal.drain(5)
    await hinter.stop()


async def test_many_entries_behind_a_locked_row_land_in_their_order_and_hold_up_nobody(
    ledger: Ledger, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, neighbour = await leased(ledger), await leased(ledger)
    met = count_refusals(ledger, monkeypatch)
    hinter = Hinter(ledger)
    journal = Journal(ledger, hinter, "w1", capacity=100)
    raw = Raw(postgres_url)
    names = [f"step#{number}" for number in range(8)]
    with psycopg.connect(postgres_url) as stranger:
        stranger.execute(LOCK, (lease.id,))
        written = [journal.write(record(lease, name)) for name in names[:4]]
        await eventually(lambda: len(met) >= 2, "the locked row")
        written += [journal.write(record(lease, name)) for name in names[4:]]
        written.append(journal.write(succeeded(lease)))
        assert await asyncio.wait_for(journal.write(record(neighbour)), 5) is Outcome.DONE
        assert not any(entry.done() for entry in written)
        stranger.rollback()
        outcomes = await asyncio.wait_for(asyncio.gather(*written), 10)
    assert outcomes == [Outcome.DONE] * 9
    found = raw.sql("SELECT step_id FROM workflow.workflow_step WHERE run_id = ? ORDER BY seq, step_id", lease.id)
    assert [row["step_id"] for row in found] == names
    assert raw.row(lease.id)["status"] == Status.SUCCEEDED
    raw.close()
    assert await journal.drain(5)
    await hinter.stop()


async def test_a_sleep_is_not_begun_anew_because_its_row_was_locked(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait of a resident run goes on record while a stranger holds the row; then the run is put to sleep."""
    app = swf.App(postgres_url, settings=swf.Settings(lease=30, poll_every=0.1, drain=0.0))
    began, free = threading.Event(), threading.Event()

    @app.workflow("t.locked.v1")
    async def handler(ctx: swf.Context) -> None:
        async def stays() -> None:
            began.set()
            while not free.is_set():
                await asyncio.sleep(0.01)

        await asyncio.gather(ctx.sleep("3s"), stays())

    embedded = app.worker()
    async with embedded:
        assert embedded._worker is not None
        met = count_refusals(embedded._worker._ledger, monkeypatch)
        handle = await app.trigger(handler)
        await eventually(began.is_set)
        before = time.monotonic()
        with psycopg.connect(postgres_url) as stranger:
            stranger.execute(LOCK, (handle.id,))
            await eventually(lambda: len(met) >= 2, "the locked row")
            stranger.rollback()
            free.set()
        await handle.result("10s")
        assert 2.9 < time.monotonic() - before < 4.5
    await app.close()
