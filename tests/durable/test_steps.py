"""A step is done once: its outcome is remembered, in its own type, across stops, failures and timeouts."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

SOON = swf.Retry(max_attempts=3, initial="10ms", max_delay="20ms")


@dataclass
class Parcel:
    weight: int


class Receipt(pydantic.BaseModel):
    number: int


async def weigh(weight: int) -> Parcel:
    return Parcel(weight)


def receipt(number: int, *, plus: int = 0) -> Receipt:
    return Receipt(number=number + plus)


async def until_status(handle: swf.RunHandle[Any], status: Status) -> swf.Run:
    async with asyncio.timeout(10):
        while (run := await handle.get()).status is not status:
            await asyncio.sleep(0.01)
    return run


async def outcome(app: swf.App, handler: Callable[..., Any]) -> Any:
    app.workflow("t.step.v1", retry=swf.Retry(max_attempts=1))(handler)
    async with app.worker():
        return await app.run("t.step.v1", timeout="15s")


async def test_finished_steps_do_not_run_again_after_a_stop(app: swf.App) -> None:
    ran: list[str] = []
    gate = threading.Event()

    def work(name: str) -> str:
        ran.append(name)
        return name.upper()

    async def hang() -> str:
        ran.append("hang")
        while not gate.is_set():
            await asyncio.sleep(0.005)
        return "over"

    @app.workflow("t.step.v1")
    async def handler(ctx: swf.Context) -> list[str]:
        return [await ctx.step(work, "a"), await ctx.step(work, "b"), await ctx.step(hang), await ctx.step(work, "c")]

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: "hang" in ran)
    assert (await handle.get()).status is Status.PENDING
    gate.set()
    async with app.worker():
        assert await handle.result("10s") == ["A", "B", "over", "C"]
    assert ran == ["a", "b", "hang", "hang", "c"]
    run = await handle.get()
    assert (run.attempt, run.crashes, run.lease_epoch) == (0, 0, 2)


@pytest.mark.parametrize("interrupted", [False, True])
async def test_an_output_has_its_annotated_type_on_first_execution_and_on_replay(
    app: swf.App, interrupted: bool
) -> None:
    async def handler(ctx: swf.Context) -> list[str]:
        values: list[Any] = [await ctx.step(weigh, 3), await ctx.step(receipt, 1, plus=1)]
        values.append(await ctx.step(functools.partial(receipt, 4), plus=1))
        values.append(await ctx.step("four", lambda: 4))
        values.append(await ctx.step("later", lambda: asyncio.sleep(0, 5)))
        if interrupted:
            await ctx.sleep("1100ms")
        return [repr(value) for value in values]

    assert await outcome(app, handler) == [
        "Parcel(weight=3)",
        "Receipt(number=2)",
        "Receipt(number=5)",
        "4",
        "5",
    ]


@pytest.mark.parametrize("name", ["", "x" * 300, "a#b", "a/b", "a\nb"])
async def test_a_bad_name_is_refused(app: swf.App, name: str) -> None:
    async def handler(ctx: swf.Context) -> str:
        with pytest.raises(swf.InvalidName, match="cannot name a step"):
            await ctx.step(name, lambda: 1)
        return "refused"

    assert await outcome(app, handler) == "refused"


async def test_what_cannot_be_a_step_is_refused_with_a_sentence(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> str:
        with pytest.raises(swf.InvalidName, match="a lambda has no name"):
            await ctx.step(lambda: 1)
        with pytest.raises(swf.InvalidWorkflow, match="gives no function"):
            await ctx.step("alone")  # type: ignore[call-overload]
        with pytest.raises(swf.InvalidWorkflow, match="cannot be called"):
            await ctx.step(7)  # type: ignore[call-overload]
        return "refused"

    assert await outcome(app, handler) == "refused"


async def test_a_step_is_tried_again_in_memory_and_knows_its_attempt(app: swf.App) -> None:
    seen: list[swf.StepInfo] = []

    @swf.step(retry=SOON)
    async def flaky() -> str:
        seen.append(swf.step_info())
        if len(seen) < 3:
            raise RuntimeError("not yet")
        return "at last"

    async def handler(ctx: swf.Context) -> tuple[str, int]:
        return await ctx.step(flaky), ctx.epoch

    assert await outcome(app, handler) == ("at last", 1)
    assert [info.attempt for info in seen] == [0, 1, 2]
    assert len({info.idempotency_key for info in seen}) == 1
    assert seen[0].epoch == 1


async def test_a_long_delay_pauses_the_run_and_keeps_the_attempt(app: swf.App) -> None:
    seen: list[swf.StepInfo] = []

    @swf.step(retry=swf.Retry(max_attempts=5))
    def flaky() -> str:
        seen.append(swf.step_info())
        if len(seen) == 1:
            raise swf.RetryAfter("1500ms")
        return "at last"

    @app.workflow("t.step.v1")
    async def handler(ctx: swf.Context) -> str:
        return await ctx.step(flaky)

    async with app.worker(concurrency=1):
        handle = await app.trigger(handler)
        run = await until_status(handle, Status.PAUSED)
        assert run.run_at is not None
        assert 1.0 < (run.run_at - run.updated_at).total_seconds() <= 1.5
        assert await handle.result("10s") == "at last"
    assert [(info.attempt, info.epoch) for info in seen] == [(0, 1), (1, 2)]
    assert len({info.idempotency_key for info in seen}) == 1
    assert (await handle.get()).attempt == 0


@pytest.mark.parametrize("error", [swf.PermanentError("closed"), ValueError("bad")])
async def test_a_permanent_error_spends_all_attempts_at_once(app: swf.App, error: Exception) -> None:
    seen: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=5, initial="10ms", non_retryable=(ValueError,)))
    async def closed() -> None:
        seen.append(1)
        raise error

    async def handler(ctx: swf.Context) -> str:
        with pytest.raises(swf.StepFailed, match=f"step closed failed: {type(error).__name__}: {error}") as failed:
            await ctx.step(closed)
        assert failed.value.step == "closed"
        return str(failed.value.error["type"])

    assert await outcome(app, handler) == type(error).__name__
    assert seen == [1]


async def test_a_failure_is_remembered_so_that_a_handler_takes_the_same_path(app: swf.App) -> None:
    seen: list[str] = []

    @swf.step(retry=swf.Retry(max_attempts=2, initial="10ms"))
    def charge() -> None:
        seen.append("charge")
        raise OSError("no route")

    def refund() -> str:
        seen.append("refund")
        return "refunded"

    @app.workflow("t.step.v1")
    async def handler(ctx: swf.Context) -> list[str]:
        try:
            await ctx.step(charge)
        except swf.StepFailed as error:
            said = str(error)
        word = await ctx.step(refund)
        await ctx.sleep("1100ms")
        return [said, word, str(ctx.epoch)]

    async with app.worker():
        assert await app.run(handler, timeout="10s") == ["step charge failed: OSError: no route", "refunded", "2"]
    assert seen == ["charge", "charge", "refund"]


@pytest.mark.parametrize("value", [object(), float("nan"), "nul\x00", {1, object()}])
async def test_an_output_that_is_not_json_is_a_permanent_failure_of_the_step(app: swf.App, value: Any) -> None:
    seen: list[int] = []

    @swf.step(retry=SOON)
    def odd() -> Any:
        seen.append(1)
        return value

    async def handler(ctx: swf.Context) -> str:
        with pytest.raises(swf.StepFailed, match="output of step odd"):
            await ctx.step(odd)
        return "named"

    assert await outcome(app, handler) == "named"
    assert seen == [1]


def not_a_parcel() -> Parcel:
    return "a string"  # type: ignore[return-value]


async def test_an_output_that_does_not_fit_its_annotation_is_a_failure_of_the_step(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> str:
        with pytest.raises(swf.StepFailed, match="output of step not_a_parcel"):
            await ctx.step(not_a_parcel)
        return "named"

    assert await outcome(app, handler) == "named"


async def test_odd_exceptions_of_a_step_are_failures_of_the_step(app: swf.App) -> None:
    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b)

        def __str__(self) -> str:
            raise RuntimeError("no words")

    def raising(error: BaseException) -> Callable[[], None]:
        def body() -> None:
            raise error

        return body

    async def handler(ctx: swf.Context) -> list[str]:
        kinds = []
        for error in (Odd(1, 2), StopIteration(3), SystemExit(4), ExceptionGroup("two", [KeyError(1), OSError(2)])):
            try:
                await ctx.step("odd", raising(error))
            except swf.StepFailed as failed:
                kinds.append(failed.error["type"].rpartition(".")[2])
        return kinds

    assert await outcome(app, handler) == ["Odd", "RuntimeError", "SystemExit", "ExceptionGroup"]


async def test_a_step_that_takes_too_long_is_stopped_or_left_behind(app: swf.App) -> None:
    gate = threading.Event()

    @swf.step(timeout="50ms")
    async def slow() -> None:
        await asyncio.Event().wait()

    @swf.step(timeout="50ms")
    def blocking() -> None:
        gate.wait(10)

    @swf.step(timeout="10s")
    async def own() -> None:
        raise TimeoutError("my own")

    async def handler(ctx: swf.Context) -> list[str]:
        said = []
        for body in (slow, blocking, own):
            try:
                await ctx.step(body)
            except swf.StepFailed as failed:
                said.append(f"{failed.error['type']}: {failed.error['message']}")
        gate.set()
        return said

    assert await outcome(app, handler) == [
        "StepTimeout: step slow took longer than 50ms",
        "StepTimeout: step blocking took longer than 50ms",
        "TimeoutError: my own",
    ]


async def test_the_retry_of_a_timed_out_thread_waits_for_the_thread(app: swf.App) -> None:
    inside: list[int] = []
    most: list[int] = []

    @swf.step(timeout="30ms", retry=SOON)
    def blocking() -> str:
        inside.append(1)
        most.append(len(inside))
        if len(most) == 1:
            threading.Event().wait(0.3)
        inside.pop()
        return "done"

    async def handler(ctx: swf.Context) -> str:
        return await ctx.step(blocking)

    assert await outcome(app, handler) == "done"
    assert most == [1, 1]


async def test_a_step_inside_a_step_is_refused(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> list[str]:
        async def outer() -> None:
            await ctx.step("inner", lambda: 1)

        async def deeper() -> None:
            await asyncio.create_task(outer())

        said = []
        for body in (outer, deeper):
            with pytest.raises(swf.StepFailed) as failed:
                await ctx.step(body)
            said.append(failed.value.error["message"])
        return said

    assert set(await outcome(app, handler)) == {
        "a durable call inside a step: a step is one piece; call it from the workflow itself"
    }


async def test_a_ctx_is_of_no_use_after_its_run_or_in_another(app: swf.App) -> None:
    kept: list[swf.Context] = []
    other = threading.Event()

    @app.workflow("t.long.v1")
    async def long(ctx: swf.Context) -> None:
        kept.append(ctx)
        while not other.is_set():
            await asyncio.sleep(0.005)

    @app.workflow("t.thief.v1")
    async def thief(ctx: swf.Context) -> str:
        with pytest.raises(swf.InvalidWorkflow, match="belongs to another run"):
            await kept[0].step(weigh, 1)
        other.set()
        return "caught"

    async with app.worker():
        handle = await app.trigger(long)
        await eventually(lambda: kept)
        with pytest.raises(swf.InvalidWorkflow, match="comes from elsewhere"):
            await kept[0].step(weigh, 1)
        assert await app.run(thief, timeout="10s") == "caught"
        await handle.result("10s")
        with pytest.raises(swf.InvalidWorkflow, match="has ended; its ctx cannot be used"):
            await kept[0].step(weigh, 1)


async def test_a_key_finds_its_step_in_a_collection_that_has_changed(app: swf.App) -> None:
    baskets = [["a", "b", "c"], ["x", "c", "a"]]
    packed: list[str] = []

    @swf.step()
    async def pack(item: str) -> str:
        packed.append(item)
        return f"{item} in a box"

    @app.workflow("t.step.v1")
    async def handler(ctx: swf.Context) -> list[str]:
        items = baskets[ctx.epoch - 1]
        boxes = await asyncio.gather(*(ctx.step(pack.options(key=item), item) for item in items))
        await ctx.sleep("1100ms")
        with pytest.raises(swf.InvalidName, match="names two calls of pack"):
            await ctx.step(pack.options(key="a"), "a")
        return boxes

    async with app.worker():
        assert await app.run(handler, timeout="10s") == ["x in a box", "c in a box", "a in a box"]
    assert packed == ["a", "b", "c", "x"]


async def test_more_blocking_steps_than_handler_threads_do_not_lock_up(app: swf.App) -> None:
    @app.workflow("t.step.v1")
    def handler(ctx: swf.SyncContext, number: int) -> int:
        return ctx.step("double", lambda: number * 2)

    async with app.worker(concurrency=2):
        handles = await app.trigger_many(handler, list(range(12)))
        assert [await handle.result("10s") for handle in handles] == [n * 2 for n in range(12)]


async def test_a_stopped_run_is_handed_back_only_when_its_thread_has_ended(app: swf.App) -> None:
    log: list[str] = []
    released = threading.Event()

    def body() -> str:
        log.append("in")
        released.wait(0.5 if len(log) == 1 else 0)
        log.append("out")
        return "done"

    @app.workflow("t.step.v1")
    async def handler(ctx: swf.Context) -> str:
        return await ctx.step(body)

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: log)
    async with app.worker():
        assert await handle.result("10s") == "done"
    assert log == ["in", "out", "in", "out"]


async def test_stopping_one_run_does_not_disturb_the_writes_of_others(app: swf.App) -> None:
    @app.workflow("t.step.v1")
    async def handler(ctx: swf.Context, number: int) -> int:
        for _ in range(10):
            number = await ctx.step("add", lambda number=number: number + 1)
        return number

    async with app.worker(concurrency=50):
        handles = await app.trigger_many(handler, [0] * 60)
        for handle in handles[::2]:
            try:
                await handle.cancel()
            except swf.AlreadyFinished:
                pass
        for handle in handles[1::2]:
            assert await handle.result("20s") == 10
