"""Plain `def` workflows have the same powers with blocking calls."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status


@dataclass
class Approval:
    by: str


async def until_paused(handle: swf.RunHandle[Any]) -> swf.Run:
    async with asyncio.timeout(10):
        while (run := await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
    return run


async def double(number: int) -> int:
    return number * 2


async def test_a_blocking_workflow_steps_sleeps_waits_and_calls_children(app: swf.App) -> None:
    log: list[str] = []

    def charge() -> str:
        log.append(threading.current_thread().name.rpartition("-")[0].partition("_")[0])
        return "paid"

    @app.workflow("t.child.v1")
    def child(ctx: swf.SyncContext, number: int) -> int:
        return ctx.step(double, number)

    @app.workflow("t.sync.v1")
    def handler(ctx: swf.SyncContext) -> list[Any]:
        paid = ctx.step(charge)
        values = [str(ctx.uuid()), ctx.random(), ctx.now().isoformat()]
        ctx.sleep("1100ms")
        approval = ctx.wait_for_signal("approved", Approval)
        handle = ctx.trigger(child, 4)
        log.append(f"{values} {handle.id}")
        return [paid, repr(approval), ctx.run(child, 3), handle.result()]

    async with app.worker(concurrency=2):
        handle = await app.trigger(handler)
        run = await until_paused(handle)
        assert run.run_at is not None
        while (await until_paused(handle)).run_at is not None:
            await asyncio.sleep(0.01)
        await handle.signal("approved", Approval("ada"))
        assert await handle.result("15s") == ["paid", "Approval(by='ada')", 6, 8]
    assert log[0].startswith("simpleworkflow")
    assert len(set(log)) == 2, "charged once, and the values are the same on every replay"


async def test_a_blocking_wait_unwinds_its_thread_and_frees_its_slot(app: swf.App) -> None:
    log: list[str] = []

    @app.workflow("t.sync.v1")
    def handler(ctx: swf.SyncContext) -> str:
        try:
            ctx.sleep("1500ms")
        except BaseException as error:
            log.append(type(error).__name__)
            with pytest.raises(swf.ExecutionStopped):
                ctx.step("tidy", lambda: log.append("tidied"))
            raise
        return "slept"

    async with app.worker(concurrency=2):
        handles = await app.trigger_many(handler, [None] * 10)
        assert [await handle.result("15s") for handle in handles] == ["slept"] * 10
    assert log == ["ExecutionStopped"] * 10


async def test_a_blocking_workflow_that_swallows_the_stop_is_paused_all_the_same(app: swf.App) -> None:
    seen: list[int] = []

    @app.workflow("t.sync.v1")
    def handler(ctx: swf.SyncContext) -> str:
        seen.append(ctx.epoch)
        try:
            return str(ctx.wait_for_signal("go"))
        except BaseException:
            return "swallowed"

    async with app.worker():
        handle = await app.trigger(handler)
        await until_paused(handle)
        await handle.signal("go", "on")
        assert await handle.result("10s") == "on"
    assert seen == [1, 2]


async def test_finished_steps_of_a_blocking_workflow_do_not_run_again_after_a_stop(app: swf.App) -> None:
    ran: list[str] = []

    def work(name: str) -> str:
        ran.append(name)
        return name.upper()

    async def hang() -> str:
        ran.append("hang")
        if ran.count("hang") == 1:
            await asyncio.Event().wait()
        return "over"

    @app.workflow("t.sync.v1")
    def handler(ctx: swf.SyncContext) -> list[str]:
        return [ctx.step(work, "a"), ctx.step("named", work, "b"), ctx.step(hang), ctx.step(work, "c")]

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: "hang" in ran)
    assert (await handle.get()).status is Status.PENDING
    async with app.worker():
        assert await handle.result("10s") == ["A", "B", "over", "C"]
    assert ran == ["a", "b", "hang", "hang", "c"]


async def test_a_blocking_step_fails_retries_and_refuses_nesting_as_an_async_one(app: swf.App) -> None:
    tries: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=3, initial="10ms"))
    def flaky() -> int:
        tries.append(swf.step_info().attempt)
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    @app.workflow("t.sync.v1")
    def handler(ctx: swf.SyncContext) -> list[Any]:
        said: list[Any] = [ctx.step(flaky)]
        try:
            ctx.step("outer", lambda: ctx.step("inner", lambda: 1))
        except swf.StepFailed as failed:
            said.append(failed.error["type"])
        try:
            ctx.wait_for_signal("never", timeout="1100ms")
        except swf.SignalTimeout:
            said.append("no signal")
        return said

    async with app.worker():
        assert await app.run(handler, timeout="10s") == [3, "InvalidWorkflow", "no signal"]
    assert tries == [0, 1, 2]


async def test_a_cancelled_blocking_workflow_stops_at_its_durable_call(app: swf.App) -> None:
    log: list[str] = []
    began = threading.Event()

    @app.workflow("t.sync.v1")
    def handler(ctx: swf.SyncContext) -> None:
        try:
            began.set()
            while True:
                ctx.step("tick", lambda: None)
        except BaseException as error:
            log.append(type(error).__name__)
            raise

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(began.is_set)
        assert (await handle.cancel()).status is Status.CANCELLED
        await eventually(lambda: log)
    assert log == ["ExecutionStopped"]
    assert (await handle.get()).status is Status.CANCELLED
