"""A standby takes over that has not seen the last commits: what was leased there is leased here once more.

Two real servers; the link between them is cut, the first one dies. The new one hands out an epoch that the old one had
handed out already, to another worker or to the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from support.ledger import claim, create, flush, record, succeeded
from support.postgres import LaunchedServer
from support.proxy import Proxy
from support.standby import Standby, primary
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.model.moves import Outcome
from simpleworkflow.store import open_ledger
from simpleworkflow.store.operations import leases

pytestmark = pytest.mark.slow

DONE, LOST = Outcome.DONE, Outcome.LOST


@pytest.fixture
def servers() -> Iterator[tuple[LaunchedServer, Standby]]:
    with primary() as first:
        first.create_database("swf")
        app = swf.App(first.url("swf"))
        app.sync.migrate()
        app.sync.close()
        with Standby(first) as second:
            yield first, second


async def test_of_two_workers_that_hold_one_run_with_one_epoch_the_one_on_the_new_server_goes_on(
    servers: tuple[LaunchedServer, Standby],
) -> None:
    first, second = servers
    before = open_ledger(first.url("swf"))
    (run_id,) = await create(before)
    second.await_caught_up()
    second.cut_off()
    (stale,) = await claim(before, worker="w1")
    await before.close()
    second.take_over()
    after = open_ledger(second.url("swf"))
    (current,) = await claim(after, worker="w2")
    assert (stale.id, stale.epoch) == (current.id, current.epoch) == (run_id, 1)
    assert await flush(after, record(stale, "stale#0"), worker="w1") == [LOST]
    assert await flush(after, succeeded(stale), worker="w1") == [LOST]
    assert await flush(after, record(current), succeeded(current), worker="w2") == [DONE, DONE]
    await after.close()


async def test_nothing_is_leased_on_a_new_timeline_before_what_is_held_has_been_verified(
    servers: tuple[LaunchedServer, Standby],
) -> None:
    first, second = servers
    async with Proxy(first.url("swf")) as proxy:
        ledger, told = open_ledger(proxy.url), []
        ledger.timelines.on_new = lambda: told.append(ledger.timelines.current)
        (run_id,) = await create(ledger)
        second.await_caught_up()
        second.cut_off()
        (stale,) = await claim(ledger, worker="w1")
        was = ledger.timelines.current
        second.take_over()
        proxy.lead_to(second.url("swf"))
        with pytest.raises(StoreUnavailable, match="leases are verified first"):
            await claim(ledger, worker="w1")
        now = ledger.timelines.current
        assert told == [now]
        assert now != was
        (news,) = await ledger.run(leases.check_leases([(stale.id, stale.epoch)], "w1"))
        assert not news.owned
        ledger.timelines.accept(now)
        (again,) = await claim(ledger, worker="w1")
        assert (again.id, again.epoch) == (run_id, stale.epoch), "the very same proof: only the check told them apart"
        await ledger.close()


async def test_a_worker_that_gets_its_own_run_again_goes_on_with_one_execution(
    servers: tuple[LaunchedServer, Standby],
) -> None:
    first, second = servers
    begun, stopped, gate = [], [], asyncio.Event()
    async with Proxy(first.url("swf")) as proxy:
        app = swf.App(proxy.url, settings=swf.Settings(poll_every=0.1, store_timeout=30.0))

        @app.workflow("t.long.v1", lease="60s")
        async def long(ctx: swf.Context) -> int:
            begun.append(ctx.epoch)
            try:
                await gate.wait()
            except asyncio.CancelledError:
                stopped.append(ctx.epoch)
                raise
            return await ctx.step("count", lambda: len(begun))

        handle = await app.trigger(long)
        second.await_caught_up()
        second.cut_off()
        async with app.worker():
            await eventually(lambda: len(begun) == 1, "it runs")
            second.take_over()
            proxy.lead_to(second.url("swf"))
            await eventually(lambda: len(begun) == 2, "it runs on the new server", 30)
            assert len(stopped) == 1, "and no longer on the old one's lease"
            gate.set()
            assert await handle.result("20s") == 2
        await app.close()
    with psycopg.connect(second.url("swf")) as connection:
        text = "SELECT event_type FROM workflow.workflow_event WHERE workflow_id = %s ORDER BY id"
        trail = [row[0] for row in connection.execute(text, [handle.id]).fetchall()]
    assert [event for event in trail if event != "released"].count("succeeded") == 1
