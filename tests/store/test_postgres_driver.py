"""The PostgreSQL driver: deadlines that hold on a dead network, recovery without a new ledger, poolers, passwords.

The network's failures are made by a small proxy that goes deaf or closes its door; the server's by a real restart, by
cutting sessions, and by a real deadlock.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import (
    Raw,
    check_path,
    claim,
    create,
    define,
    failed,
    get,
    lanes,
    leased,
    new,
    offer,
    released,
    retried,
    settle,
    succeeded,
    sweep,
)
from support.postgres import LaunchedServer, Server, find_system, find_wheel
from support.proxy import Proxy
from support.waiting import eventually

from simpleworkflow.clock import monotonic
from simpleworkflow.model.errors import MissingMigration, StoreError, StoreUnavailable
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.drivers import postgres as postgres_driver
from simpleworkflow.store.drivers.postgres import POOL, PostgresDriver
from simpleworkflow.store.operations import events, leases, runs, workers
from simpleworkflow.store.protocol import Operation
from simpleworkflow.store.url import parse_url


@pytest.fixture
async def pg(postgres_url: str) -> Any:
    ledger = open_ledger(postgres_url)
    yield ledger
    await ledger.close()


# Who listens


async def test_a_listener_whose_session_is_ended_hears_again_at_once(
    pg: Ledger, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_driver, "LISTEN_CHECK", 3_600.0)
    heard: list[str] = []
    listening = asyncio.create_task(pg.listen(heard.append))
    await eventually(lambda: heard == ["changed"], "a session that listens")
    stranger = Raw(postgres_url)
    stranger.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE query ILIKE 'listen %' AND datname = current_database()"
    )
    await eventually(lambda: heard == ["changed"] * 2, "another one, and what may have been missed")
    await pg.hint("ready")
    await eventually(lambda: heard[2:] == ["ready"], "a hint")
    listening.cancel()
    stranger.close()


# A network that goes deaf


async def test_a_deaf_network_is_noticed_in_time_and_later_calls_recover(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy:
        ledger = open_ledger(proxy.url)
        (before,) = await create(ledger)
        proxy.freeze()
        began = monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer get in time"):
            await ledger.run(runs.get([before]), timeout=0.5)
        assert monotonic() - began < 5.0
        proxy.thaw()
        assert (await get(ledger, before)).id == before
        assert len(await create(ledger)) == 1
        await ledger.close()


async def test_callers_in_the_queue_for_a_connection_keep_their_own_deadline(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy:
        ledger = open_ledger(proxy.url)
        await ledger.check()
        proxy.freeze()
        patient = asyncio.gather(*(ledger.run(runs.count(), timeout=30) for _ in range(POOL)))
        await asyncio.sleep(0)
        began = monotonic()
        hasty = await asyncio.gather(
            *(ledger.run(runs.count(), timeout=0.3) for _ in range(POOL)), return_exceptions=True
        )
        assert monotonic() - began < 10.0
        assert {type(error) for error in hasty} == {StoreUnavailable}
        proxy.thaw()
        assert await patient == [[]] * POOL
        await ledger.close()


async def test_calls_wait_out_a_closed_door(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy:
        ledger = open_ledger(proxy.url)
        await ledger.check()
        await proxy.refuse()
        patient = asyncio.gather(create(ledger, *(new() for _ in range(5))))
        with pytest.raises(StoreUnavailable):
            await ledger.run(runs.count(), timeout=0.2)
        assert not patient.done()
        await proxy.accept()
        assert len((await patient)[0]) == 5
        await ledger.close()


async def test_an_answer_lost_after_the_commit_creates_nothing_twice(postgres_url: str) -> None:
    """The classic: the server committed, the reply never came. The id was the client's, so asking again is safe."""
    async with Proxy(postgres_url) as proxy:
        ledger = open_ledger(proxy.url)
        raw = Raw(postgres_url)
        lease = await leased(ledger)
        blocker = psycopg.connect(postgres_url)
        blocker.execute("SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE", [lease.id])
        blocker.execute("INSERT INTO workflow.workflow_run (type, idempotency_key) VALUES ('test.other.v1', 'k')")
        wanted = new(idempotency_key="k")
        tasks = [
            asyncio.ensure_future(ledger.run(runs.create([wanted]))),
            asyncio.ensure_future(settle(ledger, succeeded(lease))),
        ]
        waiting = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'simpleworkflow'"
        )
        await eventually(lambda: len(raw.sql(waiting)) == 2, "both statements wait for the blocker")
        proxy.freeze()
        blocker.rollback()
        blocker.close()
        await eventually(lambda: raw.row(lease.id)["status"] == "succeeded", "the server has committed")
        await eventually(lambda: raw.rows("id = ?", wanted.id), "the server has committed")
        await proxy.refuse()
        proxy.thaw()
        await proxy.accept()
        created, settled = await asyncio.gather(*tasks)
        assert created[0].id == wanted.id
        assert settled == [Outcome.DONE]
        assert raw.events(wanted.id) == ["created"]
        assert raw.events(lease.id) == ["created", "leased", "started", "succeeded"]
        raw.close()
        await ledger.close()


# A server that goes away


async def test_cut_sessions_are_replaced(pg: Ledger, postgres_url: str) -> None:
    await asyncio.gather(*(create(pg) for _ in range(10)))
    raw = Raw(postgres_url)
    for _ in range(3):
        raw.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert len(await asyncio.gather(*(create(pg) for _ in range(10)))) == 10
    assert raw.sql("SELECT count(*) AS n FROM workflow.workflow_run") == [{"n": 40}]
    raw.close()


async def test_a_restarted_server_is_found_again_by_the_same_ledger() -> None:
    directory = find_system() or find_wheel()
    assert directory is not None
    with LaunchedServer(directory, durable=True) as server:
        ledger = open_ledger(server.url())
        await ledger.migrate_up()
        stop = asyncio.Event()
        made: list[UUID] = []

        async def client() -> None:
            while not stop.is_set():
                made.extend(await create(ledger, new()))

        clients = [asyncio.ensure_future(client()) for _ in range(6)]
        await eventually(lambda: len(made) > 50, "calls are under way")
        server.stop("immediate")
        server.start()
        seen = len(made)
        await eventually(lambda: len(made) > seen + 50, "calls go on")
        stop.set()
        await asyncio.gather(*clients)
        raw = Raw(server.url())
        assert {row["id"] for row in raw.rows("1 = 1")} == set(made)
        assert raw.sql("SELECT count(*) AS n FROM workflow.workflow_event") == [{"n": len(made)}]
        raw.close()
        await ledger.close()


async def test_a_deadlock_is_repeated(pg: Ledger, postgres_url: str) -> None:
    low, high = sorted(await create(pg, new(), new()))
    raw = Raw(postgres_url)
    lock = "SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE"
    with psycopg.connect(postgres_url) as blocker:
        blocker.execute("SET deadlock_timeout = '60s'")  # so that the other side finds the deadlock
        blocker.execute(lock, [high])
        task = asyncio.ensure_future(pg.run(runs.cancel([low, high])))
        waiting = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'simpleworkflow'"
        )
        await eventually(lambda: raw.sql(waiting), "our cancel waits for the second run")
        await asyncio.to_thread(blocker.execute, lock, [low])
        blocker.rollback()
    answers = await task
    assert [answer.moved for answer in answers] == [True, True]
    assert raw.events(low) == ["created", "cancelled"]
    raw.close()


async def test_a_cancelled_caller_leaves_the_pool_whole(pg: Ledger, postgres_url: str) -> None:
    await pg.check()
    with psycopg.connect(postgres_url) as blocker:
        blocker.execute("LOCK TABLE workflow.workflow_run IN ACCESS EXCLUSIVE MODE")
        stuck = [asyncio.ensure_future(pg.run(runs.count())) for _ in range(POOL * 2)]
        raw = Raw(postgres_url)
        waiting = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'simpleworkflow'"
        )
        await eventually(lambda: len(raw.sql(waiting)) == POOL, "all connections wait")
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        blocker.rollback()
        raw.close()
    assert await asyncio.gather(*(pg.run(runs.count()) for _ in range(POOL * 2))) == [[]] * POOL * 2


async def test_a_refused_statement_leaves_the_connection_usable(pg: Ledger) -> None:
    for _ in range(POOL + 1):
        with pytest.raises(StoreError, match="workflow_run_priority"):
            await create(pg, new(), new(priority=5000))
    assert await pg.run(runs.count()) == []
    driver = pg._driver
    assert isinstance(driver, PostgresDriver)
    assert len(driver._idle) == 1


async def test_hints_are_heard_and_a_cut_listener_heals(pg: Ledger, postgres_url: str) -> None:
    heard: list[str] = []
    await pg.check()
    listener = asyncio.ensure_future(pg.listen(heard.append))
    await eventually(lambda: heard == ["changed"], "the listener listens")
    await pg.hint("ready")
    await eventually(lambda: "ready" in heard, "the hint")
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)


# Behind a transaction pooler


class Pooled(PostgresDriver):
    """A driver whose every transaction meets another session, scrubbed by DISCARD ALL, as PgBouncer may give it."""

    prepared: int = 0
    kept: set[str]

    def __init__(self, url: Any, *, pool: int = 3) -> None:
        super().__init__(url, pool=pool)
        self.kept = set()

    async def _connection(self) -> Any:
        if len(self._idle) < 3:
            return await self._connect()
        return self._idle.pop(0)

    async def _drive(self, connection: Any, operation: Operation[Any], repeated: bool) -> Any:
        result = await super()._drive(connection, operation, repeated)
        self.prepared += await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''")
        self.kept.add(await connection.fetchval("SHOW enable_seqscan"))
        await connection.execute("DISCARD ALL")
        return result


async def whole_life(ledger: Ledger) -> list[str]:
    """Every operation of the store at least once; the events of the run that lived through them."""
    await define(ledger, "test.work.v1", on_cancel="test.undo.v1", dead_letter="test.dead.v1")
    await ledger.run(workers.announce("w1", "w1", "host", 1, [("", "z")]))
    assert [worker.spans for worker in await ledger.run(workers.alive(silence=60))] == [[("", "z")]]
    (run_id,) = await create(ledger, idempotency_key="k")
    assert await create(ledger, idempotency_key="k") == [run_id]
    assert await lanes(ledger)
    (lease,) = await claim(ledger)
    assert await ledger.run(leases.heartbeat(run_id, 1, "w1", 30.0))
    assert (await ledger.run(leases.renew([(run_id, 1, 30.0)], "w1")))[0].owned
    assert await ledger.run(leases.leased_by("w1")) == [(run_id, 1)]
    assert await ledger.run(leases.lease_holders()) == ["w1"]
    child = await leased(ledger, "test.child.v1", parent_id=run_id)
    assert await settle(ledger, succeeded(child)) == [Outcome.DONE]
    assert await settle(ledger, retried(lease)) == [Outcome.DONE]
    await ledger.run(runs.hold([run_id]))
    await ledger.run(runs.resume([run_id]))
    (lease,) = await claim(ledger)
    assert await settle(ledger, released(lease)) == [Outcome.DONE]
    await claim(ledger, worker="dead")
    assert await sweep(ledger, "dead") == {run_id: Status.PENDING}
    assert await ledger.run(leases.expire(limit=5)) == []
    (lease,) = await claim(ledger, suspects=True)
    assert await settle(ledger, failed(lease)) == [Outcome.DONE]
    assert [run.id for run in await ledger.run(runs.finished_among([run_id]))] == [run_id]
    await ledger.run(runs.revive([run_id]))
    await ledger.run(runs.cancel([run_id]))
    assert not await ledger.run(leases.hasten_undo(run_id, 1, "w1"))
    await ledger.run(runs.delete([run_id]))
    assert len(await claim(ledger, offer("test.dead.v1"), offer("test.undo.v1"))) == 2
    assert await ledger.run(workers.definitions(["test.work.v1"]))
    assert await ledger.run(events.since((await get(ledger, run_id)).created_at))
    assert len(await ledger.run(runs.count())) == 3
    await ledger.run(workers.retire("w1"))
    await ledger.run(workers.forget(silence=60))
    return [event.type.value for event in await ledger.run(events.of_run(run_id))]


async def test_every_operation_works_behind_a_transaction_pooler(postgres_url: str) -> None:
    url = parse_url(postgres_url + "?pgbouncer=true")
    driver = Pooled(url)
    ledger = Ledger(url, driver)
    story = await whole_life(ledger)
    assert check_path(story) is Status.CANCELLED
    assert driver.prepared == 0
    assert driver.kept == {"on"}, "planner settings end with their transaction"
    await asyncio.gather(*(create(ledger) for _ in range(20)))
    await ledger.hint("ready")
    await ledger.close()


async def test_every_operation_works_on_both_databases(ledger: Ledger) -> None:
    assert check_path(await whole_life(ledger)) is Status.CANCELLED


async def test_the_planner_is_narrowed_inside_each_pooled_transaction(postgres_url: str) -> None:
    seen: list[str] = []

    class Looking(PostgresDriver):
        async def _execute(self, connection: Any, wanted: Any) -> Any:
            seen.append(await connection.fetchval("SHOW enable_seqscan"))
            return await super()._execute(connection, wanted)

    url = parse_url(postgres_url + "?pgbouncer=true")
    ledger = Ledger(url, Looking(url))
    await leased(ledger)
    assert set(seen) == {"off"}
    await ledger.close()


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_server_that_refuses_to_show_its_timeline_gives_leases(postgres_url: str, pooled: bool) -> None:
    url = parse_url(postgres_url + "?pgbouncer=true" * pooled)
    driver = PostgresDriver(url)
    refused = replace(driver._statements["timeline"], text="SELECT unknown()", for_one="SELECT unknown()")
    driver._statements = driver._statements | {"timeline": refused}
    ledger = Ledger(url, driver)
    assert await settle(ledger, succeeded(await leased(ledger))) == [Outcome.DONE]
    assert driver.timelines.current is None
    await ledger.close()


# Passwords


def with_password(url: str) -> str:
    return url.replace("postgres@", "postgres:s3cret@")


async def test_no_error_shows_a_password(postgres: Server) -> None:
    postgres.create_database("swf_bare")
    wrong_port = with_password(postgres.url("swf_bare")).replace(f":{postgres.port}/", ":1/")
    unmigrated = with_password(postgres.url("swf_bare"))
    nowhere = with_password(postgres.url("swf_nowhere"))
    for url, error, timeout in (
        (wrong_port, StoreUnavailable, 0.3),
        (unmigrated, MissingMigration, 20.0),
        (nowhere, StoreUnavailable, 20.0),
    ):
        ledger = open_ledger(url)
        with pytest.raises(error) as caught:
            await ledger._driver.run(runs.count(), timeout=timeout)
        told = [str(caught.value), repr(caught.value), repr(ledger), repr(ledger._driver), str(ledger.url)]
        assert not [text for text in told if "s3cret" in text]
        assert "postgres:***@" in str(caught.value)
        await ledger.close()
    postgres.drop_database("swf_bare")


async def test_a_closed_ledger_says_so(pg: Ledger) -> None:
    await pg.check()
    await pg.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await pg.run(runs.count())
