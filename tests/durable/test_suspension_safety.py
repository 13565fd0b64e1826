"""A run may be put to sleep only when something durable is sure to wake it, and what it leaves behind stays whole.

Unwinding is safe while every task of a run waits for a record, a timer of ours, a signal or a child. The dangers are
all the other things that code can wait for: a timer of its own, a lock that another run holds, a thread that works, an
answer that is on its way. Put to sleep over one of those, a run would wait for ever; kept awake by the wrong ones, it
would never give up its slot. And who stays resident must not keep others from being served.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status, StepStatus
from simpleworkflow.worker.embedded import EmbeddedWorker

LONG = "1050ms"
"""Just long enough for the run to be unwound."""


async def until_paused(handle: swf.RunHandle[Any]) -> swf.Run:
    async with asyncio.timeout(5):
        while (run := await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
    return run


def is_resident(worker: EmbeddedWorker, handle: swf.RunHandle[Any]) -> bool:
    assert worker._worker is not None
    return any(e.lease.id == handle.id and e.is_resident for e in worker._worker._slots)


async def at_rest(worker: EmbeddedWorker, handle: swf.RunHandle[Any]) -> None:
    """Until the run has been put to sleep, or its slot given to others although it was not."""
    async with asyncio.timeout(5):
        while not is_resident(worker, handle) and (await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)


async def test_a_child_that_ends_while_it_is_looked_up_wakes_its_parent(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says that it is still open; the news of its end overtake that answer."""
    looked = threading.Event()

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> str:
        while not looked.is_set():
            await asyncio.sleep(0.005)
        return "in time"

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> str:
        return await ctx.run(child)

    embedded = app.worker()
    async with embedded:
        worker = embedded._worker
        assert worker is not None
        run = worker._ledger.run

        def has_heard() -> bool:
            return any(e.post.wakes > 0 for e in worker._slots if e.lease.type == "t.parent.v1")

        async def answers_late(operation: Any, **rest: Any) -> Any:
            answer = await run(operation, **rest)
            if operation.name == "get" and not looked.is_set():
                looked.set()
                await eventually(has_heard, "the news of the child's end", 3)
            return answer

        monkeypatch.setattr(worker._ledger, "run", answers_late)
        assert await app.run(parent, timeout="5s") == "in time"
    assert looked.is_set()


async def by_anyio(ctx: swf.Context) -> str:
    with anyio.move_on_after(0.2):
        return str(await ctx.wait_for_signal("never"))
    return "out of time"


async def by_call_later(ctx: swf.Context) -> str:
    task = asyncio.ensure_future(ctx.wait_for_signal("never"))
    asyncio.get_running_loop().call_later(0.2, task.cancel)
    try:
        return str(await task)
    except asyncio.CancelledError:
        return "out of time"


async def by_call_at_in_a_branch(ctx: swf.Context) -> str:
    async def branch() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        loop.call_at(loop.time() + 0.2, task.cancel)
        await ctx.wait_for_signal("never")

    (ended,) = await asyncio.gather(branch(), return_exceptions=True)
    return "out of time" if isinstance(ended, asyncio.CancelledError) else repr(ended)


async def by_asyncio_timeout(ctx: swf.Context) -> str:
    try:
        async with asyncio.timeout(0.2):
            return str(await ctx.wait_for_signal("never"))
    except TimeoutError:
        return "out of time"


TIMERS = [by_anyio, by_call_later, by_call_at_in_a_branch, by_asyncio_timeout]


@pytest.mark.parametrize("wait", TIMERS, ids=lambda wait: wait.__name__)
async def test_a_timer_of_the_codes_own_keeps_its_run_resident_and_fires(
    app: swf.App, wait: Callable[[swf.Context], Coroutine[Any, Any, str]]
) -> None:
    @app.workflow("t.timer.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        return [await wait(ctx), ctx.epoch]

    async with app.worker():
        assert await app.run(handler, timeout="5s") == ["out of time", 1]


async def test_a_timer_that_is_due_in_the_very_turn_of_the_look_is_not_overlooked(app: swf.App) -> None:
    """A loop that was held up takes all that is due at once: the look comes first, and the timer is on its way."""

    @app.workflow("t.timer.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(ctx.wait_for_signal("never"))
        loop.call_later(0.03, time.sleep, 0.2)
        loop.call_later(0.15, task.cancel)
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        return [type(ended).__name__, ctx.epoch]

    async with app.worker():
        assert await app.run(handler, timeout="5s") == ["CancelledError", 1]


async def test_timers_that_are_over_or_belong_to_step_bodies_keep_nobody(app: swf.App) -> None:
    """A pool that is opened in a step has its own timers, and they outlive the step."""
    left: list[asyncio.TimerHandle] = []

    async def opens_a_pool() -> None:
        left.append(asyncio.get_running_loop().call_later(3600, print))

    @app.workflow("t.timer.v1")
    async def handler(ctx: swf.Context) -> str:
        async with asyncio.timeout(3600):
            await ctx.step(opens_a_pool)
        asyncio.get_running_loop().call_later(3600, print).cancel()
        return str(await ctx.wait_for_signal("go"))

    async with app.worker():
        handle = await app.trigger(handler)
        await until_paused(handle)
        await handle.signal("go", "gone on")
        assert await handle.result("5s") == "gone on"
    assert len(left) == 1


@pytest.mark.parametrize("kind", ["lock", "semaphore", "condition", "queue", "event"])
async def test_a_run_that_waits_for_what_runs_share_stays_resident_and_goes_on(app: swf.App, kind: str) -> None:
    """Nothing durable says that the other run lets go; asleep, this one would never hear of it."""
    lock, semaphore, queue, event = asyncio.Lock(), asyncio.Semaphore(1), asyncio.Queue[int](), asyncio.Event()
    condition = asyncio.Condition()

    async def told() -> None:
        async with condition:
            await condition.wait()

    async def tell() -> None:
        async with condition:
            condition.notify_all()

    async def put(action: Callable[[], object]) -> None:
        action()

    take: dict[str, Callable[[], Any]] = {"lock": lock.acquire, "semaphore": semaphore.acquire}
    wait = take | {"queue": queue.get, "event": event.wait, "condition": told}
    give: dict[str, Callable[[], Any]] = {
        "lock": lambda: put(lock.release),
        "semaphore": lambda: put(semaphore.release),
        "queue": lambda: queue.put(1),
        "event": lambda: put(event.set),
        "condition": tell,
    }

    @app.workflow("t.other.v1")
    async def other(ctx: swf.Context, act: str) -> None:
        await (take.get(kind, lambda: asyncio.sleep(0)) if act == "take" else give[kind])()

    @app.workflow("t.shared.v1")
    async def handler(ctx: swf.Context) -> list[int]:
        async def meet() -> None:
            await wait[kind]()

        first = await ctx.race(meet(), ctx.wait_for_signal("stop"))
        return [first.index, ctx.epoch]

    worker = app.worker()
    async with worker:
        await app.run(other, "take", timeout="5s")
        handle = await app.trigger(handler)
        await at_rest(worker, handle)
        assert (await handle.get()).status is Status.LEASED
        await app.run(other, "give", timeout="5s")
        assert await handle.result("5s") == [0, 1]


async def test_a_run_with_a_thread_that_outlived_its_step_hears_timers_and_signals_on_time(app: swf.App) -> None:
    release = threading.Event()

    @swf.step(timeout="50ms")
    def stuck() -> None:
        release.wait(20)

    @app.workflow("t.straggler.v1")
    async def handler(ctx: swf.Context) -> list[Any]:
        try:
            await ctx.step(stuck)
        except swf.StepFailed:
            before = time.monotonic()
        await ctx.sleep(LONG)
        slept = time.monotonic() - before
        return [slept, await ctx.wait_for_signal("go"), ctx.epoch]

    try:
        worker = app.worker()
        async with worker:
            handle = await app.trigger(handler)
            await at_rest(worker, handle)
            await handle.signal("go", "heard")
            slept, heard, epoch = await handle.result("5s")
            assert not release.is_set()
            release.set()
        assert 1.05 <= slept < 2
        assert (heard, epoch) == ("heard", 1)
    finally:
        release.set()


async def test_parents_that_cannot_be_unwound_never_keep_their_children_from_starting(app: swf.App) -> None:
    """However many they are, and although they go before their children in the queue."""

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> int:
        return 1

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> int:
        async with asyncio.timeout(3600):
            return await ctx.run(child)

    handles = [await app.trigger(parent, priority=50) for _ in range(12)]
    async with app.worker(concurrency=1):
        assert [await handle.result("10s") for handle in handles] == [1] * 12


async def test_a_timer_is_counted_from_when_it_was_set_however_long_unwinding_takes(app: swf.App, url: str) -> None:
    began: list[datetime] = []

    @app.workflow("t.late.v1")
    async def handler(ctx: swf.Context) -> None:
        began.append(datetime.now(UTC))
        try:
            await ctx.sleep("1h")
        finally:
            time.sleep(0.6)  # what is closed here takes its time

    async with app.worker():
        handle = await app.trigger(handler)
        run = await until_paused(handle)
    assert run.run_at is not None
    assert 3600 <= (run.run_at - began[0]).total_seconds() < 3600.4
    raw = Raw(url)
    row, (step,) = raw.row(handle.id), raw.steps(handle.id)
    raw.close()
    apart = step["due_at"] - row["run_at"]
    assert abs(apart / 1e6 if raw.is_sqlite else apart.total_seconds()) < 0.1, "the record and the run agree"


async def test_tasks_born_in_a_step_body_outlive_the_suspension_and_the_run(app: swf.App) -> None:
    """They serve whoever uses what the step opened: a pool's keepers must not die with the first run that used it."""
    pool: list[tuple[asyncio.Queue[asyncio.Future[int]], asyncio.Task[None]]] = []

    async def keep(orders: asyncio.Queue[asyncio.Future[int]]) -> None:
        while True:
            (await orders.get()).set_result(1)

    async def query() -> int:
        if not pool:
            orders: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()
            pool.append((orders, asyncio.create_task(keep(orders))))
        answer = asyncio.get_running_loop().create_future()
        pool[0][0].put_nowait(answer)
        return int(await asyncio.wait_for(answer, 1))

    @app.workflow("t.pool.v1", retry=swf.Retry(max_attempts=1))
    async def handler(ctx: swf.Context) -> int:
        first = await ctx.step("before", query)
        await ctx.wait_for_signal("go")
        return first + await ctx.step("after", query)

    async with app.worker():
        for _ in range(2):
            handle = await app.trigger(handler)
            await until_paused(handle)
            await handle.signal("go")
            assert await handle.result("5s") == 2
        assert not pool[0][1].done()
        pool[0][1].get_loop().call_soon_threadsafe(pool[0][1].cancel)
        await eventually(pool[0][1].done)


async def test_a_blocking_handler_whose_own_thread_works_is_not_suspended(app: swf.App, url: str) -> None:
    """Another thread's step waits for its retry: that says nothing about the thread that decides the run."""
    did: list[str] = []
    finish = threading.Event()

    @swf.step(key="k", retry=swf.Retry(max_attempts=3, initial=30, jitter=0))
    def flaky() -> None:
        raise ValueError("not yet")

    @app.workflow("t.busy.v1")
    def handler(ctx: swf.SyncContext) -> int:
        def beside() -> None:
            try:
                ctx.step(flaky)
            except BaseException as error:
                did.append(type(error).__name__)

        threading.Thread(target=beside, daemon=True).start()
        did.append("work")
        finish.wait(10)
        return ctx.epoch

    raw = Raw(url)
    try:
        embedded = app.worker()
        async with embedded:
            handle = await app.trigger(handler)
            await eventually(lambda: [s for s in raw.steps(handle.id) if s["status"] == StepStatus.RETRYING])
            for _ in range(10):
                await embedded.turn()
            finish.set()
            with pytest.raises(
                swf.RunFailed, match=r"ctx\.step\(flaky\) was still under way when the workflow returned"
            ):
                await handle.result("5s")
    finally:
        finish.set()
        raw.close()
    assert did.count("work") == 1


async def test_stopping_does_not_wait_the_drain_time_for_runs_that_only_wait(app: swf.App) -> None:
    app._client.settings = replace(app.settings, drain=6.0)

    @app.workflow("t.waits.v1")
    async def handler(ctx: swf.Context) -> None:
        async with asyncio.timeout(3600):
            await ctx.wait_for_signal("never")

    worker = app.worker()
    async with worker:
        handle = await app.trigger(handler)
        await eventually(lambda: is_resident(worker, handle))
        before = time.monotonic()
    assert time.monotonic() - before < 3
    run = await handle.get()
    assert (run.status, run.attempt, run.crashes) == (Status.PENDING, 0, 0)
