"""One execution at a time, and each piece of a run once: what a retry repeats, when, and what it leaves alone.

The danger is two bodies of one step side by side: in one worker, because a failed execution left its tasks running; or
in two, because a process that was frozen goes on where another one has been meanwhile. Then there are the delays: a
retry that comes early is as wrong as one that never comes, and a failure that is told twice is a lie in the records.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.crew import freeze
from support.door import start_python
from support.ledger import ERROR, Raw, flush, history, leased, record, repeated
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.states import EventType, Status, StepStatus
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import writing

SOON = swf.Retry(max_attempts=3, initial="10ms", max_delay="10ms", jitter=0)


async def until(handle: swf.RunHandle[Any], holds: Callable[[swf.Run], bool]) -> swf.Run:
    async with asyncio.timeout(10):
        while not holds(run := await handle.get()):
            await asyncio.sleep(0.01)
    return run


# A retry begins when the execution before it has come to rest.


async def breaks_once(log: list[str], tried: list[int]) -> None:
    """Fails the first execution as soon as its step has begun."""
    tried.append(1)
    while not log:
        await asyncio.sleep(0.005)
    if len(tried) == 1:
        raise ValueError("first")


async def test_tasks_and_bodies_of_a_failed_execution_stop_before_its_retry_starts(app: swf.App) -> None:
    log: list[str] = []
    tried: list[int] = []

    async def charge() -> None:
        log.append("begins")
        try:
            if log.count("begins") == 1:
                await asyncio.sleep(60)
        finally:
            try:
                await asyncio.sleep(0.2)  # closing takes a moment, and the retry is due long before
            finally:
                log.append("ends")

    @app.workflow("t.overlap.v1", retry=SOON)
    async def handler(ctx: swf.Context) -> None:
        await asyncio.gather(ctx.step(charge), breaks_once(log, tried))

    async with app.worker():
        await app.run(handler, timeout="5s")
    assert log == ["begins", "ends", "begins", "ends"]


async def test_a_thread_of_a_failed_execution_ends_before_its_step_is_done_again(app: swf.App) -> None:
    """It cannot be stopped, so it is waited for."""
    log: list[str] = []
    tried: list[int] = []
    release = threading.Event()

    def charge() -> None:
        log.append("begins")
        if log.count("begins") == 1:
            release.wait(10)
        log.append("ends")

    @app.workflow("t.overlap.v1", retry=SOON)
    async def handler(ctx: swf.Context) -> None:
        threading.Timer(0.3, release.set).start()  # long after the retry could have begun
        await asyncio.gather(ctx.step(charge), breaks_once(log, tried))

    async with app.worker():
        await app.run(handler, timeout="5s")
    assert log == ["begins", "ends", "begins", "ends"]


@pytest.mark.parametrize("ends", ["well", "badly"])
async def test_a_run_that_is_over_leaves_no_tasks_behind(app: swf.App, ends: str) -> None:
    tasks: list[asyncio.Task[Any]] = []
    log: list[str] = []

    async def slow() -> None:
        log.append("begins")
        try:
            await asyncio.sleep(60)
        finally:
            log.append("stopped")

    @app.workflow("t.left.v1", retry=swf.Retry(max_attempts=1))
    async def handler(ctx: swf.Context) -> None:
        tasks.append(asyncio.create_task(ctx.step(slow)))
        tasks.append(asyncio.create_task(ctx.wait_for_signal("never")))
        tasks.append(asyncio.create_task(asyncio.sleep(60)))
        while not log:
            await asyncio.sleep(0.005)
        if ends == "badly":
            raise ValueError("over")

    async with app.worker():
        handle = await app.trigger(handler)
        run = await handle.wait(timeout="5s")
        assert run.status is Status.FAILED
        told = "still under way when the workflow returned" if ends == "well" else "ValueError: over"
        assert told in str(run.last_error)
        await eventually(lambda: all(task.done() for task in tasks), "the end of its tasks", 2)
    assert log == ["begins", "stopped"]


FROZEN = """
    import asyncio, pathlib, sys, time
    import simpleworkflow as swf

    url, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    app = swf.App(url, settings=swf.Settings(lease=1.0, sweep_every=0.2, poll_every=0.1, drain=0.0))

    def say(line):
        with (folder / "said").open("a") as file:
            file.write(line + "\\n")

    async def second():
        say("second")

    @app.workflow("t.frozen.v1")
    async def handler(ctx):
        await ctx.step("first", lambda: 1)
        say("first")
        try:
            while not (folder / "go").exists():
                time.sleep(0.01)        # the loop stands still: nothing that others tell is heard before the step
            await ctx.step(second)
        finally:
            say("over")

    async def main():
        async with app.worker():
            await asyncio.sleep(60)

    asyncio.run(main())
"""


async def test_a_process_frozen_past_its_lease_starts_no_further_step_body(
    app: swf.App, url: str, tmp_path: Path
) -> None:
    """Its own clock tells it that the run may be somebody else's by now, before anybody else can."""
    said = tmp_path / "said"

    def lines() -> list[str]:
        return said.read_text().split() if said.exists() else []

    async def second() -> str:
        return "by the other worker"

    @app.workflow("t.frozen.v1")
    async def handler(ctx: swf.Context) -> str:
        await ctx.step("first", lambda: 1)
        return await ctx.step(second)

    handle = await app.trigger(handler)
    frozen = start_python(FROZEN, url, str(tmp_path))
    try:
        await eventually(lambda: "first" in lines(), "the first step", 15)
        freeze(frozen, url)
        stopped = time.monotonic()
        async with app.worker():
            assert await handle.result("10s") == "by the other worker"
        await eventually(lambda: time.monotonic() - stopped > 1.1, "the end of its lease")
        (tmp_path / "go").touch()
        frozen.send_signal(signal.SIGCONT)
        await eventually(lambda: "over" in lines(), "the end of the frozen execution")
        assert lines() == ["first", "over"]
    finally:
        frozen.kill()
        frozen.communicate()


# What is done again, and when.


async def test_each_retry_delay_on_record_counts_from_its_own_failure(ledger: Ledger) -> None:
    lease = await leased(ledger)
    failing = {"status": StepStatus.RETRYING, "error": ERROR}
    await flush(ledger, record(lease, attempt=1, due_in=5, **failing))
    first = (await history(ledger, lease.id)).steps["charge#1"]
    await flush(ledger, record(lease, attempt=2, due_in=600, **failing))
    second = (await history(ledger, lease.id)).steps["charge#1"]
    assert first.due_at is not None
    assert second.due_at is not None
    assert timedelta(seconds=595) <= second.due_at - first.due_at < timedelta(seconds=610)


async def test_a_wake_within_a_retry_delay_does_not_shorten_it(app: swf.App) -> None:
    tried: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=5, initial=0.02, backoff=3000, max_delay=3600, jitter=0))
    def flaky() -> None:
        tried.append(1)
        raise ValueError("again")

    @app.workflow("t.due.v1")
    async def handler(ctx: swf.Context) -> None:
        await asyncio.gather(ctx.step(flaky), ctx.wait_for_signal("go"))

    async with app.worker():
        handle = await app.trigger(handler)
        run = await until(handle, lambda run: run.status is Status.PAUSED)
        assert run.run_at is not None
        due = run.run_at
        assert 55 < (due - run.updated_at).total_seconds() <= 60
        await handle.signal("other")
        run = await until(handle, lambda run: run.status is Status.PAUSED and run.lease_epoch > 1)
    assert len(tried) == 2
    assert run.run_at is not None
    assert abs((run.run_at - due).total_seconds()) < 1


async def test_gathered_steps_that_failed_in_one_execution_are_all_done_again(app: swf.App) -> None:
    """Two attempts are enough for any number of steps that each fail once."""
    tried: Counter[int] = Counter()

    async def flaky(number: int) -> int:
        tried[number] += 1
        while len(tried) < 4:
            await asyncio.sleep(0)
        if tried[number] == 1:
            raise ValueError(f"first of {number}")
        return number

    @app.workflow("t.gather.v1", retry=swf.Retry(max_attempts=2, initial="10ms", jitter=0))
    async def handler(ctx: swf.Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.step("flaky", flaky, number) for number in range(4))))

    async with app.worker():
        assert await app.run(handler, timeout="5s") == [0, 1, 2, 3]
    assert tried == {0: 2, 1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("key", ["a!1", "a!2", "a#1!1", "!1", "a!"])
async def test_a_key_that_looks_like_a_superseded_name_is_a_key_like_any_other(app: swf.App, key: str) -> None:
    ran: list[str] = []

    def fails_once() -> None:
        ran.append("a")
        if ran.count("a") == 1:
            raise ValueError("first")

    def other() -> str:
        ran.append("other")
        return key

    @app.workflow("t.keys.v1", retry=SOON)
    async def handler(ctx: swf.Context) -> list[Any]:
        await ctx.step(swf.step(name="s", key="a")(fails_once))
        before = await ctx.step(swf.step(name="s", key=key)(other))
        return [before, await ctx.wait_for_signal("go")]

    async with app.worker():
        handle = await app.trigger(handler)
        await until(handle, lambda run: run.status is Status.PAUSED)
        await handle.signal("go", "on")
        assert await handle.result("5s") == [key, "on"]
    assert ran == ["a", "a", "other"]


async def test_a_step_retry_is_told_once_though_its_commit_was_ambiguous(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)

    def failing(attempt: int) -> Any:
        story = {"error": ERROR, "due_in": 5, "told": f'{{"attempt":{attempt}}}'}
        return record(lease, status=StepStatus.RETRYING, attempt=attempt, **story)

    def told() -> int:
        return raw.events(lease.id).count(EventType.STEP_RETRIED)

    await flush(ledger, failing(1))
    assert await ledger.run(repeated(writing.write([failing(1)], "w1"))) == [Outcome.DONE]
    assert told() == 1
    # What had not landed is told by the repetition, in the same flush as what had.
    assert await ledger.run(repeated(writing.write([failing(1), failing(2)], "w1"))) == [Outcome.DONE] * 2
    assert told() == 2
