"""`ctx.log` says each thing once: it is silent while the code only repeats what it did before.

Too loud, and a run that slept ten times tells its beginning eleven times. Too silent is worse: the line that explains a
failure is missing. So every test counts lines over several executions. A line before something that is on record must
appear exactly once; what comes after a branch's last record may be repeated, but must not be lost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

LONG = "1050ms"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="simpleworkflow.run")
    return caplog


def said(lines: pytest.LogCaptureFixture) -> Counter[str]:
    return Counter(line.getMessage() for line in lines.records if line.name.startswith("simpleworkflow.run."))


async def until_paused(handle: swf.RunHandle[Any]) -> None:
    async with asyncio.timeout(10):
        while (await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)


def once(*expected: str) -> Counter[str]:
    return Counter(expected)


async def test_each_line_is_logged_once_however_often_the_code_runs(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    executions: list[int] = []

    @app.workflow("t.log.v1")
    async def handler(ctx: swf.Context) -> None:
        executions.append(1)
        ctx.log.info("begun")
        await ctx.step("one", lambda: 1)
        ctx.log.info("after %s", "one")
        await ctx.sleep(LONG)
        ctx.log.warning("slept")
        await ctx.wait_for_signal("go")
        ctx.log.info("heard")
        first = await ctx.race(ctx.sleep("1h"), ctx.wait_for_signal("more"))
        ctx.log.info("first was %d", first.index)
        await ctx.step("two", lambda: 2)
        ctx.log.info("ended")

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(lambda: said(lines)["slept"])
        await until_paused(handle)
        await handle.signal("go")
        await eventually(lambda: said(lines)["heard"])
        await until_paused(handle)
        await handle.signal("more")
        await handle.result("10s")
    assert len(executions) == 4
    assert said(lines) == once("begun", "after one", "slept", "heard", "first was 1", "ended")


async def test_a_line_knows_its_run(app: swf.App, lines: pytest.LogCaptureFixture) -> None:
    @app.workflow("t.log.v1")
    def handler(ctx: swf.SyncContext) -> None:
        ctx.log.info("here")
        ctx.sleep(LONG)
        ctx.log.info("there")

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.result("10s")
    assert said(lines) == once("here", "there")
    mine = [line for line in lines.records if line.name == "simpleworkflow.run.t.log.v1"]
    assert {(getattr(line, "run_id", None), getattr(line, "workflow_type", None)) for line in mine} == {
        (str(handle.id), "t.log.v1")
    }


async def test_branches_fall_silent_and_speak_on_their_own(app: swf.App, lines: pytest.LogCaptureFixture) -> None:
    @app.workflow("t.log.v1")
    async def handler(ctx: swf.Context) -> None:
        async def branch(name: str) -> None:
            ctx.log.info("%s begins", name)
            await ctx.step("work", lambda: name)
            await ctx.wait_for_signal(name)
            ctx.log.info("%s heard", name)
            await ctx.step("more", lambda: name)
            ctx.log.info("%s ends", name)

        await asyncio.gather(branch("a"), branch("b"), branch("c"))
        ctx.log.info("all")

    async with app.worker():
        handle = await app.trigger(handler)
        for name in ("b", "a", "c"):
            await until_paused(handle)
            await handle.signal(name)
            await eventually(lambda name=name: said(lines)[f"{name} ends"])  # type: ignore[misc]
        await handle.result("10s")
    counted = said(lines)
    assert all(counted.pop(f"{name} ends") for name in "abc"), "after its last record nothing can tell what was said"
    assert counted == once(*(f"{name} {what}" for name in "abc" for what in ("begins", "heard")), "all")


async def test_a_branch_that_goes_on_is_heard_though_the_one_around_it_still_waits(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    @app.workflow("t.log.v1")
    async def handler(ctx: swf.Context) -> None:
        async def branch() -> None:
            await ctx.wait_for_signal("go")
            ctx.log.info("heard")

        await asyncio.gather(branch(), ctx.wait_for_signal("end"))
        ctx.log.info("ended")

    async with app.worker():
        handle = await app.trigger(handler)
        await until_paused(handle)
        await handle.signal("go")
        async with asyncio.timeout(10):
            while any(signal.consumed_at is None for signal in await handle.signals()):
                await asyncio.sleep(0.01)
        await until_paused(handle)
        await handle.signal("end")
        await handle.result("10s")
    counted = said(lines)
    assert counted.pop("heard") >= 1
    assert counted == once("ended")


async def test_values_published_one_after_another_are_each_a_piece_of_the_record(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    began: list[int] = []

    @app.workflow("t.log.v1")
    async def handler(ctx: swf.Context) -> None:
        for number in range(3):
            ctx.log.info("before %d", number)
            await ctx.set_value("progress", number)
        began.append(1)
        while len(began) == 1:
            await asyncio.sleep(0.01)
        ctx.log.info("done")

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: began)
    async with app.worker():
        await handle.result("10s")
    assert said(lines) == once("before 0", "before 1", "before 2", "done")


async def test_work_that_is_new_since_the_code_was_changed_is_heard(
    app: swf.App, url: str, lines: pytest.LogCaptureFixture
) -> None:
    @app.workflow("t.log.v1")
    async def old(ctx: swf.Context) -> None:
        ctx.log.info("begun")
        await ctx.step("one", lambda: 1)
        await ctx.step("two", lambda: 2)
        await ctx.wait_for_signal("go")

    later = swf.App(url, settings=app.settings)

    @later.workflow("t.log.v1")
    async def new(ctx: swf.Context) -> None:
        ctx.log.info("begun")
        await ctx.step("one", lambda: 1)
        ctx.log.info("still silent")
        await ctx.step("inserted", lambda: 3)
        ctx.log.info("new")
        await ctx.step("two", lambda: 2)
        await ctx.wait_for_signal("go")
        ctx.log.info("ended")

    handle = await app.trigger(old)
    async with app.worker():
        await until_paused(handle)
    await handle.signal("go")
    async with later.worker():
        await handle.result("10s")
    await later.close()
    assert said(lines) == once("begun", "new", "ended")


async def test_a_step_body_is_always_heard_and_a_retried_run_says_only_what_is_new(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    @app.workflow("t.log.v1", retry=swf.Retry(max_attempts=3, initial="10ms", max_delay="10ms"))
    async def handler(ctx: swf.Context) -> None:
        async def body() -> None:
            ctx.log.info("in the step")
            tried.append(1)
            if len(tried) < 3:
                raise ValueError("again")

        ctx.log.info("begun")
        await ctx.step("kept", lambda: ctx.log.info("kept"))
        ctx.log.info("between")
        await ctx.step("flaky", body)
        ctx.log.info("ended")

    async with app.worker():
        await app.run(handler, timeout="10s")
    counted = said(lines)
    assert counted.pop("in the step") == 3
    assert counted.pop("between") <= 3
    assert counted == once("begun", "kept", "ended")


async def test_an_execution_that_left_no_record_is_heard_again(app: swf.App, lines: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    @app.workflow("t.log.v1")
    async def handler(ctx: swf.Context) -> None:
        ctx.log.info("begun")
        while not gate.is_set():
            await asyncio.sleep(0.01)

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: said(lines)["begun"])
    gate.set()
    async with app.worker():
        await handle.result("10s")
    assert said(lines) == Counter({"begun": 2})
