"""Triggering: what is accepted, what is refused at the door, and that accepted means durable (P1)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest
from support.door import start_python
from support.waiting import eventually

import simpleworkflow as swf


@dataclass
class Order:
    id: str
    cents: int


class Parcel(pydantic.BaseModel):
    street: str
    weight: float


class Label(msgspec.Struct):
    code: str
    tags: list[str] = []


def define(app: swf.App) -> dict[str, swf.Workflow[Any, Any]]:
    @app.workflow("shop.order.v1")
    async def order(ctx: swf.Context, order: Order) -> Parcel:
        assert type(order) is Order
        return Parcel(street=order.id, weight=order.cents / 100)

    @app.workflow("shop.parcel.v1")
    async def parcel(ctx: swf.Context, parcel: Parcel) -> Label:
        assert type(parcel) is Parcel
        return Label(parcel.street, ["x"])

    @app.workflow("shop.label.v1")
    def label(ctx: swf.SyncContext, label: Label) -> Order:
        assert type(label) is Label
        return Order(label.code, len(label.tags))

    @app.workflow("shop.words.v1")
    async def words(ctx: swf.Context, words: dict[str, int]) -> list[tuple[str, int]]:
        return sorted(words.items())

    @app.workflow("shop.tick.v1")
    async def tick(ctx: swf.Context) -> None:
        return None

    return {w.name.split(".")[1]: w for w in (order, parcel, label, words, tick)}


async def count(app: swf.App) -> int:
    return sum(c.runs for c in await app.activity.counts())


# Types.


async def test_inputs_and_outputs_have_the_annotated_types(app: swf.App) -> None:
    known = define(app)
    async with app.worker():
        assert await app.run(known["order"], Order("a", 250), timeout=20) == Parcel(street="a", weight=2.5)
        assert await app.run(known["parcel"], Parcel(street="b", weight=1), timeout=20) == Label("b", ["x"])
        assert await app.run(known["label"], Label("c", ["1", "2"]), timeout=20) == Order("c", 2)
        assert await app.run(known["words"], {"z": 1, "a": 2}, timeout=20) == [("a", 2), ("z", 1)]
        assert await app.run(known["tick"], timeout=20) is None


async def test_a_workflow_can_be_triggered_by_name_by_declaration_and_by_itself(app: swf.App, url: str) -> None:
    known = define(app)
    elsewhere, stranger = swf.App(url), swf.App(url)
    declared = elsewhere.declare("shop.order.v1", input=Order, output=Parcel)
    async with app.worker():
        by_self = await app.trigger(known["order"], Order("x", 100))
        by_name = await stranger.trigger("shop.order.v1", {"id": "x", "cents": 100})
        by_declared_name = await elsewhere.trigger("shop.order.v1", Order("x", 100))
        by_declaration = await elsewhere.trigger(declared, Order("x", 100))
        assert await by_self.result(20) == Parcel(street="x", weight=1)
        assert await by_declaration.result(20) == Parcel(street="x", weight=1)
        assert await by_name.result(20) == {"street": "x", "weight": 1.0}
        assert await by_declared_name.result(20) == Parcel(street="x", weight=1)
        assert await elsewhere.handle(by_name.id, declared).result(20) == Parcel(street="x", weight=1)
    await elsewhere.close()
    await stranger.close()


async def test_an_input_that_does_not_fit_is_refused_and_nothing_is_created(app: swf.App) -> None:
    known = define(app)
    with pytest.raises(swf.InvalidInput, match=r"payload of shop\.order\.v1.*cents"):
        await app.trigger(known["order"], Order("a", "many"))  # type: ignore[arg-type]
    with pytest.raises(swf.InvalidInput, match=r"shop\.order\.v1"):
        await app.trigger(known["order"])
    with pytest.raises(swf.InvalidInput, match="takes no input, but got int"):
        await app.trigger(known["tick"], 1)
    with pytest.raises(swf.InvalidInput, match=r"shop\.words\.v1"):
        await app.trigger_many(known["words"], [{"a": 1}, {"a": "b"}])
    assert await count(app) == 0


async def test_only_workflows_and_names_can_be_triggered(app: swf.App) -> None:
    with pytest.raises(swf.InvalidInput, match=r"no workflow: decorate it with @app\.workflow"):
        await app.trigger(print, 1)  # type: ignore[call-overload]
    with pytest.raises(swf.InvalidName, match="blank name"):
        await app.trigger("a blank name", 1)


# Options.


async def test_a_request_is_stored_as_asked(app: swf.App) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    chosen = uuid4()
    handle = await app.trigger("a.b.v1", [1], id=chosen, priority=7, run_at=soon, max_attempts=9, start_within="2h")
    run = await handle.get()
    assert (run.id, run.type, run.payload, run.priority, run.run_at, run.max_attempts, run.start_by) == (
        chosen,
        "a.b.v1",
        [1],
        7,
        soon,
        9,
        soon + timedelta(hours=2),
    )
    plain = await (await app.trigger("a.b.v1", [1])).get()
    assert (plain.priority, plain.max_attempts, plain.start_by, plain.attempt, plain.status) == (
        100,
        None,
        None,
        0,
        "pending",
    )


async def test_more_urgent_runs_go_first(app: swf.App) -> None:
    done: list[int] = []

    @app.workflow("a.rank.v1")
    async def rank(ctx: swf.Context, priority: int) -> None:
        done.append(priority)

    handles = [await app.trigger(rank, p, priority=p) for p in (500, 0, 999, 100, 3)]
    async with app.worker(concurrency=1):
        await asyncio.gather(*(handle.result(20) for handle in handles))
    assert done == [0, 3, 100, 500, 999]


async def test_a_delayed_run_is_not_started_before_its_time(app: swf.App) -> None:
    @app.workflow("a.late.v1")
    async def late(ctx: swf.Context) -> None:
        return None

    async with app.worker():
        handle = await app.trigger(late, delay="300ms")
        await handle.result(20)
    run = await handle.get()
    assert run.started_at is not None
    assert run.run_at is not None
    assert run.run_at - run.created_at >= timedelta(milliseconds=299)
    assert run.started_at >= run.run_at


async def test_max_attempts_of_the_run_wins_over_the_policy(app: swf.App) -> None:
    executions: list[UUID] = []

    @app.workflow("a.fail.v1", retry=swf.Retry(max_attempts=5, initial=0, max_delay=0))
    async def fail(ctx: swf.Context) -> None:
        executions.append(ctx.run_id)
        raise ValueError("no")

    async with app.worker():
        twice = await app.trigger(fail, max_attempts=2)
        with pytest.raises(swf.RunFailed):
            await twice.result(20)
        policy = await app.trigger(fail)
        with pytest.raises(swf.RunFailed):
            await policy.result(20)
    assert executions.count(twice.id) == 2
    assert executions.count(policy.id) == 5


async def test_a_run_that_is_not_started_within_its_time_times_out(app: swf.App) -> None:
    @app.workflow("a.other.v1")
    async def other(ctx: swf.Context) -> None:
        return None

    handle = await app.trigger("a.nobody.v1", start_within="1ms")
    async with app.worker():  # any worker ends it, whatever types it serves
        with pytest.raises(swf.RunTimedOut, match="no worker started it in time"):
            await handle.result(20)


async def test_the_same_id_twice_is_the_same_run(app: swf.App) -> None:
    chosen = uuid4()
    first = await app.trigger("a.b.v1", 1, id=chosen)
    again = await app.trigger("a.b.v1", 1, id=str(chosen))
    assert (first.id, first.is_new, again.id, again.is_new) == (chosen, True, chosen, False)
    assert await count(app) == 1
    with pytest.raises(swf.IdempotencyConflict, match=rf"run id {chosen} belongs to run {chosen}.*another payload"):
        await app.trigger("a.b.v1", 2, id=chosen)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"priority": 1000}, swf.InvalidInput, "priority must be a whole number from 0 to 999, not 1000"),
        ({"priority": True}, swf.InvalidInput, "priority must be a whole number"),
        ({"priority": "high"}, swf.InvalidInput, "priority must be a whole number from 0 to 999, not 'high'"),
        ({"max_attempts": 0}, swf.InvalidInput, "max_attempts must be a whole number from 1 to 1000, not 0"),
        ({"run_at": datetime(2030, 1, 1)}, swf.InvalidInput, "run_at=.* has no time zone"),
        ({"run_at": "tomorrow"}, swf.InvalidInput, "run_at must be a datetime with a time zone, not 'tomorrow'"),
        ({"run_at": datetime.now(UTC), "delay": 1}, swf.InvalidInput, "give run_at= or delay=, not both"),
        ({"delay": "5 fortnights"}, swf.InvalidDuration, "delay: '5 fortnights' is not understood"),
        ({"delay": -1}, swf.InvalidDuration, "delay: -1 is negative"),
        ({"start_within": "10"}, swf.InvalidDuration, "start_within: '10' has no unit"),
        ({"id": "run-7"}, swf.InvalidInput, "id='run-7' is not a UUID"),
        ({"idempotency_key": ""}, swf.InvalidName, "idempotency key '' is empty"),
        ({"idempotency_key": "a\x00b"}, swf.InvalidName, "idempotency key"),
        ({"require": "luck"}, swf.InvalidInput, "require='luck' is neither 'definition' nor 'worker'"),
        ({"colour": "red"}, TypeError, "trigger has no option colour"),
    ],
)
async def test_an_option_that_makes_no_sense_is_refused(
    app: swf.App, options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        await app.trigger("a.b.v1", 1, **options)
    assert await count(app) == 0


async def test_none_means_not_given(app: swf.App) -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "id",
            "idempotency_key",
            "priority",
            "run_at",
            "delay",
            "max_attempts",
            "start_within",
            "require",
            "connection",
        )
    )
    run = await (await app.trigger("a.b.v1", 1, **nothing)).get()
    assert (run.priority, run.max_attempts, run.idempotency_key) == (100, None, None)


# Idempotency (P9).


async def test_a_duplicate_key_returns_the_first_run(app: swf.App) -> None:
    first = await app.trigger("a.b.v1", {"n": 1, "m": 2}, idempotency_key="k")
    again = await app.trigger("a.b.v1", {"m": 2, "n": 1.0}, idempotency_key="k")
    assert (again.id, first.is_new, again.is_new) == (first.id, True, False)
    assert await count(app) == 1


async def test_a_key_with_another_payload_or_type_is_a_conflict(app: swf.App) -> None:
    first = await app.trigger("a.b.v1", 1, idempotency_key="k")
    with pytest.raises(swf.IdempotencyConflict, match=rf"'k' belongs to run {first.id}, which has another payload"):
        await app.trigger("a.b.v1", 2, idempotency_key="k")
    with pytest.raises(swf.IdempotencyConflict, match=rf"'k' belongs to run {first.id} of type a\.b\.v1, not a\.c\.v1"):
        await app.trigger("a.c.v1", 1, idempotency_key="k")
    assert await count(app) == 1


async def test_concurrent_creations_with_one_key_give_one_run(app: swf.App) -> None:
    handles = await asyncio.gather(*(app.trigger("a.b.v1", 1, idempotency_key="k") for _ in range(50)))
    assert len({handle.id for handle in handles}) == 1
    assert sum(bool(handle.is_new) for handle in handles) == 1


async def test_deleting_a_run_frees_its_key(app: swf.App) -> None:
    first = await app.trigger("a.b.v1", 1, idempotency_key="k")
    await first.delete()
    second = await app.trigger("a.b.v1", 2, idempotency_key="k")
    assert second.is_new
    assert second.id != first.id


# Many.


async def test_trigger_many_keeps_the_order_of_its_inputs(app: swf.App) -> None:
    handles = await app.trigger_many("a.b.v1", range(1201), priority=5)
    assert await count(app) == 1201
    for position in (0, 1, 499, 500, 999, 1200):
        run = await handles[position].get()
        assert (run.payload, run.priority) == (position, 5)
    assert await app.trigger_many("a.b.v1", []) == []


async def test_trigger_many_refuses_what_can_only_be_said_of_one_run(app: swf.App) -> None:
    with pytest.raises(swf.InvalidInput, match="belong to trigger"):
        await app.trigger_many("a.b.v1", [1, 2], idempotency_key="k")
    with pytest.raises(TypeError, match="no option colour"):
        await app.trigger_many("a.b.v1", [], colour="red")  # type: ignore[call-overload]
    assert await count(app) == 0


# Who could run it.


async def test_requiring_a_definition_fails_fast_until_a_worker_has_served_the_type(app: swf.App) -> None:
    known = define(app)
    with pytest.raises(swf.NotRunnable, match=r"no worker has ever served shop\.tick\.v1"):
        await app.trigger(known["tick"], require="definition")
    assert await count(app) == 0
    async with app.worker():
        pass
    assert (await app.trigger(known["tick"], require="definition")).is_new


async def test_requiring_a_worker_fails_fast_unless_one_is_alive(app: swf.App) -> None:
    known = define(app)

    async def is_served() -> bool:
        try:
            await app.trigger(known["tick"], require="worker")
        except swf.NotRunnable:
            return False
        return True

    assert not await is_served()
    async with app.worker():
        await eventually(is_served, "a worker that runs is alive")
        with pytest.raises(swf.NotRunnable, match=r"no worker has ever served shop\.other\.v1"):
            await app.trigger("shop.other.v1", require="worker")
    with pytest.raises(swf.NotRunnable, match=r"no live worker serves shop\.tick\.v1 now; nothing was created"):
        await app.trigger(known["tick"], require="worker")


async def test_a_disabled_definition_refuses_triggers_and_is_not_claimed(app: swf.App) -> None:
    known = define(app)
    waiting = await app.trigger(known["tick"])
    await app.definitions.disable("shop.tick.v1")
    with pytest.raises(swf.NotRunnable, match=r"shop\.tick\.v1 is disabled"):
        await app.trigger(known["tick"])
    with pytest.raises(swf.NotRunnable, match=r"shop\.tick\.v1 is disabled"):
        await app.trigger(known["tick"], idempotency_key="k")
    async with app.worker():
        await app.run(known["words"], {}, timeout=20)  # the worker is at work, and leaves the other alone
        assert (await waiting.get()).status == "pending"
        assert "its type is disabled" in await waiting.explain()
        await app.definitions.enable("shop.tick.v1")
        await waiting.result(20)


# P1.


async def test_accepted_is_durable(app: swf.App, url: str) -> None:
    """Killed the moment it has the id: the run is there."""
    program = """
        import sys, time, simpleworkflow as swf
        handle = swf.App(sys.argv[1]).sync.trigger("a.b.v1", {"n": 1})
        print(handle.id, flush=True)
        time.sleep(60)
    """
    process = start_python(program, url)
    assert process.stdout is not None
    run_id = await asyncio.to_thread(process.stdout.readline)
    process.kill()
    process.communicate()
    run = await app.get(run_id.strip())
    assert (run.status, run.payload) == ("pending", {"n": 1})


async def test_a_run_that_was_due_long_ago_is_due(app: swf.App) -> None:
    """Before 1970 too, where instants are numbers below zero."""

    @app.workflow("t.ancient.v1")
    async def ancient(ctx: swf.Context) -> str:
        return "at last"

    handle = await app.trigger(ancient, run_at=datetime(1960, 1, 1, tzinfo=UTC))
    async with app.worker():
        assert await handle.result("10s") == "at last"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-12:00"])
async def test_an_instant_that_no_calendar_has_is_refused(app: swf.App, text: str) -> None:
    with pytest.raises(swf.InvalidInput, match="outside of the years"):
        await app.trigger("t.any.v1", run_at=datetime.fromisoformat(text))
    with pytest.raises(swf.InvalidFilter, match="outside of the years"):
        await app.activity.events(datetime.fromisoformat(text))


async def test_an_instant_beyond_the_calendar_in_the_table_breaks_no_listing(tmp_path: Path) -> None:
    """An older version took any number from a stranger on SQLite."""
    app = swf.App(str(tmp_path / "x.db"))
    handle = await app.trigger("t.any.v1")
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute(
            "UPDATE workflow_run SET run_at = -9000000000000000000, start_by = 9000000000000000000,"
            " version = version + 1"
        )
    (run,) = [run async for run in app.runs()]
    assert run.id == handle.id
    assert run.run_at is not None
    assert run.run_at.year == 1
    await app.close()
