"""Those who wait for one commit are woken together, each as if the loop had done it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from typing import Any

import pytest

from simpleworkflow.runtime.waking import Sleeper, Waker

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


@pytest.fixture
def waker() -> Waker[int]:
    return Waker()


async def turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def answer_of(sleeper: Sleeper[int]) -> int:
    return await sleeper


async def test_all_who_were_answered_go_on_in_one_turn_of_the_loop(waker: Waker[int]) -> None:
    sleepers = [waker.sleeper() for _ in range(50)]
    seen: list[int] = []

    async def wait_for(sleeper: Sleeper[int]) -> None:
        seen.append(await sleeper)

    tasks = [asyncio.create_task(wait_for(sleeper)) for sleeper in sleepers]
    await turns()
    handles: list[Any] = []
    loop = asyncio.get_running_loop()
    usual = loop.call_soon
    loop.call_soon = lambda *args, **kwargs: handles.append(args[0]) or usual(*args, **kwargs)  # type: ignore[method-assign]
    for number, sleeper in enumerate(sleepers):
        sleeper.hear(number, None)
    assert len(handles) == 1
    loop.call_soon = usual  # type: ignore[method-assign]
    assert seen == []
    await turns()
    assert seen == list(range(50))
    await asyncio.gather(*tasks)


async def test_each_goes_on_in_its_own_task_and_context(waker: Waker[int]) -> None:
    seen: list[tuple[str, bool]] = []

    async def wait_for(sleeper: Sleeper[int], name: str) -> None:
        NAME.set(name)
        me = asyncio.current_task()
        await sleeper
        seen.append((NAME.get(), asyncio.current_task() is me))

    sleepers = {name: waker.sleeper() for name in ("ada", "bob")}
    tasks = [asyncio.create_task(wait_for(sleeper, name)) for name, sleeper in sleepers.items()]
    await turns()
    for sleeper in sleepers.values():
        sleeper.hear(1, None)
    await asyncio.gather(*tasks)
    assert seen == [("ada", True), ("bob", True)]
    assert NAME.get() == "nobody"


async def test_who_was_made_in_an_empty_context_goes_on_in_it(waker: Waker[int]) -> None:
    seen: list[str] = []

    async def wait_for(sleeper: Sleeper[int]) -> None:
        await sleeper
        mark = NAME.set("ada")
        await asyncio.sleep(0)
        seen.append(NAME.get())
        NAME.reset(mark)

    sleeper = waker.sleeper()
    task = asyncio.get_running_loop().create_task(wait_for(sleeper), context=contextvars.Context())
    await turns()
    sleeper.hear(1, None)
    await task
    assert seen == ["ada"]


async def test_an_answer_that_is_kept_keeps_nobody_who_waited_for_it(waker: Waker[int]) -> None:
    class Large:
        pass

    async def wait_for(sleeper: Sleeper[int], large: Large) -> int:
        return await sleeper

    answered, given_up = waker.sleeper(), waker.sleeper()
    left = weakref.WeakSet[Large]()
    for sleeper in (answered, given_up):
        large = Large()
        left.add(large)
        task = asyncio.create_task(wait_for(sleeper, large))
        await turns()
        if sleeper is given_up:
            task.cancel()
        else:
            sleeper.hear(1, None)
        await asyncio.wait({task})
    del task, large
    gc.collect()
    assert not left


async def test_an_answer_in_the_ways_of_any_future_wakes_too(waker: Waker[int]) -> None:
    first, second = waker.sleeper(), waker.sleeper()
    asyncio.get_running_loop().call_soon(first.set_result, 1)
    assert await first == 1
    asyncio.get_running_loop().call_soon(second.set_exception, KeyError("gone"))
    with pytest.raises(KeyError):
        await second


def test_one_that_nobody_listens_to_can_be_given_up_when_its_loop_is_gone() -> None:
    loop = asyncio.new_event_loop()

    async def make() -> Sleeper[int]:
        return Waker[int]().sleeper()

    sleeper = loop.run_until_complete(make())
    loop.close()
    assert sleeper.cancel()


async def test_an_error_is_raised_where_the_answer_was_awaited(waker: Waker[int]) -> None:
    sleeper = waker.sleeper()
    asyncio.get_running_loop().call_soon(sleeper.hear, None, KeyError("gone"))
    with pytest.raises(KeyError, match="gone"):
        await sleeper


async def test_who_is_cancelled_goes_on_at_once_and_hears_no_answer_later(waker: Waker[int]) -> None:
    sleeper = waker.sleeper()
    task = asyncio.create_task(answer_of(sleeper))
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    sleeper.hear(1, None)
    await turns(3)
    assert sleeper.cancelled()


async def test_who_is_cancelled_between_the_answer_and_the_turn_is_cancelled(waker: Waker[int]) -> None:
    sleeper = waker.sleeper()
    task = asyncio.create_task(answer_of(sleeper))
    await turns()
    sleeper.hear(1, None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_answer_that_came_before_anybody_asked_is_there(waker: Waker[int]) -> None:
    sleeper = waker.sleeper()
    sleeper.hear(7, None)
    assert await sleeper == 7
    assert await asyncio.wait_for(asyncio.shield(sleeper), 1) == 7


async def test_everybody_who_listens_is_told_once_and_who_left_is_not(waker: Waker[int]) -> None:
    sleeper, heard = waker.sleeper(), []
    first, second, third = (lambda _, name=name: heard.append(name) for name in ("first", "second", "third"))
    for listener in (first, second, third):
        sleeper.add_done_callback(listener)
    assert sleeper.remove_done_callback(first) == 1
    assert sleeper.remove_done_callback(second) == 1
    assert sleeper.remove_done_callback(second) == 0
    sleeper.add_done_callback(second)
    sleeper.hear(1, None)
    sleeper.add_done_callback(first)
    await turns(2)
    assert sorted(heard) == ["first", "second", "third"]


async def test_who_waits_with_others_for_the_same_answer_hears_it_too(waker: Waker[int]) -> None:
    sleeper = waker.sleeper()

    async def wait() -> int:
        return await asyncio.shield(sleeper)

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await turns()
    sleeper.hear(3, None)
    assert await asyncio.gather(*tasks) == [3, 3, 3]


async def test_one_who_goes_wrong_leaves_nobody_asleep(waker: Waker[int]) -> None:
    loop, told, heard = asyncio.get_running_loop(), [], []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    def broken(_: object) -> None:
        raise ValueError("hostile")

    for listener in (broken, lambda _: heard.append(2)):
        sleeper = waker.sleeper()
        sleeper.add_done_callback(listener)
        sleeper.hear(1, None)
    await turns(2)
    assert heard == [2]
    assert [str(error) for error in told] == ["hostile"]


def test_one_who_ends_the_loop_leaves_nobody_asleep_for_whoever_goes_on_with_it() -> None:
    waker: Waker[int] = Waker()
    heard: list[int] = []

    def leave(_: object) -> None:
        raise SystemExit(3)

    async def answer() -> None:
        for listener in (leave, lambda _: heard.append(2), lambda _: heard.append(3)):
            sleeper = waker.sleeper()
            sleeper.add_done_callback(listener)
            sleeper.hear(1, None)
        await turns(5)

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(SystemExit):
            loop.run_until_complete(answer())
        assert heard == []
        loop.run_until_complete(turns(2))
        assert heard == [2, 3]
        for task in asyncio.all_tasks(loop):
            loop.run_until_complete(task)
    finally:
        loop.close()
