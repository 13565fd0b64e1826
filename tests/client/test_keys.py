"""Business keys: whatever takes the id of a run takes the key it was triggered with, and means exactly one run."""

from __future__ import annotations

import inspect
from typing import Any
from uuid import uuid4

import pytest
from support.ledger import Raw

import simpleworkflow as swf
from simpleworkflow.client.namespaces.outbox import Outbox

KEY = "order-4711/a#b"
ADDRESSED = [
    name
    for name, method in vars(swf.RunHandle).items()
    if not name.startswith("_") and inspect.iscoroutinefunction(inspect.unwrap(method))
]


def with_approval(app: swf.App) -> swf.Workflow[str, str]:
    @app.workflow("orders.approve.v1")
    async def approve(ctx: swf.Context, order: str) -> str:
        await ctx.set_value("progress", order)
        return await ctx.wait_for_signal("approved", str)

    return approve


async def test_every_call_that_takes_a_run_takes_its_key(app: swf.App) -> None:
    calls = [*inspect.getmembers(swf.App, inspect.isfunction), *inspect.getmembers(Outbox, inspect.isfunction)]
    for name, method in calls:
        names = inspect.signature(method).parameters
        if inspect.iscoroutinefunction(inspect.unwrap(method)) and "run_id" in names and not name.startswith("_"):
            assert "key" in names, name
    run = await app.trigger(with_approval(app), "book", idempotency_key=KEY)
    assert (await app.get(key=KEY)).id == run.id
    assert await app.explain(key=KEY) == await app.explain(run.id)
    assert (await app.handle(key=KEY).explanation()).run_id == run.id
    assert [event.type for event in await app.handle(key=KEY).events()] == ["created"]
    assert [line.idx for line in await app.handle(key=KEY).history()] == [
        line.idx for line in await app.handle(run.id).history()
    ]
    assert await app.handle(key=KEY).get_value("progress", str) is None
    assert await app.handle(key=KEY).get_value(name="progress", as_type=str) is None
    assert (
        await app.handle(key=KEY).steps()
        == await app.handle(key=KEY).children()
        == await app.outbox.events(key=KEY)
        == []
    )
    assert (await app.hold(key=KEY, reason="wait")).is_held
    assert not (await app.resume(key=KEY)).is_held
    await app.signal("approved", "yes", key=KEY)
    await app.signal(name="approved", key=KEY)
    await app.signal(None, "approved", key=KEY)
    assert [one.payload for one in await app.handle(key=KEY).signals()] == ["yes", None, None]
    assert (await app.cancel(key=KEY)).id == run.id
    assert (await app.retry(key=KEY)).id == run.id
    await app.cancel(key=KEY)
    assert (await app.handle(key=KEY).wait()).status == swf.Status.CANCELLED
    assert (await app.delete(key=KEY)).id == run.id


async def test_the_blocking_twin_takes_keys_as_well(app: swf.App) -> None:
    run = app.sync.trigger("orders.none.v1", idempotency_key=KEY)
    assert app.sync.get(key=KEY).id == run.id
    app.sync.signal("approved", key=KEY)
    handle = app.sync.handle(key=KEY)
    assert repr(handle) == f"<SyncRunHandle key={KEY!r}>"
    assert handle.id == run.id
    assert repr(handle) == f"<SyncRunHandle {run.id}>"
    assert app.sync.handle(key=KEY).cancel().id == run.id


async def test_a_run_is_named_by_its_id_or_by_its_key_and_not_by_both(app: swf.App) -> None:
    run = await app.trigger("orders.none.v1", idempotency_key=KEY)
    calls: list[Any] = [
        lambda: app.get(run.id, key=KEY),
        lambda: app.signal(run.id, "approved", key=KEY),
        lambda: app.signal(str(run.id), "approved", 1, key=KEY),
        lambda: app.cancel(run.id, key=KEY),
    ]
    for call in calls:
        with pytest.raises(swf.InvalidInput, match="not both"):
            await call()
    for call in (lambda: app.get(), lambda: app.cancel(), lambda: app.signal(None, "approved")):
        with pytest.raises(swf.InvalidInput, match="say which run: give its id, or key="):
            await call()
    with pytest.raises(swf.InvalidInput, match="say which run"):
        app.handle()
    with pytest.raises(swf.InvalidName, match="key '' is empty"):
        app.handle(key="")
    assert not (await app.get(run.id)).is_finished
    assert await app.handle(run.id).signals() == []


async def test_a_key_that_no_run_has_is_named_in_the_refusal(app: swf.App) -> None:
    for call in (app.get, app.cancel, app.explain, app.delete):
        with pytest.raises(swf.RunNotFound, match="no run with the key 'order-1'"):
            await call(key="order-1")
    with pytest.raises(swf.RunNotFound, match="a business key goes into key="):
        await app.get("order-1")


async def test_a_handle_made_by_key_stays_on_the_run_that_it_found_first(app: swf.App) -> None:
    handle = app.handle(key=KEY)
    with pytest.raises(swf.InvalidInput, match="not known yet"):
        _ = handle.id
    first = await app.trigger("orders.none.v1", idempotency_key=KEY)
    assert (await handle.get()).id == first.id == handle.id
    await first.delete()
    second = await app.trigger("orders.none.v1", idempotency_key=KEY)
    assert (await handle.get()).id == first.id
    assert (await app.handle(key=KEY).get()).id == second.id


@pytest.mark.parametrize("name", ADDRESSED)
async def test_every_call_of_a_handle_looks_its_key_up(app: swf.App, name: str) -> None:
    given = {"get_value": ("x",), "signal": ("x",)}.get(name, ())
    with pytest.raises(swf.RunNotFound, match="no run with the key 'order-2'"):
        await getattr(app.handle(key="order-2"), name)(*given)


async def test_a_call_by_id_asks_nothing_more(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await app.trigger("orders.none.v1", idempotency_key=KEY)
    asked: list[str] = []
    engine = app._client.engine
    usual = engine.run

    async def counted(operation: Any, *rest: Any) -> Any:
        asked.append(operation.name)
        return await usual(operation, *rest)

    monkeypatch.setattr(engine, "run", counted)
    await app.get(run.id)
    await app.handle(run.id).cancel()
    assert asked == ["get", "cancel"]
    await app.get(key=KEY)
    assert asked[2:] == ["with_key", "get"]


async def test_the_result_of_a_run_is_awaited_by_its_key(app: swf.App) -> None:
    approve = with_approval(app)
    async with app.worker():
        await app.trigger(approve, "book", idempotency_key=KEY)
        await app.signal("approved", "by ada", key=KEY)
        handle = app.handle(workflow=approve, key=KEY)
        assert await handle.result(timeout=20) == "by ada"
        assert await app.handle(key=KEY).get_value("progress", str) == "book"


async def test_a_workflow_that_addresses_a_run_by_key_means_the_same_run_on_every_replay(app: swf.App) -> None:
    """The key moves to another run between two executions; the signal still goes where it went."""

    @app.workflow("orders.tell.v1", retry=swf.Retry(max_attempts=3, initial=0.01))
    async def tell(ctx: swf.Context) -> str:
        other = app.handle(key=KEY)
        await other.signal("approved", "first")
        if ctx.attempt == 1:
            await app.delete(key=KEY)
            await app.trigger("orders.none.v1", "second", idempotency_key=KEY, id=second)
            raise ValueError("again")
        return str(other.id)

    second = uuid4()
    first = await app.trigger("orders.none.v1", "first", idempotency_key=KEY)
    async with app.worker(prefixes="orders.tell.*"):
        assert await app.run(tell, timeout=20) == str(first.id)
    assert [one.payload for one in await app.handle(first.id).signals()] == ["first"]
    assert await app.handle(second).signals() == []


async def test_a_replay_sends_a_signal_by_key_once(app: swf.App) -> None:
    @app.workflow("orders.tell.v1", retry=swf.Retry(max_attempts=3, initial=0.01))
    async def tell(ctx: swf.Context) -> None:
        await app.signal("approved", 1, key=KEY)
        await app.handle(key="order-4712").signal("approved", 2)
        if ctx.attempt == 1:
            raise ValueError("again")

    @app.workflow("orders.plain.v1", retry=swf.Retry(max_attempts=3, initial=0.01))
    def plain(ctx: swf.SyncContext) -> None:
        app.sync.signal("approved", 3, key=KEY)
        app.sync.handle(key="order-4712").signal("approved", 4)
        if ctx.attempt == 1:
            raise ValueError("again")

    for key in (KEY, "order-4712"):
        await app.trigger("orders.none.v1", key, idempotency_key=key)
    async with app.worker(prefixes=["orders.tell.*", "orders.plain.*"]):
        await app.run(tell, timeout=20)
        await app.run(plain, timeout=20)
    assert [one.payload for one in await app.handle(key=KEY).signals()] == [1, 3]
    assert [one.payload for one in await app.handle(key="order-4712").signals()] == [2, 4]


async def test_plain_sql_addresses_a_run_by_its_key(app: swf.App, raw: Raw) -> None:
    run = await app.trigger("orders.none.v1", idempotency_key=KEY)
    raw.sql(
        "INSERT INTO workflow.workflow_signal (run_id, name, payload) SELECT id, 'approved', '1' "
        "FROM workflow.workflow_run WHERE idempotency_key = ? AND deleted_at IS NULL",
        KEY,
    )
    assert [one.payload for one in await app.handle(run.id).signals()] == [1]
    raw.sql(
        "UPDATE workflow.workflow_run SET status = 'cancelled', last_error = 'no' "
        "WHERE idempotency_key = ? AND deleted_at IS NULL",
        KEY,
    )
    assert (await app.get(key=KEY)).status == swf.Status.CANCELLED
