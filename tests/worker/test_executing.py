"""What becomes of a run when its code returns, fails, misbehaves or takes too long."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf

SOON = swf.Retry(initial="10ms", max_delay="20ms")


async def types(handle: swf.RunHandle[Any]) -> list[str]:
    return [str(event.type) for event in await handle.events()]


async def test_a_result_comes_back_and_the_trail_tells_the_story(app: swf.App) -> None:
    @app.workflow("t.ok.v1")
    async def ok(ctx: swf.Context, number: int) -> dict[str, int]:
        return {"number": number, "epoch": ctx.epoch}

    async with app.worker():
        handle = await app.trigger(ok, 7)
        assert await handle.result("10s") == {"number": 7, "epoch": 1}
    assert await types(handle) == ["created", "leased", "started", "succeeded"]


async def test_a_sync_handler_runs_in_a_thread_of_its_own(app: swf.App) -> None:
    @app.workflow("t.sync.v1")
    def where(ctx: swf.SyncContext) -> str:
        return threading.current_thread().name

    async with app.worker():
        assert (await app.run(where, timeout="10s")).startswith("simpleworkflow-run")


@pytest.mark.parametrize("as_async", [True, False])
async def test_a_failed_attempt_is_tried_again_until_attempts_are_spent(app: swf.App, as_async: bool) -> None:
    seen: list[int] = []
    if as_async:

        @app.workflow("t.fail.v1", retry=SOON)
        async def failing(ctx: swf.Context) -> None:
            seen.append(ctx.attempt)
            raise RuntimeError(f"attempt {ctx.attempt}")
    else:

        @app.workflow("t.fail.v1", retry=SOON)
        def failing(ctx: swf.SyncContext) -> None:
            seen.append(ctx.attempt)
            raise RuntimeError(f"attempt {ctx.attempt}")

    async with app.worker():
        handle = await app.trigger("t.fail.v1")
        with pytest.raises(swf.RunFailed, match="RuntimeError: attempt 2"):
            await handle.result("10s")
    run = await handle.get()
    assert seen == [0, 1, 2]
    assert (run.attempt, run.crashes, run.max_attempts) == (3, 0, 3)
    assert run.error is not None
    assert run.error["type"] == "RuntimeError"
    assert "raise RuntimeError" in run.error["traceback"]
    assert await types(handle) == ["created"] + ["leased", "started", "retried"] * 2 + ["leased", "started", "failed"]


async def test_a_permanent_error_is_not_tried_again(app: swf.App) -> None:
    @app.workflow("t.permanent.v1", retry=SOON)
    async def permanent(ctx: swf.Context) -> None:
        raise swf.PermanentError("the account is closed")

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="the account is closed") as failed:
            await app.run(permanent, timeout="10s")
    assert failed.value.run.attempt == 1


async def test_non_retryable_types_are_not_tried_again(app: swf.App) -> None:
    @app.workflow("t.picky.v1", retry=swf.Retry(initial="10ms", non_retryable=(KeyError,)))
    async def picky(ctx: swf.Context) -> None:
        raise KeyError("gone")

    async with app.worker():
        with pytest.raises(swf.RunFailed) as failed:
            await app.run(picky, timeout="10s")
    assert failed.value.run.attempt == 1


async def test_retry_after_sets_the_delay(app: swf.App) -> None:
    @app.workflow("t.later.v1")
    async def later(ctx: swf.Context) -> str:
        if ctx.attempt == 0:
            raise swf.RetryAfter("1h")
        return "never today"

    async with app.worker():
        handle = await app.trigger(later)
        async with asyncio.timeout(10):
            while (run := await handle.get()).attempt == 0:
                await asyncio.sleep(0.01)
    assert run.run_at is not None
    assert 3500 < (run.run_at - run.updated_at).total_seconds() < 3610


@pytest.mark.parametrize(
    "value", [float("nan"), object(), {1: float("inf")}, "nul\x00", 2**70, b"\xff".decode("latin1") * 2**20]
)
async def test_a_result_that_is_not_json_fails_clearly_after_one_execution(app: swf.App, value: Any) -> None:
    seen: list[int] = []

    @app.workflow("t.odd.v1", retry=SOON)
    async def odd(ctx: swf.Context) -> Any:
        seen.append(1)
        return value

    async with app.worker():
        with pytest.raises(swf.RunFailed, match=r"its result cannot be stored: result of t\.odd\.v1"):
            await app.run(odd, timeout="10s")
    assert seen == [1]


class Hostile(Exception):
    def __str__(self) -> str:
        raise ValueError("even my message fails")


@pytest.mark.parametrize(
    "error", [Hostile(), Exception("nul \x00 and \ud800"), Exception("x" * 5_000_000), SystemExit(3)]
)
async def test_a_hostile_exception_is_recorded_and_harms_nobody(app: swf.App, error: BaseException) -> None:
    @app.workflow("t.hostile.v1", retry=swf.Retry(max_attempts=1))
    async def hostile(ctx: swf.Context) -> None:
        raise error

    @app.workflow("t.fine.v1")
    async def fine(ctx: swf.Context) -> str:
        return "fine"

    async with app.worker():
        with pytest.raises(swf.RunFailed):
            await app.run(hostile, timeout="10s")
        assert await app.run(fine, timeout="10s") == "fine"


async def test_a_payload_that_does_not_fit_fails_for_good_without_running(app: swf.App, url: str) -> None:
    seen: list[int] = []

    @app.workflow("t.typed.v1", retry=SOON, on_misfit="fail")
    async def typed(ctx: swf.Context, number: int) -> None:
        seen.append(number)

    elsewhere = swf.App(url)
    handle = app.handle((await elsewhere.trigger("t.typed.v1", {"not": "a number"})).id)
    await elsewhere.close()
    async with app.worker():
        with pytest.raises(swf.RunFailed, match="its payload does not fit"):
            await handle.result("10s")
    assert seen == []


async def test_code_that_cancels_itself_has_failed(app: swf.App) -> None:
    @app.workflow("t.self.v1", retry=swf.Retry(max_attempts=1))
    async def cancels_itself(ctx: swf.Context) -> None:
        raise asyncio.CancelledError

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="CancelledError"):
            await app.run(cancels_itself, timeout="10s")


@pytest.mark.parametrize("as_async", [True, False])
async def test_the_owner_ends_a_run_at_its_deadline(app: swf.App, as_async: bool) -> None:
    stopped = threading.Event()
    if as_async:

        @app.workflow("t.long.v1", timeout="300ms")
        async def long(ctx: swf.Context) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
    else:

        @app.workflow("t.long.v1", timeout="300ms")
        def long(ctx: swf.SyncContext) -> None:
            while not ctx.is_cancelled():
                threading.Event().wait(0.01)
            stopped.set()

    async with app.worker():
        handle = await app.trigger("t.long.v1")
        with pytest.raises(swf.RunTimedOut, match="deadline"):
            await handle.result("10s")
        await eventually(stopped.is_set, "the code was stopped")
    run = await handle.get()
    assert run.finished_at is not None
    assert run.started_at is not None
    assert (run.finished_at - run.started_at).total_seconds() < 1.5
    assert (await types(handle))[-1] == "timed_out"


async def test_a_cancelled_run_stops_with_all_its_tasks_however_it_catches(app: swf.App) -> None:
    """gather(return_exceptions=True), a swallowing loop and a background task: all of it ends."""
    alive: set[str] = set()
    running = threading.Event()

    async def stubborn(name: str) -> None:
        alive.add(name)
        for _ in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
        alive.discard(name)

    @app.workflow("t.stubborn.v1")
    async def whole(ctx: swf.Context) -> str:
        background = asyncio.create_task(stubborn("background"))
        running.set()
        await asyncio.gather(stubborn("a"), stubborn("b"), return_exceptions=True)
        alive.add("root")
        try:
            await asyncio.Event().wait()
        finally:
            alive.discard("root")
        return f"never {background}"

    async with app.worker():
        handle = await app.trigger(whole)
        await eventually(lambda: running.is_set() and len(alive) == 3, "the code runs")
        assert (await handle.cancel("enough")).status == "cancelled"
        await eventually(lambda: not alive, "every task of the run ended")
    assert (await handle.get()).status == "cancelled"
    assert (await types(handle))[-1] == "cancelled"


async def test_a_sync_handler_learns_of_a_cancel_and_its_return_is_discarded(app: swf.App) -> None:
    running, seen = threading.Event(), threading.Event()

    @app.workflow("t.thread.v1")
    def thread(ctx: swf.SyncContext) -> str:
        running.set()
        while not ctx.is_cancelled():
            threading.Event().wait(0.01)
        seen.set()
        return "too late"

    async with app.worker():
        handle = await app.trigger(thread)
        await eventually(running.is_set)
        await handle.cancel()
        await eventually(seen.is_set, "is_cancelled() turned true")
    run = await handle.get()
    assert (run.status, run.result) == ("cancelled", None)


async def test_a_heartbeat_leaves_a_line_and_a_lost_run_gets_none(app: swf.App) -> None:
    beaten, go_on, outcome = threading.Event(), threading.Event(), []

    @app.workflow("t.beat.v1")
    def beat(ctx: swf.SyncContext) -> None:
        ctx.heartbeat("5s")
        beaten.set()
        go_on.wait(10)
        try:
            ctx.heartbeat("5s")
        except BaseException as error:
            outcome.append(type(error))
            raise

    async with app.worker():
        handle = await app.trigger(beat)
        await eventually(beaten.is_set)
        await handle.cancel()
        go_on.set()
        await eventually(lambda: outcome, "the second heartbeat was refused")
    assert outcome == [swf.ExecutionStopped]
    assert (await types(handle)).count("heartbeat") == 1


async def test_on_cancel_starts_the_undo_run_as_soon_as_the_worker_has_stopped(app: swf.App) -> None:
    running = threading.Event()
    undone: list[Any] = []

    @app.workflow("t.do.v1", on_cancel="t.undo.v1", lease="60s")
    async def do(ctx: swf.Context, order: dict[str, int]) -> None:
        running.set()
        await asyncio.Event().wait()

    @app.workflow("t.undo.v1")
    async def undo(ctx: swf.Context, story: dict[str, Any]) -> None:
        undone.append(story)

    async with app.worker():
        handle = await app.trigger(do, {"order": 7})
        await eventually(running.is_set)
        await handle.cancel()
        await eventually(lambda: undone, "the undo run ran long before the lease of 60 s ended")
    assert undone == [{"run_id": str(handle.id), "type": "t.do.v1", "payload": {"order": 7}}]


async def test_dead_letter_starts_a_run_with_the_story(app: swf.App) -> None:
    letters: list[Any] = []

    @app.workflow("t.doomed.v1", on_failure="t.letter.v1", retry=swf.Retry(max_attempts=1))
    async def doomed(ctx: swf.Context, order: int) -> None:
        raise ValueError("no such order")

    @app.workflow("t.letter.v1")
    async def letter(ctx: swf.Context, story: dict[str, Any]) -> None:
        letters.append(story)

    async with app.worker():
        handle = await app.trigger(doomed, 7)
        await eventually(lambda: letters, "the dead letter arrived")
    (story,) = letters
    assert story["run_id"] == str(handle.id)
    assert (story["type"], story["payload"], story["attempt"]) == ("t.doomed.v1", 7, 1)
    assert story["last_error"] == "ValueError: no such order"
    assert story["error"]["type"] == "ValueError"


async def test_a_thread_that_never_asked_keeps_its_result_although_it_was_held(app: swf.App) -> None:
    running, go_on = threading.Event(), threading.Event()

    @app.workflow("t.deaf.v1")
    def deaf(ctx: swf.SyncContext) -> str:
        running.set()
        go_on.wait(10)
        return "done all the same"

    embedded = app.worker()
    async with embedded:
        handle = await app.trigger(deaf)
        await eventually(running.is_set)
        await handle.hold()
        assert embedded._worker is not None
        (execution,) = embedded._worker._slots
        await eventually(lambda: execution.reason is not None, "the worker has heard of the hold")
        go_on.set()
        assert await handle.result("10s") == "done all the same"


async def test_a_thread_that_was_told_to_stop_is_handed_back(app: swf.App) -> None:
    running = threading.Event()

    @app.workflow("t.polite.v1")
    def polite(ctx: swf.SyncContext) -> str:
        running.set()
        while not ctx.is_cancelled():
            threading.Event().wait(0.01)
        return "half way"

    async with app.worker():
        handle = await app.trigger(polite)
        await eventually(running.is_set)
        await handle.hold()
        async with asyncio.timeout(10):
            while (run := await handle.get()).status != "pending":
                await asyncio.sleep(0.01)
    assert (run.attempt, run.result_json) == (0, None)
