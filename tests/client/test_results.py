"""Results: how a run's end reaches whoever waits for it, and what they are told while it has not ended."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from support.door import start_python
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.client import reading
from simpleworkflow.client.results import ResultWaiters


def define(app: swf.App) -> dict[str, swf.Workflow[Any, Any]]:
    @app.workflow("a.echo.v1")
    async def echo(ctx: swf.Context, value: int) -> int:
        return value

    @app.workflow("a.fail.v1", retry=swf.Retry(max_attempts=1))
    async def fail(ctx: swf.Context) -> None:
        raise KeyError("the shelf is empty")

    @app.workflow("a.again.v1", retry=swf.Retry(max_attempts=9, initial="1h", max_delay="1h"))
    async def again(ctx: swf.Context) -> None:
        raise OSError("come back later")

    @app.workflow("a.slow.v1", timeout="200ms")
    async def slow(ctx: swf.Context) -> None:
        await asyncio.sleep(60)

    @app.workflow("a.long.v1")
    async def long(ctx: swf.Context) -> None:
        await asyncio.sleep(60)

    return {w.name.split(".")[1]: w for w in (echo, fail, again, slow, long)}


# How it ends.


async def test_the_result_is_what_the_handler_returned(app: swf.App) -> None:
    known = define(app)
    async with app.worker():
        handle = await app.trigger(known["echo"], 42)
        assert await handle.result() == 42
        assert await handle.result(timeout="5s") == 42, "asking again is free"
        assert await asyncio.to_thread(app.sync.handle(handle.id).result, 5) == 42
        assert await app.run(known["echo"], 43, timeout=20) == 43
        assert (await handle.wait()).status == "succeeded"


async def test_a_failed_run_raises_run_failed_with_the_run_and_its_story(app: swf.App) -> None:
    known = define(app)
    async with app.worker():
        handle = await app.trigger(known["fail"])
        with pytest.raises(
            swf.RunFailed, match=rf"run {handle.id} \(a\.fail\.v1\) failed: KeyError: .*shelf"
        ) as caught:
            await handle.result(20)
    run = caught.value.run
    assert (run.id, run.status, run.attempt) == (handle.id, "failed", 1)
    assert run.error["type"] == "KeyError"
    assert "the shelf is empty" in run.error["traceback"]


async def test_a_cancelled_run_raises_run_cancelled_with_the_reason(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1")
    await handle.cancel("the customer left")
    with pytest.raises(swf.RunCancelled, match=r"cancelled: the customer left") as caught:
        await handle.result(20)
    assert caught.value.run.status == "cancelled"


async def test_a_run_past_its_deadline_raises_run_timed_out(app: swf.App) -> None:
    known = define(app)
    async with app.worker():
        handle = await app.trigger(known["slow"])
        with pytest.raises(swf.RunTimedOut, match="its deadline passed") as caught:
            await handle.result(20)
    assert caught.value.run.status == "timed_out"
    assert isinstance(caught.value, swf.RunEnded)


async def test_waiting_for_an_unknown_run_says_so(app: swf.App) -> None:
    missing = uuid4()
    with pytest.raises(swf.RunNotFound, match=f"there is no run {missing}"):
        await app.handle(missing).result(20)
    with pytest.raises(swf.RunNotFound, match=f"there is no run {missing}"):
        await app.handle(missing).wait(timeout=20)
    with pytest.raises(
        swf.RunNotFound, match="'order-7' is not a run id; ids are UUIDs, and a business key goes into key="
    ):
        await app.get("order-7")
    with pytest.raises(LookupError):
        await app.explain(missing)
    with pytest.raises(swf.RunNotFound):
        await app.handle(missing).events()


async def test_an_output_that_no_longer_fits_its_type_is_told_to_the_reader(app: swf.App) -> None:
    known = define(app)
    words = app.declare("a.echo.v1", output=list[str])
    async with app.worker():
        handle = await app.trigger(known["echo"], 42)
        await handle.result(20)
        with pytest.raises(swf.InvalidInput, match=f"result of run {handle.id}"):
            await app.handle(handle.id, words).result(20)


# While it has not.


async def test_a_result_timeout_says_what_the_run_waits_for(app: swf.App) -> None:
    handle = await app.trigger("a.nobody.v1", 1)
    with pytest.raises(
        swf.ResultTimeout, match=rf"run {handle.id} \(a\.nobody\.v1\) is pending.*no live worker serves"
    ) as e:
        await handle.result(timeout="50ms")
    assert isinstance(e.value, TimeoutError)
    assert (await handle.get()).status == "pending", "the run goes on"
    with pytest.raises(swf.ResultTimeout, match="no live worker serves its type"):
        await asyncio.to_thread(app.sync.run, "a.nobody.v1", 2, timeout=0)


async def test_without_a_timeout_the_sentence_is_logged(
    app: swf.App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "EXPLAIN_AFTER", 0.05)
    handle = await app.trigger("a.nobody.v1", 1)
    with caplog.at_level(logging.WARNING, "simpleworkflow.client"):
        waiting = asyncio.create_task(handle.result())

        async def logged() -> bool:
            return "no live worker serves its type" in caplog.text

        await eventually(logged, "the explanation is logged")
        assert not waiting.done()
        await handle.cancel("enough")
        with pytest.raises(swf.RunCancelled):
            await waiting
    assert caplog.text.count("still waiting") == 1


def test_the_sentence_is_logged_after_five_seconds() -> None:
    assert reading.EXPLAIN_AFTER == 5.0


async def test_a_waiter_that_gives_up_leaves_nothing_behind(app: swf.App) -> None:
    handle = await app.trigger("a.nobody.v1", 1)
    for _ in range(3):
        with pytest.raises(swf.ResultTimeout):
            await handle.result(0.01)
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async def nobody_waits() -> bool:
        return not app._client.engine.waiters._waiting

    await eventually(nobody_waits, "the waiters' book is empty")


# Promptly: by hint, not by poll.


async def test_a_result_from_this_process_arrives_without_polling(url: str) -> None:
    app = swf.App(url, settings=swf.Settings(poll_every=30))
    known = define(app)
    async with app.worker():
        await app.run(known["echo"], 0, timeout=20)
        started = time.monotonic()
        assert await app.run(known["echo"], 1, timeout=20) == 1
        assert time.monotonic() - started < 2
    await app.close()


WORKER = """
    import sys, simpleworkflow as swf
    app = swf.App(sys.argv[1], settings=swf.Settings(poll_every=30))

    @app.workflow("a.echo.v1")
    async def echo(ctx: swf.Context, value: int) -> int:
        return value

    with app.sync.worker():
        print("ready", flush=True)
        sys.stdin.read()
"""


async def test_a_result_from_another_process_arrives_without_polling(url: str, tmp_path: Path) -> None:
    app = swf.App(url, settings=swf.Settings(poll_every=30))
    await app.doctor.check()
    process = start_python(WORKER, url, stdin=True)
    assert process.stdout is not None
    assert (await asyncio.to_thread(process.stdout.readline)).strip() == "ready"
    await app.run("a.echo.v1", 0, timeout=20)
    started = time.monotonic()
    assert await app.run("a.echo.v1", 1, timeout=20) == 1
    assert time.monotonic() - started < 2
    await asyncio.to_thread(process.communicate)
    assert process.returncode == 0
    await app.close()


async def test_a_hundred_waiters_are_all_told(app: swf.App) -> None:
    known = define(app)
    async with app.worker():
        handles = await app.trigger_many(known["echo"], range(100))
        assert await asyncio.gather(*(handle.result(30) for handle in handles)) == list(range(100))


async def test_closing_the_app_tells_who_still_waits(app: swf.App) -> None:
    handle = await app.trigger("a.nobody.v1", 1)
    waiting = asyncio.create_task(handle.result())
    troubles: list[BaseException] = []

    def wait_in_a_thread() -> None:
        try:
            app.sync.handle(handle.id).wait()
        except BaseException as trouble:
            troubles.append(trouble)

    thread = threading.Thread(target=wait_in_a_thread)
    thread.start()

    async def both_wait() -> bool:
        return len(app._client.engine.waiters._waiting.get(handle.id, [])) == 2

    await eventually(both_wait, "two are waiting")
    await app.close()
    with pytest.raises(swf.StoreUnavailable, match="closed while waiting"):
        await waiting
    await asyncio.to_thread(thread.join, 10)
    assert [type(trouble) for trouble in troubles] == [swf.StoreUnavailable]


# Explanations, one per state.


async def test_a_run_that_waits_for_its_time_says_when_and_who_serves_it(app: swf.App) -> None:
    known = define(app)
    when = datetime.now(UTC) + timedelta(hours=3)
    handle = await app.trigger(known["echo"], 1, run_at=when)
    async with app.worker(name="crew-7"):

        async def told() -> bool:
            return "served by crew-7" in await handle.explain()

        await eventually(told, "the worker is announced")
        assert f"is pending and due at {when:%Y-%m-%d %H:%M:%S} UTC; it is served by crew-7" in await handle.explain()


async def test_a_retrying_run_says_what_went_wrong(app: swf.App) -> None:
    known = define(app)
    async with app.worker():
        handle = await app.trigger(known["again"])

        async def failed_once() -> bool:
            return (await handle.get()).attempt == 1

        await eventually(failed_once, "the first attempt fails")
        told = await handle.explain()
    assert "is pending and due at" in told
    assert "after 1 failed attempt, the last with: OSError: come back later" in told


async def test_a_running_run_says_where(app: swf.App, url: str) -> None:
    known = define(app)
    async with app.worker(name="crew-8", drain=0):
        handle = await app.trigger(known["long"])

        async def is_running() -> bool:
            return (await handle.get()).status == "leased"

        await eventually(is_running, "it is running")
        assert "is running on crew-8@" in await handle.explain()
        assert "its lease lasts until" in await handle.explain()
        raw = Raw(url)
        raw.age(handle.id, 3600, "lease_until")
        raw.close()
        assert "so the next sweep of any live worker takes it back" in await handle.explain()


async def test_a_held_run_says_by_whom_and_why(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1", 1)
    await handle.hold("stock-taking")
    told = await handle.explain()
    assert "is held since" in told
    assert "(stock-taking); it goes on when resumed" in told


async def test_a_finished_run_says_how_it_ended(app: swf.App) -> None:
    known = define(app)
    async with app.worker():
        good, bad = await app.trigger(known["echo"], 1), await app.trigger(known["fail"])
        await app.handle(good.id).wait(timeout=20)
        await app.handle(bad.id).wait(timeout=20)
    assert f"run {good.id} (a.echo.v1) succeeded at" in await good.explain()
    assert "failed at" in await bad.explain()
    assert "the shelf is empty" in await bad.explain()
    gone = await app.trigger("a.b.v1")
    await gone.cancel("no need")
    assert (await gone.explain()).endswith(": no need")


async def test_who_begins_to_wait_during_a_look_is_not_answered_by_it() -> None:
    """It may have been reopened between the two: what the look saw is how its earlier execution ended."""
    run_id, looks, may_answer = uuid4(), 0, asyncio.Event()

    class Slow:
        async def run(self, _: object) -> list[Any]:
            nonlocal looks
            looks += 1
            seen = SimpleNamespace(id=run_id, look=looks)
            await may_answer.wait()
            return [seen]

        async def listen(self, _: object) -> None:
            await asyncio.Event().wait()

    waiters = ResultWaiters(Slow(), poll_every=60)  # type: ignore[arg-type]
    early = asyncio.create_task(waiters.finished(run_id))
    await eventually(lambda: looks == 1, "the first look is under way")
    late = asyncio.create_task(waiters.finished(run_id))
    await asyncio.sleep(0)
    may_answer.set()
    assert [found.look for found in await asyncio.gather(early, late)] == [1, 2]  # type: ignore[attr-defined]
    await waiters.close()


async def test_news_that_nobody_waits_for_keep_nobody_awake() -> None:
    run_id, heard = uuid4(), []

    class Prompt:
        async def run(self, _: object) -> list[Any]:
            return [SimpleNamespace(id=run_id)]

        async def listen(self, hear: Any) -> None:
            heard.append(hear)
            await asyncio.Event().wait()

    waiters = ResultWaiters(Prompt(), poll_every=60)  # type: ignore[arg-type]
    assert (await waiters.finished(run_id)).id == run_id
    heard[0]("finished")
    await eventually(lambda: not waiters._news.is_set(), "it has looked, and rests")
    await waiters.close()


async def test_the_more_wait_the_longer_news_gather() -> None:
    waiters = ResultWaiters(SimpleNamespace(), poll_every=1.0)  # type: ignore[arg-type]
    waiting, answered = (asyncio.get_running_loop().create_future() for _ in range(2))
    answered.set_result(None)
    found = []
    for crowd in (1, 100, 1_000, 10_000, 100_000):
        waiters._waiting = {uuid4(): [waiting] for _ in range(crowd)} | {uuid4(): [answered] for _ in range(5_000)}
        found.append(waiters._gather_for())
    assert found == pytest.approx([0.002, 0.002, 0.02, 0.2, 1.0])
