"""A worker can live inside any program without disturbing it, and a web server can carry one."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support.postgres import Server
from support.proxy import Proxy
from support.waiting import eventually, until

import simpleworkflow as swf
from simpleworkflow import app as app_module


def double_on(app: swf.App) -> swf.Workflow[int, int]:
    @app.workflow("a.double.v1")
    async def double(ctx: swf.Context, n: int) -> int:
        return 2 * n

    return double


# Embedded workers.


async def test_an_embedded_worker_serves_async_with(app: swf.App) -> None:
    double = double_on(app)
    async with app.worker(name="inside") as worker:
        assert worker.is_alive
        assert await app.run(double, 21, timeout=20) == 42
    assert not worker.is_alive


def test_an_embedded_worker_serves_with(app: swf.App) -> None:
    double = double_on(app)
    with app.sync.worker(name="inside") as worker:
        assert app.sync.run(double, 21, timeout=20) == 42
    with pytest.raises(swf.InvalidPolicy, match="started already"):
        worker.start()


def test_wrong_worker_options_are_told_where_they_are_written(app: swf.App) -> None:
    with pytest.raises(TypeError, match="a worker has no option colour"):
        app.worker(colour="red")  # type: ignore[call-arg]
    with pytest.raises(swf.InvalidPolicy, match="on_unknown must be 'leave' or 'fail', not 'ignore'"):
        app.worker(on_unknown="ignore")  # type: ignore[arg-type]
    with pytest.raises(swf.InvalidDuration, match="lease: 'soon'"):
        app.sync.worker(lease="soon")
    with pytest.raises(swf.InvalidPolicy, match="too short to be renewed"):
        app.lifespan(worker=True, lease="1ms")
    with pytest.raises(swf.InvalidName, match="type prefix"):
        app.worker(prefixes=["bill*ing."])


def test_an_error_in_the_body_stops_the_worker_and_comes_through(app: swf.App) -> None:
    worker = app.sync.worker()
    with pytest.raises(ZeroDivisionError), worker:
        raise ZeroDivisionError
    assert not worker.is_alive


def test_a_worker_that_breaks_is_not_silent(
    app: swf.App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Any) -> None:
        self.ready.set()
        await asyncio.sleep(0.01)
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(app_module.Worker, "run", broken)
    with pytest.raises(RuntimeError, match="a defect of ours"), app.sync.worker() as worker:
        while worker.is_alive:
            worker._thread.join(0.01)  # type: ignore[union-attr]
    assert "the embedded worker ended" in caplog.text


def test_code_that_does_not_stop_cannot_hold_up_the_end_of_an_embedded_worker(app: swf.App) -> None:
    started, finish = threading.Event(), threading.Event()

    @app.workflow("a.stubborn.v1")
    def stubborn(ctx: swf.SyncContext) -> None:
        started.set()
        finish.wait(60)

    with app.sync.worker(drain=0):
        handle = app.sync.trigger(stubborn)
        assert started.wait(20)
        before = time.monotonic()
    took = time.monotonic() - before
    finish.set()
    assert took < 10
    assert handle.get().status == "leased", "the thread still runs, so nobody else may have it before the lease ends"


@pytest.fixture
def handlers() -> dict[int, Any]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    return {number: signal.getsignal(number) for number in numbers}


def test_an_embedded_worker_never_touches_signal_handlers(app: swf.App, handlers: dict[int, Any]) -> None:
    double = double_on(app)
    with app.sync.worker():
        app.sync.run(double, 1, timeout=20)
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        assert signal.set_wakeup_fd(-1) == -1
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_an_unmigrated_postgresql_is_told_at_once_with_the_command(postgres: Server) -> None:
    postgres.create_database("bare")
    try:
        app = swf.App(postgres.url("bare"))
        with pytest.raises(swf.MissingMigration, match="simpleworkflow migrate up"), app.sync.worker():
            pytest.fail("the worker must not start")
        with pytest.raises(swf.MissingMigration, match="simpleworkflow migrate up"):
            app.sync.trigger("a.b.v1")
        assert app.sync.migrate()
        with app.sync.worker():
            assert app.sync.trigger("a.b.v1").is_new
        app.sync.close()
    finally:
        postgres.drop_database("bare")


# Lifespan.


class Lifespan:
    """An ASGI server's side of the lifespan protocol, by hand."""

    def __init__(self, application: Any) -> None:
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._task = asyncio.create_task(application(scope, self._inbox.get, self._outbox.put))

    async def say(self, kind: str) -> dict[str, Any]:
        await self._inbox.put({"type": f"lifespan.{kind}"})
        return await asyncio.wait_for(self._outbox.get(), 30)

    async def over(self) -> None:
        await asyncio.wait({self._task}, timeout=30)


async def request(application: Any, path: str) -> bytes:
    body = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal body
        body += message.get("body", b"")

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    await application({**scope, "headers": [], "http_version": "1.1", "asgi": {"version": "3.0"}}, receive, send)
    return body


async def test_a_starlette_application_opens_and_closes_the_app_and_its_worker(app: swf.App) -> None:
    double = double_on(app)

    async def home(_: Request) -> JSONResponse:
        return JSONResponse(await app.run(double, 4, timeout=20))

    web = Starlette(routes=[Route("/", home)], lifespan=app.lifespan(worker=True, name="web"))
    server = Lifespan(web)
    assert (await server.say("startup"))["type"] == "lifespan.startup.complete"
    assert await request(web, "/") == b"8"

    async def names() -> list[str]:
        return [worker.name for worker in await app.workers.alive()]

    assert await eventually(names, "the worker is announced") == ["web"]
    assert (await server.say("shutdown"))["type"] == "lifespan.shutdown.complete"
    await server.over()
    assert app._client._running is not None
    assert app._client._running.is_closed
    assert await names() == []


async def test_a_server_with_an_unusable_database_does_not_start(postgres: Server) -> None:
    app = swf.App(postgres.url("postgres"))
    server = Lifespan(Starlette(lifespan=app.lifespan()))
    answer = await server.say("startup")
    assert answer["type"] == "lifespan.startup.failed"
    assert "simpleworkflow migrate up" in answer["message"]
    await server.over()
    with pytest.raises(swf.MissingMigration):
        server._task.result()
    await app.close()


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("simpleworkflow")}


@pytest.mark.parametrize("worker", [False, True])
async def test_a_server_whose_database_is_down_does_not_start_and_says_why(closed_port: int, worker: bool) -> None:
    """Where a worker waits, a server ends, so that its supervisor sees it and starts it again."""
    before = our_threads()
    url = f"postgresql://u:s3cret@127.0.0.1:{closed_port}/db"
    app = swf.App(url, settings=swf.Settings(store_timeout=0.2))
    server = Lifespan(Starlette(lifespan=app.lifespan(worker=worker)))
    answer = await server.say("startup")
    assert answer["type"] == "lifespan.startup.failed"
    assert f"postgresql://u:***@127.0.0.1:{closed_port}/db" in answer["message"]
    assert "s3cret" not in answer["message"]
    await server.over()
    with pytest.raises(swf.StoreUnavailable):
        server._task.result()
    assert our_threads() <= before, "no worker and no engine room stay behind"


async def test_a_server_starts_again_when_its_database_is_back(postgres_url: str) -> None:
    proxy = Proxy(postgres_url)
    await proxy.accept()
    await proxy.refuse()
    app = swf.App(proxy.url, settings=swf.Settings(store_timeout=0.2))
    down = Lifespan(Starlette(lifespan=app.lifespan()))
    assert (await down.say("startup"))["type"] == "lifespan.startup.failed"
    await down.over()
    assert isinstance(down._task.exception(), swf.StoreUnavailable)
    await proxy.accept()
    up = Lifespan(Starlette(lifespan=swf.App(proxy.url).lifespan()))
    assert (await up.say("startup"))["type"] == "lifespan.startup.complete"
    assert (await up.say("shutdown"))["type"] == "lifespan.shutdown.complete"
    await up.over()
    await proxy.refuse()


def test_an_embedded_worker_that_waits_for_running_code_says_so(app: swf.App, caplog: pytest.LogCaptureFixture) -> None:
    """A program without any logging shows warnings only, and after Ctrl-C somebody wonders what it is waiting for."""
    began, gate = threading.Event(), threading.Event()

    @app.workflow("t.drains.v1")
    def drains(ctx: swf.SyncContext) -> str:
        began.set()
        gate.wait(20)
        return "finished"

    def let_go() -> None:
        until(lambda: "stops" in caplog.text, "it is said while it waits")
        gate.set()

    helper = threading.Thread(target=let_go)
    helper.start()
    with app.sync.worker(drain="20s"):
        handle = app.sync.trigger(drains)
        assert began.wait(20)
    helper.join()
    assert handle.result("10s") == "finished"
    (told,) = [record for record in caplog.records if " stops; " in record.getMessage()]
    assert told.levelname == "WARNING"
    assert "1 run under way; what has not finished within 20 s is handed back" in told.getMessage()
