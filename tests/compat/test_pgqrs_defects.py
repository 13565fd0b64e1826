"""What goes wrong in pgqrs's own code does not go wrong here: each defect seen there has a law of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.door import run_python, start_python
from support.ledger import Raw
from support.waiting import until as until_true

import simpleworkflow as swf
from simpleworkflow.compat.pgqrs import (
    PermanentError,
    RunStatus,
    Store,
    TransientError,
    TransientStepError,
    WorkflowContext,
    open_store,
    workflow,
)

from .pgqrs_room import QUICK, polling, serve, until

WORKER = """
    import asyncio, os, sys
    from simpleworkflow.compat.pgqrs import consumer, open_store

    url, effects, stays = sys.argv[1:]

    def leave(mark):
        with open(effects, "a") as file:
            file.write(mark + "\\n")
        return mark

    async def handler(ctx, params):
        await ctx.step("first", leave, "first")
        await ctx.step("second", stuck if stays == "stays" else leave, "second")
        return params

    async def stuck(mark):
        leave(mark)
        await asyncio.Event().wait()

    async def main():
        async with open_store(url) as store:
            await consumer("worker-1", 8080, "zip_files").handler(handler).create(store).poll_forever()

    asyncio.run(main())
"""


async def test_the_runs_of_a_killed_worker_come_back_by_themselves(store: Store, url: str, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    await store.create_workflow("zip_files")
    run_id = await workflow("zip_files").trigger({"n": 1}).execute(store)
    processes = []
    try:
        processes.append(start_python(WORKER, url, str(effects), "stays"))
        await asyncio.to_thread(until_true, lambda: effects.exists() and "second" in effects.read_text(), "it works")
        processes[0].kill()
        processes[0].wait()
        processes.append(start_python(WORKER, url, str(effects), "goes on"))
        assert await workflow("zip_files").result(run_id, store, timeout=30) == {"n": 1}
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert effects.read_text().split() == ["first", "second", "second"], "a finished step is not done again"


async def test_an_exception_in_a_handler_ends_neither_the_loop_nor_its_neighbours(store: Store) -> None:
    calls: list[str] = []

    async def handler(ctx: WorkflowContext, what: str) -> str:
        calls.append(what)
        if what == "bad":
            raise ValueError("bad")
        return what

    async with polling(await serve(store, "work", handler, retry=swf.Retry(max_attempts=3, initial=0.01))):
        with pytest.raises(swf.RunFailed, match="ValueError: bad"):
            await workflow("work").trigger("bad").wait().timeout(20).execute(store)
        assert await workflow("work").trigger("good").wait().timeout(20).execute(store) == "good"
    assert calls == ["bad", "bad", "bad", "good"], "three attempts are three executions"


async def test_max_attempts_counts_the_executions_of_a_step_and_its_run_does_not_start_over(store: Store) -> None:
    calls: list[str] = []

    async def handler(ctx: WorkflowContext) -> None:
        calls.append("handler")
        await ctx.step("fail", fail)

    def fail() -> None:
        calls.append("step")
        raise TransientError("busy", retry_after=0.01)

    async with polling(await serve(store, "work", handler)):
        run_id = await workflow("work").trigger().execute(store)
        run = await until(store, run_id, RunStatus.ERROR)
    assert calls == ["handler", "step", "step", "step"]
    assert run.error is not None
    assert (run.error["type"], run.run.attempt) == ("StepFailed", 1)


async def test_a_transient_error_of_a_step_burns_no_attempt_and_strands_nothing(store: Store) -> None:
    calls: list[str] = []

    async def handler(ctx: WorkflowContext) -> list[Any]:
        calls.append("handler")
        before = await ctx.now()
        await ctx.step("flaky", flaky)
        return [(await ctx.now() - before).total_seconds(), ctx.attempt]

    async def flaky() -> None:
        calls.append("step")
        if calls.count("step") < 3:
            raise TransientStepError("come back", retry_after=timedelta(seconds=1.1), code="BUSY")

    async with polling(await serve(store, "work", handler, concurrency=1)):
        run_id = await workflow("work").trigger().execute(store)
        waiting = await until(store, run_id, RunStatus.PAUSED)
        assert waiting.worker is None, "nobody is kept busy by a delay"
        passed, attempt = await workflow("work").result(run_id, store, timeout=20)
    assert calls == ["handler", "step", "handler", "step", "handler", "step"]
    assert passed >= 2.2, "each delay as long as it was asked for"
    assert attempt == 0


async def test_a_transient_error_of_a_handler_is_tried_again_when_it_says(store: Store) -> None:
    async def handler(ctx: WorkflowContext) -> int:
        if ctx.attempt == 0:
            raise TransientError(retry_after=1.1)
        return ctx.attempt

    error = TransientError("busy", retry_after="2m", code="E")
    assert (str(error), error.code, error.retry_after, isinstance(error, swf.RetryAfter)) == ("busy", "E", 120, True)
    async with polling(await serve(store, "work", handler)):
        run_id = await workflow("work").trigger().execute(store)
        assert await workflow("work").result(run_id, store, timeout=20) == 1
    events = {event.type: event for event in await store.app.handle(run_id).events()}
    assert events["retried"].data["delay"] == pytest.approx(1.1)


@pytest.mark.parametrize("where", ["step", "handler"])
async def test_a_permanent_error_ends_the_run_at_once(store: Store, where: str) -> None:
    calls: list[str] = []

    async def handler(ctx: WorkflowContext) -> None:
        if where == "handler":
            give_up()
        await ctx.step("give_up", give_up)

    def give_up() -> None:
        calls.append("called")
        raise PermanentError("never")

    async with polling(await serve(store, "work", handler)):
        with pytest.raises(swf.RunFailed, match="never"):
            await workflow("work").trigger().wait().timeout(20).execute(store)
    assert calls == ["called"]


async def test_one_step_name_in_a_loop_gives_every_turn_its_own_result(store: Store) -> None:
    async def handler(ctx: WorkflowContext) -> list[int]:
        results = [await ctx.step("double", lambda n=n: 2 * n) for n in (1, 2, 3)]
        await ctx.sleep("1100ms")
        return results

    async with polling(await serve(store, "loop", handler)):
        run_id = await workflow("loop").trigger().execute(store)
        assert await workflow("loop").result(run_id, store, timeout=20) == [2, 4, 6]
    assert (await store.app.get(run_id)).lease_epoch == 2, "the same on replay"


async def test_of_two_executions_of_one_step_only_the_owners_is_recorded(store: Store, raw_beside: Raw) -> None:
    """The first worker believes that it still has the run; it was taken from it in the middle of a step."""
    inside, finish = asyncio.Event(), asyncio.Event()
    home = asyncio.get_running_loop()
    executions: list[int] = []

    async def handler(ctx: WorkflowContext) -> int:
        async def body() -> int:
            executions.append(ctx.epoch)
            if ctx.epoch == 1:
                home.call_soon_threadsafe(inside.set)
                while not finish.is_set():
                    try:
                        await asyncio.sleep(0.005)
                    except asyncio.CancelledError:
                        pass  # it does not listen, as code that hangs in a driver would not
            return ctx.epoch

        return await ctx.step("acquire", body)

    async with polling(await serve(store, "work", handler)):
        run_id = await workflow("work").trigger().execute(store)
        await asyncio.wait_for(inside.wait(), 20)
        raw_beside.sql(
            "UPDATE workflow.workflow_run SET status = 'pending', version = version + 1, lease_until = NULL, "
            f"leased_by = NULL, run_at = {raw_beside.now} WHERE id = ?",
            UUID(run_id),
        )
        assert await workflow("work").result(run_id, store, timeout=20) == 2
        finish.set()
    assert executions == [1, 2]
    (row,) = raw_beside.steps(UUID(run_id))
    assert (row["status"], row["lease_epoch"], str(row["output"])) == ("succeeded", 2, "2")


@pytest.mark.parametrize(
    ("value", "why"),
    [(float("nan"), "nan"), (2**70, "64"), ({"deep": [1, -(2**63) - 1]}, "64"), ({"a": object()}, "object")],
    ids=["nan", "integer", "deep", "object"],
)
async def test_what_json_cannot_hold_is_refused_and_says_so(store: Store, value: Any, why: str) -> None:
    async def handler(ctx: WorkflowContext) -> Any:
        return await ctx.step("make", lambda: value)

    worker = await serve(store, "make", handler)
    with pytest.raises(swf.PayloadError, match=f"(?i){why}"):
        await workflow("make").trigger(value).execute(store)
    assert [run async for run in store.app.runs()] == []
    async with polling(worker):
        with pytest.raises(swf.RunFailed, match=f"(?i)output of step make.*{why}"):
            await workflow("make").trigger().wait().timeout(20).execute(store)


async def test_bytes_and_long_integers_arrive_as_they_were_sent(store: Store) -> None:
    async def handler(ctx: WorkflowContext, value: bytes) -> list[Any]:
        return [value == bytes(range(256)), await ctx.step("long", lambda: 2**63 - 1)]

    async with polling(await serve(store, "echo", handler)):
        result = await workflow("echo").trigger(bytes(range(256))).wait().timeout(20).execute(store)
    assert result == [True, 2**63 - 1]


async def test_a_payload_with_a_key_called_input_is_kept_whole(store: Store) -> None:
    async def handler(ctx: WorkflowContext, payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    deep: Any = "x" * 5000
    for _ in range(20):
        deep = [deep]
    payload = {"input": {"a": 1}, "other": 2, "run_id": 3, "constructor": 4, "deep": deep}
    async with polling(await serve(store, "echo", handler)):
        run_id = await workflow("echo").trigger(payload).execute(store)
        assert await workflow("echo").result(run_id, store, timeout=20) == payload
    assert (await workflow("echo").get_run(run_id, store)).input == payload


async def test_no_rate_limit_surprises_a_busy_trigger(store: Store) -> None:
    await store.create_workflow("many")
    sequential = [await workflow("many").trigger(n).execute(store) for n in range(100)]
    burst = await asyncio.gather(*(workflow("many").trigger(n).execute(store) for n in range(500)))
    assert len({*sequential, *burst}) == 600
    assert [count.runs for count in await store.app.activity.counts()] == [600]


async def test_a_result_comes_when_it_is_there_and_not_at_the_next_poll(url: str) -> None:
    rarely = swf.Settings(poll_every=60.0, drain=0.0)

    async def handler(ctx: WorkflowContext) -> str:
        return await ctx.step("wait", lambda: asyncio.sleep(0.3, "done"))

    trigger, store = open_store(url, settings=rarely), open_store(url, settings=QUICK)
    async with trigger, store, polling(await serve(store, "slow", handler)):
        started = time.monotonic()
        assert await workflow("slow").trigger().wait().timeout(50).execute(trigger) == "done"
        assert time.monotonic() - started < 30, "told, since it looks once a minute"


def test_giving_up_on_a_result_does_not_hurt_the_process(url: str) -> None:
    out = run_python(
        """
        import asyncio, sys
        from simpleworkflow.compat.pgqrs import open_store, workflow

        async def main():
            store = await open_store(sys.argv[1])
            await store.create_workflow("never")
            run_id = await workflow("never").trigger().execute(store)
            waiting = asyncio.create_task(workflow("never").result(run_id, store))
            done, _ = await asyncio.wait({waiting}, timeout=0.2)
            waiting.cancel()
            print(bool(done), (await asyncio.gather(waiting, return_exceptions=True))[0].__class__.__name__)
            print((await workflow("never").get_run(run_id, store)).status)

        asyncio.run(main())
        """,
        url,
    )
    assert out.split() == ["False", "CancelledError", "QUEUED"]


async def test_a_cancelled_run_is_not_overwritten_by_the_worker_that_had_it(store: Store) -> None:
    inside, finish = asyncio.Event(), threading.Event()
    home = asyncio.get_running_loop()

    def work() -> str:
        home.call_soon_threadsafe(inside.set)
        finish.wait(20)
        return "too late"

    async def handler(ctx: WorkflowContext) -> str:
        return await ctx.step("work", work)

    async with polling(await serve(store, "work", handler)):
        run_id = await workflow("work").trigger().execute(store)
        await asyncio.wait_for(inside.wait(), 20)
        running = await workflow("work").get_run(run_id, store)
        assert running.status is RunStatus.RUNNING
        assert running.worker is not None
        assert running.worker.startswith("worker-1:8080@")
        await store.app.cancel(run_id)
        finish.set()
    run = await workflow("work").get_run(run_id, store)
    assert (run.status, run.output, run.worker) == (RunStatus.CANCELLED, None, None)


async def test_a_run_that_ended_in_error_can_be_started_again_where_it_failed(store: Store) -> None:
    calls: list[str] = []

    async def handler(ctx: WorkflowContext) -> str:
        await ctx.step("first", lambda: calls.append("first"))
        return await ctx.step("second", second)

    def second() -> str:
        calls.append("second")
        if calls.count("second") == 1:
            raise PermanentError("not yet")
        return "done"

    async with polling(await serve(store, "work", handler)):
        run_id = await workflow("work").trigger().execute(store)
        await until(store, run_id, RunStatus.ERROR)
        await store.app.retry(run_id)
        assert await workflow("work").result(run_id, store, timeout=20) == "done"
    assert calls == ["first", "second", "second"]


async def test_a_worker_whose_polling_is_cancelled_hands_its_runs_back(store: Store) -> None:
    began = asyncio.Event()
    home = asyncio.get_running_loop()

    async def handler(ctx: WorkflowContext) -> int:
        if ctx.epoch == 1:
            home.call_soon_threadsafe(began.set)
            await asyncio.Event().wait()
        return ctx.epoch

    worker = await serve(store, "work", handler)
    run_id = await workflow("work").trigger().execute(store)
    task = asyncio.create_task(worker.poll_forever())
    await asyncio.wait_for(began.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = await store.app.get(run_id)
    assert (run.status, run.attempt, run.crashes) == ("pending", 0, 0)
    async with polling(worker):
        assert await workflow("work").result(run_id, store, timeout=20) == 2


async def test_a_delay_and_a_code_may_be_given_afterwards(store: Store, url: str) -> None:
    """As pgqrs's guide has it: the error first, then what it asks for."""
    calls: list[str] = []

    async def handler(ctx: WorkflowContext) -> None:
        await ctx.step("fetch", fetch)

    def fetch() -> None:
        calls.append("step")
        error = TransientStepError("the upstream is away")
        error.code = "UPSTREAM"
        error.retry_after = 0.02
        raise error

    async with polling(await serve(store, "work", handler)):
        run_id = await workflow("work").trigger().execute(store)
        await until(store, run_id, RunStatus.ERROR)
    assert calls == ["step"] * 3
    events = [event for event in await store.app.handle(run_id).events() if event.type == "step_retried"]
    assert [event.data["delay"] for event in events] == [0.02, 0.02]
    raw = Raw(url)
    (step,) = raw.steps(UUID(run_id))
    raw.close()
    error = json.loads(step["error"]) if isinstance(step["error"], str) else step["error"]
    assert (error["type"], error["code"]) == ("TransientError", "UPSTREAM")
