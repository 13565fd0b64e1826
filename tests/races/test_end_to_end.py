"""The same four races as users meet them: an App, an embedded worker, handlers and handles.

Fewer iterations, because each one is a whole life of a run. Here too the interleaving is read off what happened: the
audit trail says whether a run ever paused, the checkpoint says whose it is, the reply says who came first.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from uuid import UUID

import pytest
from support.ledger import Raw

import simpleworkflow as swf
from races.arena import Figure, Tally
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases

QUICK = swf.Settings(lease=5.0, sweep_every=0.2, poll_every=0.05, local_check_every=0.2, drain=0.0)
AT_ONCE = 25
counts = pytest.mark.parametrize(
    "iterations", [50, pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)


@pytest.fixture
async def app(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url, settings=QUICK)
    yield app
    await app.close()


@pytest.fixture
def dice() -> random.Random:
    return random.Random(4)


async def until(met: Callable[[], object], what: str) -> None:
    """Poll what the worker's loop, which runs elsewhere, has left behind."""
    deadline = time.monotonic() + 30.0
    while not met():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.001)


async def linger(dice: random.Random) -> None:
    """A moment of any length between nothing and a few commits: it steers, nothing waits for it."""
    await asyncio.sleep(dice.choice([0.0, 0.002, 0.02]) * dice.random())


async def has_paused(app: swf.App, run_id: UUID) -> bool:
    return "paused" in [event.type for event in await app.handle(run_id).events()]


@counts
async def test_every_signal_reaches_a_handler_that_waits_for_it(
    app: swf.App, figure: Figure, dice: random.Random, iterations: int
) -> None:
    began: set[int] = set()
    told: set[int] = set()
    early, late = "signal before the pause", "signal after the pause"
    tally = Tally("signal against wait, end to end", [early, late])

    @app.workflow("t.waits.v1")
    async def waits(ctx: swf.Context, number: int) -> int:
        began.add(number)
        if number % 4 == 0:
            await until(lambda: number in told, "its signal is on record")
        answer: int = await ctx.wait_for_signal("go", int)
        return answer

    async def one(number: int) -> None:
        handle = await app.trigger(waits, number)
        if dice.random() < 0.6:
            await until(lambda: number in began, "its handler has begun")
            await linger(dice)
        while number % 4 == 1 and not await has_paused(app, handle.id):
            await asyncio.sleep(0.002)
        await handle.signal("go", number)
        told.add(number)
        assert await handle.result("30s") == number
        tally.saw(late if await has_paused(app, handle.id) else early)
        assert all(signal.consumed_at for signal in await handle.signals())

    async with app.worker():
        for start in range(0, iterations, AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(start, start + AT_ONCE)))
    tally.close(iterations, figure)


async def cancel(handle: swf.RunHandle[str]) -> str:
    """The state that the reply tells of: a refusal says how the run had ended before."""
    try:
        return (await handle.cancel()).status
    except swf.AlreadyFinished as refusal:
        return next(word for word in ("succeeded", "failed", "timed_out") if f"already {word}" in str(refusal))


@counts
async def test_what_cancel_answers_is_how_the_run_ended(
    app: swf.App, figure: Figure, dice: random.Random, iterations: int
) -> None:
    began: set[int] = set()
    cancel_first, ending_first = "cancel before the ending", "ending before the cancel"
    tally = Tally("cancel against completion, end to end", [cancel_first, ending_first])

    @app.workflow("t.ends.v1")
    async def ends(ctx: swf.Context, number: int) -> str:
        began.add(number)
        if number % 10 == 1:
            await asyncio.Event().wait()
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)
        return "finished"

    async def one(number: int) -> None:
        handle = await app.trigger(ends, number)
        if dice.random() < 0.8:
            await until(lambda: number in began, "its handler has begun")
            await linger(dice)
        if number % 10 == 0:
            await handle.wait(timeout="30s")
        reply = await cancel(handle)
        assert (await handle.wait(timeout="30s")).status == reply
        tally.saw(cancel_first if reply == "cancelled" else ending_first)

    async with app.worker():
        for start in range(0, iterations, AT_ONCE):
            await asyncio.gather(*(one(number) for number in range(start, start + AT_ONCE)))
    tally.close(iterations, figure)


@counts
async def test_a_parent_learns_how_its_child_ended_whenever_it_did(
    app: swf.App, figure: Figure, dice: random.Random, iterations: int
) -> None:
    ended: set[int] = set()
    early, late = "child ends before the pause", "child ends after the pause"
    tally = Tally("child completion against parent pause, end to end", [early, late])

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        ended.add(number)
        return number

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context, number: int) -> int:
        handle = await ctx.trigger(child, number)
        if dice.random() < 0.6:
            await until(lambda: number in ended, "the child's code is over")
            await linger(dice)
        return await handle.result()

    async def one(number: int) -> None:
        handle = await app.trigger(parent, number)
        assert await handle.result("30s") == number
        tally.saw(late if await has_paused(app, handle.id) else early)

    async with app.worker():
        done = 0
        while tally.wants_more(done, iterations // AT_ONCE, 20):  # a quick worker has the child's end before the pause
            await asyncio.gather(*(one(number) for number in range(done * AT_ONCE, (done + 1) * AT_ONCE)))
            done += 1
    tally.close(iterations, figure)


class Frozen:
    """Runs whose first execution stands inside its step until the test says that its worker is thought dead."""

    def __init__(self, app: swf.App, dice: random.Random) -> None:
        self.inside: set[int] = set()
        self.free: set[int] = set()
        self.stopped: set[int] = set()
        self.passed: dict[int, list[int]] = {}
        self.dice = dice
        self.workflow = app.workflow("t.twice.v1", retry=swf.Retry(max_attempts=9))(self.handler)

    async def handler(self, ctx: swf.Context, number: int) -> int:
        try:
            epoch = await ctx.step("charge", self.charge, number, ctx.epoch)
            self.passed.setdefault(number, []).append(ctx.epoch)
            if ctx.epoch == 1:
                await asyncio.Event().wait()  # it never ends by itself: it must be stopped
        finally:
            if ctx.epoch == 1:
                self.stopped.add(number)
        return epoch

    async def charge(self, number: int, epoch: int) -> int:
        if epoch == 1:
            self.inside.add(number)
            await until(lambda: number in self.free, "it may go on")
        return epoch


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_of_two_executions_of_a_step_the_loser_stops(
    app: swf.App, ledger: Ledger, raw: Raw, figure: Figure, dice: random.Random, rounds: int
) -> None:
    stale_first, reclaim_first = "old execution's record before the take-over", "take-over before the old record"
    tally = Tally("two executions of one step, end to end", [stale_first, reclaim_first])
    frozen = Frozen(app, dice)
    async with app.worker():
        done = 0
        while tally.wants_more(done, rounds, 20):
            numbers = list(range(done * AT_ONCE, (done + 1) * AT_ONCE))
            done += 1
            handles = await app.trigger_many(frozen.workflow, numbers)
            await until(lambda numbers=numbers: frozen.inside >= set(numbers), "all stand inside the step")
            await take_back(ledger, raw, frozen, numbers)
            for number, handle in zip(numbers, handles, strict=True):
                winner = await handle.result("60s")
                (checkpoint,) = raw.steps(handle.id)
                assert checkpoint["lease_epoch"] == winner
                assert winner == 1 or 1 not in frozen.passed[number], "the loser went on after its lost record"
                tally.saw(stale_first if winner == 1 else reclaim_first)
            await until(lambda numbers=numbers: frozen.stopped >= set(numbers), "the old executions are stopped")
    tally.close(rounds * AT_ONCE, figure)


async def take_back(ledger: Ledger, raw: Raw, frozen: Frozen, numbers: list[int]) -> None:
    """Half of the steps may end, the worker is swept as if its process were gone, the other half may end."""
    some = set(frozen.dice.sample(numbers, len(numbers) // 2))
    frozen.free |= some
    for _ in range(frozen.dice.randrange(5)):
        await asyncio.sleep(0.001)
    (holder,) = {row["leased_by"] for row in raw.rows("status = 'leased'")}
    sweep = asyncio.create_task(ledger.run(leases.crash([holder], limit=1000, chance=0.0)))
    frozen.free |= set(numbers)
    swept = len(await sweep)
    async with asyncio.timeout(30):
        while swept < len(numbers):  # a sweep passes over rows that are locked just now
            held = {row["leased_by"] for row in raw.rows("status = 'leased' AND lease_epoch = 1")}
            swept += len(await ledger.run(leases.crash(held, limit=1000, chance=0.0))) if held else 0
            if not held:
                return
