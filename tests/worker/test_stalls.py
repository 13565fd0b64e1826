"""Code that keeps the event loop to itself is named; a loop that is only busy has no culprit."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.runtime.durable import steps
from simpleworkflow.worker import stalls
from simpleworkflow.worker.stalls import Culprit, StallWatch, culprit_in


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="simpleworkflow")
    return caplog


def told(lines: pytest.LogCaptureFixture, words: str) -> list[logging.LogRecord]:
    return [record for record in lines.records if words in record.getMessage()]


async def test_a_step_that_blocks_the_loop_is_named_while_it_does(
    app: swf.App, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(stalls, "LONG", 0.55)
    gate = threading.Event()

    @app.workflow("t.blocks.v1")
    async def blocks(ctx: swf.Context) -> None:
        async def slow() -> None:
            gate.wait(20)  # as time.sleep or a blocking client would

        await ctx.step("charge", slow)

    async with app.worker(name="till"):
        handle = await app.trigger(blocks)
        await eventually(lambda: told(lines, "has stood still"), "it is said while it still stands")
        gate.set()
        await handle.result("10s")
        await eventually(lambda: told(lines, "turns again"))
    (still,), (on,) = told(lines, "has stood still"), told(lines, "turns again")
    assert still.levelname == "WARNING"
    assert f"in step charge of run {handle.id} (t.blocks.v1), at {__file__}:" in still.getMessage()
    assert "in slow; nothing else goes on here meanwhile" in still.getMessage()
    for record in (still, on):
        assert (record.__dict__["run_id"], record.__dict__["step"]) == (str(handle.id), "charge#0")


async def test_the_workflows_own_code_and_its_tasks_are_named_too(app: swf.App) -> None:
    found: list[Culprit | None] = []

    def here() -> None:
        found.append(culprit_in(sys._getframe()))

    @app.workflow("t.own.v1")
    async def own(ctx: swf.Context) -> None:
        async def beside() -> None:
            here()

        here()
        await asyncio.gather(beside(), beside())

    async with app.worker():
        handle = await app.trigger(own)
        await handle.result("10s")
    assert [(one and one.lease.id, one and one.step) for one in found] == [(handle.id, None)] * 3
    assert found[0] is not None
    assert "in own" in found[0].where
    assert culprit_in(sys._getframe()) is None


class Loop:
    """An event loop that answers when we let it."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def call_soon_threadsafe(self, callback: object) -> None:
        self.asked.append(callback)


def watched(monkeypatch: pytest.MonkeyPatch, found: list[Culprit | None]) -> StallWatch:
    watch = StallWatch(Loop(), "till")  # type: ignore[arg-type]
    watch._looked = 0.0
    monkeypatch.setattr(watch, "_find", lambda: found.pop(0) if len(found) > 1 else found[0])
    return watch


def some_culprit(frame: int) -> Culprit:
    class Lease:
        id, type, epoch = "a run", "t.busy.v1", 1

    return Culprit(Lease, "charge", "charge#0", frame, "shop.py:1 in charge")  # type: ignore[arg-type]


def look_for(watch: StallWatch, seconds: float) -> None:
    for number in range(int(seconds / stalls.LOOK_EVERY) + 1):
        watch._look(number * stalls.LOOK_EVERY)


def test_a_loop_that_is_busy_with_many_things_has_no_culprit(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_for(watched(monkeypatch, [some_culprit(number) for number in range(100)]), 5.0)
    assert lines.records == []
    same = some_culprit(1)
    look_for(watched(monkeypatch, [same]), 5.0)
    assert len(lines.records) == 1, "once"


def test_a_process_that_was_stopped_as_a_whole_blames_nobody(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watched(monkeypatch, [some_culprit(1)])
    watch._look(0.0)
    watch._look(60.0)
    watch._look(60.25)
    assert lines.records == []


async def test_a_timeout_that_could_not_be_enforced_says_so(app: swf.App, lines: pytest.LogCaptureFixture) -> None:
    @app.workflow("t.late.v1")
    async def late(ctx: swf.Context) -> str:
        @swf.step(timeout="50ms")
        async def slow() -> str:
            time.sleep(0.3)
            return "all the same"

        @swf.step(timeout="20s")
        async def quick() -> None: ...

        await ctx.step(quick)
        return await ctx.step(slow)

    async with app.worker():
        handle = await app.trigger(late)
        assert await handle.result("10s") == "all the same"
    (record,) = [record for record in lines.records if "could not be enforced" in record.getMessage()]
    assert record.levelname == "WARNING"
    assert f"step slow of run {handle.id} (t.late.v1) took " in record.getMessage()
    assert record.__dict__["step"] == "slow#0"


@pytest.mark.parametrize("ends", [True, False])
async def test_a_timeout_that_a_step_has_swallowed_says_so_also_while_it_goes_on(
    app: swf.App, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(steps, "GRACE", -1.0 if ends else 60.0)
    monkeypatch.setattr(steps, "STUBBORN_AFTER", 60.0 if ends else 0.0)
    goes_on = asyncio.Event()

    @app.workflow("t.stubborn.v1")
    async def stubborn(ctx: swf.Context) -> str:
        @swf.step(timeout="20ms")
        async def slow() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
            while not ends and not goes_on.is_set():
                await asyncio.sleep(0.005)
            return "all the same"

        return await ctx.step(slow)

    async with app.worker():
        handle = await app.trigger(stubborn)
        await eventually(lambda: told(lines, "could not be enforced"))
        goes_on.set()
        assert await handle.result("10s") == "all the same"
    (record,) = told(lines, "could not be enforced")
    assert f"step slow of run {handle.id} (t.stubborn.v1) took " in record.getMessage()
    assert "has caught the cancellation and gone on" in record.getMessage()
    assert record.__dict__["step"] == "slow#0"
