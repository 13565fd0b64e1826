"""A standby takes over that has not seen the last commits: what was leased there is leased here once more.

Two real servers; the link between them is cut, the first one dies. The new one hands out an epoch that the old one had
handed out already, to another worker or to the same one. Under load, the judge reads the tables of the server that is
left, the answers that callers had, and the lines that executions have left outside: it knows nothing of the product.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.crew import Crew
from support.ledger import claim, create, flush, record, succeeded
from support.postgres import LaunchedServer
from support.proxy import Line, Proxy
from support.standby import Standby, primary
from support.waiting import eventually, until

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


FAILOVERS = 20
MORE = 12
"""Runs that are acknowledged before the link is cut, and after it."""


@pytest.mark.timeout(900)
def test_of_twenty_failovers_that_lose_commits_none_lets_a_stale_writer_in(tmp_path: Path) -> None:
    server = primary()
    with Line(server.url("swf")) as line:
        crew = Crew(line.url, tmp_path, settings={"CRASH_LEASE": "10", "CRASH_SWEEP": "0.5", "CRASH_POLL": "0.1"})
        try:
            server.create_database("swf")
            app = swf.App(server.url("swf"))
            app.sync.migrate()
            app.sync.close()
            for _ in range(3):
                crew.start("--concurrency", "10")
            with load(line.url) as acknowledged:
                for _ in range(FAILOVERS):
                    server = failed_over(server, line, acknowledged)
            crew.until(lambda: is_quiet(server.url("swf")), "every run that is left has ended", 120)
            judge(server.url("swf"), acknowledged, crew)
        finally:
            crew.close()
            server.close()


@contextmanager
def load(url: str) -> Iterator[list[UUID]]:
    """Somebody triggers all the time; what has been acknowledged is listed."""
    acknowledged: list[UUID] = []
    over = threading.Event()
    app = swf.App(url)

    def trigger() -> None:
        while not over.wait(0.04):
            with suppress(StoreUnavailable):
                acknowledged.append(app.sync.trigger("crash.signed.v1").id)

    caller = threading.Thread(target=trigger)
    caller.start()
    try:
        yield acknowledged
    finally:
        over.set()
        caller.join()
        app.sync.close()


def failed_over(server: LaunchedServer, line: Line, acknowledged: list[UUID]) -> LaunchedServer:
    """Another server in its place, without what it had committed in its last moments."""

    def await_more() -> None:
        already = len(acknowledged)
        until(lambda: len(acknowledged) >= already + MORE, "the load goes on", 60)

    standby = Standby(server)
    try:
        await_more()
        standby.await_caught_up()
        standby.cut_off()
        await_more()  # which is what will be lost
        standby.take_over()
        line.lead_to(standby.url("swf"))
    except BaseException:
        standby.close()
        raise
    finally:
        server.close()
    return standby


def is_quiet(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return not connection.execute(
            "SELECT 1 FROM workflow.workflow_run WHERE finished_at IS NULL LIMIT 1"
        ).fetchone()


def judge(url: str, acknowledged: list[UUID], crew: Crew) -> None:
    with psycopg.connect(url) as connection:
        runs = _all(connection, "SELECT id, status, lease_epoch, result #>> '{}' FROM workflow.workflow_run")
        records = _all(connection, "SELECT run_id, lease_epoch, output #>> '{}' FROM workflow.workflow_step")
        trail = _all(
            connection,
            "SELECT workflow_id, event_type, lease_epoch, data ->> 'worker' FROM workflow.workflow_event ORDER BY id",
        )
    begun = defaultdict(set)
    for effect in crew.effects("start"):
        begun[effect.run_id, effect.epoch].add(effect.pid)
    assert set(acknowledged) - {run[0] for run in runs}, "commits were lost"
    assert any(len(pids) > 1 for pids in begun.values()), "one epoch was handed out to two workers"

    assert Counter(status for _, status, _, _ in runs) == {"succeeded": len(runs)}
    ends = Counter(
        run_id for run_id, event, _, _ in trail if event in {"succeeded", "failed", "cancelled", "timed_out"}
    )
    assert ends == Counter(run[0] for run in runs), "each run has ended once"
    holders: dict[tuple[UUID, int], list[str]] = defaultdict(list)
    for run_id, event, epoch, worker in trail:
        if event == "leased":
            holders[run_id, epoch].append(worker)
    assert {len(workers) for workers in holders.values()} == {1}, "each epoch was handed out once"
    assert {run_id: sum(1 for key in holders if key[0] == run_id) for run_id, *_ in runs} == {
        run_id: epoch for run_id, _, epoch, _ in runs
    }, "epochs are dense"
    writers = defaultdict(set)
    for run_id, epoch, signature in [*records, *((run_id, epoch, result) for run_id, _, epoch, result in runs)]:
        pid, signed, _ = signature.split()
        assert int(signed) == epoch, (run_id, signature)
        assert f".{pid}." in holders[run_id, epoch][0].rpartition("@")[2], (run_id, signature, holders[run_id, epoch])
        writers[run_id, epoch].add(signature)
    assert {len(signatures) for signatures in writers.values()} == {1}, "of each lease one execution has written"


def _all(connection: psycopg.Connection[Any], text: Any) -> list[Any]:
    return connection.execute(text).fetchall()
