"""The first of several calls: decided once, the same on every replay, and nothing is taken by those who lost.

The dangers are two winners, a signal that belongs to nobody, a loser that goes on or will not stop, and a race that is
numbered differently when its code runs again. Each test lets the run be executed at least twice, or lets several
contenders be ready in the same instant.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

LONG = "1050ms"
"""Just long enough for the run to be unwound."""
ONCE = swf.Retry(max_attempts=1)


async def until_paused(handle: swf.RunHandle[Any]) -> swf.Run:
    async with asyncio.timeout(10):
        while (run := await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
    return run


async def free_signals(app: swf.App, handle: swf.RunHandle[Any]) -> list[tuple[str, Any]]:
    return [(s.name, s.payload) for s in await handle.signals() if s.consumed_at is None]


async def test_a_race_is_won_by_the_first_and_remembered_with_its_value(app: swf.App) -> None:
    seen: list[list[Any]] = []

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        return number * 2

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        async def own() -> str:
            return await ctx.step("inner", lambda: "own")

        won = [
            await ctx.race(ctx.wait_for_signal("never"), ctx.step("quick", lambda: "step")),
            await ctx.race(ctx.sleep("1h"), ctx.wait_for_signal("paid")),
            await ctx.race(ctx.run(child, 21), ctx.sleep("1h")),
            await ctx.race(ctx.sleep("1h"), own()),
            await ctx.race(ctx.sleep("20ms"), ctx.wait_for_signal("never")),
        ]
        seen.append([[first.index, first.value] for first in won])
        await ctx.sleep(LONG)
        return seen[-1]

    handle = await app.trigger(handler)
    await handle.signal("paid", "cash")
    async with app.worker():
        result = await handle.result("15s")
    assert result == [[1, "step"], [1, "cash"], [0, 42], [1, "own"], [0, None]]
    assert seen == [result] * len(seen)
    assert len(seen) >= 2


async def test_a_racing_run_is_paused_until_the_soonest_of_its_waits(app: swf.App) -> None:
    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        first = await ctx.race(ctx.wait_for_signal("paid"), ctx.sleep("3 days"), ctx.sleep("1h"))
        return [first.index, first.value]

    async with app.worker(concurrency=1):
        handle = await app.trigger(handler)
        run = await until_paused(handle)
        assert run.lease_until is None
        assert run.run_at is not None
        assert 3590 < (run.run_at - run.updated_at).total_seconds() <= 3600
        await handle.signal("paid", 7)
        assert await handle.result("10s") == [0, 7]


async def test_a_signal_and_a_timer_ready_in_the_same_instant_have_one_winner(app: swf.App) -> None:
    seen: list[int] = []

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        first = await ctx.race(ctx.sleep(LONG), ctx.wait_for_signal("go"))
        seen.append(first.index)
        await ctx.sleep(LONG)
        return [first.index, await ctx.wait_for_signal("go", timeout=0) if first.index == 0 else first.value]

    async with app.worker():
        handle = await app.trigger(handler)
        due = (await until_paused(handle)).run_at
    assert due is not None
    await handle.signal("go", "late")
    while (await app.get(handle.id)).run_at == due:
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.0)  # not blind: both shall be due before anybody looks
    async with app.worker():
        assert (await handle.result("10s"))[1] == "late"
    assert len(set(seen)) == 1
    assert len(seen) >= 2
    assert await free_signals(app, handle) == []


async def test_a_winner_that_failed_raises_its_error_on_every_execution(app: swf.App) -> None:
    said: list[list[str]] = []

    def broken() -> None:
        raise ValueError("no stock")

    @app.workflow("t.race.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> list[str]:
        async def own() -> None:
            await ctx.step("fine", lambda: 1)
            raise KeyError("mine")

        told = []
        try:
            await ctx.race(ctx.wait_for_signal("never"), ctx.step(broken))
        except swf.StepFailed as error:
            told.append(str(error))
        try:
            await ctx.race(ctx.wait_for_signal("x", timeout="50ms"), ctx.wait_for_signal("y", timeout="1h"))
        except swf.SignalTimeout as error:
            told.append(str(error))
        try:
            await ctx.race(own(), ctx.wait_for_signal("never"))
        except KeyError as error:
            told.append(str(error))
        said.append(told)
        await ctx.sleep(LONG)
        return told

    async with app.worker():
        told = await app.run(handler, timeout="10s")
    assert told == ["step broken failed: ValueError: no stock", "no signal 'x' came within 50ms", "'mine'"]
    assert said == [told, told]


async def test_races_nest_and_run_side_by_side(app: swf.App) -> None:
    seen: list[Any] = []

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        async def duel(name: str) -> list[Any]:
            inner = ctx.race(ctx.wait_for_signal(name), ctx.wait_for_signal("other"))
            outer = await ctx.race(ctx.sleep("1h"), inner)
            assert isinstance(outer.value, swf.RaceResult)
            return [outer.index, outer.value.index, outer.value.value]

        found = list(await asyncio.gather(duel("a"), duel("b"), duel("c")))
        seen.append(found)
        await ctx.sleep(LONG)
        return found

    async with app.worker():
        handle = await app.trigger(handler)
        await until_paused(handle)
        for name in ("c", "a", "b"):
            await handle.signal(name, name.upper())
        assert await handle.result("10s") == [[1, 0, "A"], [1, 0, "B"], [1, 0, "C"]]
    assert len(seen) >= 2
    assert seen[0] == seen[-1]


async def test_branches_after_a_race_keep_their_numbers_when_the_losers_are_gone(app: swf.App) -> None:
    ran: list[str] = []

    async def note(what: str) -> str:
        ran.append(what)
        return what

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        async def work(name: str, turns: int) -> list[str]:
            return [await ctx.step("do", note, f"{name}{turn}") for turn in range(turns)]

        async def hang(name: str) -> list[str]:
            first = await work(name, 1)
            await ctx.wait_for_signal("never")
            return first

        one = await ctx.race(hang("a"), work("b", 3), hang("c"))
        two = await ctx.race(work("d", 2), ctx.sleep("1h"))
        three = await asyncio.gather(work("e", 1), work("f", 2), ctx.step("do", note, "g"))
        await ctx.sleep(LONG)
        return [one.index, one.value, two.index, two.value, *three]

    async with app.worker():
        result = await app.run(handler, timeout="10s")
    assert result == [1, ["b0", "b1", "b2"], 0, ["d0", "d1"], ["e0"], ["f0", "f1"], "g"]
    assert sorted(ran) == sorted({"a0", "b0", "b1", "b2", "c0", "d0", "d1", "e0", "f0", "f1", "g"})


async def test_a_contender_that_waits_for_something_else_keeps_the_run_resident(app: swf.App) -> None:
    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[int]:
        async def socket() -> int:
            await asyncio.sleep(0.1)
            return ctx.epoch

        first = await ctx.race(ctx.wait_for_signal("never"), socket())
        return [first.index, ctx.epoch]

    async with app.worker():
        assert await app.run(handler, timeout="10s") == [1, 1]


async def test_what_cannot_race_is_refused_with_the_way_out(app: swf.App) -> None:
    @app.workflow("t.race.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> str:
        with pytest.raises(swf.InvalidWorkflow, match=r"await ctx\.race\(ctx\.sleep"):
            await ctx.race()
        task = asyncio.create_task(asyncio.sleep(0))
        with pytest.raises(swf.InvalidWorkflow, match="takes the calls themselves"):
            await ctx.race(ctx.sleep("1h"), task)  # type: ignore[arg-type]
        await task
        with pytest.raises(swf.InvalidWorkflow, match="takes the calls themselves"):
            await ctx.race(ctx.step)  # type: ignore[arg-type]
        same = ctx.sleep("1h")
        with pytest.raises(swf.InvalidWorkflow, match="takes the calls themselves"):
            await ctx.race(same, same)
        return "refused"

    async with app.worker():
        assert await app.run(handler, timeout="10s") == "refused"


async def test_a_blocking_workflow_races_too(app: swf.App) -> None:
    seen: list[list[Any]] = []

    @app.workflow("t.race.v1")
    def handler(ctx: swf.SyncContext) -> list[Any]:
        async def own(c: swf.Context) -> Any:
            return await c.step("inner", lambda: "own")

        one = ctx.race(lambda c: c.sleep("1h"), lambda c: c.wait_for_signal("go"))
        two = ctx.race(own, lambda c: c.wait_for_signal("never"))
        seen.append([one.index, one.value, two.index, two.value])
        ctx.sleep(LONG)
        return seen[-1]

    async with app.worker():
        handle = await app.trigger(handler)
        await until_paused(handle)
        await handle.signal("go", "word")
        assert await handle.result("10s") == [1, "word", 0, "own"]
    assert seen == [[1, "word", 0, "own"]] * 2


async def test_a_blocking_race_stays_resident_for_a_contender_that_waits_for_something_else(app: swf.App) -> None:
    @app.workflow("t.race.v1")
    def handler(ctx: swf.SyncContext) -> list[int]:
        async def socket(c: swf.Context) -> int:
            await asyncio.sleep(0.1)
            return c.epoch

        first = ctx.race(lambda c: c.wait_for_signal("never"), socket)
        return [first.index, ctx.epoch]

    async with app.worker():
        assert await app.run(handler, timeout="5s") == [1, 1]


async def test_a_stopped_race_is_fought_again_and_decided_only_once(app: swf.App) -> None:
    began: list[int] = []
    gate = threading.Event()

    @app.workflow("t.race.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        async def body() -> str:
            began.append(ctx.epoch)
            while not gate.is_set():
                await asyncio.sleep(0.005)
            return "done"

        first = await ctx.race(ctx.step("body", body), ctx.wait_for_signal("go"))
        second = await ctx.race(ctx.wait_for_signal("go"), ctx.step("more", lambda: "more"))
        return [first.index, first.value, second.index, second.value]

    handle = await app.trigger(handler)
    async with app.worker():
        await eventually(lambda: began)
    gate.set()
    async with app.worker():
        assert await handle.result("10s") == [0, "done", 1, "more"]
    assert len(began) == 2


KILLED_APP = """
import asyncio, os
import simpleworkflow as swf

app = swf.App(settings=swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1))


@app.workflow("t.killed.v1")
async def handler(ctx: swf.Context) -> list[int]:
    async def own() -> str:
        return await ctx.step("own", asyncio.sleep, 0.01, "own")

    winners = []
    for turn in range(12):
        first = await ctx.race(
            ctx.step("slow", asyncio.sleep, 0.01, "step"), own(), ctx.wait_for_signal("go"), ctx.sleep("12ms")
        )
        winners.append(first.index)
        with open(os.environ["RACE_WITNESS"], "a") as witness:
            witness.write(f"{ctx.run_id} {turn} {first.index} {first.value}\\n")
        await ctx.step("between", asyncio.sleep, 0.005)
    return winners
"""


def test_a_decided_race_keeps_its_winner_when_its_worker_is_killed(
    app: swf.App, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness"
    witness.touch()
    monkeypatch.setenv("RACE_WITNESS", str(witness))
    (tmp_path / "killed_app.py").write_text(KILLED_APP)
    command = [sys.executable, "-m", "simpleworkflow", "worker", "killed_app:app", "--url", url]
    handles = app.sync.trigger_many("t.killed.v1", [None] * 4, max_attempts=50)
    for turn in range(8):
        handles[turn % 4].signal("go", turn)

    for kill in range(2):
        with (
            (tmp_path / f"worker{kill}.log").open("wb") as log,
            subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log) as worker,
        ):
            try:
                seen, deadline = len(witness.read_text()), time.monotonic() + 15
                while len(witness.read_text()) < seen + 300 and kill == 0:
                    assert time.monotonic() < deadline, (tmp_path / f"worker{kill}.log").read_text()[-2000:]
                    time.sleep(0.005)
                if kill == 1:
                    results = [handle.result("20s") for handle in handles]
            finally:
                worker.kill()

    told: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    lines = witness.read_text().splitlines()
    for line in lines:
        run_id, number, winner = line.split(" ", 2)
        told[run_id, number].add(winner)
    assert len(told) == 4 * 12 < len(lines), "no decided race was replayed"
    assert [winners for winners in told.values() if len(winners) > 1] == []
    for handle, winners in zip(handles, results, strict=True):
        taken = [signal for signal in app.sync.handle(handle.id).signals() if signal.consumed_at is not None]
        assert len(taken) == winners.count(2), "a signal was consumed by a race that it did not win"
