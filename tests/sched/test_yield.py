"""A workflow yields only when nothing is left to do but wait.

sched keeps who must be dispatched again in memory; here a run that yields is unwound, and only its timers, signals and
children bring it back. So the danger is to yield too early: when a branch has finished and the code that waits for it
has not been told yet, the run would sleep as long as the *other* branch does, or for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status
from simpleworkflow.runtime.waits import Wait, only_waits

Joined = Callable[["asyncio.Task[None]", "asyncio.Task[None]"], Coroutine[Any, Any, Any]]


async def first_of(quick: asyncio.Task[None], sleeper: asyncio.Task[None]) -> None:
    await asyncio.wait({quick, sleeper}, return_when=asyncio.FIRST_COMPLETED)


async def both(quick: asyncio.Task[None], sleeper: asyncio.Task[None]) -> None:
    await asyncio.gather(quick, sleeper)


async def quick_alone(quick: asyncio.Task[None], sleeper: asyncio.Task[None]) -> None:
    await asyncio.gather(quick)


async def quick_inside(quick: asyncio.Task[None], sleeper: asyncio.Task[None]) -> None:
    await asyncio.gather(asyncio.gather(quick))


async def group(quick: asyncio.Task[None], sleeper: asyncio.Task[None]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(until(quick))
        tasks.create_task(until(sleeper))


async def until(task: asyncio.Task[None]) -> None:
    await task


async def answers_until_it_goes_on(join: Joined, fails: bool) -> list[bool]:
    """What is said at every turn of the loop from the moment the quick task ends until its parent goes on."""
    loop, gate, hour = asyncio.get_running_loop(), asyncio.Event(), asyncio.get_running_loop().create_future()
    waits = [Wait(hour, "@sleep#0", record=None, is_known=True, due=None)]
    answers: list[bool] = []

    def ask() -> None:
        if not parent.done():
            answers.append(only_waits(asyncio.all_tasks() - {test}, waits, loop))
            loop.call_soon(ask)

    async def end() -> None:
        await gate.wait()
        loop.call_soon(ask)  # ahead of whoever is told that this task has ended
        if fails:
            raise ConnectionError

    async def sleep() -> None:
        await hour

    test = asyncio.current_task()
    quick, sleeper = asyncio.create_task(end()), asyncio.create_task(sleep())
    parent = asyncio.create_task(join(quick, sleeper))
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.wait({parent}, timeout=5)
    assert parent.done()
    sleeper.cancel()
    await asyncio.gather(quick, sleeper, parent, return_exceptions=True)
    return answers


@pytest.mark.parametrize(
    ("join", "fails"),
    [(first_of, False), (first_of, True), (both, True), (quick_alone, False), (quick_inside, False), (group, True)],
    ids=["first", "first-failed", "gather-failed", "gather", "nested-gather", "group-failed"],
)
async def test_news_on_their_way_to_the_code_are_not_taken_for_waiting(join: Joined, fails: bool) -> None:
    answers = await answers_until_it_goes_on(join, fails)
    assert answers
    assert not any(answers)


async def test_a_race_that_is_decided_goes_on_at_once_and_does_not_sleep_with_its_loser(app: swf.App) -> None:
    @app.workflow("sched.race.v1")
    async def handler(ctx: swf.Context) -> int:
        first = await ctx.race(ctx.wait_for_signal("go"), ctx.sleep("1h"))
        return first.index

    async def race() -> int:
        handle = await app.trigger(handler)

        async def is_paused() -> bool:
            return (await handle.get()).status is Status.PAUSED

        await eventually(is_paused, "the run waits")
        await handle.signal("go")
        return await handle.result("10s")

    async with app.worker():
        assert set(await asyncio.gather(*[race() for _ in range(100)])) == {0}
