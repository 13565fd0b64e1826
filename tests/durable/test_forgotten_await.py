"""A durable call that is not awaited has no effect: the run must not succeed without it, and must say which line."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.model.states import Status

ONCE = swf.Retry(max_attempts=5, initial="1h", max_delay="1h")


async def charge(cents: int = 1) -> str:
    return f"charged {cents}"


paid = swf.step(charge)

CALLS: dict[str, tuple[Callable[[swf.Context], Any], str]] = {
    "step": (lambda ctx: ctx.step(charge, 1), r"ctx\.step\(charge\)"),
    "direct": (lambda ctx: paid(1), r"ctx\.step\(charge\)"),
    "sleep": (lambda ctx: ctx.sleep("1h"), r"ctx\.sleep"),
    "signal": (lambda ctx: ctx.wait_for_signal("go"), r"ctx\.wait_for_signal\(go\)"),
    "emit": (lambda ctx: ctx.emit("paid", 1), r"ctx\.emit\(paid\)"),
    "set_value": (lambda ctx: ctx.set_value("progress", 1), r"ctx\.set_value\(progress\)"),
    "run": (lambda ctx: ctx.run("t.other.v1", 1), r"ctx\.run\(t\.other\.v1\)"),
    "trigger": (lambda ctx: ctx.trigger("t.other.v1", 1), r"ctx\.trigger\(t\.other\.v1\)"),
    "race": (lambda ctx: ctx.race(ctx.sleep(1), ctx.sleep(2)), r"ctx\.\w+"),
    "now": (lambda ctx: ctx.now(), r"ctx\.now"),
}


def line_of(call: Any) -> int:
    line: int = call.__code__.co_firstlineno
    return line


@pytest.mark.parametrize(("call", "told"), CALLS.values(), ids=CALLS)
async def test_a_run_that_forgot_an_await_fails_with_the_call_and_its_line(app: swf.App, call: Any, told: str) -> None:
    @app.workflow("t.forgot.v1", retry=ONCE)
    async def forgot(ctx: swf.Context) -> str:
        call(ctx)
        return "paid"

    async with app.worker():
        handle = await app.trigger(forgot)
        run = await handle.wait(timeout="10s")
    assert run.status is Status.FAILED
    assert run.attempt == 1
    assert re.search(told + rf" at test_forgotten_await\.py:{line_of(call)} was not awaited", str(run.last_error))
    assert [step for step in await handle.steps() if step.status == "succeeded"] == []


OF_THE_APP: dict[str, Callable[[swf.App, swf.RunHandle[Any]], Any]] = {
    "app.trigger": lambda app, handle: app.trigger("t.other.v1", 1),
    "app.trigger_many": lambda app, handle: app.trigger_many("t.other.v1", [1]),
    "app.run": lambda app, handle: app.run("t.other.v1", 1),
    "app.signal": lambda app, handle: app.signal(handle.id, "go"),
    "handle.signal": lambda app, handle: handle.signal("go"),
    "handle.result": lambda app, handle: handle.result(),
}


@pytest.mark.parametrize(("what", "call"), OF_THE_APP.items(), ids=OF_THE_APP)
async def test_a_call_of_the_app_that_a_workflow_forgot_to_await_fails_the_run(
    app: swf.App, what: str, call: Any
) -> None:
    other = await app.trigger("t.other.v1", 0)

    @app.workflow("t.forgot.v1", retry=ONCE)
    async def forgot(ctx: swf.Context) -> str:
        call(app, other)
        await ctx.sleep("1100ms")
        return "told"

    async with app.worker():
        handle = await app.trigger(forgot)
        run = await handle.wait(timeout="10s")
    assert run.status is Status.FAILED
    told = rf"{what} at test_forgotten_await\.py:{line_of(call)} was not awaited: .* write await {what}\("
    assert re.search(told, str(run.last_error))


async def test_a_dropped_call_is_refused_before_the_run_waits_for_something_else(app: swf.App) -> None:
    @app.workflow("t.dropped.v1", retry=ONCE)
    async def dropped(ctx: swf.Context) -> None:
        ctx.step(charge, 1)
        await ctx.sleep("1h")

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"ctx\.step\(charge\) at .*:\d+ was not awaited"):
            await app.run(dropped, timeout="10s")


async def test_a_call_that_is_kept_for_later_may_be_awaited_after_a_wait(app: swf.App) -> None:
    @app.workflow("t.later.v1", retry=ONCE)
    async def later(ctx: swf.Context) -> str:
        call = ctx.step(charge, 7)
        await ctx.sleep("1100ms")
        return await call

    async with app.worker():
        assert await app.run(later, timeout="10s") == "charged 7"


async def test_a_durable_call_in_a_task_that_is_left_behind_fails_the_run(app: swf.App) -> None:
    started: set[bool] = set()

    async def slow(begins: bool) -> None:
        started.add(begins)
        await asyncio.sleep(60)

    @app.workflow("t.behind.v1", retry=ONCE)
    async def behind(ctx: swf.Context, begins: bool) -> str:
        task = asyncio.create_task(ctx.step(slow, begins))
        while begins and begins not in started:
            await asyncio.sleep(0.001)
        return f"done {task.get_name()[:0]}"

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"ctx\.step\(slow\) at .*:\d+ was still under way when the workflow"):
            await app.run(behind, False, timeout="10s")
        with pytest.raises(swf.RunFailed, match=r"ctx\.step\(slow\) at .*:\d+ was still under way when the workflow"):
            await app.run(behind, True, timeout="10s")


async def test_calls_that_the_code_has_dismissed_do_not_fail_the_run(app: swf.App) -> None:
    @app.workflow("t.dismissed.v1", retry=ONCE)
    async def dismissed(ctx: swf.Context) -> str:
        waiting = asyncio.create_task(ctx.wait_for_signal("never"))
        await asyncio.wait({waiting}, timeout=0.01)
        waiting.cancel()
        ctx.step(charge, 1).close()
        first = await ctx.race(ctx.step(charge, 2), ctx.sleep("1h"))
        return str(first.value)

    async with app.worker():
        assert await app.run(dismissed, timeout="10s") == "charged 2"


async def test_what_the_loser_of_a_race_has_left_behind_does_not_fail_the_run(app: swf.App) -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.workflow("t.loser.v1", retry=ONCE)
    async def contested(ctx: swf.Context) -> int:
        kept = []

        async def loser() -> None:
            kept.append(asyncio.create_task(ctx.step(slow)))
            calls = [ctx.step(charge, 1), ctx.step(charge, 2)]
            await ctx.wait_for_signal("never")
            for call in calls:
                await call

        first = await ctx.race(loser(), ctx.sleep("50ms"))
        await ctx.sleep("1100ms")
        return first.index

    async with app.worker():
        assert await app.run(contested, timeout="10s") == 1


async def test_a_failing_run_that_forgot_an_await_keeps_its_own_error(
    app: swf.App, recwarn: pytest.WarningsRecorder
) -> None:
    @app.workflow("t.fails.v1", retry=swf.Retry(max_attempts=1))
    async def fails(ctx: swf.Context) -> None:
        ctx.step(charge, 1)
        raise ValueError("its own")

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="its own"):
            await app.run(fails, timeout="10s")
    assert [str(one.message) for one in recwarn if "never awaited" in str(one.message)] == []


async def test_waiting_for_a_child_by_its_handle_may_lose_a_race(app: swf.App) -> None:
    @app.workflow("t.lasting.v1")
    async def lasting(ctx: swf.Context) -> None:
        await ctx.sleep("1h")

    @app.workflow("t.impatient.v1", retry=ONCE)
    async def impatient(ctx: swf.Context) -> int:
        handle = await app.trigger(lasting)
        first = await ctx.race(handle.result(), ctx.sleep("50ms"))
        return first.index

    async with app.worker():
        assert await app.run(impatient, timeout="10s") == 1


async def test_a_plain_workflow_that_makes_a_call_for_an_async_one_fails_with_its_line(app: swf.App) -> None:
    @app.workflow("t.plain.v1", retry=ONCE)
    def plain(ctx: swf.SyncContext) -> str:
        app.trigger("t.other.v1", 1)  # type: ignore[unused-coroutine]
        return "told"

    async with app.worker():
        handle = await app.trigger(plain)
        run = await handle.wait(timeout="10s")
    assert run.status is Status.FAILED
    assert re.search(r"app\.trigger at test_forgotten_await\.py:\d+ was not awaited", str(run.last_error))


async def left_alone(ctx: swf.Context) -> None:
    await ctx.step(charge, 1)


async def nested(ctx: swf.Context) -> None:
    asyncio.create_task(left_alone(ctx))  # noqa: RUF006
    await asyncio.sleep(60)


LEFT_BEHIND: dict[str, Callable[[swf.Context], Any]] = {
    "step": lambda ctx: asyncio.create_task(ctx.step(charge, 1)),
    "function": lambda ctx: asyncio.create_task(left_alone(ctx)),
    "gather": lambda ctx: asyncio.gather(left_alone(ctx), left_alone(ctx)),
    "task of a task": lambda ctx: asyncio.create_task(nested(ctx)),
}


@pytest.mark.parametrize("leave", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
async def test_a_task_that_has_not_begun_when_the_code_returns_is_missed_too(app: swf.App, leave: Any) -> None:
    """It gets to its first durable call; that it was cut off is said, and not that it has not run."""

    @app.workflow("t.at_once.v1", retry=ONCE)
    async def at_once(ctx: swf.Context) -> str:
        leave(ctx)
        return "paid"

    async with app.worker():
        handle = await app.trigger(at_once)
        run = await handle.wait(timeout="10s")
    assert run.status is Status.FAILED
    assert re.search(r"ctx\.step\(charge\) at .*:\d+ was still under way when the workflow", str(run.last_error))


async def test_a_task_without_durable_calls_that_is_left_behind_is_told(
    app: swf.App, caplog: pytest.LogCaptureFixture
) -> None:
    """What it would have done later is not done: it is stopped with its run."""

    async def call_the_bank() -> None:
        await asyncio.sleep(60)

    @app.workflow("t.bank.v1", retry=ONCE)
    async def bank(ctx: swf.Context) -> str:
        asyncio.create_task(call_the_bank())  # noqa: RUF006
        dismissed = asyncio.create_task(call_the_bank())
        dismissed.cancel()
        return "paid"

    async with app.worker():
        assert await app.run(bank, timeout="10s") == "paid"
    (told,) = [line for line in caplog.messages if "call_the_bank" in line]
    assert "left 1 task under way" in told


async def pay(ctx: swf.Context | None, cents: int) -> bool:
    assert ctx is not None
    await ctx.step(charge, cents)
    return True


def dropped(ctx: swf.Context) -> None:
    pay(ctx, 1)  # type: ignore[unused-coroutine]


def asked_whether_it_is_true(ctx: swf.Context) -> None:
    if pay(ctx, 1):
        pass


def dropped_in_a_list(ctx: swf.Context) -> None:
    [pay(ctx, cents) for cents in range(2)]


def chosen_by(ctx: swf.Context) -> str:
    return "paid" if pay(ctx, 1) else "not paid"


HELPERS = [dropped, asked_whether_it_is_true, dropped_in_a_list, chosen_by]


@pytest.mark.parametrize("helper", HELPERS)
async def test_a_coroutine_of_its_own_that_a_workflow_forgot_to_await_fails_the_run_each_time(
    app: swf.App, helper: Any
) -> None:
    """Python would warn of the first one only, and of no run."""

    @app.workflow("t.forgot.v1", retry=ONCE)
    async def forgot(ctx: swf.Context) -> str:
        helper(ctx)
        return "paid"

    @app.workflow("t.blocking.v1", retry=ONCE)
    def blocking(ctx: swf.SyncContext) -> str:
        pay(None, 1)  # type: ignore[unused-coroutine]
        return "paid"

    async with app.worker():
        for workflow in (forgot, forgot, blocking):
            run = await app.handle((await app.trigger(workflow)).id).wait(timeout="10s")
            assert run.status is Status.FAILED
            assert run.attempt == 1
            told = r"pay\(…\) at test_forgotten_await\.py:\d+ was not awaited.* write await pay\("
            assert re.search(told, str(run.last_error))


async def test_nothing_durable_happens_after_a_coroutine_was_thrown_away(app: swf.App) -> None:
    did: list[int] = []

    @swf.step
    async def ship(parcel: int) -> None:
        did.append(parcel)

    @app.workflow("t.forgot.v1", retry=ONCE)
    async def forgot(ctx: swf.Context) -> None:
        if pay(ctx, 1):
            await ship(1)

    async with app.worker():
        run = await app.handle((await app.trigger(forgot)).id).wait(timeout="10s")
    assert run.status is Status.FAILED
    assert did == []


async def test_what_the_garbage_collector_finds_is_no_runs_fault(app: swf.App) -> None:
    """It may be anybody's."""

    @app.workflow("t.collects.v1", retry=ONCE)
    async def collects(ctx: swf.Context) -> str:
        gc.disable()  # the collection is ours
        lost: list[Any] = [pay(None, 1)]
        lost.append(lost)
        del lost
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gc.collect()
        gc.enable()
        assert any("was never awaited" in str(one.message) for one in told)
        return "fine"

    async with app.worker():
        assert await app.run(collects, timeout="10s") == "fine"


async def test_what_is_thrown_away_inside_a_step_is_no_fault_of_the_workflow(app: swf.App) -> None:
    @swf.step
    async def sloppy() -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pay(None, 1)  # type: ignore[unused-coroutine]
        return "fine"

    @app.workflow("t.sloppy.v1", retry=ONCE)
    async def calls(ctx: swf.Context) -> str:
        return await sloppy()

    async with app.worker():
        assert await app.run(calls, timeout="10s") == "fine"


async def kept_in_a_name(ctx: swf.Context) -> None:
    kept = pay(ctx, 1)
    assert kept is not None


async def left_by_an_error(ctx: swf.Context) -> None:
    with contextlib.suppress(ValueError):
        for call in [failing(), pay(ctx, 1)]:
            await call


async def argument_of_an_error(ctx: swf.Context) -> None:
    with contextlib.suppress(KeyError):
        await asyncio.gather(pay(ctx, 1), {}["missing"])  # type: ignore[var-annotated]


async def failing() -> bool:
    raise ValueError


@pytest.mark.parametrize("code", [kept_in_a_name, left_by_an_error, argument_of_an_error])
@pytest.mark.filterwarnings("ignore:coroutine .pay. was never awaited")
async def test_a_coroutine_that_the_code_has_left_on_its_way_is_named_and_stops_nothing(
    app: swf.App, code: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An error may have taken the code elsewhere: what it does then must go on."""
    did: list[str] = []

    @swf.step
    async def refund() -> None:
        did.append("refund")

    @app.workflow("t.left.v1", retry=ONCE)
    async def left(ctx: swf.Context) -> str:
        await code(ctx)
        await refund()
        return "done"

    async with app.worker():
        assert await app.run(left, timeout="10s") == "done"
    assert did == ["refund"]
    gc.collect()
    assert "a coroutine went away that was never awaited: pay" in caplog.text


@pytest.mark.filterwarnings("ignore:coroutine .pay. was never awaited")
async def test_what_the_attempts_of_a_step_leave_is_no_fault_of_the_workflow(app: swf.App) -> None:
    app._client.settings = dataclasses.replace(
        app.settings, log_errors="type"
    )  # the test tool keeps tracebacks, and frames
    charged: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=5, initial=0.01, max_delay=0.01))
    async def fetch_all() -> str:
        calls = [pay(None, cents) for cents in range(3)]
        charged.append(1)
        if len(charged) < 3:
            raise ValueError
        for call in calls:
            call.close()
        return "fetched"

    @app.workflow("t.attempts.v1", retry=ONCE)
    async def attempts(ctx: swf.Context) -> str:
        return await fetch_all()

    async with app.worker():
        assert await app.run(attempts, timeout="10s") == "fetched"
    gc.collect()  # here, where nobody minds what it finds


@pytest.mark.filterwarnings("ignore:coroutine .pay. was never awaited")
async def test_a_run_that_lets_go_of_anothers_coroutine_is_not_blamed(app: swf.App) -> None:
    slot: list[Any] = []

    @app.workflow("t.makes.v1", retry=ONCE)
    async def makes(ctx: swf.Context) -> None:
        slot.append(pay(None, 1))

    @app.workflow("t.clears.v1", retry=ONCE)
    async def clears(ctx: swf.Context) -> str:
        slot.clear()
        return "cleared"

    async with app.worker():
        await app.run(makes, timeout="10s")
        assert await app.run(clears, timeout="10s") == "cleared"
