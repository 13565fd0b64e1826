"""What sched's documents promise and its code breaks: each promise holds here.

The timers, retries, deadlines and signals that must survive a restart of everything are in test_restart.py; that a
history never changes once read is in test_stability.py; here is the rest of the list.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.crew import freeze
from support.ledger import Raw
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.model.states import Status

from .room import NO_JITTER, Gate, details, of_type, told, types, until_status, until_told
from .test_history import instant
from .workplace import Site

YIELDED = "WorkflowTaskYielded"


REFUSE = {
    True: """CREATE TRIGGER refuse BEFORE INSERT ON {table} WHEN NEW.{column} = '{value}'
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END""",
    False: """CREATE FUNCTION workflow.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
              BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
              CREATE TRIGGER refuse BEFORE INSERT ON workflow.{table} FOR EACH ROW
              WHEN (NEW.{column} = '{value}') EXECUTE FUNCTION workflow.refuse()""",
}


def refuse(stranger: Raw, table: str, column: str, value: str) -> None:
    """From now on the database refuses such rows: what belongs to them must not happen either."""
    stranger.connection.execute(REFUSE[stranger.is_sqlite].format(table=table, column=column, value=value))


async def test_a_start_whose_event_is_refused_has_started_nothing(app: swf.App, stranger: Raw) -> None:
    refuse(stranger, "workflow_event", "event_type", "created")
    with pytest.raises(Exception, match="refused by the test"):
        await app.trigger("sched.work.v1")
    assert stranger.rows("true") == []


async def test_a_cancel_whose_event_is_refused_has_cancelled_nothing(app: swf.App, stranger: Raw) -> None:
    handle = await app.trigger("sched.work.v1")
    refuse(stranger, "workflow_event", "event_type", "cancelled")
    with pytest.raises(Exception, match="refused by the test"):
        await handle.cancel()
    assert (await handle.get()).status is Status.PENDING
    assert types(await handle.history()) == ["WorkflowStarted"]


async def test_a_signal_that_is_refused_has_woken_nobody(app: swf.App, stranger: Raw) -> None:
    handle = await app.trigger("sched.work.v1")
    before = stranger.row(handle.id)
    refuse(stranger, "workflow_signal", "name", "go")
    with pytest.raises(Exception, match="refused by the test"):
        await handle.signal("go")
    assert stranger.row(handle.id) == before
    assert types(await handle.history()) == ["WorkflowStarted"]


AT_ONCE = """
SELECT (SELECT count(*) FROM workflow.workflow_run r WHERE r.parent_id = ?) AS children,
       (SELECT count(*) FROM workflow.workflow_history h
        WHERE h.workflow_id = ? AND h.event_type = 'ActivityScheduled') AS scheduled,
       (SELECT count(*) FROM workflow.outbox_event o WHERE o.aggregate_id = ?) AS emitted,
       (SELECT count(*) FROM workflow.workflow_step s WHERE s.run_id = ? AND s.kind = 'emit') AS emits,
       (SELECT count(*) FROM workflow.workflow_history h
        WHERE h.workflow_id = ? AND h.event_type = 'WorkflowCompleted') AS completed,
       (SELECT count(*) FROM workflow.workflow_run r WHERE r.id = ? AND r.status = 'succeeded') AS succeeded"""


async def test_an_event_is_in_history_if_and_only_if_its_side_effects_are(app: swf.App, stranger: Raw) -> None:
    """sched's durability invariant, read by single statements while the run goes on: never one without the other."""

    @app.workflow("sched.many.v1")
    async def many(ctx: swf.Context) -> None:
        for number in range(25):
            await ctx.trigger("sched.child.v1", number)
            await ctx.emit("sched.started", number)

    seen: set[tuple[int, ...]] = set()
    handle = await app.trigger(many)
    async with app.worker():
        while True:
            (row,) = await asyncio.to_thread(stranger.sql, AT_ONCE, *[handle.id] * 6)
            seen.add(tuple(row.values()))
            if row["succeeded"]:
                break
    for children, scheduled, emitted, emits, completed, succeeded in seen:
        assert (children, emitted, completed) == (scheduled, emits, succeeded)
    assert len(seen) > 2, "nothing was seen on its way"
    assert max(seen)[:4] == (25, 25, 25, 25)


def test_a_worker_that_was_frozen_past_its_lease_changes_no_history(site: Site) -> None:
    """sched counts versions and never compares them. The store's own fence is tried in tests/store/test_fencing.py."""
    with site.app() as app:
        app.sync.migrate()
        frozen = site.start_worker()
        handle = app.sync.trigger("sched.activity.v1", {"id": 1})
        until(lambda: site.effects()["ship 1"] == 1, "its activity is under way")
        freeze(frozen, site.url)
        other = site.start_worker()
        until(lambda: site.effects()["ship 1"] == 2, "another worker has taken over")
        site.gate.touch()
        assert handle.result("10s") == [{"id": 1}, 2]
        history = handle.history()
        other.terminate()
        other.wait(20)
        frozen.send_signal(signal.SIGCONT)
        assert app.sync.trigger("sched.quick.v1", 5).result("15s") == 5, "the thawed worker works again"
        assert handle.history() == history
    assert told(history)[1:] == [
        "ActivityScheduled(reserve)",
        "ActivityCompleted(reserve)",
        "ActivityScheduled(ship)",
        "ActivityRetryScheduled(ship)",
        "ActivityRetryScheduled(ship)",
        "ActivityCompleted(ship)",
        "WorkflowCompleted",
    ]
    assert site.effects()["ship 2"] == 1


async def test_long_timers_fire_at_their_instant_and_not_before(still: swf.App) -> None:
    @swf.step(retry=swf.Retry(max_attempts=3, initial="1h", max_delay="1 day", jitter=0.0))
    async def charge() -> str:
        if swf.step_info().attempt < 2:
            raise ConnectionError("no line")
        return "paid"

    @still.workflow("sched.long.v1")
    async def long(ctx: swf.Context) -> str:
        await ctx.sleep("30 days")
        return await ctx.step(charge)

    async with swf.testing.env(still) as env:
        start = env.now
        handle = await still.trigger(long)
        await env.settle()
        (scheduled,) = of_type(await handle.history(), "TimerScheduled")
        assert instant(scheduled.details["fire_at"]) == start + timedelta(days=30)
        await env.advance(timedelta(days=30, microseconds=-1))
        assert types(await handle.history())[1:] == ["TimerScheduled", YIELDED]
        await env.advance(timedelta(microseconds=1))
        assert types(await handle.history())[3:] == [
            "TimerFired",
            "ActivityScheduled",
            "ActivityRetryScheduled",
            YIELDED,
        ]
        await env.advance("3h")
        assert await handle.result("1s") == "paid"
        history = await handle.history()
    (fired,) = of_type(history, "TimerFired")
    assert fired.at == start + timedelta(days=30)
    assert details(history, "ActivityRetryScheduled", "attempt", "delay") == [(1, 3600.0), (2, 7200.0)]
    assert [line.at - fired.at for line in history[-2:]] == [timedelta(hours=3)] * 2


async def test_the_timeout_of_a_wait_for_a_signal_is_enforced_to_the_instant(still: swf.App) -> None:
    """sched's SDK discards the timeout."""

    @still.workflow("sched.wait.v1")
    async def wait(ctx: swf.Context) -> str:
        try:
            return str(await ctx.wait_for_signal("go", timeout="7 days"))
        except swf.SignalTimeout:
            return "nobody came"

    async with swf.testing.env(still) as env:
        start = env.now
        unheard, heard = await still.trigger(wait), await still.trigger(wait)
        await env.advance(timedelta(days=7, microseconds=-1))
        await heard.signal("go", "in time")
        await env.settle()
        assert await heard.result("1s") == "in time"
        assert not (await unheard.get()).is_finished
        await env.advance(timedelta(microseconds=1))
        assert await unheard.result("1s") == "nobody came"
        (fired,) = of_type(await unheard.history(), "TimerFired")
        assert of_type(await heard.history(), "TimerFired") == []
    assert fired.at == start + timedelta(days=7)


async def test_the_execution_timeout_counts_from_the_first_start_through_every_wait(still: swf.App) -> None:
    @still.workflow("sched.limit.v1", timeout="10 days")
    async def limited(ctx: swf.Context) -> None:
        for _ in range(5):
            await ctx.sleep("3 days")

    async with swf.testing.env(still) as env:
        start = env.now
        handle = await still.trigger(limited)
        await env.advance("11 days")
        history = await handle.history()
    assert types(history)[1:] == [
        *["TimerScheduled", YIELDED, "TimerFired"] * 3,
        "TimerScheduled",
        YIELDED,
        "WorkflowTimedOut",
    ]
    assert history[-1].at == start + timedelta(days=10)


async def test_a_cancelled_workflow_ends_cancelled_whatever_its_code_does_then(app: swf.App) -> None:
    begun, stopped = Gate(), Gate()

    @app.workflow("sched.stubborn.v1")
    async def stubborn(ctx: swf.Context) -> str:
        await ctx.step("work", lambda: "done")
        begun.open()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.open()
        return "finished all the same"

    async with app.worker():
        handle = await app.trigger(stubborn)
        await begun.passed()
        assert (await handle.cancel()).status is Status.CANCELLED
        await stopped.passed()
        with pytest.raises(swf.RunCancelled):
            await handle.result("10s")
    run = await handle.get()
    assert (run.status, run.result) == (Status.CANCELLED, None)
    assert types(await handle.history())[-2:] == ["WorkflowCancelRequested", "WorkflowCanceled"]


async def test_a_workflow_gets_the_results_of_its_activities(app: swf.App) -> None:
    """sched's QueueActivity returns nothing."""

    @app.workflow("sched.half.v1")
    async def half(ctx: swf.Context, number: int) -> float:
        return number / 2

    @app.workflow("sched.sum.v1")
    async def total(ctx: swf.Context, numbers: list[int]) -> float:
        squares = await asyncio.gather(*[ctx.step("square", lambda n: n * n, number) for number in numbers])
        return await ctx.run(half, sum(squares))

    async with app.worker():
        handle = await app.trigger(total, [1, 2, 3])
        assert await handle.result("10s") == 7.0
    history = await handle.history()
    assert sorted(details(history, "ActivityCompleted", "activity_name", "result")) == [
        ("sched.half.v1", 7.0),
        ("square", 1),
        ("square", 4),
        ("square", 9),
    ]


async def test_a_sleep_of_less_than_a_second_is_on_record_and_not_slept_again(app: swf.App) -> None:
    """sched rounds it to nothing and sleeps in the worker's memory."""
    naps: list[float] = []

    @app.workflow("sched.nap.v1", retry=swf.Retry(max_attempts=2, **NO_JITTER))
    async def nap(ctx: swf.Context) -> None:
        before = asyncio.get_running_loop().time()
        await ctx.sleep("400ms")
        naps.append(asyncio.get_running_loop().time() - before)
        if ctx.attempt == 0:
            raise ConnectionError("after the sleep")

    async with app.worker():
        handle = await app.trigger(nap)
        await handle.result("10s")
    first, second = naps
    assert first >= 0.4
    assert second < 0.3
    history = await handle.history()
    assert types(history)[1:] == ["TimerScheduled", "TimerFired", "WorkflowCompleted"]
    (fired,) = of_type(history, "TimerFired")
    assert fired.at - history[0].at >= timedelta(seconds=0.4)


async def until_yielded(url_app: swf.App, type: str) -> swf.RunHandle[Any]:
    handle = await url_app.trigger(type)
    await until_told(handle, YIELDED)
    return handle


async def first_code(url: str) -> Any:
    """A run that has recorded an activity and waits; its worker and its App are gone."""
    old = swf.App(url)

    @old.workflow("sched.change.v1")
    async def before(ctx: swf.Context) -> None:
        await ctx.step("charge", lambda: "paid")
        await ctx.wait_for_signal("go")

    async with old.worker():
        handle = await until_yielded(old, "sched.change.v1")
    await old.close()
    return handle.id


async def test_code_that_asks_for_another_kind_of_thing_is_told_so(app: swf.App, url: str) -> None:
    """sched matches by name, scanning forward, and silently gives one activity's result to another."""

    @app.workflow("sched.change.v1", on_misfit="fail")
    async def after(ctx: swf.Context) -> Any:
        return await ctx.wait_for_signal("charge")

    run_id = await first_code(url)
    await app.signal(run_id, "go")
    async with app.worker():
        run = await app.handle(run_id).wait(timeout="10s")
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error["type"] == "NonDeterminismError"
    assert "charge#0 was recorded as a step and is a signal now" in run.error["message"]
    assert types(await app.handle(run_id).history())[-1] == "WorkflowFailed"


async def test_code_with_activities_added_and_taken_away_goes_on(app: swf.App, url: str) -> None:
    @app.workflow("sched.change.v1")
    async def after(ctx: swf.Context) -> list[Any]:
        number = await ctx.wait_for_signal("go")
        return [await ctx.step("check", lambda: "checked"), number]

    run_id = await first_code(url)
    await app.signal(run_id, "go", 1)
    async with app.worker():
        run = await app.handle(run_id).wait(timeout="10s")
    assert run.result == ["checked", 1]
    assert told(await app.handle(run_id).history())[1:] == [
        "ActivityScheduled(charge)",
        "ActivityCompleted(charge)",
        YIELDED,
        "SignalReceived(go)",
        "ActivityScheduled(check)",
        "ActivityCompleted(check)",
        "WorkflowCompleted",
    ]


async def test_a_workflow_id_is_the_clients_and_starting_twice_starts_once(app: swf.App) -> None:
    mine = uuid4()
    first = await app.trigger("sched.work.v1", {"a": 1}, id=mine)
    again = await app.trigger("sched.work.v1", {"a": 1}, id=str(mine))
    assert first.id == again.id == mine
    with pytest.raises(swf.IdempotencyConflict):
        await app.trigger("sched.work.v1", {"a": 2}, id=mine)
    assert types(await app.handle(mine).history()) == ["WorkflowStarted"]


async def test_workflows_are_listed_by_name_and_by_status_newest_first(app: swf.App) -> None:
    @app.workflow("sched.done.v1")
    async def done(ctx: swf.Context, number: int) -> int:
        return number

    @app.workflow("sched.bad.v1")
    async def bad(ctx: swf.Context) -> None:
        raise swf.PermanentError("bad")

    async with app.worker():
        finished = [await app.trigger(done, number) for number in range(3)]
        failed = await app.trigger(bad)
        for handle in finished:
            await handle.result("10s")
        await until_status(failed, Status.FAILED)
    waiting = await app.trigger("sched.later.v1", delay="1h")
    gone = await app.trigger("sched.later.v1")
    await gone.cancel()

    async def ids(**filters: Any) -> list[Any]:
        return [run.id async for run in app.runs(**filters)]

    assert await ids(status="succeeded") == [handle.id for handle in reversed(finished)]
    assert await ids(type="sched.done.v1", limit=2) == [finished[2].id, finished[1].id]
    assert await ids(status=["failed", "cancelled"]) == [gone.id, failed.id]
    assert await ids(type="sched.later.v1", status="pending") == [waiting.id]
    assert [run.result async for run in app.runs(status="succeeded")] == [2, 1, 0]
