"""Retries of a whole run: only what ended the execution is done again, everything else is kept.

A step that spent its attempts is remembered as failed, so that a handler which caught the error takes the same path on
replay. The retry of a run, automatic or by an operator, must therefore know which failure ended it, however that error
came out: bare, in a group, or as the declared cause of another. A child is somebody else's run: it has attempts of its
own, and a parent is not executed again and again to learn each time that the child has failed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.model.states import Status

SOON = swf.Retry(max_attempts=3, initial="10ms", max_delay="10ms")
ONCE = swf.Retry(max_attempts=1)


class Flaky:
    """Bodies that count their calls and fail as often as they are told."""

    def __init__(self, **failures: int) -> None:
        self.ran: Counter[str] = Counter()
        self.failures = failures

    def __call__(self, name: str) -> str:
        self.ran[name] += 1
        if self.ran[name] <= self.failures.get(name, 0):
            raise ValueError(f"{name} {self.ran[name]}")
        return name.upper()


async def ended(app: swf.App, handle: swf.RunHandle[Any]) -> swf.Run:
    return await handle.wait(timeout="10s")


async def bare(ctx: swf.Context, body: Flaky) -> Any:
    return await ctx.step("b", body, "b")


async def gathered(ctx: swf.Context, body: Flaky) -> Any:
    return (await asyncio.gather(ctx.step("b", body, "b"), ctx.step("c", body, "c")))[0]


async def grouped(ctx: swf.Context, body: Flaky) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ctx.step("b", body, "b"))
    return task.result()


async def wrapped(ctx: swf.Context, body: Flaky) -> Any:
    try:
        return await ctx.step("b", body, "b")
    except swf.StepFailed as error:
        raise KeyError("the order cannot be packed") from error


async def group_with_a_cause(ctx: swf.Context, body: Flaky) -> Any:
    try:
        return await ctx.step("b", body, "b")
    except swf.StepFailed as error:
        raise ExceptionGroup("several", [KeyError("one"), OSError("two")]) from error


async def wrapped_group(ctx: swf.Context, body: Flaky) -> Any:
    try:
        return await grouped(ctx, body)
    except BaseExceptionGroup as errors:
        raise KeyError("the order cannot be packed") from errors


async def raced(ctx: swf.Context, body: Flaky) -> Any:
    return (await ctx.race(ctx.sleep("1h"), ctx.step("b", body, "b"))).value


WAYS = [bare, gathered, grouped, wrapped, group_with_a_cause, wrapped_group, raced]


def declare(app: swf.App, way: Callable[[swf.Context, Any], Any], body: Any, retry: swf.Retry) -> Any:
    @app.workflow(f"t.{way.__name__}.v1", retry=retry)
    async def handler(ctx: swf.Context) -> list[str]:
        return [await ctx.step("a", body, "a"), await way(ctx, body)]

    return handler


async def test_a_retry_redoes_the_step_whose_error_ended_the_run_and_no_other(app: swf.App) -> None:
    bodies = {way: Flaky(b=2) for way in WAYS}
    workflows = {way: declare(app, way, body, SOON) for way, body in bodies.items()}
    async with app.worker():
        handles = {way: await app.trigger(workflow) for way, workflow in workflows.items()}
        for way, handle in handles.items():
            assert await handle.result("10s") == ["A", "B"], way
            assert (bodies[way].ran["a"], bodies[way].ran["b"]) == (1, 3), way
            assert (await handle.get()).attempt == 2, way


async def test_an_operators_retry_redoes_that_step_too(app: swf.App) -> None:
    bodies = {way: Flaky(b=1) for way in WAYS}
    workflows = {way: declare(app, way, body, ONCE) for way, body in bodies.items()}
    async with app.worker():
        handles = {way: await app.trigger(workflow) for way, workflow in workflows.items()}
        for way, handle in handles.items():
            assert (await ended(app, handle)).status is Status.FAILED, way
            await handle.retry()
            assert await handle.result("10s") == ["A", "B"], way
            assert (bodies[way].ran["a"], bodies[way].ran["b"]) == (1, 2), way


async def test_an_error_that_was_merely_at_hand_clears_nothing(app: swf.App) -> None:
    """The handler dealt with the failed step; what it raised afterwards came from elsewhere."""
    body = Flaky(b=99)
    tried: list[str] = []

    @app.workflow("t.retry.v1", retry=SOON)
    async def handler(ctx: swf.Context) -> list[Any]:
        try:
            await ctx.step("b", body, "b")
        except swf.StepFailed as error:
            tried.append(str(error))
            if len(tried) < 3:
                raise RuntimeError("in the handler's own hands")  # noqa: B904 - __context__ only: the point
        return [len(tried)]

    async with app.worker():
        assert await app.run(handler, timeout="10s") == [3]
    assert body.ran["b"] == 1
    assert tried == ["step b failed: ValueError: b 1"] * 3


async def test_a_caught_failure_stays_although_a_later_step_is_redone(app: swf.App) -> None:
    body = Flaky(b=1, c=1)
    path: list[str] = []

    @app.workflow("t.retry.v1", retry=SOON)
    async def handler(ctx: swf.Context) -> str:
        try:
            await ctx.step("b", body, "b")
        except swf.StepFailed:
            path.append("plan b")
        return await ctx.step("c", body, "c")

    async with app.worker():
        assert await app.run(handler, timeout="10s") == "C"
    assert body.ran == {"b": 1, "c": 2}
    assert path == ["plan b", "plan b"]


async def test_the_history_keeps_the_failures_that_a_retry_has_superseded(app: swf.App) -> None:
    body = Flaky(b=2)

    @app.workflow("t.retry.v1", retry=SOON)
    async def handler(ctx: swf.Context) -> str:
        return await ctx.step("b", body, "b")

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.result("10s")
    told = [one.type for one in await handle.history() if one.type.startswith("Activity")]
    assert Counter(told)["ActivityFailed"] == 2
    assert Counter(told)["ActivityCompleted"] == 1
    assert told[-1] == "ActivityCompleted"


async def test_a_permanent_error_inside_a_step_fails_the_run_at_once(app: swf.App) -> None:
    ran: list[str] = []

    def body(name: str) -> str:
        ran.append(name)
        if name == "b":
            raise swf.PermanentError("never")
        return name

    async with app.worker():
        for way in (bare, grouped, wrapped):
            ran.clear()
            run = await ended(app, await app.trigger(declare(app, way, body, SOON)))
            assert (run.status, run.attempt, ran) == (Status.FAILED, 1, ["a", "b"]), way
            assert "never" in (run.error_json or "")


async def test_a_wait_that_ran_out_ends_the_run_without_further_attempts(app: swf.App) -> None:
    @app.workflow("t.retry.v1", retry=SOON)
    async def handler(ctx: swf.Context) -> Any:
        return await ctx.wait_for_signal("go", timeout="50ms")

    async with app.worker():
        handle = await app.trigger(handler)
        run = await ended(app, handle)
        assert (run.status, run.attempt) == (Status.FAILED, 1)
        await handle.retry()
        await handle.signal("go", "now")
        assert await handle.result("10s") == "now"


def family(app: swf.App, body: Flaky, depth: int) -> Any:
    """A workflow whose child's child (and so on) does a step that fails."""

    @app.workflow("t.leaf.v1", retry=swf.Retry(max_attempts=2, initial="10ms", max_delay="10ms"))
    async def leaf(ctx: swf.Context) -> str:
        await ctx.step("a", body, "a")
        return await ctx.step("b", body, "b")

    top: Any = leaf
    for level in range(depth):
        top = _parent(app, f"t.parent{level}.v1", top, body)
    return top


def _parent(app: swf.App, name: str, below: Any, body: Flaky) -> Any:
    @app.workflow(name, retry=SOON)
    async def parent(ctx: swf.Context) -> str:
        await ctx.step("a", body, name)
        return f"{await ctx.run(below)}!"

    return parent


@pytest.mark.parametrize("depth", [1, 2])
async def test_retrying_a_parent_opens_its_failed_child_again(app: swf.App, depth: int) -> None:
    body = Flaky(b=2)
    top = family(app, body, depth)
    async with app.worker():
        handle = await app.trigger(top)
        run = await ended(app, handle)
        assert (run.status, run.attempt) == (Status.FAILED, 1)
        assert body.ran["b"] == 2, "the child has attempts of its own"
        before = {one.id: one async for one in app.runs()}
        assert {one.status for one in before.values()} == {Status.FAILED}
        await handle.retry()
        assert await handle.result("10s") == "B" + "!" * depth
    after = {one.id: one async for one in app.runs()}
    assert after.keys() == before.keys()
    assert {one.status for one in after.values()} == {Status.SUCCEEDED}
    assert body.ran == {"a": 1, "b": 3, **{f"t.parent{level}.v1": 1 for level in range(depth)}}


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_retrying_a_parent_opens_the_children_again_that_its_own_end_took_along(app: swf.App, end: str) -> None:
    """A sibling that had done nothing wrong was cancelled with the parent; it must not fail the retry."""
    body = Flaky(b=1 if end == "failed" else 0)

    @app.workflow("t.fails.v1", retry=ONCE)
    async def fails(ctx: swf.Context) -> str:
        await ctx.wait_for_signal("go")
        return await ctx.step("b", body, "b")

    @app.workflow("t.waits.v1")
    async def waits(ctx: swf.Context) -> str:
        return str(await ctx.wait_for_signal("go"))

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[str]:
        return list(await asyncio.gather(ctx.run(fails), ctx.run(waits)))

    async def child(type: str) -> swf.RunHandle[Any]:
        async with asyncio.timeout(5):
            while not (found := [run async for run in app.runs(type=type, status="paused")]):
                await asyncio.sleep(0.01)
        return app.handle(found[0].id)

    async with app.worker():
        handle = await app.trigger(parent)
        culprit, sibling = await child("t.fails.v1"), await child("t.waits.v1")
        await (culprit.signal("go") if end == "failed" else handle.cancel())
        assert (await ended(app, handle)).status == end
        assert (await sibling.get()).status is Status.CANCELLED
        await handle.retry()
        if end == "cancelled":
            await (await child("t.fails.v1")).signal("go")
        await (await child("t.waits.v1")).signal("go", "patience")
        assert await handle.result("10s") == ["B", "patience"]


async def test_a_childs_failure_that_the_parent_caught_stays_when_the_parent_is_retried(app: swf.App) -> None:
    body = Flaky(b=99, c=1)

    @app.workflow("t.fails.v1", retry=ONCE)
    async def fails(ctx: swf.Context) -> str:
        return await ctx.step("b", body, "b")

    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> str:
        try:
            await ctx.run(fails)
        except swf.RunFailed:
            return await ctx.step("c", body, "c")
        return "unreachable"

    async with app.worker():
        handle = await app.trigger(parent)
        assert (await ended(app, handle)).status is Status.FAILED
        await handle.retry()
        assert await handle.result("10s") == "C"
    assert body.ran == {"b": 1, "c": 2}


async def test_a_run_that_fails_again_after_a_retry_can_be_retried_again(app: swf.App) -> None:
    body = Flaky(b=3)

    @app.workflow("t.retry.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> list[str]:
        return [await ctx.step("a", body, "a"), await ctx.step("b", body, "b")]

    async with app.worker():
        handle = await app.trigger(handler)
        for tried in range(1, 4):
            run = await ended(app, handle)
            assert (run.status, run.attempt, body.ran["b"]) == (Status.FAILED, 1, tried)
            await handle.retry()
        assert await handle.result("10s") == ["A", "B"]
    assert body.ran == {"a": 1, "b": 4}
