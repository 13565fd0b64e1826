"""`on_exhausted="hold"`: a run that is out of attempts waits for an operator, and each resume grants one attempt.

The dangers: a run that ends although it should wait, one that is tried for ever, and one that nobody can explain. The
last execution may have failed by an error or by the death of its process; both must lead to the same place, and the
second without any worker that knows the type.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.ledger import Raw, check_path
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

TWICE = swf.Retry(max_attempts=2, initial="10ms", max_delay="10ms")


async def until_held(handle: swf.RunHandle[Any]) -> swf.Run:
    async with asyncio.timeout(10):
        while not (run := await handle.get()).is_held:
            assert not run.is_finished, run.last_error
            await asyncio.sleep(0.01)
    return run


async def test_a_run_out_of_attempts_is_held_and_each_resume_grants_one(app: swf.App) -> None:
    ran: list[str] = []

    def body(name: str) -> str:
        ran.append(name)
        if name == "b" and ran.count("b") < 5:
            raise ValueError(f"b {ran.count('b')}")
        return name.upper()

    @app.workflow("t.hold.v1", retry=TWICE, on_exhausted="hold")
    async def handler(ctx: swf.Context) -> list[str]:
        return [await ctx.step("a", body, "a"), await ctx.step("b", body, "b")]

    error = "step b failed: ValueError:"
    async with app.worker():
        handle = await app.trigger(handler)
        for tried in range(2, 5):
            run = await until_held(handle)
            assert run.status is Status.PENDING
            assert ran.count("b") == tried
            assert run.attempt == tried
            assert run.hold_reason == f"out of attempts; the last error: StepFailed: {error} b {tried}"
            told = await handle.explain()
            assert run.hold_reason in told
            assert "by an operator" not in told, "nobody has held it"
            await handle.resume()
        assert await handle.result("10s") == ["A", "B"]
    assert ran.count("a") == 1
    trail = [str(event.type) for event in await handle.events()]
    check_path(trail)
    assert trail.count("held") == trail.count("resumed") == 3
    for place, event in enumerate(trail):
        assert event != "held" or trail[place - 1] == "retried"


async def test_a_resumed_run_that_waits_is_not_done_with_its_one_attempt(app: swf.App) -> None:
    tried: list[int] = []

    @app.workflow("t.hold.v1", retry=swf.Retry(max_attempts=1), on_exhausted="hold")
    async def handler(ctx: swf.Context) -> Any:
        tried.append(ctx.attempt)
        if len(tried) == 1:
            raise ValueError("first")
        return await ctx.wait_for_signal("go")

    async with app.worker():
        handle = await app.trigger(handler)
        await until_held(handle)
        await handle.resume()
        await eventually(lambda: len(tried) == 2)
        await handle.signal("go", "word")
        assert await handle.result("10s") == "word"


async def test_a_held_run_keeps_its_signals_and_is_not_claimed(app: swf.App) -> None:
    ran: list[int] = []

    @app.workflow("t.hold.v1", retry=swf.Retry(max_attempts=1), on_exhausted="hold")
    async def handler(ctx: swf.Context) -> Any:
        ran.append(1)
        got = await ctx.wait_for_signal("go")
        if got == "bad":
            raise ValueError("bad")
        return got

    @app.workflow("t.other.v1")
    async def other(ctx: swf.Context) -> None:
        return None

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.signal("go", "bad")
        await until_held(handle)
        before = len(ran)
        await handle.signal("more", 1)
        await app.run(other, timeout="10s")
        assert len(ran) == before
        await handle.cancel()
        assert (await handle.get()).status is Status.CANCELLED
    assert [signal.name for signal in await handle.signals() if signal.consumed_at is None] == ["more"]


async def test_what_no_attempt_could_mend_fails_all_the_same(app: swf.App) -> None:
    def broken() -> None:
        raise swf.PermanentError("for good")

    @app.workflow("t.child.v1", retry=swf.Retry(max_attempts=1))
    async def child(ctx: swf.Context) -> None:
        raise ValueError("of the child")

    @app.workflow("t.hold.v1", retry=TWICE, on_exhausted="hold")
    async def handler(ctx: swf.Context, fault: str) -> None:
        if fault == "permanent":
            broken()
        elif fault == "in a step":
            await ctx.step(broken)
        elif fault == "a child":
            await ctx.run(child)
        else:
            await ctx.wait_for_signal("never", timeout="10ms")

    async with app.worker():
        for handle in await app.trigger_many(handler, ["permanent", "in a step", "a child", "a wait"]):
            run = await handle.wait(timeout="10s")
            assert (run.status, run.is_held, run.attempt) == (Status.FAILED, False, 1), run.payload


async def test_a_held_run_still_times_out(app: swf.App) -> None:
    @app.workflow("t.hold.v1", retry=swf.Retry(max_attempts=1), on_exhausted="hold", timeout="600ms")
    async def handler(ctx: swf.Context) -> None:
        raise ValueError("held")

    async with app.worker():
        handle = await app.trigger(handler)
        await until_held(handle)
        assert (await handle.wait(timeout="10s")).status is Status.TIMED_OUT


async def test_a_run_whose_last_execution_crashed_is_held_by_whoever_sweeps(app: swf.App, url: str) -> None:
    """The sweeping worker has never heard of the type: what to do is on record."""
    began: list[int] = []

    @app.workflow("t.hold.v1", retry=swf.Retry(max_attempts=1), on_exhausted="hold")
    async def handler(ctx: swf.Context) -> str:
        began.append(1)
        while len(began) == 1:
            await asyncio.sleep(0.01)
        return "saved"

    stranger = swf.App(url, settings=app.settings)

    @stranger.workflow("t.other.v1")
    async def other(ctx: swf.Context) -> None:
        return None

    handle = await app.trigger(handler)
    raw = Raw(url)
    async with app.worker():
        await eventually(lambda: began)
        # As if the process had died: nobody renews this lease any more, and the time has come.
        raw.sql(
            "UPDATE workflow.workflow_run SET leased_by = 'gone:1:2:3', version = version + 1 WHERE id = ?", handle.id
        )
        raw.age(handle.id, 60, "lease_until")
        async with stranger.worker():
            run = await until_held(handle)
        assert (run.status, run.attempt + run.crashes) == (Status.PENDING, 1)
        assert run.hold_reason == "out of attempts; its worker stopped without finishing it"
        assert "its worker stopped" in await handle.explain()
        await handle.resume()
        assert await handle.result("10s") == "saved"
    raw.close()
    await stranger.close()
    trail = [str(event.type) for event in await handle.events()]
    assert trail[-6:] == ["retried", "held", "resumed", "leased", "started", "succeeded"]


def test_a_policy_that_does_not_exist_is_refused_when_declared(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> None:
        return None

    values: list[Any] = ["stop", "", None, True]
    for value in values:
        with pytest.raises(swf.InvalidPolicy, match="on_exhausted must be 'fail' or 'hold', not"):
            app.workflow("t.hold.v1", on_exhausted=value)(handler)
    assert not app._client.serves("t.hold.v1")
