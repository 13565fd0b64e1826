"""The deadline of a run that waits is kept to the moment, though no sweep is near."""

from __future__ import annotations

from typing import Any

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.worker import overdue
from simpleworkflow.worker.overdue import Overdue

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


LATEST = 0.15
"""Seconds after a deadline at which the look for it is planned, at most."""


class Planned:
    """Time that passes only while `Overdue` waits, and the database with one deadline in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, coming: float = float("inf")) -> None:
        self.now, self.coming = 1000.0, coming
        monkeypatch.setattr(overdue, "monotonic", lambda: self.now)
        monkeypatch.setattr(overdue, "pause_unless", self._pass)

    async def _pass(self, _: object, seconds: float) -> bool:
        self.now += seconds
        return False

    async def run(self, operation: Any) -> Any:
        return [] if operation.name == "expire" else self.coming


async def test_the_look_for_what_a_worker_let_go_of_is_planned_for_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned, role = Planned(monkeypatch), Overdue(3600.0)
    await role._end(planned, None)  # type: ignore[arg-type]
    for seconds in (20.0, 10.0):
        role.expect(seconds)
    for seconds in (10.0, 20.0):
        await role._until_due()
        assert 0.0 < planned.now - 1000.0 - seconds < LATEST
        await role._end(planned, None)  # type: ignore[arg-type]


async def test_the_look_for_what_was_only_read_of_is_planned_for_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker looks at another moment, all of them soon."""
    planned, role = Planned(monkeypatch, coming=10.0), Overdue(3600.0)
    for _ in range(50):
        began = planned.now
        await role._end(planned, None)  # type: ignore[arg-type]
        await role._until_due()
        assert 0.0 < planned.now - began - 10.0 < LATEST


async def test_a_deadline_that_is_past_and_locked_is_looked_at_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    planned, role = Planned(monkeypatch, coming=-5.0), Overdue(3600.0)
    began = planned.now
    await role._end(planned, None)  # type: ignore[arg-type]
    await role._until_due()
    assert 0.0 < planned.now - began < 2.0
