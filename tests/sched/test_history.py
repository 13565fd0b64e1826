"""sched's scenarios, line by line: what `workflow_history` tells of a run from its start to each of its ends.

Sequences are exact. `WorkflowTaskYielded` stands where the run gave up its slot: at every wait for a signal or a child,
and at every delay of a second or longer. Shorter delays stay in memory and are told without it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

from .room import NO_JITTER, Gate, details, of_type, told, types, until_status, until_told

YIELDED = "WorkflowTaskYielded"


def instant(value: Any) -> datetime:
    """An instant in the details: as each database writes its instants."""
    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1e6, UTC)
    return datetime.fromisoformat(value)


def define_order(app: swf.App) -> swf.Workflow[dict[str, Any], dict[str, Any]]:
    @app.workflow("sched.order.v1")
    async def order(ctx: swf.Context, order: dict[str, Any]) -> dict[str, Any]:
        seat = await ctx.step("reserve", lambda item: f"{item}-seat", order["item"])
        await ctx.sleep("1100ms")
        paid = await ctx.wait_for_signal("paid")
        sent = await ctx.step("ship", lambda seat, paid: [seat, paid], seat, paid)
        return {"sent": sent}

    return order


HAPPY = [
    "WorkflowStarted(sched.order.v1)",
    "ActivityScheduled(reserve)",
    "ActivityCompleted(reserve)",
    "TimerScheduled(@sleep#0)",
    YIELDED,
    "TimerFired(@sleep#0)",
    YIELDED,
    "SignalReceived(paid)",
    "ActivityScheduled(ship)",
    "ActivityCompleted(ship)",
    "WorkflowCompleted",
]


async def test_the_happy_path_is_told_line_by_line(app: swf.App) -> None:
    order = define_order(app)
    async with app.worker():
        handle = await app.trigger(order, {"item": "opera"})
        await until_told(handle, "TimerFired(@sleep#0)")
        await until_status(handle, Status.PAUSED)
        await handle.signal("paid", 42)
        assert await handle.result("10s") == {"sent": ["opera-seat", 42]}
    history = await handle.history()
    assert told(history) == HAPPY
    assert [line.idx for line in history] == list(range(1, len(HAPPY) + 1))
    assert details(history, "WorkflowStarted", "workflow_name", "input") == [("sched.order.v1", {"item": "opera"})]
    assert details(history, "ActivityScheduled", "activity_name", "input") == [
        ("reserve", "opera"),
        ("ship", ["opera-seat", 42]),
    ]
    assert details(history, "ActivityCompleted", "activity_name", "result", "error") == [
        ("reserve", "opera-seat", None),
        ("ship", ["opera-seat", 42], None),
    ]
    assert details(history, "SignalReceived", "signal_name", "input") == [("paid", 42)]
    (scheduled,), (fired,) = of_type(history, "TimerScheduled"), of_type(history, "TimerFired")
    fire_at = instant(scheduled.details["fire_at"])
    assert timedelta(seconds=1) < fire_at - scheduled.at <= timedelta(seconds=1.1)
    assert fired.details == {"timer_id": scheduled.details["timer_id"]}
    assert fired.at >= fire_at


async def test_a_stranger_reads_the_same_history_by_plain_sql(app: swf.App, stranger: Raw) -> None:
    order = define_order(app)
    async with app.worker():
        other = await app.trigger(order, {"item": "film"})
        handle = await app.trigger(order, {"item": "opera"})
        await handle.signal("paid", {"cents": 4200, "by": "Ada"})
        await handle.result("10s")
        await other.cancel()
    text = "SELECT * FROM workflow.workflow_history WHERE workflow_id = ? ORDER BY idx ASC"
    for run in (handle, other):
        rows = stranger.sql(text, run.id)
        assert list(rows[0]) == ["workflow_id", "idx", "event_type", "timestamp", "details"]
        read = [(row["idx"], row["event_type"], _loaded(row["details"])) for row in rows]
        assert read == [(line.idx, line.type, line.details) for line in await run.history()]


def _loaded(value: Any) -> Any:
    """PostgreSQL's driver has read the JSON already."""
    return json.loads(value) if isinstance(value, str) else value


async def test_what_happened_lately_to_all_runs_can_be_asked_of_the_view(app: swf.App, stranger: Raw) -> None:
    """sched's own diagnostic: what happened in the last 30 seconds across all workflows."""
    order = define_order(app)
    first, second = await app.trigger(order, {"item": "a"}), await app.trigger(order, {"item": "b"})
    await first.cancel()
    text = f'SELECT * FROM workflow.workflow_history WHERE "timestamp" > {stranger.now} {stranger.back(30)}'
    lines = [(str(row["workflow_id"]), row["event_type"]) for row in stranger.sql(text)]
    assert sorted(lines) == sorted(
        [
            (str(first.id), "WorkflowStarted"),
            (str(second.id), "WorkflowStarted"),
            (str(first.id), "WorkflowCancelRequested"),
            (str(first.id), "WorkflowCanceled"),
        ]
    )


async def test_a_failing_activity_tells_its_retries_and_fails_once(app: swf.App) -> None:
    """Three attempts: two retries and one failure. sched's code writes a failure for every attempt."""

    @swf.step(retry=swf.Retry(max_attempts=3, **NO_JITTER))
    async def charge(cents: int) -> None:
        raise ConnectionError("no line")

    @app.workflow("sched.pay.v1", retry=swf.Retry(max_attempts=1))
    async def pay(ctx: swf.Context, cents: int) -> None:
        await ctx.step(charge, cents)

    async with app.worker():
        handle = await app.trigger(pay, 100)
        await until_status(handle, Status.FAILED)
    history = await handle.history()
    assert told(history)[1:] == [
        "ActivityScheduled(charge)",
        "ActivityRetryScheduled(charge)",
        "ActivityRetryScheduled(charge)",
        "ActivityFailed(charge)",
        "WorkflowFailed",
    ]
    assert details(history, "ActivityScheduled", "input") == [(100,)]
    assert details(history, "ActivityRetryScheduled", "attempt", "delay") == [(1, 0.02), (2, 0.04)]
    (failed,) = of_type(history, "ActivityFailed")
    assert (failed.details["error"]["type"], failed.details["error"]["message"]) == ("ConnectionError", "no line")


async def test_an_activity_that_recovers_is_completed_and_never_failed(app: swf.App) -> None:
    tries: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=3, initial=0, jitter=0.0))
    async def charge() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("no line")
        return len(tries)

    @app.workflow("sched.pay.v1")
    async def pay(ctx: swf.Context) -> int:
        return await ctx.step(charge)

    async with app.worker():
        handle = await app.trigger(pay)
        assert await handle.result("10s") == 3
    assert told(await handle.history())[1:] == [
        "ActivityScheduled(charge)",
        "ActivityRetryScheduled(charge)",
        "ActivityRetryScheduled(charge)",
        "ActivityCompleted(charge)",
        "WorkflowCompleted",
    ]


async def test_an_activity_on_another_worker_is_scheduled_and_completed_by_its_name(app: swf.App) -> None:
    """A child run is sched's activity on another worker: its own run, its own retries, its result in the parent."""

    @app.workflow("sched.label.v1")
    async def label(ctx: swf.Context, parcel: str) -> str:
        if parcel == "broken":
            raise swf.PermanentError("no such parcel")
        return f"label for {parcel}"

    @app.workflow("sched.parcel.v1", retry=swf.Retry(max_attempts=1))
    async def parcel(ctx: swf.Context, parcel: str) -> str:
        return await ctx.run(label, parcel)

    async with app.worker(prefixes=["sched.parcel."]), app.worker(prefixes=["sched.label."]):
        good, bad = await app.trigger(parcel, "book"), await app.trigger(parcel, "broken")
        assert await good.result("10s") == "label for book"
        await until_status(bad, Status.FAILED)
    history = await good.history()
    assert [line for line in told(history)[1:] if line != YIELDED] == [
        "ActivityScheduled(sched.label.v1)",
        "ActivityCompleted(sched.label.v1)",
        "WorkflowCompleted",
    ]
    assert details(history, "ActivityScheduled", "input") == [("book",)]
    assert details(history, "ActivityCompleted", "result") == [("label for book",)]
    assert [line for line in told(await bad.history())[1:] if line != YIELDED] == [
        "ActivityScheduled(sched.label.v1)",
        "ActivityFailed(sched.label.v1)",
        "WorkflowFailed",
    ]


@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
async def test_a_signal_is_told_when_it_came_before_or_after_the_wait(app: swf.App, early: bool) -> None:
    @app.workflow("sched.wait.v1")
    async def handler(ctx: swf.Context) -> Any:
        return await ctx.wait_for_signal("go", timeout="1h")

    handle = await app.trigger(handler)
    if early:
        await handle.signal("go", [1])
    async with app.worker():
        if not early:
            await until_status(handle, Status.PAUSED)
            await handle.signal("go", [1])
        assert await handle.result("10s") == [1]
    expected = ["SignalReceived(go)", "WorkflowCompleted"]
    assert told(await handle.history())[1:] == ([] if early else ["TimerScheduled(go#0)", YIELDED]) + expected


async def test_a_signal_that_nobody_waits_for_is_told_as_well(app: swf.App) -> None:
    @app.workflow("sched.deaf.v1")
    async def handler(ctx: swf.Context) -> None:
        await ctx.step("work", lambda: None)

    handle = await app.trigger(handler)
    await handle.signal("hello", "you")
    async with app.worker():
        await handle.result("10s")
    history = await handle.history()
    assert types(history)[1] == "SignalReceived"
    assert details(history, "SignalReceived", "signal_name", "input") == [("hello", "you")]


async def test_a_wait_for_a_signal_that_never_comes_ends_by_its_timer(app: swf.App) -> None:
    @app.workflow("sched.wait.v1")
    async def handler(ctx: swf.Context) -> str:
        try:
            await ctx.wait_for_signal("go", timeout="1100ms")
        except swf.SignalTimeout:
            return "nobody came"
        return "somebody came"

    async with app.worker():
        handle = await app.trigger(handler)
        assert await handle.result("10s") == "nobody came"
    assert told(await handle.history())[1:] == [
        "TimerScheduled(go#0)",
        YIELDED,
        "TimerFired(go#0)",
        "WorkflowCompleted",
    ]


async def test_a_workflow_that_takes_too_long_is_told_as_timed_out(app: swf.App) -> None:
    @app.workflow("sched.slow.v1", timeout="1500ms")
    async def handler(ctx: swf.Context) -> None:
        await ctx.step("work", lambda: None)
        await ctx.wait_for_signal("never")

    async with app.worker():
        handle = await app.trigger(handler)
        with pytest.raises(swf.RunTimedOut):
            await handle.result("10s")
    expected = ["ActivityScheduled", "ActivityCompleted", YIELDED, "WorkflowTimedOut"]
    assert types(await handle.history())[1:] == expected


async def test_a_running_workflow_that_overruns_is_told_as_timed_out(app: swf.App) -> None:
    @app.workflow("sched.slow.v1", timeout="300ms")
    async def handler(ctx: swf.Context) -> None:
        await ctx.step("work", lambda: None)
        await ctx.step("endless", Gate().passed)

    async with app.worker():
        handle = await app.trigger(handler)
        with pytest.raises(swf.RunTimedOut):
            await handle.result("10s")
    assert told(await handle.history())[1:] == [
        "ActivityScheduled(work)",
        "ActivityCompleted(work)",
        "WorkflowTimedOut",
    ]


async def test_a_cancel_is_told_as_asked_for_and_as_done(app: swf.App) -> None:
    order = define_order(app)
    async with app.worker():
        waiting = await app.trigger(order, {"item": "opera"})
        await until_told(waiting, YIELDED)
        await waiting.cancel(reason="changed my mind")
        with pytest.raises(swf.RunCancelled):
            await waiting.result("10s")
    history = await waiting.history()
    assert types(history)[-3:] == [YIELDED, "WorkflowCancelRequested", "WorkflowCanceled"]
    assert details(history, "WorkflowCancelRequested", "reason") == [("changed my mind",)]
    assert details(history, "WorkflowCanceled", "reason") == [("changed my mind",)]


async def test_every_yield_is_told_and_followed_by_what_went_on(app: swf.App) -> None:
    """Yield and dispatch again, five times over: each wait gives up the slot once, and nothing is done twice."""
    executions: list[int] = []

    @app.workflow("sched.rounds.v1")
    async def handler(ctx: swf.Context) -> int:
        executions.append(ctx.epoch)
        for number in range(5):
            await ctx.wait_for_signal("round")
            await ctx.step("turn", lambda n: n, number)
        return 5

    async with app.worker():
        handle = await app.trigger(handler)
        for number in range(5):
            await until_status(handle, Status.PAUSED)
            await handle.signal("round")
            await until_turned(handle, number + 1)
        assert await handle.result("10s") == 5
    one_round = [YIELDED, "SignalReceived(round)", "ActivityScheduled(turn)", "ActivityCompleted(turn)"]
    assert told(await handle.history())[1:] == one_round * 5 + ["WorkflowCompleted"]
    assert executions == [1, 2, 3, 4, 5, 6]


async def until_turned(handle: swf.RunHandle[Any], times: int) -> None:
    async def turned() -> bool:
        return len(of_type(await handle.history(), "ActivityCompleted")) >= times

    await eventually(turned, f"{times} turns are done")


async def test_a_race_tells_the_timer_that_won_and_not_the_one_that_lost(app: swf.App) -> None:
    @app.workflow("sched.race.v1")
    async def handler(ctx: swf.Context) -> int:
        first = await ctx.race(ctx.wait_for_signal("go"), ctx.sleep("1h"))
        return first.index

    async with app.worker():
        handle = await app.trigger(handler)
        await until_status(handle, Status.PAUSED)
        await handle.signal("go")
        assert await handle.result("10s") == 0
    assert told(await handle.history())[1:] == [
        "TimerScheduled(@sleep#0)",
        YIELDED,
        "SignalReceived(go)",
        "WorkflowCompleted",
    ]
