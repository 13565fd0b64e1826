"""The view as strangers use it: whole runs in plain SQL, odd names, long histories.

sched's tables are read by its dashboard and by people with psql; `workflow_history` has the same columns. It is a view
over three tables, so the dangers are names that it takes apart wrongly and pages that do not meet.
"""

from __future__ import annotations

import asyncio
from typing import Any

from support.ledger import Raw

import simpleworkflow as swf
from simpleworkflow.client.reading import PAGE as EVENT_PAGE
from simpleworkflow.model.states import Status

from .room import details, of_type, told, types, until_status

COLUMNS = ["workflow_id", "idx", "event_type", "timestamp", "details"]


async def test_a_run_that_is_started_signalled_and_cancelled_by_sql_alone_has_its_history(
    app: swf.App, stranger: Raw
) -> None:
    stranger.sql("""INSERT INTO workflow.workflow_run (type, payload) VALUES ('sched.order.v1', '{"item": "book"}')""")
    (row,) = stranger.rows("type = 'sched.order.v1'")
    stranger.sql(
        """INSERT INTO workflow.workflow_signal (run_id, name, payload) VALUES (?, 'paid', '{"cents": 1}')""", row["id"]
    )
    stranger.sql("UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = ?", row["id"])
    lines = stranger.sql("SELECT * FROM workflow.workflow_history WHERE workflow_id = ? ORDER BY idx", row["id"])
    assert list(lines[0]) == COLUMNS
    history = await app.handle(row["id"]).history()
    assert (
        [line["event_type"] for line in lines]
        == types(history)
        == [
            "WorkflowStarted",
            "SignalReceived",
            "WorkflowCancelRequested",
            "WorkflowCanceled",
        ]
    )
    assert details(history, "WorkflowStarted", "workflow_name", "input") == [("sched.order.v1", {"item": "book"})]
    assert details(history, "SignalReceived", "signal_name", "input") == [("paid", {"cents": 1})]


NAMES = ["charge", "Größe prüfen", "with space", "a.b-c_d:1", "x!7", "quote'\"", "50%"]


async def test_activities_are_called_by_the_names_that_their_authors_gave(app: swf.App) -> None:
    @swf.step(key="sku/#=!7")
    async def keyed(sku: str) -> str:
        return sku

    async def branch(ctx: swf.Context, name: str) -> Any:
        return await ctx.step(name, lambda: name)

    @app.workflow("sched.names.v1")
    async def names(ctx: swf.Context) -> None:
        for name in NAMES:
            await ctx.step(name, lambda: None)
        await ctx.step(keyed, "sku")
        await asyncio.gather(*[branch(ctx, name) for name in NAMES])

    async with app.worker():
        handle = await app.trigger(names)
        await handle.result("10s")
    history = await handle.history()
    for type in ("ActivityScheduled", "ActivityCompleted"):
        called = [name for (name,) in details(history, type, "activity_name")]
        assert called[: len(NAMES) + 1] == [*NAMES, "keyed"]
        assert sorted(called[len(NAMES) + 1 :]) == sorted(NAMES)


VALUES = [None, True, 0, -1.5, 2**53, "", 'ein "Wort" ☃ \\ \n', [], {"a": {"b": [1, None]}}, [[1], [2]]]


async def test_inputs_and_results_are_told_as_they_were(app: swf.App) -> None:
    @app.workflow("sched.echo.v1")
    async def echo(ctx: swf.Context, value: Any) -> Any:
        return await ctx.step("echo", lambda value: value, value)

    handles = [await app.trigger(echo, value) for value in VALUES]
    for handle, value in zip(handles, VALUES, strict=True):
        await handle.signal("said", value)
    async with app.worker():
        assert [await handle.result("10s") for handle in handles] == VALUES
    for handle, value in zip(handles, VALUES, strict=True):
        history = await handle.history()
        assert details(history, "WorkflowStarted", "input") == [(value,)]
        assert details(history, "SignalReceived", "input") == [(value,)]
        assert details(history, "ActivityScheduled", "input") == [(value,)]
        assert details(history, "ActivityCompleted", "result") == [(value,)]


async def test_a_history_longer_than_a_page_is_read_whole(app: swf.App, stranger: Raw) -> None:
    handle = await app.trigger("sched.post.v1")
    count = 2 * EVENT_PAGE
    stranger.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO workflow.workflow_signal (run_id, name, payload) "
        f"SELECT {'?' if stranger.is_sqlite else 'CAST(? AS uuid)'}, 'letter', "
        f"{'i' if stranger.is_sqlite else 'to_json(i)'} FROM n",
        count,
        handle.id,
    )
    history = await handle.history()
    assert [line.idx for line in history] == list(range(1, count + 2))
    assert sorted(line.details["input"] for line in history[1:]) == list(range(1, count + 1))


async def test_each_run_counts_its_own_lines(app: swf.App, stranger: Raw) -> None:
    """Lines of many runs are written in between each other; every run has 1, 2, 3 all the same."""

    @app.workflow("sched.steps.v1")
    async def steps(ctx: swf.Context, count: int) -> None:
        for number in range(count):
            await ctx.step(f"s{number}", lambda: asyncio.sleep(0.001))

    async with app.worker():
        handles = await app.trigger_many(steps, list(range(20)))
        for handle in handles:
            await until_status(handle, Status.SUCCEEDED)
    for count, handle in enumerate(handles):
        history = await handle.history()
        assert [line.idx for line in history] == list(range(1, 2 * count + 3))
        expected = [
            f"{what}(s{number})" for number in range(count) for what in ("ActivityScheduled", "ActivityCompleted")
        ]
        assert told(history) == ["WorkflowStarted(sched.steps.v1)", *expected, "WorkflowCompleted"]
        assert len(of_type(history, "ActivityCompleted")) == count
    rows = stranger.sql("SELECT workflow_id, idx FROM workflow.workflow_history ORDER BY workflow_id, idx")
    assert len({(row["workflow_id"], row["idx"]) for row in rows}) == len(rows) == sum(2 * n + 2 for n in range(20))
