"""Bad input and faults around durable calls: each has a defined outcome, and a sentence that helps.

What must never come of any of them is a run that is stuck, a worker that is harmed, or a neighbour that pays.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

ONCE = swf.Retry(max_attempts=1)
BAD_NAMES: list[Any] = ["", "x" * 300, "a#b", "a/b", "@a", "a\nb", None, 7]


async def ended(app: swf.App, handler: Callable[..., Any], **options: Any) -> swf.Run:
    app.workflow("t.bad.v1", **{"retry": ONCE, **options})(handler)
    async with app.worker():
        return await app.handle((await app.trigger("t.bad.v1")).id).wait(timeout="10s")


async def result(app: swf.App, handler: Callable[..., Any], **options: Any) -> Any:
    run = await ended(app, handler, **options)
    assert run.status is Status.SUCCEEDED, run.last_error
    return run.result


async def test_a_bad_name_is_refused_by_every_call_that_takes_one(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> str:
        calls: list[tuple[str, Callable[[Any], Any]]] = [
            ("signal", ctx.wait_for_signal),
            ("event", ctx.emit),
            ("published value", lambda name: ctx.set_value(name, 1)),
            ("step", lambda name: ctx.step(name, time.time)),
        ]
        for what, call in calls:
            for name in BAD_NAMES if what != "step" else BAD_NAMES[:-2]:
                with pytest.raises(swf.InvalidName, match=f"cannot name a {what}|a {what} is named by a text"):
                    await call(name)
        return "refused"

    assert await result(app, handler) == "refused"


async def test_a_signal_that_nobody_could_wait_for_is_refused_at_the_door(app: swf.App) -> None:
    handle = await app.trigger("t.nobody.v1", delay="1h")
    for name in BAD_NAMES:
        with pytest.raises(swf.InvalidName, match=r"cannot name a signal|a signal is named by a text"):
            await handle.signal(name)
    assert await handle.signals() == []


async def test_a_bad_key_is_refused_and_one_that_is_used_twice_too(app: swf.App) -> None:
    keys: list[Any] = ["", "x" * 300, "a\nb", 7]

    async def handler(ctx: swf.Context) -> str:
        for key in keys:
            with pytest.raises(swf.InvalidName, match=r"cannot be a key|a key is a text"):
                await ctx.run("t.child.v1", key=key)
        first = ctx.trigger("t.child.v1", key="same")
        with pytest.raises(swf.InvalidName, match="names two calls"):
            await ctx.trigger("t.child.v1", key="same")
        await first
        return "refused"

    assert await result(app, handler) == "refused"


async def test_a_duration_or_an_instant_that_makes_no_sense_is_refused(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> str:
        for bad in (-1, "soon", float("nan"), None):
            with pytest.raises(swf.InvalidDuration):
                await ctx.sleep(bad)  # type: ignore[arg-type]
            if bad is not None:
                with pytest.raises(swf.InvalidDuration):
                    await ctx.wait_for_signal("go", timeout=bad)
        with pytest.raises(swf.InvalidWorkflow, match="time zone"):
            await ctx.sleep_until("tomorrow")  # type: ignore[arg-type]
        await ctx.sleep_until(datetime(1970, 1, 1, tzinfo=UTC))
        return "refused"

    assert await result(app, handler) == "refused"


async def test_what_json_cannot_hold_is_refused_wherever_a_workflow_says_it(app: swf.App) -> None:
    values: list[Any] = [object(), float("inf"), "\ud800", {"deep": ["\0"]}, 2**70]

    async def handler(ctx: swf.Context) -> str:
        calls: list[Callable[[Any], Any]] = [
            lambda value: ctx.emit("told", value),
            lambda value: ctx.set_value("told", value),
            lambda value: ctx.run("t.child.v1", value),
            lambda value: app.trigger("t.child.v1", value),
        ]
        for value in values:
            for call in calls:
                with pytest.raises(swf.PayloadError):
                    await call(value)
            with pytest.raises(swf.StepFailed, match="PayloadError"):
                await ctx.step("gives", values.__getitem__, values.index(value))
        return "refused"

    assert await result(app, handler) == "refused"
    assert [run async for run in app.runs(type="t.child.v1")] == []


async def test_every_durable_call_inside_a_step_is_refused(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> list[str]:
        async def body() -> list[str]:
            said = []
            calls: list[Callable[[], Any]] = [
                lambda: ctx.step("inner", time.time),
                lambda: ctx.sleep(0),
                lambda: ctx.wait_for_signal("go", timeout=0),
                lambda: ctx.run("t.child.v1"),
                lambda: ctx.trigger("t.child.v1"),
                lambda: ctx.race(),
                lambda: ctx.emit("told"),
                lambda: ctx.set_value("told", 1),
                ctx.now,
                ctx.uuid,
                ctx.random,
            ]
            for call in calls:
                try:
                    await call()
                except swf.InvalidWorkflow as error:
                    said.append(str(error))
            return said

        return await ctx.step("outer", body)

    said = await result(app, handler)
    assert said == ["a durable call inside a step: a step is one piece; call it from the workflow itself"] * 11


async def test_every_durable_call_of_a_run_that_has_ended_is_refused(app: swf.App) -> None:
    kept: list[swf.Context] = []

    async def handler(ctx: swf.Context) -> None:
        kept.append(ctx)

    await result(app, handler)
    (ctx,) = kept
    calls: list[Callable[[], Any]] = [
        lambda: ctx.sleep(0),
        lambda: ctx.wait_for_signal("go"),
        lambda: ctx.emit("told"),
        lambda: ctx.set_value("told", 1),
        lambda: ctx.race(),
        lambda: ctx.run("t.child.v1"),
        ctx.uuid,
    ]
    for call in calls:
        with pytest.raises(swf.InvalidWorkflow, match="has ended; its ctx cannot be used any more"):
            await call()


async def test_a_task_that_would_outlive_its_run_ends_with_it(app: swf.App) -> None:
    said: list[str] = []

    async def handler(ctx: swf.Context) -> str:
        async def late() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                said.append("stopped")
                raise

        handler.task = asyncio.create_task(late())  # type: ignore[attr-defined]
        return "ended"

    app.workflow("t.bad.v1", retry=ONCE)(handler)
    async with app.worker():
        handle = await app.trigger("t.bad.v1")
        assert await handle.result("10s") == "ended"
        await eventually(lambda: said == ["stopped"])


async def test_a_call_from_a_loop_of_another_thread_is_refused_and_not_lost(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> str:
        async def bounded() -> Any:
            return await asyncio.wait_for(ctx.step("one", time.time), 1)

        try:
            await asyncio.to_thread(lambda: asyncio.run(bounded()))
        except swf.InvalidWorkflow as error:
            return str(error)
        except TimeoutError:
            return "it hangs"
        return "accepted"

    assert "thread" in await result(app, handler)


async def test_a_blocking_workflows_call_from_another_thread_needs_a_key(app: swf.App) -> None:
    """Two threads have no order: a count would swap their steps on replay."""

    def handler(ctx: swf.SyncContext) -> list[Any]:
        def bare() -> Any:
            return ctx.step("one", lambda: 1)

        keyed = swf.step(key="k")(lambda: 2)
        said: list[Any] = []
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(bare).result(5)
            except swf.InvalidWorkflow as error:
                said.append("key" in str(error))
            said.append(pool.submit(lambda: ctx.step("two", keyed)).result(5))
        return said

    assert await result(app, handler) == [True, 2]


class Odd(Exception):
    def __init__(self, a: int, b: int, *, c: int) -> None:
        super().__init__(a, b)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Endless(Exception):
    """Its cause is itself."""

    def __init__(self) -> None:
        super().__init__("round")
        self.__cause__ = self


async def test_an_odd_exception_is_on_record_wherever_it_came_from(app: swf.App) -> None:
    errors = [Odd(1, 2, c=3), Speechless(), Endless()]

    def body(number: int) -> None:
        raise errors[number]

    @app.workflow("t.handler.v1", retry=ONCE)
    async def bare(ctx: swf.Context, number: int) -> None:
        body(number)

    @app.workflow("t.step.v1", retry=ONCE)
    async def in_step(ctx: swf.Context, number: int) -> None:
        await ctx.step(body, number)

    @app.workflow("t.group.v1", retry=ONCE)
    async def in_group(ctx: swf.Context, number: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(body, number))
            group.create_task(ctx.sleep("1h"))

    @app.workflow("t.sync.v1", retry=ONCE)
    def blocking(ctx: swf.SyncContext, number: int) -> None:
        body(number)

    async with app.worker():
        for workflow in (bare, in_step, in_group, blocking):
            for number, handle in enumerate(await app.trigger_many(workflow, range(3))):
                run = await handle.wait(timeout="10s")
                assert run.status is Status.FAILED
                assert type(errors[number]).__name__ in (run.error_json or "")
                assert run.last_error


async def test_a_group_of_failures_names_each_of_its_members(app: swf.App) -> None:
    async def handler(ctx: swf.Context) -> None:
        def broken(name: str) -> None:
            raise ValueError(f"{name} is broken")

        async with asyncio.TaskGroup() as group:
            for name in ("left", "right"):
                group.create_task(ctx.step(name, broken, name))

    run = await ended(app, handler)
    assert run.status is Status.FAILED
    assert "ExceptionGroup" in str(run.last_error)
    assert "left is broken" in (run.error_json or "")


@pytest.mark.parametrize("swallow", [Exception, BaseException])
async def test_a_handler_that_swallows_errors_around_a_lost_lease_writes_nothing(
    app: swf.App, url: str, swallow: type[BaseException]
) -> None:
    """Another worker has the run: whatever the old code catches and returns, the new one's outcome counts."""
    began: list[int] = []
    raw = Raw(url)

    @app.workflow("t.lost.v1")
    async def handler(ctx: swf.Context) -> str:
        began.append(ctx.epoch)
        if ctx.epoch > 1:
            return "new"
        while (await app.get(ctx.run_id)).lease_epoch == 1:
            await asyncio.sleep(0.01)
        try:
            await ctx.emit("old", 1)
            await ctx.step("old", time.time)
        except swallow:
            pass
        return "old"

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(lambda: began)
        raw.sql(
            "UPDATE workflow.workflow_run SET leased_by = 'gone:1:2:3', version = version + 1 WHERE id = ?", handle.id
        )
        raw.age(handle.id, 60, "lease_until")
        assert await handle.result("10s") == "new"
    assert [row["step_id"] for row in raw.steps(handle.id)] == []
    assert raw.sql("SELECT * FROM workflow.outbox_event") == []
    raw.close()


@pytest.mark.parametrize("kind", ["async", "stubborn", "sync"])
async def test_a_handler_that_never_returns_ends_at_its_deadline_and_the_worker_stops(app: swf.App, kind: str) -> None:
    gate = threading.Event()

    async def patient(ctx: swf.Context) -> None:
        await asyncio.Event().wait()

    async def stubborn(ctx: swf.Context) -> None:
        while not gate.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    def blocking(ctx: swf.SyncContext) -> None:
        while not gate.is_set() and not ctx.is_cancelled():
            time.sleep(0.01)

    handler: Any = {"async": patient, "stubborn": stubborn, "sync": blocking}[kind]
    app.workflow("t.bad.v1", timeout="200ms")(handler)
    async with app.worker():
        handle = await app.trigger("t.bad.v1")
        try:
            assert (await handle.wait(timeout="5s")).status is Status.TIMED_OUT
        finally:
            gate.set()


async def test_a_wait_that_outlives_the_deadline_is_warned_of_once(
    app: swf.App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="simpleworkflow.execute")

    @app.workflow("t.bad.v1", timeout="1h")
    async def handler(ctx: swf.Context) -> None:
        await ctx.race(ctx.sleep("2h"), ctx.wait_for_signal("go", timeout="3h"))

    def warnings() -> list[str]:
        return [r.getMessage() for r in caplog.records if "deadline" in r.getMessage()]

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(warnings)
        await handle.signal("go")
        await handle.result("10s")
    assert warnings()[0].startswith(f"run {handle.id} (t.bad.v1) waits for 2h, but its deadline is in ")
    assert len(warnings()) <= 2, "once per execution at most"


async def test_a_wait_within_the_deadline_is_no_cause_for_a_warning(
    app: swf.App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="simpleworkflow.execute")

    @app.workflow("t.bad.v1", timeout="3h")
    async def handler(ctx: swf.Context) -> None:
        await ctx.race(ctx.sleep("2h"), ctx.wait_for_signal("go"))

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.signal("go")
        await handle.result("10s")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_child_of_a_disabled_type_is_refused_in_the_parent_alone(app: swf.App, url: str) -> None:
    """The refusal comes out of the shared journal: neighbours in the same flush must not pay for it."""
    raw = Raw(url)

    @app.workflow("t.off.v1")
    async def off(ctx: swf.Context) -> None:
        return None

    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> str:
        try:
            await ctx.run(off)
        except swf.NotRunnable as error:
            return str(error)
        return "accepted"

    @app.workflow("t.neighbour.v1", retry=ONCE)
    async def neighbour(ctx: swf.Context, number: int) -> int:
        return sum([await ctx.step("one", lambda: 1) for _ in range(number)])

    async with app.worker():
        await app.run(off, timeout="10s")
        raw.sql("UPDATE workflow.workflow_registry SET is_enabled = false WHERE workflow_name = 't.off.v1'")
        others = await app.trigger_many(neighbour, [5] * 20)
        refused = await app.trigger_many("t.parent.v1", [None] * 5)
        assert {await handle.result("10s") for handle in others} == {5}
        told = {await handle.result("10s") for handle in refused}
    raw.close()
    assert all("t.off.v1 is disabled" in one for one in told)
