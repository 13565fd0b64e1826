"""A line of history, once read, stands: its number, its words and its place never change.

sched counts `MAX(idx) + 1` and lets concurrent appends collide. Here the numbers are counted by a view over what is
written, so the danger is another one: something written later that sorts earlier. Each test lets two things happen
at once, or one thing be undone, and a witness reads the history all the while.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from support.ledger import Raw

import simpleworkflow as swf
from simpleworkflow.model.states import Status

from .room import NO_JITTER, Gate, Witness, of_type, told, types, until_status, until_told, watching


async def test_a_retry_that_ends_after_a_signal_came_does_not_move_the_signal(app: swf.App) -> None:
    began, fail = Gate(), Gate()

    @swf.step(retry=swf.Retry(max_attempts=2, **NO_JITTER))
    async def flaky() -> str:
        if not fail.is_open:
            began.open()
            await fail.passed()
            raise ConnectionError("the first one fails")
        return "done"

    @app.workflow("sched.flaky.v1")
    async def handler(ctx: swf.Context) -> str:
        return await ctx.step(flaky)

    async with app.worker():
        handle = await app.trigger(handler)
        await began.passed()
        await handle.signal("hello")
        witness = Witness(handle)
        assert told(await witness.look())[1:] == ["SignalReceived(hello)"]
        fail.open()
        assert await handle.result("10s") == "done"
        history = await witness.look()
    assert told(history)[1:] == [
        "SignalReceived(hello)",
        "ActivityScheduled(flaky)",
        "ActivityRetryScheduled(flaky)",
        "ActivityCompleted(flaky)",
        "WorkflowCompleted",
    ]


async def test_two_branches_at_once_write_into_one_history_that_only_grows(app: swf.App) -> None:
    fails = {"left": 2, "right": 2}

    @swf.step(retry=swf.Retry(max_attempts=3, **NO_JITTER))
    async def flaky(side: str, length: float) -> str:
        await asyncio.sleep(length)
        fails[side] -= 1
        if fails[side] >= 0:
            raise ConnectionError(side)
        return side

    async def branch(ctx: swf.Context, side: str, length: float) -> str:
        await ctx.step(flaky, side, length)
        await ctx.sleep("30ms")
        for _ in range(5):
            await ctx.step("more", lambda: side)
        return side

    @app.workflow("sched.branches.v1")
    async def handler(ctx: swf.Context) -> list[str]:
        return list(await asyncio.gather(branch(ctx, "left", 0.1), branch(ctx, "right", 0.015)))

    async with app.worker():
        handle = await app.trigger(handler)
        async with watching(handle) as witness:
            assert await handle.result("15s") == ["left", "right"]
    assert witness.looks > 5
    history = await witness.look()
    assert len(of_type(history, "ActivityScheduled")) == len(of_type(history, "ActivityCompleted")) == 12
    assert len(of_type(history, "ActivityRetryScheduled")) == 4
    assert len(of_type(history, "TimerScheduled")) == len(of_type(history, "TimerFired")) == 2


async def test_many_signals_keep_their_places_among_steps(app: swf.App) -> None:
    number = 30

    @app.workflow("sched.post.v1")
    async def handler(ctx: swf.Context) -> list[int]:
        heard: list[int] = []
        for _ in range(number):
            heard.append(await ctx.wait_for_signal("letter"))
            await ctx.step("read", lambda letter: letter, heard[-1])
        return heard

    async with app.worker():
        handle = await app.trigger(handler)
        async with watching(handle) as witness:
            for letter in range(number):
                await handle.signal("letter", letter)
            assert await handle.result("30s") == list(range(number))
    history = await witness.look()
    assert [line.details["input"] for line in of_type(history, "SignalReceived")] == list(range(number))
    assert [line.details["input"] for line in of_type(history, "ActivityScheduled")] == list(range(number))


async def test_a_retry_of_the_run_leaves_the_failed_lines_as_they_were(app: swf.App) -> None:
    """The failed step is done again under its own name; the record that made room for it is still what was read."""
    executions: list[int] = []

    async def charge(cents: int) -> str:
        executions.append(cents)
        if len(executions) < 3:
            raise ConnectionError("no line")
        return "paid"

    @app.workflow("sched.pay.v1", retry=swf.Retry(max_attempts=3, initial="300ms", jitter=0.0))
    async def handler(ctx: swf.Context) -> str:
        await ctx.step("reserve", lambda: "seat")
        return await ctx.step(charge, 100)

    async with app.worker():
        handle = await app.trigger(handler)
        async with watching(handle) as witness:
            assert await handle.result("15s") == "paid"
    assert told(await witness.look())[1:] == [
        "ActivityScheduled(reserve)",
        "ActivityCompleted(reserve)",
        *["ActivityScheduled(charge)", "ActivityFailed(charge)"] * 2,
        "ActivityScheduled(charge)",
        "ActivityCompleted(charge)",
        "WorkflowCompleted",
    ]


async def test_an_operators_retry_adds_to_the_history_and_rewrites_nothing(app: swf.App) -> None:
    works = Gate()

    async def charge() -> str:
        if not works.is_open:
            raise swf.PermanentError("no card")
        return "paid"

    @app.workflow("sched.pay.v1", retry=swf.Retry(max_attempts=1))
    async def handler(ctx: swf.Context) -> str:
        return await ctx.step(charge)

    async with app.worker():
        handle = await app.trigger(handler)
        await until_status(handle, Status.FAILED)
        witness = Witness(handle)
        assert types(await witness.look())[-2:] == ["ActivityFailed", "WorkflowFailed"]
        works.open()
        await handle.retry()
        assert await handle.result("10s") == "paid"
        history = await witness.look()
    assert types(history)[1:] == [
        "ActivityScheduled",
        "ActivityFailed",
        "WorkflowFailed",
        "ActivityScheduled",
        "ActivityCompleted",
        "WorkflowCompleted",
    ]
    assert len({line.details["step_id"] for line in history if "Activity" in line.type}) == 1


async def test_a_signal_timeout_that_ended_the_run_stays_told_after_its_retry(app: swf.App) -> None:
    @app.workflow("sched.wait.v1")
    async def handler(ctx: swf.Context) -> Any:
        return await ctx.wait_for_signal("go", timeout="100ms")

    async with app.worker():
        handle = await app.trigger(handler)
        await until_status(handle, Status.FAILED)
        witness = Witness(handle)
        await witness.look()
        await handle.retry()
        await until_status(handle, Status.FAILED)
        history = await witness.look()
    assert (
        told(history)[1:] == ["TimerScheduled(go#0)", "WorkflowTaskYielded", "TimerFired(go#0)", "WorkflowFailed"] * 2
    )


async def test_history_keeps_its_order_when_the_clock_stands_still(still: swf.App) -> None:
    """Everything happens in one instant: only the order of writing can tell what was first."""

    @still.workflow("sched.still.v1")
    async def handler(ctx: swf.Context) -> str:
        await ctx.step("first", lambda: 1)
        await ctx.wait_for_signal("go")
        await ctx.step("second", lambda: 2)
        await ctx.wait_for_signal("go")
        return "done"

    async with swf.testing.env(still) as env:
        handle = await still.trigger(handler)
        await env.settle()
        witness = Witness(handle)
        await witness.look()
        for _ in range(2):
            await handle.signal("go")
            await witness.look()
            await env.settle()
            await witness.look()
        await handle.result("5s")
        history = await witness.look()
    assert told(history)[1:] == [
        "ActivityScheduled(first)",
        "ActivityCompleted(first)",
        "WorkflowTaskYielded",
        "SignalReceived(go)",
        "ActivityScheduled(second)",
        "ActivityCompleted(second)",
        "WorkflowTaskYielded",
        "SignalReceived(go)",
        "WorkflowCompleted",
    ]


async def test_the_still_clock_tells_a_step_before_the_signal_that_followed_it(still: swf.App) -> None:
    @still.workflow("sched.still.v1")
    async def handler(ctx: swf.Context) -> None:
        await ctx.step("first", lambda: 1)
        await ctx.step("second", stay)

    release = Gate()

    async def stay() -> None:
        await release.passed()

    async with swf.testing.env(still):
        handle = await still.trigger(handler)
        await until_told(handle, "ActivityCompleted(first)")
        witness = Witness(handle)
        await witness.look()
        await handle.signal("late")
        assert told(await witness.look())[-1] == "SignalReceived(late)"
        release.open()


async def test_a_strangers_signal_does_not_sort_before_what_was_told(app: swf.App, stranger: Raw) -> None:
    """Its default instant is coarser than ours: the place must not depend on it."""
    release = Gate()

    async def stay() -> None:
        await release.passed()

    @app.workflow("sched.told.v1")
    async def handler(ctx: swf.Context) -> None:
        for number in range(20):
            await ctx.step(f"s{number}", lambda: None)
        await ctx.step("stay", stay)

    async with app.worker():
        handle = await app.trigger(handler)
        await until_told(handle, "ActivityCompleted(s19)")
        witness = Witness(handle)
        seen = told(await witness.look())
        for _ in range(3):
            stranger.sql("INSERT INTO workflow.workflow_signal (run_id, name) VALUES (?, 'hello')", handle.id)
            seen.append("SignalReceived(hello)")
            assert told(await witness.look()) == seen
        release.open()
        await handle.result("10s")
        await witness.look()


async def test_a_run_that_nobody_knows_has_no_history(app: swf.App, stranger: Raw) -> None:
    unknown = uuid4()
    with pytest.raises(swf.RunNotFound, match=str(unknown)):
        await app.handle(unknown).history()
    assert stranger.sql("SELECT * FROM workflow.workflow_history WHERE workflow_id = ?", unknown) == []
