"""A worker that could not leave everything in order says what became of it, says nothing that is not so, and leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.clock import monotonic
from simpleworkflow.runtime.journal import Journal
from simpleworkflow.store.operations import runs, writing
from simpleworkflow.worker import run_followups, shutdown
from simpleworkflow.worker import worker as worker_module
from simpleworkflow.worker.worker import Worker

BRIEF = swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, drain=0.1)
HANDED_BACK = "code was still running at the drain deadline (runs: 1); its runs were handed back"
TAKEN_OVER = "code was still running at the drain deadline (runs: 1); its runs are taken over when leases end"
UNCONFIRMED = "the database did not confirm the end of 1 runs; open ones are taken over"


@asynccontextmanager
async def nobody_can_write(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Locked by a stranger, and by one who comes when the worker's own transactions let him."""
    monkeypatch.setattr(worker_module, "STOP_GRACE", 0.3)
    monkeypatch.setattr(shutdown, "GRACE", 0.3)
    blocker = Raw(url)
    await asyncio.to_thread(blocker.sql, "BEGIN IMMEDIATE" if blocker.is_sqlite else "BEGIN")
    if not blocker.is_sqlite:
        await asyncio.to_thread(blocker.sql, "LOCK TABLE workflow.workflow_run IN EXCLUSIVE MODE")
    try:
        yield
    finally:
        blocker.sql("ROLLBACK")
        blocker.close()


async def stopped(worker: Worker, working: asyncio.Task[None]) -> str | None:
    worker.stop()
    await asyncio.wait_for(working, 30)
    return worker.stays_behind


@contextmanager
def stubborn(app: swf.App) -> Iterator[tuple[swf.Workflow[Any, None], threading.Event]]:
    """Code that no stop stops, until it may end; the event says that it is running."""
    busy, may_end = threading.Event(), threading.Event()

    @app.workflow("t.stubborn.v1")
    def stubborn(ctx: swf.SyncContext) -> None:
        busy.set()
        may_end.wait(60)

    try:
        yield stubborn, busy
    finally:
        may_end.set()


async def test_a_worker_whose_database_is_locked_does_not_say_that_runs_were_handed_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, busy = swf.App(url, settings=BRIEF), asyncio.Event()

    @app.workflow("t.long.v1")
    async def long(ctx: swf.Context) -> None:
        busy.set()
        await asyncio.Event().wait()

    worker = app._make_worker(process_ends=True)
    working = asyncio.create_task(worker.run())
    handle = await app.trigger(long)
    await asyncio.wait_for(busy.wait(), 30)
    async with nobody_can_write(url, monkeypatch):
        assert await stopped(worker, working) == UNCONFIRMED
        assert (await handle.get()).status == "leased"
    await app.close()


@pytest.mark.parametrize("is_away", [False, True])
async def test_whether_code_that_goes_on_has_lost_its_run_is_told_as_it_is(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    app = swf.App(url, settings=BRIEF)
    with stubborn(app) as (workflow, busy):
        worker = app._make_worker(process_ends=True)
        working = asyncio.create_task(worker.run())
        handle = await app.trigger(workflow)
        await eventually(busy.is_set, "the code that does not stop")
        if is_away:
            async with nobody_can_write(url, monkeypatch):
                assert await stopped(worker, working) == TAKEN_OVER
                assert (await handle.get()).status == "leased"
        else:
            assert await stopped(worker, working) == HANDED_BACK
            assert (await handle.get()).status == "pending"
        assert ("could not be handed back" in caplog.text) is is_away
    await app.close()


async def test_a_worker_that_leaves_everything_in_order_has_nothing_to_tell(url: str) -> None:
    app = swf.App(url, settings=BRIEF)

    @app.workflow("t.short.v1")
    async def short(ctx: swf.Context) -> int:
        return 1

    worker = app._make_worker(process_ends=True)
    working = asyncio.create_task(worker.run())
    assert await app.run(short) == 1
    assert await stopped(worker, working) is None
    await app.close()


async def test_a_stop_is_no_longer_than_its_graces_though_somebody_has_locked_the_database(
    url: str, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sweeps and claims, which have a minute each, stand in front of what a stop has to say."""
    app = swf.App(url, settings=BRIEF)

    @app.workflow("t.idle.v1")
    async def idle(ctx: swf.Context) -> None: ...

    worker = app._make_worker(process_ends=True)
    working = asyncio.create_task(worker.run())
    await worker.ready.wait()

    def are_held_up() -> bool:
        if raw.is_sqlite:
            return not worker._ledger._driver._engine._writer._work_queue.empty()  # type: ignore[attr-defined]
        return bool(raw.sql("SELECT count(*) AS n FROM pg_locks WHERE NOT granted")[0]["n"])

    async with nobody_can_write(url, monkeypatch):
        await eventually(are_held_up, "a sweep at the lock, and somebody behind it")
        began = monotonic()
        await stopped(worker, working)
        assert monotonic() - began < 20
    await app.close()


@pytest.mark.parametrize("refused", ["release_strangers", "write"])
async def test_a_stop_ends_though_the_database_refuses_what_it_has_to_say(
    url: str, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    app = swf.App(url, settings=BRIEF)
    with stubborn(app) as (workflow, busy):
        worker = app._make_worker(process_ends=refused == "write")
        working = asyncio.create_task(worker.run())
        await app.trigger(workflow)
        await eventually(busy.is_set, "the code that does not stop")

        def refuse(*_: Any, **__: Any) -> Any:
            raise swf.StoreError("permission denied")

        monkeypatch.setattr(writing, refused, refuse)
        assert await stopped(worker, working) == TAKEN_OVER
        assert not worker._renewer.is_alive(), "nobody renews what nobody will finish"
    await app.close()


async def test_what_can_be_neither_ended_nor_held_stays_with_its_worker_until_it_can(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = swf.App(url, settings=BRIEF)
    hold, tried = runs.hold, threading.Event()

    @app.workflow("t.refused.v1")
    async def refused(ctx: swf.Context) -> None: ...

    async def refuse(*_: Any) -> Any:
        raise swf.StoreError("no")

    def refuse_once(*args: Any) -> Any:
        monkeypatch.setattr(runs, "hold", hold)
        tried.set()
        raise swf.StoreError("no")

    async with app.worker() as embedded:
        worker = embedded._worker
        assert worker is not None
        monkeypatch.setattr(run_followups, "HOLD_AGAIN", 1.5 * BRIEF.lease)
        monkeypatch.setattr(worker._journal._entries, "_flush", refuse)
        monkeypatch.setattr(runs, "hold", refuse_once)
        handle = await app.trigger(refused, start_within="1 day")
        await eventually(tried.is_set, "an attempt to hold it")
        assert [lease.id for lease in worker._held.all()] == [handle.id], "it is no stranger, and is renewed"

        async def is_held() -> bool:
            run = await handle.get()
            assert (run.status, run.is_held) != ("pending", False), "nobody else may have it"
            return (run.status, run.is_held) == ("pending", True)

        await eventually(is_held, "held at the second attempt")
        await eventually(lambda: not worker._held.all(), "no more of it here")
    run = await handle.get()
    assert run.started_at is not None
    assert (run.crashes, run.attempt) == (0, 0)
    assert "cannot be held either" in caplog.text
    await app.close()


async def test_a_run_that_ended_while_a_stranger_had_its_row_is_written_down_as_soon_as_the_stranger_lets_go(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be done again because its worker stopped in that moment."""
    app, blocker, drain = swf.App(url, settings=BRIEF), Raw(url), Journal.drain
    begun, may_end = threading.Event(), threading.Event()

    @app.workflow("t.ended.v1")
    def ended(ctx: swf.SyncContext) -> str:
        begun.set()
        assert may_end.wait(60)
        return "done"

    async def seen(journal: Journal, timeout: float) -> bool:
        asyncio.get_running_loop().call_later(0.5, blocker.sql, "ROLLBACK")
        monkeypatch.setattr(Journal, "drain", drain)
        return await drain(journal, timeout)

    worker = app._make_worker(process_ends=True)
    working = asyncio.create_task(worker.run())
    handle = await app.trigger(ended)
    await eventually(begun.is_set, "the code")
    await asyncio.to_thread(blocker.sql, "BEGIN IMMEDIATE" if blocker.is_sqlite else "BEGIN")
    if not blocker.is_sqlite:
        blocker.sql("SELECT 1 FROM workflow.workflow_run FOR UPDATE")
    may_end.set()

    def has_met_the_lock() -> bool:
        return bool(worker._journal._pending if blocker.is_sqlite else worker._journal._lines)

    await eventually(has_met_the_lock, "an ending that cannot be written")
    monkeypatch.setattr(Journal, "drain", seen)
    assert await stopped(worker, working) is None
    run = await handle.get()
    assert (run.status, run.attempt, run.crashes) == ("succeeded", 0, 0)
    blocker.close()
    await app.close()
