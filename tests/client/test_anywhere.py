"""An App works from any loop, any thread and after a fork, opens when needed and closes without losing anyone."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.door import run_python

import simpleworkflow as swf


def double_on(app: swf.App) -> swf.Workflow[int, int]:
    @app.workflow("a.double.v1")
    async def double(ctx: swf.Context, n: int) -> int:
        return 2 * n

    return double


# Loops and threads.


def test_one_app_serves_several_event_loops(app: swf.App) -> None:
    double = double_on(app)
    with app.sync.worker():
        assert [asyncio.run(app.run(double, n, timeout=20)) for n in range(3)] == [0, 2, 4]
        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(lambda n: asyncio.run(app.run(double, n, timeout=20)), range(8))
        assert list(answers) == [2 * n for n in range(8)]


def test_fifty_threads_trigger_at_once(app: swf.App) -> None:
    together = threading.Barrier(50)

    def trigger(n: int) -> Any:
        together.wait()
        return app.sync.trigger("a.b.v1", n).id

    with ThreadPoolExecutor(50) as pool:
        ids = list(pool.map(trigger, range(50)))
    assert len(set(ids)) == 50
    assert {run.payload for run in app.sync.runs()} == set(range(50))
    engines = [t for t in threading.enumerate() if t.name == "simpleworkflow-engine"]
    assert len(engines) == 1, "threads whose first calls meet share one engine"


async def test_the_blocking_twin_can_be_called_inside_a_running_loop(app: swf.App) -> None:
    handle = app.sync.trigger("a.b.v1", 1)
    assert app.sync.get(handle.id).payload == 1
    assert (await app.get(handle.id)).payload == 1


async def test_a_cancelled_caller_does_not_disturb_the_app(app: swf.App) -> None:
    waiting = asyncio.create_task(app.run("a.nobody.v1", 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await app.trigger("a.b.v1", 1)).is_new


# Fork.


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_triggers_and_the_parent_goes_on(app: swf.App) -> None:
    before = app.sync.trigger("a.b.v1", "parent before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            app.sync.trigger("a.b.v1", "child")
            assert app.sync.get(before.id).payload == "parent before"
            app.sync.close()
            code = 0
        finally:
            os._exit(code)
    app.sync.trigger("a.b.v1", "parent meanwhile")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    app.sync.trigger("a.b.v1", "parent after")
    assert {run.payload for run in app.sync.runs()} == {"parent before", "child", "parent meanwhile", "parent after"}


def test_children_of_a_prefork_server_each_run_a_worker(url: str) -> None:
    out = run_python(
        """
        import os, sys, simpleworkflow as swf
        app = swf.App(sys.argv[1])

        @app.workflow("a.pid.v1")
        async def pid(ctx: swf.Context) -> int:
            return os.getpid()

        app.sync.doctor.check()
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                with app.sync.worker():
                    assert app.sync.run(pid, timeout=20) > 0
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(codes, sum(c.runs for c in app.sync.activity.counts()))
        """,
        url,
    )
    assert out.strip() == "[0, 0] 2"


# Inside handlers.


async def test_handlers_may_use_the_app_themselves(app: swf.App) -> None:
    double = double_on(app)

    @app.workflow("a.outer.v1")
    async def outer(ctx: swf.Context, n: int) -> int:
        handle = await app.trigger(double, n)
        return await handle.result("20s") + (await app.get(handle.id)).payload

    @app.workflow("a.blocking.v1")
    def blocking(ctx: swf.SyncContext, n: int) -> int:
        return app.sync.trigger(double, n).result("20s") + app.sync.run(double, n, timeout="20s")

    async with app.worker():
        assert await app.run(outer, 5, timeout=30) == 15
        assert await app.run(blocking, 5, timeout=30) == 20


# Opening and closing.


def test_an_app_at_import_time_opens_nothing(tmp_path: Path) -> None:
    out = run_python(
        """
        import os, sys, threading
        import simpleworkflow as swf
        app = swf.App("postgresql://nobody@192.0.2.1/nowhere")
        other = swf.App()

        @other.workflow("a.b.v1")
        async def handler(ctx: swf.Context) -> None: ...

        print(os.listdir("."), threading.active_count(), "asyncpg" in sys.modules, repr(other))
        """,
        cwd=tmp_path,
    )
    assert out.strip() == "[] 1 False <App simpleworkflow.db>"


async def test_a_closed_app_opens_again(app: swf.App) -> None:
    first = await app.trigger("a.b.v1", 1)
    await app.close()
    await app.close()
    assert (await first.get()).payload == 1
    await asyncio.to_thread(app.sync.close)
    app.sync.close()
    assert app.sync.get(first.id).payload == 1


def test_closing_ends_the_apps_threads(app: swf.App, url: str) -> None:
    before = set(threading.enumerate())
    double = double_on(app)
    with app.sync.worker():
        app.sync.run(double, 1, timeout=20)
    app.sync.close()
    assert [t.name for t in set(threading.enumerate()) - before if "simpleworkflow" in t.name] == []


async def test_a_call_that_comes_as_the_app_closes_is_refused_and_not_lost(app: swf.App) -> None:
    """Whoever took hold of the engine before the close and enters after it."""
    await app.doctor.check()
    engine = app._client.engine
    await app.close()

    async def work() -> int:
        return 1

    with pytest.raises(swf.StoreUnavailable, match="closed meanwhile"):
        engine.block(work())
    with pytest.raises(swf.StoreUnavailable, match="closed meanwhile"):
        await engine.call(work)
    assert app._client.engine is not engine


def test_a_call_under_way_as_the_app_closes_does_not_open_it_again(app: swf.App) -> None:
    """As after Ctrl-C: the call is given up, the App is closed, and what is left of the call must not make another
    engine that nobody closes."""
    app.sync.doctor.check()
    engine = app._client.engine
    inside, closing = threading.Event(), threading.Event()

    async def call() -> object:
        inside.set()
        while not closing.is_set():
            await asyncio.sleep(0)
        return app._client.engine

    caller = threading.Thread(target=lambda: told.append(_error_of(lambda: app._client.engine.block(call()))))
    told: list[BaseException | None] = []
    caller.start()
    assert inside.wait(20)
    closer = threading.Thread(target=app.sync.close)
    closer.start()
    while not engine.is_closed:
        closer.join(0.001)
    closing.set()
    for thread in (caller, closer):
        thread.join(20)
    assert isinstance(told[0], swf.StoreUnavailable)
    assert "closed meanwhile" in str(told[0])
    assert app._client._running is engine, "another one was opened"


def _error_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


def test_closing_while_others_call_hangs_nobody(app: swf.App) -> None:
    """Calls either succeed or say that the App was closed meanwhile."""
    stop = threading.Event()
    outcomes: list[str] = []

    def call() -> None:
        while not stop.is_set():
            try:
                app.sync.trigger("a.b.v1", 1)
            except swf.StoreUnavailable:
                outcomes.append("closed")
            else:
                outcomes.append("done")

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        seen = len(outcomes)
        while len(outcomes) < seen + 4:
            stop.wait(0.002)
        app.sync.close()
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert outcomes.count("done") == sum(c.runs for c in app.sync.activity.counts())


def test_an_app_can_be_pointed_elsewhere_only_before_its_first_call(app: swf.App, tmp_path: Path) -> None:
    other = swf.App("postgresql://nobody@192.0.2.1/nowhere")
    other._client.use(str(tmp_path / "other.db"))
    assert other.sync.trigger("a.b.v1").is_new
    with pytest.raises(swf.InvalidInput, match="already open"):
        other._client.use("third.db")
    other.sync.close()
