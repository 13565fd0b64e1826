"""What a run tells others: events for the outbox, exactly once and in order; values that anybody may read meanwhile.

An event that is emitted twice, or by an execution that has lost its run, cannot be called back. A value that steps back
while the code is replayed would make a progress bar run backwards.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.ledger import Raw, check_path, claim, flush, leased, record, repeated, sweep
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.states import Status, StepKind
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import writing

LONG = "1050ms"
ONCE = swf.Retry(max_attempts=1)


@dataclass
class Progress:
    done: int


@pytest.fixture
def box(app: swf.App, url: str) -> Iterator[Raw]:
    app.sync.trigger("t.nobody.v1", delay="1h")  # opens the database, which migrates a new file
    raw = Raw(url)
    yield raw
    raw.close()


def outbox(raw: Raw, run_id: UUID) -> list[tuple[int, str, Any]]:
    """(sequence, type, data) of each event, in the order in which they were written."""
    rows = raw.sql("SELECT * FROM workflow.outbox_event WHERE aggregate_id = ? ORDER BY id", run_id)
    data = [json.loads(row["payload"]) if raw.is_sqlite else row["payload"] for row in rows]
    return [(row["sequence"], row["event_type"], one) for row, one in zip(rows, data, strict=True)]


# Events


async def test_each_emit_leaves_one_event_in_the_order_of_the_run(app: swf.App, box: Raw) -> None:
    executions: list[int] = []

    @app.workflow("t.emit.v1")
    async def handler(ctx: swf.Context) -> None:
        executions.append(ctx.epoch)
        await ctx.emit("order.placed", {"n": 1})
        await ctx.sleep(LONG)
        await ctx.emit("order.placed", {"n": 2})
        await ctx.wait_for_signal("go")
        await ctx.emit("order.shipped")

    async with app.worker():
        handle = await app.trigger(handler)
        await eventually(lambda: len(outbox(box, handle.id)) == 2)
        await handle.signal("go")
        await handle.result("10s")
    assert outbox(box, handle.id) == [
        (1, "order.placed", {"n": 1}),
        (2, "order.placed", {"n": 2}),
        (3, "order.shipped", None),
    ]
    assert len(executions) >= 2


async def test_emits_of_many_branches_and_runs_are_numbered_without_gaps(app: swf.App, box: Raw) -> None:
    @app.workflow("t.emit.v1")
    async def handler(ctx: swf.Context, name: str) -> None:
        async def branch(number: int) -> None:
            await ctx.emit("begun", number)
            await ctx.step("work", lambda: number)
            await ctx.emit("ended", number)

        await asyncio.gather(*(ctx.emit("first", number) for number in range(10)))
        await asyncio.gather(*(branch(number) for number in range(10)))
        await ctx.emit("last", name)

    async with app.worker():
        handles = await app.trigger_many(handler, ["a", "b", "c"])
        for handle in handles:
            await handle.result("20s")
    for handle, name in zip(handles, "abc", strict=True):
        told = outbox(box, handle.id)
        assert [sequence for sequence, _, _ in told] == list(range(1, 32))
        assert [(kind, value) for _, kind, value in told[:10]] == [("first", number) for number in range(10)]
        assert told[-1][1:] == ("last", name)
        for number in range(10):
            assert place(told, "begun", number) < place(told, "ended", number)


def place(told: list[tuple[int, str, Any]], kind: str, value: Any) -> int:
    (found,) = [sequence for sequence, one, its in told if (one, its) == (kind, value)]
    return found


async def test_a_blocking_workflow_emits_and_publishes_too(app: swf.App, box: Raw) -> None:
    @app.workflow("t.emit.v1")
    def handler(ctx: swf.SyncContext) -> None:
        ctx.emit("one", 1)
        ctx.set_value("progress", 50)
        ctx.sleep(LONG)
        ctx.emit("two", 2)

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.result("10s")
    assert outbox(box, handle.id) == [(1, "one", 1), (2, "two", 2)]
    assert app.sync.handle(handle.id).get_value("progress") == 50


async def test_a_run_cannot_tell_of_itself_what_only_the_ledger_may_tell(app: swf.App, box: Raw) -> None:
    @app.workflow("t.emit.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> None:
        await ctx.emit("simpleworkflow.runs.are.fine")
        await ctx.emit("simpleworkflow.run.succeeded", {"run_id": "somebody else's"})

    async with app.worker():
        handle = await app.trigger(handler)
        with pytest.raises(swf.RunFailed, match=r"simpleworkflow\.run\.succeeded' cannot be emitted"):
            await handle.result("10s")
    assert outbox(box, handle.id) == [(1, "simpleworkflow.runs.are.fine", None)]


async def test_an_attempt_that_failed_afterwards_does_not_emit_again(app: swf.App, box: Raw) -> None:
    tried: list[int] = []

    @app.workflow("t.emit.v1", retry=swf.Retry(max_attempts=3, initial="10ms", max_delay="10ms"))
    async def handler(ctx: swf.Context) -> None:
        await ctx.emit("tried", 1)
        tried.append(1)
        if len(tried) < 3:
            raise RuntimeError("again")
        await ctx.emit("done", 2)

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.result("10s")
    assert len(tried) == 3
    assert outbox(box, handle.id) == [(1, "tried", 1), (2, "done", 2)]


async def test_what_cannot_be_told_is_refused_in_the_handler(app: swf.App, box: Raw) -> None:
    @app.workflow("t.emit.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> str:
        with pytest.raises(swf.PayloadError, match="event fine"):
            await ctx.emit("fine", {"n": float("nan")})
        with pytest.raises(swf.PayloadError, match="published fine"):
            await ctx.set_value("fine", object())
        return "refused"

    async with app.worker():
        handle = await app.trigger(handler)
        assert await handle.result("10s") == "refused"
    assert outbox(box, handle.id) == []
    assert await handle.get_value("fine") is None


def emitting(lease: Any, number: int) -> Any:
    return record(lease, f"@emit told#{number}", kind=StepKind.EMIT, emits=("told", str(number)))


async def test_an_event_and_its_record_land_together_or_not_at_all(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    bad = record(lease, "bad#0", kind="nonsense")
    with pytest.raises(swf.StoreError):
        await flush(ledger, emitting(lease, 0), bad)
    assert outbox(raw, lease.id) == []
    assert await flush(ledger, emitting(lease, 0)) == [Outcome.DONE]
    assert outbox(raw, lease.id) == [(1, "told", 0)]


async def test_a_flush_repeated_after_a_lost_answer_emits_nothing_twice(ledger: Ledger, raw: Raw) -> None:
    lease, other = await leased(ledger), await leased(ledger)
    batch = [emitting(lease, 0), emitting(other, 0), emitting(lease, 1)]
    assert await flush(ledger, *batch) == [Outcome.DONE] * 3
    assert await ledger.run(repeated(writing._write_locked(batch, "w1"))) == [Outcome.DONE] * 3
    assert await flush(ledger, emitting(lease, 2)) == [Outcome.DONE]
    assert outbox(raw, lease.id) == [(1, "told", 0), (2, "told", 1), (3, "told", 2)]
    assert outbox(raw, other.id) == [(1, "told", 0)]


async def test_an_execution_that_has_lost_its_run_emits_nothing(ledger: Ledger, raw: Raw) -> None:
    late = await leased(ledger)
    raw.age(late.id, 60, "lease_until")
    await sweep(ledger)
    raw.age(late.id, 600, "run_at")
    (lease,) = await claim(ledger, suspects=True)
    assert lease.epoch == late.epoch + 1
    assert await flush(ledger, emitting(late, 0), emitting(lease, 1)) == [Outcome.LOST, Outcome.DONE]
    assert outbox(raw, lease.id) == [(1, "told", 1)]
    assert [row["step_id"] for row in raw.steps(lease.id)] == ["@emit told#1"]


# Values


async def test_the_newest_value_of_each_name_can_be_read_in_its_type(app: swf.App) -> None:
    @app.workflow("t.read.v1")
    async def handler(ctx: swf.Context) -> None:
        await ctx.set_value("progress", Progress(1))
        await ctx.set_value("note", "begun")
        await ctx.set_value("odd @publish progress", "another name")
        await ctx.wait_for_signal("go")
        for number in range(2, 6):
            await ctx.set_value("progress", Progress(number))

    handle = await app.trigger(handler)
    assert await handle.get_value("progress") is None
    async with app.worker():
        while (await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
        assert await handle.get_value("progress", Progress) == Progress(1)
        assert await handle.get_value("note") == "begun"
        assert await asyncio.to_thread(app.sync.handle(str(handle.id)).get_value, "note") == "begun"
        assert await handle.get_value("nothing") is None
        with pytest.raises(swf.InvalidInput, match="published note"):
            await handle.get_value("note", Progress)
        await handle.signal("go")
        await handle.result("10s")
    assert await handle.get_value("progress") == {"done": 5}


async def test_reading_from_an_unknown_run_says_so(app: swf.App) -> None:
    with pytest.raises(swf.RunNotFound):
        await app.handle(uuid4()).get_value("progress")
    with pytest.raises(swf.RunNotFound, match="not a run id"):
        await app.handle("seven").get_value("progress")


async def test_reading_leaves_no_trace_on_the_run(app: swf.App, box: Raw) -> None:
    @app.workflow("t.read.v1")
    async def handler(ctx: swf.Context) -> None:
        await ctx.set_value("progress", 1)
        await ctx.wait_for_signal("go")

    async with app.worker():
        handle = await app.trigger(handler)
        while (await handle.get()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
    before = box.everything()
    for name in ("progress", "nothing"):
        await handle.get_value(name)
    assert box.everything() == before
    check_path(box.events(handle.id))
    assert box.events(handle.id) == ["created", "leased", "started", "paused"]


async def test_a_value_never_steps_back_while_the_code_is_replayed(app: swf.App) -> None:
    """Branches publish under one name; whoever polls must never see an earlier value after a later one."""
    stop = threading.Event()

    @app.workflow("t.read.v1")
    async def handler(ctx: swf.Context) -> None:
        async def branch() -> None:
            for number in range(100, 110):
                await ctx.set_value("progress", number)
                await ctx.step("pause", lambda: asyncio.sleep(0.002))

        for number in range(10):
            await ctx.set_value("progress", number)
            await ctx.step("pause", lambda: asyncio.sleep(0.002))
        await ctx.sleep(LONG)
        await asyncio.gather(branch())
        await ctx.sleep(LONG)
        await ctx.set_value("progress", 1000)

    async def poll(handle: swf.RunHandle[Any]) -> list[int]:
        seen: list[int] = []
        while not stop.is_set():
            value = await handle.get_value("progress")
            if value is not None and value not in seen[-1:]:
                seen.append(value)
            await asyncio.sleep(0.005)
        return seen

    async with app.worker():
        handle = await app.trigger(handler)
        polling = asyncio.create_task(poll(handle))
        await handle.result("15s")
        stop.set()
        seen = await polling
    assert seen == sorted(seen)
    assert await handle.get_value("progress") == 1000


async def test_a_retried_run_shows_its_newest_value_and_goes_on_from_there(app: swf.App) -> None:
    at_the_top: list[Any] = []
    tried: list[int] = []

    @app.workflow("t.read.v1", retry=swf.Retry(max_attempts=2, initial="10ms", max_delay="10ms"))
    async def handler(ctx: swf.Context) -> None:
        for number in range(3):
            await ctx.set_value("progress", number)
            look = f"look {len(tried)} {number}"
            at_the_top.append(await ctx.step(look, app.sync.handle(ctx.run_id).get_value, "progress"))
        tried.append(1)
        if len(tried) == 1:
            raise RuntimeError("again")
        await ctx.set_value("progress", 3)

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.result("10s")
    assert at_the_top == [0, 1, 2, 2, 2, 2]
    assert await handle.get_value("progress") == 3
