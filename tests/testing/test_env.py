"""The test kit: whole workflows run to their end without real waiting, and the App's own database is not touched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.door import run_python

import simpleworkflow as swf
from simpleworkflow.model.states import Status


@pytest.fixture(autouse=True)
def hardly_any_time_passes() -> Iterator[None]:
    before = time.monotonic()
    yield
    assert time.monotonic() - before < 10, "a test that owns its clock waited for real"


@pytest.fixture
def app(tmp_path: Path) -> swf.App:
    return swf.App(str(tmp_path / "untouched.db"))


async def charge(cents: int) -> str:
    raise AssertionError("the real one must not be called")


async def test_thirty_days_of_sleep_pass_at_once_and_in_order(app: swf.App, tmp_path: Path) -> None:
    seen: list[datetime] = []

    @app.workflow("t.sleepy.v1")
    async def sleepy(ctx: swf.Context) -> str:
        for _ in range(3):
            await ctx.sleep("10 days")
            seen.append(await ctx.now())
        return "rested"

    async with swf.testing.env(app) as env:
        start = env.now
        handle = await app.trigger(sleepy)
        await env.advance("25 days")
        assert not (await handle.get()).is_finished
        await env.advance("5 days")
        assert await handle.result("1s") == "rested"
        assert env.now == start + timedelta(days=30)
    # Replays ask again and get the recorded answers, so the last three are the three.
    assert seen[-3:] == [start + timedelta(days=days) for days in (10, 20, 30)]
    assert not (tmp_path / "untouched.db").exists()


async def test_a_run_is_taken_to_its_end_through_retries_short_sleeps_and_timeouts(app: swf.App) -> None:
    tries: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=4, initial="1h", max_delay="1 day"))
    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise ConnectionError("not yet")
        return len(tries)

    @swf.step(timeout="5m")
    async def endless() -> None:
        await asyncio.Event().wait()

    @app.workflow("t.tour.v1")
    async def tour(ctx: swf.Context) -> list[object]:
        told: list[object] = [await ctx.step(flaky)]
        await ctx.sleep("300ms")
        try:
            await ctx.step(endless)
        except swf.StepFailed as error:
            told.append(error.error["type"])
        try:
            await ctx.wait_for_signal("approved", timeout="7 days")
        except swf.SignalTimeout:
            told.append("nobody")
        return told

    async with swf.testing.env(app) as env:
        start = env.now
        assert await env.run(tour) == [4, "StepTimeout", "nobody"]
        assert env.now - start >= timedelta(days=7)


async def test_steps_and_children_are_replaced_and_their_calls_recorded(app: swf.App) -> None:
    label = app.declare("media.label.v1", input=str, output=str)

    @app.workflow("t.order.v1")
    async def order(ctx: swf.Context, cents: int) -> list[str]:
        receipt = await ctx.step(charge, cents)
        return [receipt, await ctx.run(label, "parcel")]

    async with swf.testing.env(app) as env:
        charged = env.stub(charge, returns="receipt-1")
        labelled = env.stub(label, lambda parcel: f"label for {parcel}")
        assert await env.run(order, 100) == ["receipt-1", "label for parcel"]
        assert charged.calls == [((100,), {})]
        assert labelled.calls == [(("parcel",), {})]
    assert not app._client.serves("media.label.v1")


async def test_a_stub_may_raise_and_the_run_fails_as_it_would(app: swf.App) -> None:
    @app.workflow("t.order.v1", retry=swf.Retry(max_attempts=1))
    async def order(ctx: swf.Context) -> str:
        return await ctx.step(charge, 1)

    async with swf.testing.env(app) as env:
        env.stub(charge, raises=swf.PermanentError("no card"))
        with pytest.raises(swf.RunFailed, match="no card"):
            await env.run(order)


async def test_a_signal_is_heard_by_a_run_that_stays_resident(app: swf.App) -> None:
    @app.workflow("t.resident.v1")
    async def resident(ctx: swf.Context) -> str:
        busy = asyncio.create_task(asyncio.Event().wait())  # something outside the run: it cannot be unwound
        word: str = await ctx.wait_for_signal("word")
        busy.cancel()
        return word

    async with swf.testing.env(app) as env:
        handle = await app.trigger(resident)
        await env.settle()
        await handle.signal("word", "hello")
        await env.settle()
        assert await handle.result("1s") == "hello"


async def test_a_deadline_ends_a_run_when_its_time_has_come(app: swf.App) -> None:
    @app.workflow("t.late.v1", timeout="1h")
    async def late(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    async with swf.testing.env(app) as env:
        handle = await app.trigger(late)
        await env.advance("59m")
        assert not (await handle.get()).is_finished
        await env.advance("2m")
        assert (await handle.get()).status is Status.TIMED_OUT


async def test_a_run_that_nobody_can_end_says_what_it_waits_for(app: swf.App) -> None:
    @app.workflow("t.stuck.v1")
    async def stuck(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    async with swf.testing.env(app) as env:
        with pytest.raises(swf.ResultTimeout, match=r"no time will end this wait: run .* is paused"):
            await env.run(stuck)


async def test_the_clock_starts_where_the_test_says(app: swf.App) -> None:
    @app.workflow("t.now.v1")
    async def now(ctx: swf.Context) -> datetime:
        return await ctx.now()

    start = datetime(2024, 2, 29, tzinfo=UTC)
    async with swf.testing.env(app, start=start) as env:
        assert await env.run(now) == start


def test_a_blocking_test_has_the_same_powers(app: swf.App) -> None:
    @app.workflow("t.sleepy.v1")
    def sleepy(ctx: swf.SyncContext) -> str:
        ctx.sleep("10 days")
        return "rested"

    with swf.testing.env(app) as env:
        handle = env.app.trigger(sleepy)
        env.settle()
        env.advance("10 days")
        assert handle.result("1s") == "rested"
        assert env.run(sleepy) == "rested"


def test_pytest_has_a_fixture_for_it(app: swf.App, workflow_env: Callable[..., swf.testing.SyncEnv]) -> None:
    @app.workflow("t.sleepy.v1")
    async def sleepy(ctx: swf.Context) -> str:
        await ctx.sleep("10 days")
        return "rested"

    assert workflow_env(app).run(sleepy) == "rested"


async def test_a_stub_stands_in_for_functions_and_workflows_only(app: swf.App) -> None:
    async with swf.testing.env(app) as env:
        with pytest.raises(swf.InvalidInput, match="stands in for"):
            env.stub("charge")


def test_the_kit_is_there_without_pytest() -> None:
    assert "simpleworkflow.testing" in run_python("import simpleworkflow as swf; print(swf.testing)")
