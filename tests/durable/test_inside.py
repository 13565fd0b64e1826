"""The App's own calls inside a workflow: a trigger made by code that runs again must not be made again.

Inside a workflow `app.trigger` and its kin start children, once; inside a step they are what they are anywhere, since a
step's body is not replayed. Another database, or a connection of the caller's own, is none of the workflow's business.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status

LONG = "1050ms"
ONCE = swf.Retry(max_attempts=1)


def double_on(app: swf.App) -> Any:
    @app.workflow("t.double.v1")
    async def double(ctx: swf.Context, number: int) -> int:
        return 2 * number

    return double


async def runs_of(app: swf.App, type: str) -> list[swf.Run]:
    return [run async for run in app.runs(type=type)]


async def test_what_a_workflow_triggers_is_started_once_and_is_its_child(app: swf.App) -> None:
    double = double_on(app)
    executions: list[int] = []
    ids: list[list[UUID]] = []

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[int]:
        executions.append(1)
        one = await app.trigger(double, 1)
        many = await app.trigger_many(double, [2, 3], priority=7)
        three = await app.run(double, 4)
        ids.append([one.id, *(handle.id for handle in many)])
        await ctx.sleep(LONG)
        return [await one.result(), *[await handle.result("5s") for handle in many], three]

    async with app.worker():
        handle = await app.trigger(parent)
        assert await handle.result("15s") == [2, 4, 6, 8]
    found = await runs_of(app, "t.double.v1")
    assert len(found) == 4
    assert {run.parent_id for run in found} == {handle.id}
    assert {run.payload: run.priority for run in found} == {1: 100, 2: 7, 3: 7, 4: 100}
    assert len(executions) >= 2
    assert len({tuple(each) for each in ids}) == 1


async def test_a_blocking_workflow_triggers_through_the_twin_once(app: swf.App) -> None:
    double = double_on(app)
    executions: list[int] = []

    @app.workflow("t.parent.v1")
    def parent(ctx: swf.SyncContext) -> list[int]:
        executions.append(1)
        one = app.sync.trigger(double, 1)
        many = app.sync.trigger_many(double, [2, 3])
        three = app.sync.run(double, 4)
        ctx.sleep(LONG)
        return [one.result(), *[handle.result() for handle in many], three]

    async with app.worker():
        handle = await app.trigger(parent)
        assert await handle.result("15s") == [2, 4, 6, 8]
    found = await runs_of(app, "t.double.v1")
    assert sorted(run.payload for run in found) == [1, 2, 3, 4]
    assert {run.parent_id for run in found} == {handle.id}
    assert len(executions) >= 2


async def test_a_parent_that_waits_through_the_app_gives_up_its_slot(app: swf.App) -> None:
    @app.workflow("t.deep.v1")
    async def deep(ctx: swf.Context, depth: int) -> int:
        return 0 if depth == 0 else 1 + await app.run(deep, depth - 1)

    @app.workflow("t.blocking.v1")
    def blocking(ctx: swf.SyncContext, depth: int) -> int:
        return 0 if depth == 0 else 1 + int(app.sync.run(blocking, depth - 1))

    async with app.worker(concurrency=1):
        assert await app.run(deep, 2, timeout="15s") == 2
        assert await app.run(blocking, 2, timeout="15s") == 2


async def test_children_of_the_app_are_cancelled_with_their_parent(app: swf.App) -> None:
    began: list[int] = []

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> None:
        began.append(1)
        await asyncio.sleep(60)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> None:
        handles = [await app.trigger(child), await app.trigger(child)]
        await handles[0].result()

    async with app.worker():
        handle = await app.trigger(parent)
        await eventually(lambda: len(began) == 2)
        await handle.cancel()
        assert {run.status for run in await runs_of(app, "t.child.v1")} == {Status.CANCELLED}


async def test_a_result_that_does_not_come_in_time_is_told_and_stays_told(app: swf.App) -> None:
    said: list[str] = []

    @app.workflow("t.child.v1")
    async def child(ctx: swf.Context) -> Any:
        return await ctx.wait_for_signal("never")

    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> str:
        try:
            await app.run(child, timeout="50ms")
        except swf.ResultTimeout as error:
            said.append(str(error))
        await ctx.sleep(LONG)
        return said[-1]

    async with app.worker():
        told = await app.run(parent, timeout="10s")
    assert "has not finished within 50ms" in told
    assert set(said) == {told}
    assert len(said) >= 2
    assert len(await runs_of(app, "t.child.v1")) == 1


async def test_a_childs_end_comes_through_the_app_as_an_error_of_its_kind(app: swf.App) -> None:
    @app.workflow("t.child.v1", retry=ONCE)
    async def child(ctx: swf.Context) -> None:
        raise ValueError("broken")

    @app.workflow("t.parent.v1", retry=swf.Retry(max_attempts=3, initial="10ms", max_delay="10ms"))
    async def parent(ctx: swf.Context) -> None:
        await app.run(child)

    async with app.worker():
        run = await app.handle((await app.trigger(parent)).id).wait(timeout="10s")
    assert (run.status, run.attempt) == (Status.FAILED, 1)
    assert "ValueError: broken" in str(run.last_error)
    assert len(await runs_of(app, "t.child.v1")) == 1


async def test_inside_a_step_a_trigger_is_an_ordinary_one(app: swf.App) -> None:
    double = double_on(app)

    async def later() -> int:
        handle = await app.trigger(double, 1)
        return int(await handle.result("5s"))

    def blocking() -> int:
        return int(app.sync.run(double, 2, timeout="5s"))

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[int]:
        return [await ctx.step(later), await ctx.step(blocking)]

    async with app.worker():
        assert await app.run(parent, timeout="15s") == [2, 4]
    found = await runs_of(app, "t.double.v1")
    assert [run.parent_id for run in found] == [None, None]


async def test_another_database_is_triggered_in_the_ordinary_way(app: swf.App, tmp_path: Path) -> None:
    other = swf.App(str(tmp_path / "other.db"), settings=app.settings)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> str:
        return str((await other.trigger("t.elsewhere.v1", 1)).id)

    async with app.worker():
        handle = await app.trigger(parent)
        made = UUID(await handle.result("10s"))
    assert (await other.get(made)).parent_id is None
    assert await runs_of(app, "t.elsewhere.v1") == []
    await other.close()


async def test_another_app_of_the_same_database_starts_children_too(app: swf.App, url: str) -> None:
    other = swf.App(url, settings=app.settings)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> str:
        made = await other.trigger("t.elsewhere.v1", 1)
        await ctx.sleep(LONG)
        return str(made.id)

    async with app.worker():
        handle = await app.trigger(parent)
        made = UUID(await handle.result("10s"))
    assert [(run.id, run.parent_id) for run in await runs_of(app, "t.elsewhere.v1")] == [(made, handle.id)]
    await other.close()


async def test_a_connection_of_the_callers_own_is_used_as_ever(app: swf.App, url: str) -> None:
    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> str:
        connection: Any = sqlite3.connect(url) if "://" not in url else psycopg.connect(url)
        try:
            kept = await app.trigger("t.elsewhere.v1", 1, connection=connection)
            connection.commit()
            await app.trigger("t.elsewhere.v1", 2, connection=connection)
            connection.rollback()
        finally:
            connection.close()
        return str(kept.id)

    async with app.worker():
        handle = await app.trigger(parent)
        made = UUID(await handle.result("10s"))
    assert [(run.id, run.parent_id, run.payload) for run in await runs_of(app, "t.elsewhere.v1")] == [(made, None, 1)]


async def test_an_id_of_the_callers_choice_is_kept(app: swf.App) -> None:
    double, chosen = double_on(app), uuid4()

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[Any]:
        handle = await app.trigger(double, 4, id=chosen)
        await ctx.sleep(LONG)
        return [str(handle.id), await handle.result()]

    async with app.worker():
        assert await app.run(parent, timeout="10s") == [str(chosen), 8]


async def test_a_key_that_a_run_has_already_leads_to_that_run(app: swf.App) -> None:
    """Whoever made it: the handle must be of the run that exists, or the parent would wait for one that never will."""
    double = double_on(app)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[Any]:
        handle = await app.trigger(double, 4, idempotency_key="four")
        again = await app.trigger(double, 4, idempotency_key="four")
        return [str(handle.id), str(again.id), await handle.result("2s"), handle.is_new]

    first = await app.trigger(double, 4, idempotency_key="four")
    async with app.worker():
        assert await app.run(parent, timeout="5s") == [str(first.id), str(first.id), 8, False]
    assert len(await runs_of(app, "t.double.v1")) == 1


@pytest.mark.parametrize("what", ["key", "id"])
async def test_a_key_or_id_of_another_request_is_a_conflict_in_the_workflow(app: swf.App, what: str) -> None:
    double = double_on(app)
    first = await app.trigger(double, 4, idempotency_key="four")

    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> str:
        try:
            if what == "key":
                await app.trigger(double, 5, idempotency_key="four")
            else:
                await app.trigger(double, 5, id=first.id)
        except swf.IdempotencyConflict as error:
            return str(error)
        return "accepted"

    async with app.worker():
        assert "another payload" in await app.run(parent, timeout="5s")


async def test_concurrent_triggers_of_branches_keep_their_places(app: swf.App) -> None:
    double = double_on(app)

    @app.workflow("t.parent.v1")
    async def parent(ctx: swf.Context) -> list[list[int]]:
        async def branch(number: int) -> list[int]:
            handles = await app.trigger_many(double, [number, number * 10])
            await ctx.sleep(LONG)
            return [await handle.result() for handle in handles]

        return list(await asyncio.gather(branch(1), branch(2), branch(3)))

    async with app.worker():
        assert await app.run(parent, timeout="15s") == [[2, 20], [4, 40], [6, 60]]
    assert len(await runs_of(app, "t.double.v1")) == 6
