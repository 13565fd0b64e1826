"""Troubles that once stopped, starved or burned somebody: each has its own sentence here."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model import moves
from simpleworkflow.store.operations import leases
from simpleworkflow.worker.sweep import Sweeper

_SLOW_ENDS = """
CREATE FUNCTION slow_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.003); RETURN NULL; END $$;
CREATE TRIGGER slow_end AFTER UPDATE ON workflow.workflow_run
FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL) EXECUTE FUNCTION slow_end();
"""


async def ended(handles: list[swf.RunHandle[Any]]) -> None:
    await asyncio.gather(*(handle.result("30s") for handle in handles))


async def test_a_full_journal_wakes_the_claim_loop_when_it_has_room(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that takes some milliseconds longer must not cost a poll interval each time."""

    @app.workflow("t.noop.v1")
    async def noop(ctx: swf.Context, number: int) -> None: ...

    await app.trigger_many(noop, range(1500))
    embedded = app.worker(poll_every="30s")
    async with embedded:
        worker = embedded._worker
        assert worker is not None
        run, slowed = worker._ledger.run, list[str]()

        async def slow(operation: Any, **rest: Any) -> Any:
            if operation.name in {"_finish", "_finish_counted"}:
                slowed.append(operation.name)
                await asyncio.sleep(0.02)
            return await run(operation, **rest)

        monkeypatch.setattr(worker._ledger, "run", slow)
        async with asyncio.timeout(20):
            while sum(c.runs for c in await app.activity.counts() if c.status == "succeeded") < 1500:
                await asyncio.sleep(0.05)
    assert slowed


async def test_a_retry_after_a_moment_does_not_wait_for_the_next_poll(app: swf.App) -> None:
    tried: list[float] = []

    @app.workflow("t.moment.v1", retry=swf.Retry(max_attempts=4, initial="50ms", jitter=0))
    async def moment(ctx: swf.Context) -> int:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) < 4:
            raise ValueError("not yet")
        return len(tried)

    async with app.worker(poll_every="30s"):
        assert await (await app.trigger(moment)).result("10s") == 4
    assert tried == sorted(tried)
    assert tried[1] - tried[0] >= 0.05, "not before it is due"


async def test_a_row_that_a_stranger_has_locked_holds_up_nobody_else(postgres_url: str) -> None:
    app = swf.App(postgres_url, settings=swf.Settings(lease=60, poll_every=0.2))
    gate, running = threading.Event(), threading.Event()

    @app.workflow("t.locked.v1")
    async def locked(ctx: swf.Context) -> str:
        running.set()
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return "in the end"

    @app.workflow("t.other.v1")
    async def other(ctx: swf.Context, number: int) -> None: ...

    async with app.worker(concurrency=20):
        victim = await app.trigger(locked)
        await eventually(running.is_set)
        with psycopg.connect(postgres_url) as stranger:
            stranger.execute("SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE", (victim.id,))
            gate.set()
            handles = await app.trigger_many(other, range(500))
            await asyncio.wait_for(ended(handles), 15)
            assert (await victim.get()).status == "leased", "its own ending waits for the stranger"
            stranger.rollback()
        assert await victim.result("10s") == "in the end"
    await app.close()


async def test_capped_types_keep_their_place_in_the_order(app: swf.App) -> None:
    order: list[str] = []

    @app.workflow("t.capped.v1", concurrency=1)
    async def capped(ctx: swf.Context, number: int) -> None:
        order.append("capped")

    @app.workflow("t.open.v1")
    async def uncapped(ctx: swf.Context, number: int) -> None:
        order.append("open")

    handles: list[swf.RunHandle[Any]] = [*await app.trigger_many(uncapped, range(200), priority=500)]
    handles += await app.trigger_many(capped, range(3), priority=0)
    async with app.worker(concurrency=4):
        await ended(handles)
    assert max(index for index, name in enumerate(order) if name == "capped") < 60


async def test_lanes_full_of_future_runs_do_not_hide_a_due_one(app: swf.App) -> None:
    @app.workflow("t.lane.v1")
    async def lane(ctx: swf.Context, number: int) -> int:
        return number

    await asyncio.gather(*(app.trigger(lane, p, priority=p, delay="1h") for p in range(700)))
    due = await app.trigger(lane, 7, priority=999)
    async with app.worker(poll_every="30s"):
        assert await due.result("10s") == 7


async def test_an_outage_longer_than_the_lease_is_no_crash_of_living_workers(app: swf.App) -> None:
    """The sweep never takes back its own, and after a gap everybody gets a moment to renew."""

    @app.workflow("t.mine.v1", retry=swf.Retry(max_attempts=1))
    async def mine(ctx: swf.Context) -> None: ...

    handle = await app.trigger(mine)
    ledger = app._client.engine.ledger
    offer = leases.Offer("t.mine.v1", 100, 1, 1, None)
    assert await app._client.engine.run(leases.claim([offer], 1, "me", lane_by_lane=not ledger.can.walks_lanes))
    assert await app._client.engine.run(leases.crash([], limit=10, chance=0, me="me")) == []
    sweeper = Sweeper(ledger, lambda: None, me="another", every=0.0, grace=60.0)
    sweeper._last -= 100
    await app._client.engine.call(sweeper.sweep)
    assert (await handle.get()).status == "leased", "after an outage leases are not judged at once"
    sweeper._not_before = 0.0
    await app._client.engine.call(sweeper.sweep)
    assert (await handle.get()).status == "failed"


@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt, SystemExit])
async def test_a_thread_that_raises_what_threads_should_not_has_failed(
    app: swf.App, error: type[BaseException]
) -> None:
    @app.workflow("t.odd.v1", retry=swf.Retry(max_attempts=1))
    def odd(ctx: swf.SyncContext) -> None:
        raise error

    @app.workflow("t.fine.v1")
    async def fine(ctx: swf.Context) -> str:
        return "fine"

    async with app.worker():
        with pytest.raises(swf.RunFailed):
            await app.run(odd, timeout="10s")
        assert await app.run(fine, timeout="10s") == "fine"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_exiting_inside_a_task_harms_only_its_own_run(app: swf.App, error: type[BaseException]) -> None:
    async def leaves() -> None:
        raise error

    @app.workflow("t.leaves.v1", retry=swf.Retry(max_attempts=1))
    async def leaving(ctx: swf.Context) -> None:
        await asyncio.gather(leaves(), asyncio.sleep(0))

    @app.workflow("t.root.v1", retry=swf.Retry(max_attempts=1))
    async def root(ctx: swf.Context) -> None:
        raise error

    @app.workflow("t.fine.v1")
    async def fine(ctx: swf.Context) -> str:
        return "fine"

    embedded = app.worker()
    async with embedded:
        for workflow in (leaving, root):
            with pytest.raises(swf.RunFailed):
                await app.run(workflow, timeout="10s")
        assert await app.run(fine, timeout="10s") == "fine"
        assert embedded.is_alive


async def test_a_run_claimed_again_while_its_old_code_still_runs_is_tracked_apart(app: swf.App) -> None:
    entered: list[int] = []
    release = threading.Event()

    @app.workflow("t.again.v1")
    def again(ctx: swf.SyncContext) -> int:
        entered.append(ctx.epoch)
        if ctx.epoch == 1:
            release.wait(20)
        else:
            while not ctx.is_cancelled():
                threading.Event().wait(0.01)
        return ctx.epoch

    embedded = app.worker()
    async with embedded:
        handle = await app.trigger(again)
        await eventually(lambda: entered == [1])
        await handle.cancel()
        await app.retry(handle.id)
        await eventually(lambda: entered == [1, 2], "claimed again")
        release.set()
        assert embedded._worker is not None
        executions = embedded._worker._slots
        await eventually(lambda: [e.lease.epoch for e in executions] == [2], "the old one is gone, the new one known")
        await handle.cancel()
        await eventually(lambda: not len(executions), "and the new one hears of the cancel")


async def test_an_ending_the_database_refuses_for_good_is_held_for_an_operator(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.workflow("t.refused.v1")
    async def refused(ctx: swf.Context) -> None: ...

    embedded = app.worker()
    async with embedded:
        worker = embedded._worker
        assert worker is not None

        async def refuse(endings: Any, repeated: bool) -> Any:
            raise swf.StoreError("no")

        monkeypatch.setattr(worker._journal._entries, "_flush", refuse)
        handle = await app.trigger(refused, start_within="1 day")
        async with asyncio.timeout(10):
            while not (run := await handle.get()).is_held or run.status != "pending":
                await asyncio.sleep(0.01)
    assert run.started_at is not None, "its code has run: no sweep may end it as never started"
    assert run.hold_reason is not None
    assert "refused its ending" in run.hold_reason


async def test_code_that_has_run_counts_as_started_though_its_pause_did_not_land(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something woke the run while it was being paused, and then its history could not be read."""

    @app.workflow("t.woken.v1")
    async def waits(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    def unreadable(*_: Any) -> Any:
        raise RuntimeError("no history today")

    embedded = app.worker()
    async with embedded:
        worker = embedded._worker
        assert worker is not None
        real = worker._journal.post

        def post(entry: Any, done: Any) -> None:
            if isinstance(entry, moves.Pause):
                done(moves.Outcome.WOKEN, None)
            else:
                real(entry, done)

        monkeypatch.setattr(worker._journal, "post", post)
        monkeypatch.setattr("simpleworkflow.worker.worker.steps.reload", unreadable)
        handle = await app.trigger(waits, start_within="1 day")
        await eventually(lambda: has_event(app, handle, "released"), "handed back")
    assert (await handle.get()).started_at is not None
    assert [event.type for event in await handle.events()][:4] == [
        "created",
        "leased",
        "started",
        "released",
    ]


async def has_event(app: swf.App, handle: swf.RunHandle[Any], wanted: str) -> bool:
    return any(event.type == wanted for event in await handle.events())


async def test_the_blocking_twin_is_refused_inside_an_async_workflow(app: swf.App) -> None:
    @app.workflow("t.blocks.v1", retry=swf.Retry(max_attempts=1))
    async def blocks(ctx: swf.Context) -> None:
        app.sync.activity.counts()

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="await the App instead"):
            await app.run(blocks, timeout="10s")


async def test_a_server_that_is_too_slow_for_a_whole_batch_gets_smaller_ones(postgres_url: str) -> None:
    """An audit trigger, a slow disk: a thousand ends take longer than the server lets a statement run."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(_SLOW_ENDS)
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET statement_timeout = 300'.encode())
    app = swf.App(postgres_url)
    calls: list[int] = []

    @app.workflow("t.noop.v1", retry=swf.Retry(max_attempts=1))
    async def noop(ctx: swf.Context, number: int) -> int:
        calls.append(number)
        return number

    handles = await app.trigger_many(noop, range(400))
    async with app.worker(concurrency=400):
        await ended(handles)
    await app.close()
    assert sorted(calls) == list(range(400)), "something was executed twice"
