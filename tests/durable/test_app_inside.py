"""The App used by a workflow's own code, where that is most dangerous: runs of others, keys, signals, threads.

What a workflow asks of its App is asked again on every replay and must happen once. What it waits for may be a run that
was never its child, so nothing wakes it by itself; it must be neither stuck nor keep its slot. And the end of an
execution must not look like an error that code would handle.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest

import simpleworkflow as swf
from simpleworkflow.model.states import Status
from simpleworkflow.worker.embedded import EmbeddedWorker


async def until_paused(handle: swf.RunHandle[Any]) -> swf.Run:
    async with asyncio.timeout(5):
        while (run := await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
    return run


async def at_rest(worker: EmbeddedWorker, handle: swf.RunHandle[Any]) -> None:
    """Until the run has been put to sleep, or its slot given to others although it was not."""
    assert worker._worker is not None
    async with asyncio.timeout(5):
        while not any(e.lease.id == handle.id and e.is_resident for e in worker._worker._slots):
            if (await handle.get()).status is Status.PAUSED:
                return
            await asyncio.sleep(0.01)


def waiting_child(app: swf.App) -> Any:
    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        return number + int(await ctx.wait_for_signal("go"))

    return child


# Runs that exist already.


@pytest.mark.parametrize("state", ["still waits", "is over"])
async def test_a_run_of_a_chosen_id_that_exists_already_gives_its_result(app: swf.App, state: str) -> None:
    child = waiting_child(app)
    chosen = uuid4()

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> int:
        return int(await app.run(child, 7, id=chosen))

    worker = app.worker(concurrency=1)
    async with worker:
        existing = await app.trigger(child, 7, id=chosen)
        if state == "is over":
            await existing.signal("go", 1)
            await existing.result("5s")
        handle = await app.trigger(parent)
        if state == "still waits":
            await at_rest(worker, handle)
            await existing.signal("go", 1)
        assert await handle.result("5s") == 8
    assert (await existing.get()).parent_id is None


@pytest.mark.parametrize("state", ["is new", "still waits"])
async def test_waiting_for_a_keyed_run_inside_a_workflow_keeps_no_slot(app: swf.App, state: str) -> None:
    child = waiting_child(app)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> int:
        return int(await app.run(child, 7, idempotency_key="k1"))

    worker = app.worker(concurrency=1)
    async with worker:
        if state == "still waits":
            await until_paused(await app.trigger(child, 7, idempotency_key="k1"))
        handle = await app.trigger(parent)
        await at_rest(worker, handle)
        existing = await app.trigger(child, 7, idempotency_key="k1")
        await until_paused(existing)
        await existing.signal("go", 1)
        assert await handle.result("5s") == 8
    assert len([run async for run in app.runs(type="t.child.v1")]) == 1


# Threads.


async def test_a_suspension_in_a_blocking_run_is_no_error_that_code_could_handle(app: swf.App) -> None:
    seen: list[str] = []
    child = waiting_child(app)

    @app.workflow("t.parent.v1")
    def parent(ctx: swf.SyncContext) -> int:
        try:
            return int(app.sync.run(child, 7))
        except Exception as error:
            seen.append(f"handled {error!r}")
            return -1
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    async with app.worker():
        handle = await app.trigger(parent)
        await until_paused(handle)
        (started,) = [run async for run in app.runs(type="t.child.v1")]
        await app.signal(started.id, "go", 1)
        assert await handle.result("5s") == 8
    assert seen == [swf.ExecutionStopped.__name__]


async def test_a_keyed_child_can_be_run_from_another_thread(app: swf.App) -> None:
    executions: list[int] = []

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context, number: int) -> int:
        return 2 * number

    @app.workflow("t.parent.v1")
    def parent(ctx: swf.SyncContext) -> list[Any]:
        executions.append(1)
        said: list[Any] = []

        def beside() -> None:
            try:
                said.append(ctx.run(child, 7, key="k"))
            except Exception as error:
                said.append(repr(error))
            except BaseException:
                said.append("stopped")

        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        return [*said, ctx.wait_for_signal("go")]

    async with app.worker():
        handle = await app.trigger(parent)
        await handle.signal("go", "on")
        assert await handle.result("5s") == [14, "on"]
    assert len([run async for run in app.runs(type="t.child.v1")]) == 1
    assert executions


# Other databases, and messages.


async def test_two_apps_in_memory_are_two_databases_for_what_workflows_trigger() -> None:
    here, there = swf.App(":memory:"), swf.App(":memory:")

    @there.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> str:
        return "there"

    @here.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[str]:
        started = await there.trigger(child)
        return [str(started.id), await there.run(child)]

    async with here.worker(), there.worker():
        started, result = await here.run(parent, timeout="5s")
        assert result == "there"
        assert await there.handle(started).result("5s") == "there"
        with pytest.raises(swf.RunNotFound):
            await here.get(started)
    await here.close()
    await there.close()


@pytest.mark.parametrize("spelling", ["app", "handle"])
async def test_a_signal_that_a_workflow_sends_is_sent_once_however_often_its_code_runs(
    app: swf.App, spelling: str
) -> None:
    executions: list[int] = []

    @app.workflow("t.target.v1")
    async def target(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    @app.workflow("t.sender.v1")
    async def sender(ctx: swf.Context, to: str) -> None:
        executions.append(1)
        for number in range(2):
            if spelling == "app":
                await app.signal(to, "hello", number)
            else:
                await app.handle(to).signal("hello", number)
            await ctx.wait_for_signal("go")

    async with app.worker():
        receiver = await app.trigger(target)
        handle = await app.trigger(sender, str(receiver.id))
        for _ in range(2):
            await until_paused(handle)
            await handle.signal("go")
        await handle.result("5s")
    assert len(executions) > 1
    assert [signal.payload for signal in await app.handle(receiver.id).signals()] == [0, 1]


async def test_a_signal_that_a_blocking_workflow_sends_is_sent_once(app: swf.App) -> None:
    executions: list[int] = []

    @app.workflow("t.target.v1")
    async def target(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    @app.workflow("t.sender.v1")
    def sender(ctx: swf.SyncContext, to: str) -> None:
        executions.append(1)
        app.sync.signal(to, "hello", 1)
        ctx.wait_for_signal("go")

    async with app.worker():
        receiver = await app.trigger(target)
        handle = await app.trigger(sender, str(receiver.id))
        await until_paused(handle)
        await handle.signal("go")
        await handle.result("5s")
    assert len(executions) == 2
    assert [signal.payload for signal in await app.handle(receiver.id).signals()] == [1]


async def test_inside_a_step_a_signal_is_an_ordinary_one(app: swf.App) -> None:
    """A step that is tried again says it again: that is what a step is."""
    tried: list[int] = []

    @app.workflow("t.target.v1")
    async def target(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("never")

    @swf.step(retry=swf.Retry(max_attempts=2, initial="10ms", jitter=0))
    async def tell(to: str) -> None:
        tried.append(1)
        await app.signal(to, "hello", len(tried))
        if len(tried) == 1:
            raise ValueError("after the message")

    @app.workflow("t.sender.v1")
    async def sender(ctx: swf.Context, to: str) -> None:
        await ctx.step(tell, to)

    async with app.worker():
        receiver = await app.trigger(target)
        await app.run(sender, str(receiver.id), timeout="5s")
    assert [signal.payload for signal in await app.handle(receiver.id).signals()] == [1, 2]
