"""The deadline of a run that waits is kept to the moment, though no sweep is near."""

from __future__ import annotations

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf

SETTINGS = swf.Settings(poll_every=0.1, sweep_every=3600.0)


@pytest.fixture
def raw(url: str):  # type: ignore[no-untyped-def]
    connection = Raw(url)
    yield connection
    connection.close()


async def test_a_run_that_sleeps_past_its_deadline_ends_long_before_the_next_sweep(url: str, raw: Raw) -> None:
    app = swf.App(url, settings=SETTINGS)

    @app.workflow("t.sleeper.v1", timeout="400ms")
    async def sleeper(ctx: swf.Context) -> None:
        await ctx.sleep("1h")

    async with app.worker():
        handle = await app.trigger(sleeper)
        await eventually(lambda: raw.row(handle.id)["status"] == "timed_out", "its deadline has ended it")
    await app.close()
    assert raw.events(handle.id)[-2:] == ["paused", "timed_out"]


async def test_a_deadline_that_a_worker_has_only_read_of_is_kept_too(url: str, raw: Raw) -> None:
    """Another worker let the run go and is no more."""
    app = swf.App(url, settings=SETTINGS)

    @app.workflow("t.sleeper.v1", timeout="1h")
    async def sleeper(ctx: swf.Context) -> None:
        await ctx.sleep("2h")

    async with app.worker():
        handle = await app.trigger(sleeper)
        await eventually(lambda: raw.row(handle.id)["status"] == "paused", "it sleeps")
    raw.age(handle.id, 3599, "deadline_at")
    async with app.worker():
        await eventually(lambda: raw.row(handle.id)["status"] == "timed_out", "its deadline has ended it")
    await app.close()


async def test_a_run_that_must_start_in_time_is_ended_when_that_is_over(url: str, raw: Raw) -> None:
    app = swf.App(url, settings=SETTINGS)
    handle = await app.trigger("t.nobody.v1", start_within="1s")
    async with app.worker(prefixes=["t.other.*"]):
        await eventually(lambda: raw.row(handle.id)["status"] == "timed_out", "nobody has started it in time")
    await app.close()
