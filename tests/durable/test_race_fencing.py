"""A decided race is a fence: from that moment on its losers write nothing, start no body and start no child.

The danger is the time between the decision and its commit, and the turn of the loop between the decision and the
losers' hearing of it. A signal that a loser consumes there is gone for the code that comes after; a card that it
charges there has been charged by nobody who will ever know.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.model.states import StepKind


def hold_decision(ctx: Any, until: Callable[[], object], decided: asyncio.Event) -> None:
    """Keep the record that decides a race on its way to the database until something has happened, and a moment more.

    A moment, because whatever that something sets off must have had its chance; never longer than two seconds.
    """
    stage = ctx._stage
    write, loop = stage.write, asyncio.get_running_loop()

    async def later(record: Any) -> Any:
        decided.set()
        deadline = loop.time() + 2
        while not until() and loop.time() < deadline:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        return await write(record)

    def slow(record: Any) -> Any:
        if not any(one.kind is StepKind.RACE for one in (record, *record.also)):
            return write(record)
        return loop.create_task(later(record), context=contextvars.Context())  # no task of the run

    stage.write = slow


async def runs_of(app: swf.App, type: str) -> list[swf.Run]:
    return [run async for run in app.runs(type=type)]


@pytest.mark.parametrize("beside", ["own code only", "a durable call too"])
async def test_a_beaten_coroutine_consumes_no_signal_while_the_decision_is_written(app: swf.App, beside: str) -> None:
    sent: list[int] = []
    senders: list[asyncio.Task[None]] = []

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        decided, heard = asyncio.Event(), asyncio.Event()
        post: Any = ctx._stage.post  # type: ignore[attr-defined]
        hear = post.hear

        def hear_and_tell(wakes: int, history: Any) -> None:
            hear(wakes, history)
            if history.signals:
                heard.set()

        post.hear = hear_and_tell
        hold_decision(ctx, heard.is_set, decided)

        async def works() -> str:
            await asyncio.sleep(0.05)
            return "work"

        async def sends() -> None:
            await decided.wait()
            sent.append(1)
            await app.signal(ctx.run_id, "x", "precious")

        async def listens() -> Any:
            return await ctx.wait_for_signal("x")

        if not sent:  # by somebody else: it is no task of the run
            senders.append(asyncio.get_running_loop().create_task(sends(), context=contextvars.Context()))
        calls: list[Any] = [works(), listens()]
        if beside == "a durable call too":
            calls.append(ctx.sleep("1h"))
        first = await ctx.race(*calls)
        try:
            later = await ctx.wait_for_signal("x", timeout="500ms")
        except swf.SignalTimeout:
            later = "gone"
        return [first.index, later]

    async with app.worker():
        assert await app.run(handler, timeout="8s") == [0, "precious"]


@pytest.mark.parametrize("asks_for", ["a step", "a child", "a child through the app", "a value", "an event"])
async def test_a_beaten_coroutine_starts_nothing_while_the_decision_is_written(app: swf.App, asks_for: str) -> None:
    did: list[str] = []

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        did.append("child")

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> int:
        decided, asked = asyncio.Event(), asyncio.Event()
        hold_decision(ctx, asked.is_set, decided)

        async def works() -> str:
            return "work"

        async def is_beaten() -> Any:
            await decided.wait()
            asked.set()
            calls: dict[str, Callable[[], Any]] = {
                "a step": lambda: ctx.step("charge", lambda: did.append("charge")),
                "a child": lambda: ctx.run(child),
                "a child through the app": lambda: app.trigger(child),
                "a value": ctx.now,
                "an event": lambda: ctx.emit("t.happened", 1),
            }
            await calls[asks_for]()
            did.append("went on")

        first = await ctx.race(works(), is_beaten())
        return first.index

    async with app.worker():
        handle = await app.trigger(handler)
        assert await handle.result("5s") == 0
    assert did == []
    assert await runs_of(app, "t.child.v1") == []
    told = {str(event.type) for event in await handle.history()}
    assert told.isdisjoint({"ActivityScheduled", "ActivityCompleted"}), told


async def test_a_race_that_is_decided_by_its_first_contender_starts_none_of_the_others(app: swf.App) -> None:
    """The signal is there already: whoever stands behind it in the line has lost before it began."""
    did: list[str] = []

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        did.append("child")

    async def charge() -> None:
        did.append("charge")

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        async def own() -> None:
            await ctx.step("of its own", lambda: did.append("own"))

        first = await ctx.race(
            ctx.wait_for_signal("stop"),
            ctx.run(child),
            ctx.step(charge),
            ctx.step("in a thread", lambda: did.append("thread")),
            own(),
        )
        return [first.index, first.value]

    handle = await app.trigger(handler)
    await handle.signal("stop", "now")
    async with app.worker():
        assert await handle.result("5s") == [0, "now"]
    assert did == []
    assert await runs_of(app, "t.child.v1") == []


async def test_a_beaten_step_that_waits_for_its_retry_is_not_tried_again(app: swf.App) -> None:
    """Its delay ends while the decision is on its way to the database."""
    tried: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=5, initial="100ms", backoff=1, jitter=0))
    async def flaky() -> None:
        tried.append(1)
        raise ValueError("again")

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> int:
        loop, over = asyncio.get_running_loop(), []
        decided = asyncio.Event()
        loop.call_later(0.3, over.append, True)
        hold_decision(ctx, lambda: bool(over), decided)

        async def works() -> None:
            while not tried:
                await asyncio.sleep(0.002)

        async def own() -> None:
            await ctx.step(flaky)

        first = await ctx.race(works(), own())
        return first.index

    async with app.worker():
        assert await app.run(handler, timeout="5s") == 0
    assert len(tried) == 1
