"""pgqrs's pause: it costs nothing, lasts as long as it says, and ends by a call or by plain SQL."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import Raw

import simpleworkflow as swf
from simpleworkflow.compat.pgqrs import (
    RESUME,
    Pause,
    RunStatus,
    Store,
    SyncWorkflowContext,
    WorkflowContext,
    workflow,
)

from .pgqrs_room import polling, serve, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "coming-from.md"


@dataclass
class Approval:
    by: str


def documented(raw_beside: Raw, run_id: str) -> list[str]:
    """The statements of the document that end a pause on this database, for this run."""
    dialect = "SQLite" if raw_beside.is_sqlite else "PostgreSQL"
    block = re.search(rf"```sql\n-- {dialect}: end a pause\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert block is not None
    return [statement.strip().replace("RUN", run_id) for statement in block[1].split(";") if statement.strip()]


def as_psql_would(raw_beside: Raw, statement: str) -> None:
    raw_beside.connection.execute(statement)


async def approve(ctx: WorkflowContext, order: int) -> list[Any]:
    first = await ctx.step("prepare", lambda: order + 1)
    answer = await ctx.pause("may the order go?", Approval, resume_after="1h")
    return [first, answer and answer.by, ctx.epoch]


async def test_a_paused_run_waits_for_a_person_and_costs_no_slot(store: Store) -> None:
    async with polling(await serve(store, "approve", approve, concurrency=1)):
        runs = [await workflow("approve").trigger(n).execute(store) for n in range(3)]
        for run_id in runs:
            paused = await until(store, run_id, RunStatus.PAUSED)
            assert (paused.worker, paused.completed_at) == (None, None)
        for n, run_id in enumerate(runs):
            await store.resume(run_id, Approval(by="ada"))
            assert await workflow("approve").result(run_id, store, timeout=20) == [n + 1, "ada", 2]
        with pytest.raises(swf.AlreadyFinished):
            await store.resume(await workflow("approve").get_run(runs[0], store))


async def test_a_resume_that_comes_before_the_pause_is_kept(store: Store) -> None:
    worker = await serve(store, "approve", approve)
    run_id = await workflow("approve").trigger(1).execute(store)
    await store.resume(run_id, {"by": "eve"})
    async with polling(worker):
        assert await workflow("approve").result(run_id, store, timeout=20) == [2, "eve", 1]


async def test_plain_sql_ends_a_pause_as_documented(store: Store, raw_beside: Raw) -> None:
    async with polling(await serve(store, "approve", approve)):
        run_id = await workflow("approve").trigger(1).execute(store)
        await until(store, run_id, RunStatus.PAUSED)
        for statement in documented(raw_beside, run_id):
            as_psql_would(raw_beside, statement)
        assert await workflow("approve").result(run_id, store, timeout=20) == [2, "ada", 2]
        signals = await store.app.handle(run_id).signals()
        assert [(s.name, s.consumed_at is not None) for s in signals] == [(RESUME, True)]
        for statement in documented(raw_beside, run_id):
            with pytest.raises((sqlite3.IntegrityError, psycopg.errors.CheckViolation), match="was not accepted"):
                as_psql_would(raw_beside, statement)
    assert await store.app.handle(run_id).signals() == signals, "a finished run takes no more"


async def test_plain_sql_that_meets_a_run_on_its_way_to_a_pause_is_not_lost(store: Store, raw_beside: Raw) -> None:
    """The run has looked for signals and found none; then the SQL commits; then the run wants to pause."""
    looked, told = asyncio.Event(), asyncio.Event()
    home = asyncio.get_running_loop()

    async def handler(ctx: WorkflowContext) -> Any:
        async def beside() -> None:
            home.call_soon_threadsafe(looked.set)
            while not told.is_set():
                await asyncio.sleep(0.001)

        pause = asyncio.ensure_future(ctx.pause())
        await ctx.step("busy", beside)
        return await pause

    async with polling(await serve(store, "approve", handler)):
        run_id = await workflow("approve").trigger().execute(store)
        await asyncio.wait_for(looked.wait(), 20)
        for statement in documented(raw_beside, run_id):
            as_psql_would(raw_beside, statement)
        told.set()
        assert await workflow("approve").result(run_id, store, timeout=20) == {"by": "ada"}


async def test_results_of_plain_sql_and_of_calls_come_in_order(store: Store, raw_beside: Raw) -> None:
    async def thrice(ctx: WorkflowContext) -> list[Any]:
        return [await ctx.pause() for _ in range(3)]

    worker = await serve(store, "thrice", thrice)
    run_id = await workflow("thrice").trigger().execute(store)
    await store.resume(run_id, 1)
    for statement in documented(raw_beside, run_id):
        as_psql_would(raw_beside, statement)
    await store.resume(run_id, 3)
    async with polling(worker):
        assert await workflow("thrice").result(run_id, store, timeout=20) == [1, {"by": "ada"}, 3]


async def test_a_pause_lasts_as_long_as_it_says_however_often_it_is_looked_at(store: Store, raw_beside: Raw) -> None:
    async def wait(ctx: WorkflowContext) -> list[Any]:
        before = await ctx.now()
        answer = await ctx.pause(resume_after="1500ms")
        return [answer, (await ctx.now() - before).total_seconds()]

    async with polling(await serve(store, "wait", wait)):
        run_id = await workflow("wait").trigger().execute(store)
        await until(store, run_id, RunStatus.PAUSED)
        make_visible(raw_beside, run_id)
        answer, passed = await workflow("wait").result(run_id, store, timeout=20)
    assert answer is None
    assert 1.5 <= passed < 5
    assert (await store.app.get(run_id)).lease_epoch == 3, "it was looked at once in between"


def make_visible(raw_beside: Raw, run_id: str) -> None:
    """pgqrs's other way to resume: make the message visible."""
    raw_beside.sql(
        f"UPDATE workflow.workflow_run SET run_at = {raw_beside.now} WHERE id = ? AND status = 'paused'", UUID(run_id)
    )


class Door:
    """Something outside that a handler looks at."""

    def __init__(self) -> None:
        self.is_open = False
        self.looks = 0
        self.steps = 0

    def look(self) -> bool:
        self.looks += 1
        return self.is_open

    def enter(self) -> str:
        self.steps += 1
        return "in"


def handlers(door: Door, check_every: Any) -> list[Callable[..., Any]]:
    async def enter(ctx: WorkflowContext) -> str | Pause:
        word = await ctx.step("knock", door.enter)
        return word if door.look() else Pause("the door is shut", check_every)

    def enter_sync(ctx: SyncWorkflowContext) -> str | Pause:
        word = ctx.step("knock", door.enter)
        return word if door.look() else Pause("the door is shut", check_every)

    return [enter, enter_sync]


@pytest.mark.parametrize("which", [0, 1], ids=["async", "sync"])
async def test_a_handler_that_returns_a_pause_is_called_again_at_every_check(store: Store, which: int) -> None:
    door = Door()
    async with polling(await serve(store, "enter", handlers(door, "200ms")[which])):
        run_id = await workflow("enter").trigger().execute(store)
        async with asyncio.timeout(20):
            while door.looks < 4:
                await asyncio.sleep(0.01)
        run = await store.app.get(run_id)
        assert not run.is_finished
        assert run.attempt == run.crashes == 0, "a pause burns nothing"
        door.is_open = True
        assert await workflow("enter").result(run_id, store, timeout=20) == "in"
    assert door.steps == 1, "what was done is not done again"


@pytest.mark.parametrize("which", [0, 1], ids=["async", "sync"])
@pytest.mark.parametrize("how", ["resume", "visible"])
async def test_a_resume_calls_a_paused_handler_before_its_check_is_due(
    store: Store, raw_beside: Raw, which: int, how: str
) -> None:
    door = Door()
    async with polling(await serve(store, "enter", handlers(door, "1h")[which])):
        run_id = await workflow("enter").trigger().execute(store)
        await until(store, run_id, RunStatus.PAUSED)
        assert door.looks == 1
        for is_open in (False, True):
            door.is_open, before = is_open, door.looks
            if how == "resume":
                await store.resume(run_id)
            else:
                make_visible(raw_beside, run_id)
            async with asyncio.timeout(20):
                while door.looks == before:
                    await asyncio.sleep(0.01)
            await until(store, run_id, RunStatus.SUCCESS if is_open else RunStatus.PAUSED)
    assert door.steps == 1


async def test_a_resume_sent_while_the_handler_still_works_makes_it_look_once_more(store: Store) -> None:
    door, came = Door(), asyncio.Event()
    home = asyncio.get_running_loop()

    async def enter(ctx: WorkflowContext) -> str | Pause:
        if door.look():
            return "in"
        home.call_soon_threadsafe(came.set)

        async def until_opened() -> None:
            while not door.is_open:
                await asyncio.sleep(0.001)

        await ctx.step("wait", until_opened)
        return Pause(check_every="1h")

    async with polling(await serve(store, "enter", enter)):
        run_id = await workflow("enter").trigger().execute(store)
        await asyncio.wait_for(came.wait(), 20)
        await store.resume(run_id)
        door.is_open = True
        assert await workflow("enter").result(run_id, store, timeout=20) == "in"


async def test_a_sync_handler_pauses_as_well_and_says_why(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def ask(ctx: SyncWorkflowContext) -> list[Any]:
        return [ctx.pause("who goes?", Approval).by, ctx.pause(resume_after="300ms")]

    with caplog.at_level(logging.INFO, "simpleworkflow.run"):
        async with polling(await serve(store, "ask", ask)):
            run_id = await workflow("ask").trigger().execute(store)
            await until(store, run_id, RunStatus.PAUSED)
            await store.resume(run_id, Approval("ada"))
            assert await workflow("ask").result(run_id, store, timeout=20) == ["ada", None]
    assert "paused: who goes?" in caplog.messages
