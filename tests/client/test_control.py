"""Control tells the truth (P8): the reply of every call matches the state that the run ends in."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.ledger import check_path
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.client import reading


class Stage:
    """Workflows whose progress a test can see."""

    def __init__(self, app: swf.App) -> None:
        self.app = app
        self.started: Counter[UUID] = Counter()
        self.stopped: Counter[UUID] = Counter()
        self.attempts: list[int] = []
        self.go = False
        self.release = threading.Event()

        @app.workflow("stage.long.v1")
        async def long(ctx: swf.Context) -> str:
            self.started[ctx.run_id] += 1
            self.attempts.append(ctx.attempt)
            try:
                while not self.go:
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.stopped[ctx.run_id] += 1
                raise
            return "done"

        @app.workflow("stage.thread.v1")
        def thread(ctx: swf.SyncContext) -> str:
            self.started[ctx.run_id] += 1
            while not ctx.is_cancelled() and not self.release.wait(0.01):
                pass
            if ctx.is_cancelled():
                self.stopped[ctx.run_id] += 1
            return "too late"

        @app.workflow("stage.flaky.v1", retry=swf.Retry(max_attempts=1))
        async def flaky(ctx: swf.Context) -> str:
            if not self.go:
                raise ValueError("not yet")
            return "done"

        self.long, self.thread, self.flaky = long, thread, flaky

    async def running(self, workflow: swf.Workflow[None, str]) -> swf.RunHandle[str]:
        handle = await self.app.trigger(workflow)

        async def has_started() -> bool:
            return self.started[handle.id] > 0

        await eventually(has_started, "the run starts")
        return handle

    async def has_stopped(self, handle: swf.RunHandle[str]) -> None:
        async def seen() -> bool:
            return self.stopped[handle.id] > 0

        await eventually(seen, "its code is stopped by a hint, long before the lease is renewed", seconds=5)


# Cancel.


async def test_a_pending_run_is_cancelled_at_once_and_never_starts(app: swf.App) -> None:
    stage = Stage(app)
    handle = await app.trigger(stage.long)
    run = await handle.cancel("not wanted")
    assert (run.status, run.last_error) == ("cancelled", "not wanted")
    assert run.finished_at is not None
    async with app.worker():
        stage.go = True
        await app.run(stage.long, timeout=20)
    assert stage.started[handle.id] == 0
    assert [event.type for event in await handle.events()] == ["created", "cancelled"]


async def test_a_running_run_is_cancelled_and_its_code_stops(app: swf.App) -> None:
    stage = Stage(app)
    async with app.worker():
        handle = await stage.running(stage.long)
        assert (await handle.cancel()).status == "cancelled"
        await stage.has_stopped(handle)
        stage.go = True
        await app.run(stage.long, timeout=20)  # the slot and the worker are fine
    run = await handle.get()
    assert (run.status, run.leased_by, run.attempt) == ("cancelled", None, 0)


async def test_a_running_thread_learns_of_its_cancel_and_its_return_value_is_discarded(app: swf.App) -> None:
    stage = Stage(app)
    async with app.worker():
        handle = await stage.running(stage.thread)
        await handle.cancel("stop it")
        await stage.has_stopped(handle)
    run = await handle.get()
    assert (run.status, run.result, run.last_error) == ("cancelled", None, "stop it")


async def test_cancelling_a_finished_run_says_that_it_is_too_late(app: swf.App) -> None:
    stage = Stage(app)
    stage.go = True
    async with app.worker():
        handle = await app.trigger(stage.long)
        await handle.result(20)
    with pytest.raises(swf.AlreadyFinished, match=rf"run {handle.id} \(stage\.long\.v1\) has already succeeded"):
        await handle.cancel()
    assert (await handle.get()).status == "succeeded"
    with pytest.raises(swf.AlreadyFinished, match="has already succeeded; it cannot be held"):
        await handle.hold()
    with pytest.raises(swf.AlreadyFinished, match="nothing to resume"):
        await handle.resume()


async def test_cancelling_twice_is_fine_and_the_first_reason_stands(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1")
    await handle.cancel("first")
    assert (await handle.cancel("second")).last_error == "first"
    assert [event.type for event in await handle.events()] == ["created", "cancelled"]


async def test_control_of_an_unknown_run_says_so(app: swf.App) -> None:
    missing = uuid4()
    for call in (app.cancel, app.hold, app.resume, app.retry, app.delete):
        with pytest.raises(swf.RunNotFound, match=f"there is no run {missing}"):
            await call(missing)
        with pytest.raises(swf.RunNotFound, match="is not a run id"):
            await call("seven")


async def test_the_undo_workflow_starts_with_the_cancelled_runs_payload(app: swf.App) -> None:
    undone: list[Any] = []

    @app.workflow("a.undo.v1")
    async def undo(ctx: swf.Context, story: dict[str, Any]) -> None:
        undone.append(story)

    @app.workflow("a.do.v1", on_cancel="a.undo.v1")
    async def do(ctx: swf.Context, order: str) -> None:
        await asyncio.sleep(60)

    async with app.worker():
        handle = await app.trigger(do, "order-7")
        await handle.cancel()

        async def is_undone() -> bool:
            return bool(undone)

        await eventually(is_undone, "the undo run is executed")
    assert undone == [{"run_id": str(handle.id), "type": "a.do.v1", "payload": "order-7"}]


# Hold and resume.


async def test_a_held_run_is_not_claimed_until_resumed(app: swf.App) -> None:
    stage = Stage(app)
    stage.go = True
    handle = await app.trigger(stage.long)
    held = await handle.hold("look first")
    assert (held.status, held.is_held, held.hold_reason) == ("pending", True, "look first")
    async with app.worker():
        await app.run(stage.long, timeout=20)
        assert (await handle.get()).status == "pending"
        resumed = await handle.resume()
        assert (resumed.is_held, resumed.hold_reason) == (False, None)
        assert await handle.result(20) == "done"


async def test_a_running_run_that_is_held_is_handed_back_unburned(app: swf.App) -> None:
    stage = Stage(app)
    async with app.worker():
        handle = await stage.running(stage.long)
        assert (await handle.hold()).is_held
        await stage.has_stopped(handle)

        async def is_back() -> bool:
            return (await handle.get()).status == "pending"

        await eventually(is_back, "it is handed back")
        run = await handle.get()
        assert (run.attempt, run.crashes, run.is_held) == (0, 0, True)
        stage.go = True
        await handle.resume()
        assert await handle.result(20) == "done"
    assert stage.attempts == [0, 0]
    events = [event.type for event in await handle.events()]
    assert events.index("held") < events.index("resumed")
    assert check_path(events) == "succeeded"


async def test_resuming_a_run_that_is_not_held_changes_nothing(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1")
    before = await handle.get()
    assert await handle.resume() == before
    assert [event.type for event in await handle.events()] == ["created"]


# Delete and retry.


async def test_a_deleted_run_is_cancelled_hidden_and_still_on_record(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1", idempotency_key="k")
    run = await handle.delete("by mistake")
    assert (run.status, run.delete_reason) == ("cancelled", "by mistake")
    assert run.deleted_at is not None
    assert [r.id async for r in app.runs()] == []
    assert [r.id async for r in app.runs(with_deleted=True)] == [handle.id]
    assert (await handle.get()).deleted_at == run.deleted_at
    assert [event.type for event in await handle.events()] == ["created", "cancelled", "deleted"]
    assert (await handle.delete()).delete_reason == "by mistake", "twice is fine"
    with pytest.raises(swf.AlreadyFinished, match="was deleted; it cannot be retried"):
        await handle.retry()


async def test_a_running_run_that_is_deleted_is_stopped(app: swf.App) -> None:
    stage = Stage(app)
    async with app.worker():
        handle = await stage.running(stage.long)
        assert (await handle.delete()).status == "cancelled"
        await stage.has_stopped(handle)


async def test_a_failed_run_can_be_retried_from_the_start(app: swf.App) -> None:
    stage = Stage(app)
    async with app.worker():
        handle = await app.trigger(stage.flaky)
        with pytest.raises(swf.RunFailed):
            await handle.result(20)
        stage.go = True
        again = await handle.retry()
        assert (again.status, again.attempt, again.finished_at) == ("pending", 0, None)
        assert await handle.result(20) == "done"
    run = await handle.get()
    assert run.lease_epoch == 2
    assert check_path([event.type for event in await handle.events()]) == "succeeded"


async def test_retrying_an_open_run_leaves_it_as_it_is(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1", run_at=datetime.now(UTC) + timedelta(days=1))
    before = await handle.get()
    assert await handle.retry() == before


# Looking.


async def listed(app: swf.App, **filters: Any) -> list[Any]:
    return [run.payload async for run in app.runs(**filters)]


async def test_runs_are_listed_newest_first_and_filters_combine(app: swf.App) -> None:
    first = await app.trigger("shop.order.v1", 1)
    await app.trigger("shop.order.v2", 2, idempotency_key="k")
    await app.trigger("shop2.order.v1", 3)
    await first.cancel()
    assert await listed(app) == [3, 2, 1]
    assert await listed(app, type="shop.order.v1") == [1]
    assert await listed(app, prefix="shop.") == [2, 1]
    assert await listed(app, prefix="shop.*", status="pending") == [2]
    assert await listed(app, status=swf.Status.CANCELLED) == [1]
    assert await listed(app, status=["pending", swf.Status.CANCELLED]) == [3, 2, 1]
    assert await listed(app, idempotency_key="k") == [2]
    assert await listed(app, limit=2) == [3, 2]
    assert await listed(app, limit=0) == []
    second = (await app.get((await first.get()).id)).created_at
    assert await listed(app, until=second) == []
    assert await listed(app, since=second) == [3, 2, 1]
    assert await listed(app, since=datetime.now(UTC) + timedelta(hours=1)) == []


async def test_paging_shows_every_run_once(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE", 7)
    handles = await app.trigger_many("a.b.v1", range(50))
    found = [run.id async for run in app.runs()]
    assert len(found) == 50
    assert set(found) == {handle.id for handle in handles}
    assert found == sorted(found, reverse=True)
    assert [run.id for run in await asyncio.to_thread(lambda: list(app.sync.runs(limit=20)))] == found[:20]


@pytest.mark.parametrize(
    ("filters", "sentence"),
    [
        ({"status": "done"}, "'done' is not a valid Status; a status is one of pending, leased"),
        ({"since": datetime(2030, 1, 1)}, "since=.* has no time zone"),
        ({"until": "yesterday"}, "until must be a datetime with a time zone, not 'yesterday'"),
        ({"limit": -1}, "limit=-1 is negative"),
    ],
)
async def test_a_filter_that_selects_nothing_sensible_is_refused(
    app: swf.App, filters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(swf.InvalidFilter, match=sentence):
        await listed(app, **filters)


async def test_a_runs_events_are_a_path_through_the_states(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(app)
    stage.go = True
    began = datetime.now(UTC) - timedelta(seconds=5)
    async with app.worker():
        handle = await app.trigger(stage.long)
        await handle.result(20)
    events = await handle.events()
    assert [event.type for event in events] == ["created", "leased", "started", "succeeded"]
    assert [event.epoch for event in events] == [None, 1, 1, 1]
    assert all(event.run_id == handle.id for event in events)
    monkeypatch.setattr(reading, "PAGE", 1)
    assert await handle.events() == events
    everyone = (await app.activity.events(began)).lines
    assert [event.id for event in everyone if event.run_id == handle.id] == [event.id for event in events]
    assert (await app.activity.events(began, after=everyone[-1].id)).lines == []
    with pytest.raises(swf.InvalidFilter, match="no time zone"):
        await app.activity.events(datetime(2030, 1, 1))


async def test_counts_say_how_many_runs_there_are_of_each_type_and_status(app: swf.App) -> None:
    await app.trigger_many("a.b.v1", range(3))
    await (await app.trigger("a.b.v1", 9)).cancel()
    await app.trigger("a.c.v1", 1)
    await (await app.trigger("a.c.v1", 2)).delete()
    assert {(c.type, str(c.status)): c.runs for c in await app.activity.counts()} == {
        ("a.b.v1", "pending"): 3,
        ("a.b.v1", "cancelled"): 1,
        ("a.c.v1", "pending"): 1,
    }


async def test_live_workers_are_listed_and_leave_when_they_stop(app: swf.App) -> None:
    Stage(app)

    async def names() -> list[str]:
        return [worker.name for worker in await app.workers.alive()]

    async with app.worker(name="crew-1"):
        assert await eventually(names, "the worker is announced") == ["crew-1"]
        (worker,) = await app.workers.alive()
        assert worker.serves("stage.long.v1")
        assert not worker.serves("stage.other.v1")
    assert await names() == []
