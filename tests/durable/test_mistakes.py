"""Mistakes in code that no further attempt can mend end a run at once, with the sentence that says what to write."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import pytest

import simpleworkflow as swf

MANY = swf.Retry(max_attempts=5, initial="1h", max_delay="1h")


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
    "a value that is no JSON": (lambda ctx: ctx.set_value("x", object()), "cannot be stored as JSON"),
    "a durable call inside a step": (lambda ctx: ctx.step(nested, ctx), "a durable call inside a step"),
    "a step as a child": (
        lambda ctx: ctx.run(nested, 1),
        r"nested is a step and no workflow: write ctx\.step\(nested, …\)",
    ),
    "a function as a child": (
        lambda ctx: ctx.trigger(inside),
        r"inside is a function and no workflow: write ctx\.step\(",
    ),
    "an option that there is none of": (
        lambda ctx: ctx.wait_for_signal("go", timout="1s"),
        "the arguments do not fit: .*'timout'",
    ),
    "too many arguments": (lambda ctx: ctx.run("t.a.v1", 1, 2), "the arguments do not fit"),
    "no function": (lambda ctx: ctx.step(), "the arguments do not fit"),
    "options that a step has not": (lambda ctx: ctx.step(nested.options(keys="a"), ctx), "the arguments do not fit"),
    "a step that was called already": (
        lambda ctx: ctx.step(nested(ctx)),
        "takes a function and its arguments, and got the call itself",
    ),
    "a name that is a number": (lambda ctx: ctx.wait_for_signal(3), "a signal is named by a text, not by 3"),
    "a key that is a number": (lambda ctx: ctx.run("t.a.v1", key=5), r"a key is a text, not 5: write key=str\("),
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


ran: list[str] = []


async def weigh(parcel: str) -> None:
    ran.append(parcel)


def weigh_in_a_thread(parcel: str) -> None:
    ran.append(parcel)


class Scales:
    async def weigh(self, parcel: str) -> None:
        ran.append(parcel)

    async def __call__(self, parcel: str) -> None:
        ran.append(parcel)


MISCALLED: dict[str, tuple[Any, str]] = {
    "one argument too many": (lambda ctx: ctx.step(weigh, "a", 1), "weigh.. takes 1 positional argument but 2 were"),
    "none": (lambda ctx: ctx.step(weigh_in_a_thread), "missing 1 required positional argument: 'parcel'"),
    "of a method": (lambda ctx: ctx.step(Scales().weigh), "missing 1 required positional argument: 'parcel'"),
    "of a partial": (lambda ctx: ctx.step(functools.partial(weigh, "a"), "b"), "weigh.. takes 1 positional argument"),
    "of an object": (lambda ctx: ctx.step("weigh", Scales()), "missing 1 required positional argument: 'parcel'"),
    "in time": (lambda ctx: ctx.step(swf.step(timeout="60s", retry=MANY)(weigh), b=1), "unexpected keyword argument"),
    "an option": (lambda ctx: ctx.step(weigh, "a", timeout="3s"), r"write swf\.step\(timeout=…\)"),
    "an option of a step": (lambda ctx: swf.step(weigh)("a", key="1"), r"step\.options\(key=…\)"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize(("call", "told"), MISCALLED.values(), ids=MISCALLED)
async def test_arguments_that_do_not_fit_a_step_end_the_run_at_its_first_execution(
    app: swf.App, call: Any, told: str
) -> None:
    ran.clear()

    @app.workflow("t.miscalled.v1", retry=MANY)
    async def miscalled(ctx: swf.Context) -> None:
        await call(ctx)

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=told) as failed:
            await app.run(miscalled, timeout="10s")
    assert failed.value.run.attempt == 1
    assert ran == []


def passes_on(*args: Any) -> None:
    ran.append("passed on")
    weigh_in_a_thread(*args)


@functools.wraps(weigh_in_a_thread)
def wraps(*args: Any) -> None:
    ran.append("wrapped")
    weigh_in_a_thread(*args)


class Parcel:
    def __new__(cls, *args: Any) -> Parcel:
        ran.append("made")
        return super().__new__(cls)

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("function", [passes_on, wraps, Parcel], ids=lambda function: function.__name__)
async def test_a_type_error_that_comes_after_the_first_line_of_a_step_is_tried_again(
    app: swf.App, function: Any
) -> None:
    ran.clear()

    @app.workflow("t.retried.v1", retry=swf.Retry(max_attempts=2, initial="1ms", max_delay="1ms"))
    async def retried(ctx: swf.Context) -> None:
        await ctx.step("tried", function, 1, 2)

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="TypeError"):
            await app.run(retried, timeout="10s")
    assert len(ran) == 2


async def test_blocking_calls_of_the_app_in_an_async_workflow_end_the_run_at_its_first_execution(app: swf.App) -> None:
    @app.workflow("t.blocking.v1", retry=MANY)
    async def blocking(ctx: swf.Context) -> None:
        app.sync.trigger("t.other.v1")

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="in an async workflow would block its whole worker") as failed:
            await app.run(blocking, timeout="10s")
    assert failed.value.run.attempt == 1


@swf.step
def measure(parcel: int) -> int:
    return parcel


async def test_a_plain_step_called_in_an_async_workflow_fails_the_run_though_its_code_catches_everything(
    app: swf.App,
) -> None:
    @app.workflow("t.catches.v1", retry=MANY)
    async def catches(ctx: swf.Context) -> str:
        with contextlib.suppress(Exception):
            measure(1)
        return "the step has not run"

    async with app.worker():
        told = "measure is a plain def step and its workflow an async def"
        with pytest.raises(swf.RunFailed, match=told) as failed:
            await app.run(catches, timeout="10s")
        assert failed.value.run.attempt == 1


async def test_calls_of_the_app_with_arguments_that_it_does_not_take_end_a_run_at_once(app: swf.App) -> None:
    @app.workflow("t.mistake.v1", retry=MANY)
    async def mistaken(ctx: swf.Context) -> None:
        handle = await app.trigger("t.other.v1")
        await handle.signal("go", paylod=1)  # type: ignore[call-arg]

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"the arguments do not fit: .*'paylod'") as failed:
            await app.run(mistaken, timeout="10s")
        assert failed.value.run.attempt == 1
