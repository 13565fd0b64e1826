"""Runs that a worker has claimed and not started yet: they keep their lease, hear what happens to them, and go back
when their turn does not come."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.model.records import Lease
from simpleworkflow.worker import claim_size, intake
from simpleworkflow.worker.claim import Claimer

ONCE = swf.Retry(max_attempts=1)
SLOW = 40


class Log:
    """What was executed, and by which worker's thread."""

    def __init__(self, app: swf.App, seconds: float) -> None:
        self.executed: dict[int, int] = {}
        self.slowly = threading.Event()

        @app.workflow("t.ahead.v1", retry=ONCE)
        async def handler(ctx: swf.Context, number: int) -> int:
            self.executed[number] = threading.get_ident()
            if number >= 0:
                self.slowly.set()
                time.sleep(seconds)
            return number


@pytest.fixture
def far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's worth: on a busy machine a few hundredths are not enough for all of them."""
    monkeypatch.setattr(claim_size, "AHEAD", 1.0)


async def claimed_ahead(app: swf.App) -> list[swf.RunHandle[Any]]:
    """Some that end at once, by which a worker learns its pace, and behind them those that take longer."""
    handles = await app.trigger_many("t.ahead.v1", list(range(-3, SLOW)))
    return handles[3:]


@pytest.mark.usefixtures("far_ahead")
async def test_a_run_that_waits_for_its_turn_hears_of_a_cancel_and_of_a_hold(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "LATE", 60.0)
    log = Log(app, seconds=0.05)
    handles = await claimed_ahead(app)
    async with app.worker(concurrency=1):
        await eventually(log.slowly.is_set, "the first of the slow ones")
        run = await handles[-1].get()
        assert run.status == "leased", "nothing was claimed ahead"
        await handles[-1].cancel()
        await handles[-2].hold()
        await asyncio.gather(*(handle.result("20s") for handle in handles[:-2]))
        await eventually(lambda: is_pending(handles[-2]), "the held one is handed back")
    assert SLOW - 1 not in log.executed, "executed after its cancel"
    assert SLOW - 2 not in log.executed, "executed after its hold"
    cancelled, held = await handles[-1].get(), await handles[-2].get()
    assert (cancelled.status, held.status, held.is_held, held.crashes) == ("cancelled", "pending", True, 0)


async def is_pending(handle: swf.RunHandle[Any]) -> bool:
    return (await handle.get()).status == "pending"


@pytest.mark.usefixtures("far_ahead")
async def test_what_waits_for_long_goes_to_a_worker_that_has_nothing_to_do(app: swf.App) -> None:
    log = Log(app, seconds=0.1)
    handles = await claimed_ahead(app)
    async with app.worker(concurrency=1):
        await eventually(log.slowly.is_set, "the first of the slow ones")
        assert (await handles[-1].get()).status == "leased", "nothing was claimed ahead"
        async with app.worker(concurrency=1):
            await asyncio.gather(*(handle.result("20s") for handle in handles))
    assert len(set(log.executed.values())) == 2, "the second worker had nothing to do"
    assert {run.crashes for run in [await handle.get() for handle in handles]} == {0}


async def test_a_clock_whose_ticks_are_longer_than_many_runs_stops_nobody(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pace of zero seconds: some systems' clocks tick every 16 ms."""
    monkeypatch.setattr(intake, "monotonic", lambda: int(time.monotonic() * 4) / 4)
    Log(app, seconds=0.0)
    handles = await app.trigger_many("t.ahead.v1", [-1] * 300)
    async with app.worker(concurrency=10):
        await asyncio.gather(*(handle.result("20s") for handle in handles))


async def test_a_claim_that_fails_is_not_repeated_as_it_was(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much for a slow line, or for a server's patience: the next asks for less."""
    claim, asked = Claimer.claim, []

    async def limited(self: Claimer, limit: int, room: dict[str, int]) -> list[Lease]:
        asked.append(limit)
        if limit > 10:
            raise StoreUnavailable("no answer in time")
        return await claim(self, limit, room)

    monkeypatch.setattr(Claimer, "claim", limited)
    Log(app, seconds=0.0)
    handles = await app.trigger_many("t.ahead.v1", [-1] * 30)
    async with app.worker(concurrency=100):
        await asyncio.gather(*(handle.result("20s") for handle in handles))
    assert asked[0] == 100, "the first claim was not too large"


async def test_a_claim_brings_no_more_payload_than_one_answer_can_carry(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, came = intake.Intake._receive, []

    def counted(self: intake.Intake, taken: list[Lease], sent: float) -> None:
        came.append(len(taken))
        receive(self, taken, sent)

    monkeypatch.setattr(intake.Intake, "_receive", counted)
    monkeypatch.setattr(claim_size, "MAX_WEIGHT", 40_000)

    @app.workflow("t.heavy.v1")
    async def heavy(ctx: swf.Context, text: str) -> int:
        return len(text)

    async with app.worker(concurrency=100):
        assert await (await app.trigger(heavy, "x" * 10_000)).result("20s") == 10_000
        came.clear()
        handles = await app.trigger_many(heavy, ["y" * 10_000] * 20)
        await asyncio.gather(*(handle.result("20s") for handle in handles))
    assert sum(came) == 20
    assert max(came) <= 4


async def test_a_claim_whose_answer_waits_behind_blocking_code_keeps_its_leases(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has worked through the answer, so nobody here knows the runs; the database says whose they are."""
    app = swf.App(url, settings=swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, drain=2.0))
    receive, blocked = intake.Intake._receive, threading.Event()

    def late(self: intake.Intake, taken: list[Lease], sent: float) -> None:
        if taken and not blocked.is_set():
            blocked.set()
            time.sleep(4.5)
        receive(self, taken, sent)

    monkeypatch.setattr(intake.Intake, "_receive", late)
    Log(app, seconds=0.0)
    handles = await app.trigger_many("t.ahead.v1", [-1] * 20)
    async with app.worker():
        await eventually(blocked.is_set, "an answer that waits")
        async with app.worker():  # sweeps, and would take over what has run out
            await asyncio.gather(*(handle.result("30s") for handle in handles))
    runs = [await handle.get() for handle in handles]
    assert {(run.status, run.crashes) for run in runs} == {("succeeded", 0)}
    await app.close()
