"""A loop that triggers often has connections of its own; they end with it, and every trigger gets an answer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from support.proxy import Proxy
from support.waiting import eventually, until

import simpleworkflow as swf
from simpleworkflow.client import engine as engine_module
from simpleworkflow.client.triggers.road import OFTEN
from simpleworkflow.client.triggers.thread_hop import ThreadHop
from simpleworkflow.runtime.hints import Hint, Hinter

ENOUGH = OFTEN + 5


@pytest.fixture
def plain_app(postgres_url: str) -> Iterator[swf.App]:
    app = swf.App(postgres_url, settings=swf.Settings(store_timeout=8))
    yield app
    app.sync.close()


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[swf.App]:
    app = swf.App(postgres_url, settings=swf.Settings(store_timeout=8))
    yield app
    await app.close()


async def settle(app: swf.App) -> None:
    """So many triggers that this loop has connections of its own."""
    for n in range(ENOUGH):
        await app.trigger("t.often.v1", n)


def batchers_of(app: swf.App) -> dict[asyncio.AbstractEventLoop, Any]:
    return app._client.engine._triggers._batchers


def connections(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as looking:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
        row = looking.execute(asked, ("simpleworkflow",)).fetchone()
    return int(row[0]) if row else 0


async def held_up(url: str) -> None:
    """Until a statement of ours is seen to wait for somebody's lock."""
    asked = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'simpleworkflow' AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as looking:
        await eventually(lambda: looking.execute(asked).fetchone(), "a trigger that waits for the lock")


async def test_a_loop_that_triggers_often_crosses_into_no_other_thread(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settle(app)

    def shut(*_: Any) -> Any:
        raise AssertionError("nobody should have to hop any more")

    monkeypatch.setattr(ThreadHop, "create", shut)
    handles = await asyncio.gather(*(app.trigger("t.often.v1", n) for n in range(100)))
    keyed = await app.trigger("t.often.v1", 1, idempotency_key="one")
    again = await app.trigger("t.often.v1", 1, idempotency_key="one")
    assert len({handle.id for handle in handles}) == 100
    assert (keyed.is_new, again.is_new, again.id) == (True, False, keyed.id)
    assert sum(count.runs for count in await app.activity.counts()) == ENOUGH + 101


async def test_triggers_of_such_a_loop_wake_idle_workers(app: swf.App) -> None:
    @app.workflow("t.double.v1")
    async def double(ctx: swf.Context, n: int) -> int:
        return 2 * n

    app._client.settings = swf.Settings(poll_every=60)
    async with app.worker():
        for n in range(ENOUGH + 20):
            assert await app.run(double, n, timeout=20) == 2 * n
    assert len(batchers_of(app)) == 1


def test_loops_that_come_and_go_get_no_connections(plain_app: swf.App, postgres_url: str) -> None:
    for n in range(OFTEN + 5):
        asyncio.run(_one(plain_app, n))
    assert batchers_of(plain_app) == {}
    assert len(plain_app._client.engine._triggers._calls) <= 1, "loops that are gone are forgotten"


async def _one(app: swf.App, n: int) -> None:
    await app.trigger("t.often.v1", n)


def test_the_end_of_a_loop_closes_its_connections(plain_app: swf.App, postgres_url: str) -> None:
    async def work() -> None:
        await settle(plain_app)
        assert len(batchers_of(plain_app)) == 1
        assert connections(postgres_url) > len(engines_own)

    plain_app.sync.trigger("t.often.v1", 0)
    engines_own: list[Any] = plain_app._client.engine.ledger._driver._idle  # type: ignore[attr-defined]
    for _ in range(3):
        asyncio.run(work())
        assert batchers_of(plain_app) == {}
        until(lambda: connections(postgres_url) == len(engines_own), "only the engine's connections are left")


def test_a_loop_that_is_closed_without_ceremony_is_forgotten(plain_app: swf.App) -> None:
    for _ in range(2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(settle(plain_app))
        loop.run_until_complete(eventually(lambda: not ours("hints")))  # asyncio would complain of a pending task
        loop.close()
    asyncio.run(settle(plain_app))
    assert batchers_of(plain_app) == {}
    assert sum(count.runs for count in plain_app.sync.activity.counts()) == 3 * ENOUGH


def test_two_loops_have_connections_of_their_own(plain_app: swf.App) -> None:
    together = threading.Barrier(2)

    async def work() -> None:
        await settle(plain_app)
        together.wait(20)
        assert len(batchers_of(plain_app)) == 2
        await asyncio.gather(*(plain_app.trigger("t.often.v1", n) for n in range(50)))
        together.wait(20)

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(count.runs for count in plain_app.sync.activity.counts()) == 2 * (ENOUGH + 50)


async def test_closing_answers_every_trigger_that_still_waits(
    app: swf.App, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "CLOSE_GRACE", 0.2)
    await settle(app)
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE workflow.workflow_run IN ACCESS EXCLUSIVE MODE")
        waiting = [asyncio.create_task(app.trigger("t.often.v1", n)) for n in range(3)]
        await held_up(postgres_url)
        await app.close()
        told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert [type(error) for error in told] == [swf.StoreUnavailable] * 3
    assert all("closed meanwhile" in str(error) for error in told)
    assert (await app.trigger("t.often.v1", 1)).is_new, "the next call opens it again"


async def test_closing_lets_triggers_under_way_finish(app: swf.App, postgres_url: str) -> None:
    await settle(app)
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE workflow.workflow_run IN ACCESS EXCLUSIVE MODE")
        waiting, engine = asyncio.create_task(app.trigger("t.often.v1", 1)), app._client.engine
        await held_up(postgres_url)
        closing = asyncio.create_task(app.close())
        await eventually(lambda: engine.is_closed, "the close that has begun")
        other.commit()
    assert (await waiting).is_new
    await closing


async def test_a_loop_that_closes_the_app_by_blocking_itself_does_not_hang(app: swf.App, postgres_url: str) -> None:
    await settle(app)
    app.sync.close()  # the loop cannot turn meanwhile
    await eventually(lambda: connections(postgres_url) == 0)
    assert (await app.trigger("t.often.v1", 1)).is_new


async def test_whoever_stops_all_tasks_of_a_loop_leaves_no_caller_waiting(app: swf.App, postgres_url: str) -> None:
    await settle(app)
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE workflow.workflow_run IN ACCESS EXCLUSIVE MODE")
        callers = [asyncio.create_task(app.trigger("t.often.v1", n)) for n in range(40)]
        await held_up(postgres_url)
        for task in asyncio.all_tasks() - {asyncio.current_task(), *callers}:
            task.cancel()
        told = await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), 5)
    assert {type(error) for error in told} == {swf.StoreUnavailable}
    assert (await app.trigger("t.often.v1", 1)).is_new


def ours(name: str) -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == f"simpleworkflow-{name}"]


async def test_a_flush_that_is_cancelled_before_its_first_step_is_done_by_another(app: swf.App) -> None:
    await settle(app)
    callers = [asyncio.create_task(app.trigger("t.often.v1", n)) for n in range(3)]
    while not ours("triggers"):
        await asyncio.sleep(0)
    for task in ours("triggers"):
        task.cancel()
    handles = await asyncio.wait_for(asyncio.gather(*callers), 5)
    assert all(handle.is_new for handle in handles)


def test_what_is_triggered_while_a_program_cleans_up_still_gets_through(plain_app: swf.App) -> None:
    done: list[int] = []
    triggered: list[int] = []

    async def polite(n: int) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await plain_app.trigger("t.cleanup.v1", n)
            done.append(n)
            raise

    async def busy(n: int) -> None:
        while True:
            await plain_app.trigger("t.often.v1", n)
            triggered.append(n)

    async def work() -> None:
        await settle(plain_app)
        tasks = [asyncio.create_task(polite(n)) for n in range(10)]
        tasks += [asyncio.create_task(busy(n)) for n in range(30)]
        await eventually(lambda: len(triggered) > 100, "triggers that are under way")
        assert not any(task.done() for task in tasks)

    for _ in range(3):
        done.clear()
        triggered.clear()
        asyncio.run(work())  # cancels all of them
        assert sorted(done) == list(range(10))


async def test_a_keyed_caller_is_told_when_its_lonely_try_never_begins(app: swf.App, postgres_url: str) -> None:
    await settle(app)
    (batcher,) = batchers_of(app).values()
    with psycopg.connect(postgres_url) as other:
        other.execute(
            "INSERT INTO workflow.workflow_run (type, payload, idempotency_key) VALUES ('t.often.v1', '1', 'k')"
        )
        caller = asyncio.create_task(app.trigger("t.often.v1", 1, idempotency_key="k"))
        while not batcher._alone:
            await asyncio.sleep(0)
        for task in list(batcher._alone):
            task.cancel()
        with pytest.raises(swf.StoreUnavailable):
            await asyncio.wait_for(caller, 5)


class Told:
    """A ledger that only takes hints."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    async def hint(self, kind: str) -> None:
        await asyncio.sleep(0)
        self.kinds.append(kind)


async def test_a_hinter_whose_sender_is_cancelled_hints_again() -> None:
    told = Told()
    hinter = Hinter(told)  # type: ignore[arg-type]
    hinter.tell(Hint.READY)
    for task in ours("hints"):
        task.cancel()  # before its first step
    await asyncio.sleep(0)
    hinter.tell(Hint.FINISHED)
    await eventually(lambda: set(told.kinds) == {"ready", "finished"})
    await hinter.stop()


async def test_the_last_hints_go_out_before_a_hinter_stops() -> None:
    told = Told()
    hinter = Hinter(told)  # type: ignore[arg-type]
    hinter.tell(Hint.READY)
    await eventually(lambda: told.kinds == ["ready"])
    hinter.tell(Hint.FINISHED)  # waits for the sender's pause to end
    for task in ours("hints"):
        task.cancel()
    await asyncio.sleep(0)
    await hinter.stop()
    assert told.kinds == ["ready", "finished"]


def test_a_loop_with_a_task_factory_keeps_hopping(plain_app: swf.App) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(lambda loop, coro: asyncio.Task(coro, loop=loop))  # knows nothing of contexts
        await settle(plain_app)
        assert batchers_of(plain_app) == {}

    asyncio.run(work())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_child_that_is_forked_in_such_a_loop_has_connections_of_its_own(app: swf.App) -> None:
    await settle(app)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            app.sync.trigger("t.often.v1", "child")
            app.sync.close()
            code = 0
        finally:
            os._exit(code)
    await asyncio.gather(*(app.trigger("t.often.v1", n) for n in range(20)))
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert sum(count.runs for count in await app.activity.counts()) == ENOUGH + 21


SLOW_COMMIT = """
CREATE FUNCTION wait_for_us() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait_for_us AFTER INSERT ON workflow.workflow_run DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION wait_for_us()"""


async def test_a_trigger_whose_first_try_commits_late_gets_the_run_that_it_made(postgres_url: str) -> None:
    """Its connection is lost while the server commits, and the second try finds the first one in its way."""
    with psycopg.connect(postgres_url, autocommit=True) as other:
        waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'simpleworkflow' AND wait_event = %s"
        async with Proxy(postgres_url) as proxy:
            app = swf.App(proxy.url, settings=swf.Settings(store_timeout=8))
            await app.trigger("t.often.v1", 0)
            other.execute(SLOW_COMMIT)
            other.execute("SELECT pg_advisory_lock(77)")
            trigger = asyncio.create_task(app.trigger("t.often.v1", 1))
            await eventually(lambda: other.execute(waits, ("advisory",)).fetchone(), "a commit that waits for us")
            await proxy.refuse()
            await proxy.accept()
            await eventually(lambda: other.execute(waits, ("transactionid",)).fetchone(), "a second try")
            await eventually(lambda: app._client.engine._triggers._here._alone, "a trigger that goes on alone")
            other.execute("SELECT pg_advisory_unlock(77)")
            handle = await trigger
            assert handle.is_new
            assert sum(count.runs for count in await app.activity.counts()) == 2
            await app.close()


async def test_loops_on_sqlite_share_one_writer(tmp_path: Any) -> None:
    app = swf.App(str(tmp_path / "one.db"))
    await asyncio.gather(*(app.trigger("t.often.v1", n) for n in range(ENOUGH)))
    assert batchers_of(app) == {}
    await app.close()
