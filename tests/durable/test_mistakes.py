"""Mistakes in code that no further attempt can mend end a run at once, with the sentence that says what to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import simpleworkflow as swf

MANY = swf.Retry(max_attempts=5, base="1h", cap="1h")


async def inside(ctx: swf.Context) -> None:
    await ctx.sleep(1)


@swf.step(retry=MANY)
async def nested(ctx: swf.Context) -> None:
    await ctx.step(inside, ctx)


MISTAKES: dict[str, tuple[Any, str]] = {
    "a lambda without a name": (lambda ctx: ctx.step(lambda: 1), "a lambda has no name to remember it by"),
    "a duration that is none": (lambda ctx: ctx.sleep("soon"), "soon"),
    "a naive instant": (lambda ctx: ctx.sleep_until("tomorrow"), "give a datetime with a time zone"),
    "a name that is none": (lambda ctx: ctx.wait_for_signal("a/b"), "cannot name a signal"),
    "a value that is no JSON": (lambda ctx: ctx.publish("x", object()), "cannot be stored as JSON"),
    "a durable call inside a step": (lambda ctx: ctx.step(nested, ctx), "a durable call inside a step"),
    "a step as a child": (
        lambda ctx: ctx.run(nested, 1),
        r"nested is a step and no workflow: write ctx\.step\(nested, …\)",
    ),
    "a function as a child": (
        lambda ctx: ctx.trigger(inside),
        r"inside is a function and no workflow: write ctx\.step\(",
    ),
    "a race of nothing": (lambda ctx: ctx.race(), "ctx.race takes the calls themselves"),
}


@pytest.mark.parametrize(("call", "told"), MISTAKES.values(), ids=MISTAKES)
async def test_a_mistake_in_the_code_ends_the_run_at_its_first_execution(app: swf.App, call: Any, told: str) -> None:
    @app.workflow("t.mistake.v1", retry=MANY)
    async def mistaken(ctx: swf.Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(call(ctx))

    @app.workflow("t.mistake.v2", retry=MANY)
    async def directly(ctx: swf.Context) -> None:
        await call(ctx)

    async with app.worker():
        for workflow in (mistaken, directly):
            with pytest.raises(swf.RunFailed, match=told) as failed:
                await app.run(workflow, timeout="10s")
            assert failed.value.run.attempt == 1
