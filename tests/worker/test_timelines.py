"""A failover as a worker sees it, without a second server: a connection shows another timeline, or a row is as a server
has it that has not seen the last commits. tests/crash/test_failover.py does the same with real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.ledger import Raw, claim, create
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.store import open_ledger

FOR_LONG = swf.Settings(lease=3600.0, sweep_every=3600.0, poll_every=0.1, drain=0.1)


class Server:
    """Stands for a connection to one."""


@pytest.fixture
async def app(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url, settings=FOR_LONG)
    yield app
    await app.close()


@pytest.fixture
def begun(app: swf.App) -> list[int]:
    return []


@pytest.fixture
def stopped() -> list[int]:
    return []


@pytest.fixture
def long(app: swf.App, begun: list[int], stopped: list[int]) -> Any:
    @app.workflow("t.long.v1")
    async def long(ctx: swf.Context) -> None:
        begun.append(len(begun) - len(stopped))
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(ctx.epoch)

    return long


async def test_on_a_new_timeline_a_worker_stops_what_the_new_server_has_leased_to_another_one(
    app: swf.App, long: Any, begun: list[int], stopped: list[int], raw: Raw
) -> None:
    worker = app._make_worker()
    working = asyncio.create_task(worker.run())
    await worker.ready.wait()
    worker._renewer._tell = lambda _: None  # what renewals learn comes too late: claims would go on before
    mine, others = await app.trigger(long), await app.trigger(long)
    await eventually(lambda: len(begun) == 2, "both run")
    raw.sql("UPDATE workflow.workflow_run SET leased_by = 'w2', version = version + 1 WHERE id = ?", others.id)
    timelines, before, after = worker._ledger.timelines, Server(), Server()
    timelines.saw(before, timelines.current or "1")
    assert timelines.saw(after, "another")
    timelines.on_new()
    await eventually(lambda: timelines.is_accepted, "all that was held has been verified")
    await eventually(lambda: len(stopped) == 1, "one of the two has stopped")
    assert (await app.get(others.id)).leased_by == "w2"
    assert (await app.get(mine.id)).leased_by == worker.identity.id
    worker.stop()
    await working


async def test_a_run_that_a_worker_gets_again_with_the_epoch_that_it_has_is_never_executed_twice_at_once(
    app: swf.App, long: Any, begun: list[int], stopped: list[int], raw: Raw
) -> None:
    """The new server has not seen the first claim, and nothing in a lease tells the two claims apart."""
    worker = app._make_worker()
    working = asyncio.create_task(worker.run())
    await worker.ready.wait()
    worker._renewer._tell = lambda _: None  # else the worker may learn of the loss before the claim, and drop the lease
    handle = await app.trigger(long)
    await eventually(lambda: len(begun) == 1, "it runs")
    raw.sql(
        "UPDATE workflow.workflow_run SET status = 'pending', leased_by = NULL, lease_until = NULL,"
        f" lease_epoch = 0, run_at = {raw.now}, version = version + 1 WHERE id = ?",
        handle.id,
    )
    await eventually(lambda: len(begun) == 2, "it runs again")
    assert stopped == [1]
    assert begun == [0, 0], "how many were running when each began"
    assert (await handle.get()).lease_epoch == 2
    await handle.cancel()
    worker.stop()
    await working


async def test_nothing_is_leased_on_a_timeline_that_has_not_been_accepted(postgres_url: str) -> None:
    """A ledger that remembers an older timeline meets a server of today."""
    ledger, old = open_ledger(postgres_url), Server()
    told: list[Any] = []
    ledger.timelines.saw(old, "an older one")
    ledger.timelines.on_new = lambda: told.append(ledger.timelines.current)
    await create(ledger)
    assert told == [ledger.timelines.current]
    with pytest.raises(StoreUnavailable, match="leases are verified first"):
        await claim(ledger, worker="w1")
    ledger.timelines.accept(ledger.timelines.current)
    assert len(await claim(ledger, worker="w1")) == 1
    await ledger.close()
