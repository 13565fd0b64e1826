"""What an explanation must not say: waits that the code has given up, workers that are gone, causes that are none.

A row that says `waiting` is no proof that anybody waits, and a worker that was heard of half a minute ago is no proof
that it lives. Each test here is a sentence that once was not true.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.explanation import Explanation
from simpleworkflow.model.states import Reason, Status
from simpleworkflow.store.operations import workers

EVERYTHING = [("", "\U0010ffff")]


@pytest.fixture
def raw(app: swf.App, url: str) -> Iterator[Raw]:
    app.sync.doctor.check()
    connection = Raw(url)
    yield connection
    connection.close()


def values(told: Explanation, label: str) -> list[str]:
    return [detail.value for detail in told.details if detail.label == label]


async def announce(app: swf.App, name: str, *spans: tuple[str, str], **load: object) -> None:
    told = load or None
    await app._client.run(workers.announce(name, name, "here", 1, spans or EVERYTHING, told))


async def in_status(app: swf.App, run_id: UUID, status: Status) -> None:
    async def reached() -> bool:
        return (await app.get(run_id)).status is status

    await eventually(reached, f"the run is {status}", 30)


async def test_waits_that_were_given_up_are_not_told_and_the_real_one_is(app: swf.App, raw: Raw) -> None:
    @app.workflow("t.given_up.v1")
    async def given_up(ctx: swf.Context) -> None:
        for number in range(2):
            try:
                async with asyncio.timeout(1.2):
                    await ctx.wait_for_signal(f"gone{number}")
            except TimeoutError:
                pass
        await ctx.wait_for_signal("the_real_one")

    async with app.worker():
        handle = await app.trigger(given_up)
        await in_status(app, handle.id, Status.PAUSED)
        told = await handle.explanation()
        open_rows = [step["step_id"] for step in raw.steps(handle.id) if step["completed_at"] is None]
    assert sorted(open_rows) == ["gone0#0", "gone1#0", "the_real_one#0"], "what was given up stays on record"
    assert told.reason is Reason.WAITING_FOR_SIGNAL
    assert "waits for signal 'the_real_one' since 20" in told.sentence
    assert "gone" not in told.sentence
    assert len(values(told, "waits for")) == 1


async def test_a_caught_failure_of_a_sibling_leaves_no_wait_behind_in_the_sentence(app: swf.App) -> None:
    @app.workflow("t.sibling.v1")
    async def sibling(ctx: swf.Context) -> None:
        async def fails() -> None:
            await ctx.sleep("1.2s")
            raise ValueError("no")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.wait_for_signal("left"))
                group.create_task(fails())
        except* ValueError:
            pass
        await ctx.sleep("1h")

    async with app.worker():
        handle = await app.trigger(sibling)

        async def sleeping() -> Explanation | None:
            one = await handle.explanation()
            return one if one.reason is Reason.SLEEPING else None

        told = await eventually(sleeping, "it sleeps", 30)
    assert "left" not in told.sentence
    assert not any("left" in value for value in values(told, "waits for"))


async def test_a_run_that_backs_off_waits_for_nothing_but_its_time(app: swf.App, raw: Raw) -> None:
    @app.workflow("t.backs_off.v1", retry=swf.Retry(max_attempts=5, initial="1h", max_delay="1h"))
    async def backs_off(ctx: swf.Context) -> None:
        try:
            async with asyncio.timeout(1.2):
                await ctx.wait_for_signal("gone")
        except TimeoutError:
            raise OSError("the line is dead") from None

    async with app.worker():
        handle = await app.trigger(backs_off)
        for _ in range(3000):
            told = await handle.explanation()
            if told.reason is Reason.WAITING_FOR_RETRY:
                break
            await asyncio.sleep(0.01)
    assert [step["step_id"] for step in raw.steps(handle.id)] == ["gone#0"]
    assert "the line is dead" in told.sentence
    assert "gone" not in told.sentence
    assert values(told, "waits for") == []


async def test_a_run_that_waits_in_memory_says_what_for_and_not_what_it_gave_up(app: swf.App, raw: Raw) -> None:
    @app.workflow("t.resident.v1")
    async def resident(ctx: swf.Context) -> None:
        try:
            async with asyncio.timeout(1.2):
                await ctx.wait_for_signal("gone")
        except TimeoutError:
            pass
        async with asyncio.timeout(600):
            await ctx.wait_for_signal("word")

    async with app.worker(name="crew", drain=0):
        handle = await app.trigger(resident)
        await eventually(lambda: [s for s in raw.steps(handle.id) if s["step_id"] == "word#0"], "it is on record")
        told = await handle.explanation()
        assert told.reason is Reason.RUNNING
        assert " is held in memory by crew@" in told.sentence
        assert "and waits for signal 'word' since 20" in told.sentence
        assert "gone" not in told.sentence
    # Another worker takes it over: the wait was on record before, and it is waited for again.
    async with app.worker(name="heirs", drain=0):
        for _ in range(3000):
            told = await handle.explanation()
            if "held in memory by heirs@" in told.sentence and "signal 'word'" in told.sentence:
                break
            await asyncio.sleep(0.01)
        assert "and waits for signal 'word' since 20" in told.sentence


async def test_a_hold_tells_what_would_still_keep_the_run(app: swf.App) -> None:
    @app.workflow("t.held.v1")
    async def held(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("approved")

    async with app.worker(name="crew"):
        handle = await app.trigger(held)
        await in_status(app, handle.id, Status.PAUSED)
        await app.hold(handle.id)
        told = await app.explain(handle.id)
        assert "it goes on when resumed, and then still waits for signal 'approved' since 20" in told
        assert "no live worker" not in told
    assert "no live worker serves its type" in await app.explain(handle.id), "the worker has stopped"
    later = await app.trigger("t.held.v1", delay="1h")
    await announce(app, "crew")
    await app.hold(later.id)
    assert "it goes on when resumed, not before 20" in await app.explain(later.id)
    await app.definitions.disable("t.held.v1")
    assert ", but its type is disabled" in await app.explain(later.id)


def leased_by(raw: Raw, run_id: UUID, worker: str, *, ended: float) -> None:
    """As a worker leaves it that claims a run and is never heard of again."""
    raw.sql(
        "UPDATE workflow.workflow_run SET status = 'leased', version = version + 1, lease_epoch = 1,"
        f" leased_by = ?, lease_until = {raw.now} {raw.back(ended)} WHERE id = ?",
        worker,
        run_id,
    )


def silence(raw: Raw, seconds: float) -> None:
    raw.sql(f"UPDATE workflow.workflow_worker SET seen_at = {raw.now} {raw.back(seconds)}")


async def test_a_worker_that_has_not_been_heard_of_lately_is_told_with_when_it_was(app: swf.App, raw: Raw) -> None:
    waiting, running = await app.trigger("t.other.v1"), await app.trigger("t.gone.v1")
    await announce(app, "crew")
    leased_by(raw, running.id, "crew", ended=-600)
    silence(raw, 15)
    assert "served by crew" in await app.explain(waiting.id)
    assert "ago" not in await app.explain(waiting.id)
    assert "last seen" not in await app.explain(running.id)
    silence(raw, 25)
    assert "served by crew (last seen 25 s ago)" in await app.explain(waiting.id)
    assert "but that worker was last seen at 20" in await app.explain(running.id)


async def test_nobody_is_called_alive_whose_lease_has_ended(app: swf.App, raw: Raw) -> None:
    handle = await app.trigger("t.gone.v1")
    await announce(app, "crew")
    leased_by(raw, handle.id, "crew", ended=5)
    told = await handle.explanation()
    assert told.reason is Reason.LEASE_EXPIRED
    assert "which is alive" not in told.sentence
    assert "that worker, last seen at 20" in told.sentence
    assert "no other worker is alive" in told.sentence
    await announce(app, "others")
    assert "no other worker" not in await app.explain(handle.id)


async def test_a_worker_that_stops_serves_nothing_any_more(app: swf.App) -> None:
    here, go = threading.Event(), threading.Event()

    @app.workflow("t.drains.v1")
    async def drains(ctx: swf.Context) -> None:
        here.set()
        while not go.is_set():
            await asyncio.sleep(0.01)

    worker = app.worker(name="crew", drain=30)
    await worker.__aenter__()
    try:
        await app.trigger(drains)
        assert await asyncio.to_thread(here.wait, 20)
        leaving = asyncio.ensure_future(worker.__aexit__(None, None, None))
        late = await app.trigger(drains)
        for _ in range(1000):
            told = await app.handle(late.id).explanation()
            if told.reason is Reason.NO_WORKER:
                break
            await asyncio.sleep(0.01)
        assert told.reason is Reason.NO_WORKER, told.sentence
        assert "crew serves nothing" in told.sentence
        with pytest.raises(swf.NotRunnable):
            await app.trigger(drains, require="worker")
    finally:
        go.set()
    await leaving


async def test_runs_of_a_full_cap_do_not_go_first_and_a_full_worker_is_named(app: swf.App) -> None:
    waiting = await app.trigger("a.late.v1", priority=500)
    for _ in range(3):
        await app.trigger("b.capped.v1", priority=10)
    await announce(app, "crew", slots=8, taken=2)
    assert "3 more urgent due runs go first" in await app.explain(waiting.id)
    await announce(app, "crew", slots=8, taken=2, caps={"b.capped.v1": [1, 1]})
    told = await app.handle(waiting.id).explanation()
    assert told.reason is Reason.DUE
    assert "more urgent" not in told.sentence
    assert values(told, "more urgent") == []
    await announce(app, "crew", slots=8, taken=8, caps={"b.capped.v1": [1, 1]})
    assert "served by crew, where all 8 slots were taken at 20" in await app.explain(waiting.id)
    await announce(app, "crew", slots=8, taken=2, caps={"a.late.v1": [1, 1]})
    assert "where its type has a cap of 1, taken at 20" in await app.explain(waiting.id)
    await announce(app, "helper", slots=8, taken=2)
    assert "taken at" not in await app.explain(waiting.id), "the helper has room"


async def test_a_worker_tells_how_full_it_is(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simpleworkflow.worker.renew.ANNOUNCE_EVERY", 0.2)
    here = threading.Event()

    @app.workflow("t.capped.v1", concurrency=1)
    async def capped(ctx: swf.Context) -> None:
        here.set()
        await asyncio.sleep(600)

    async with app.worker(name="crew", drain=0, concurrency=2):
        await app.trigger(capped)
        second = await app.trigger(capped)
        assert await asyncio.to_thread(here.wait, 20)
        for _ in range(3000):  # told with the next beat
            told = await app.explain(second.id)
            if "cap of 1" in told:
                break
            await asyncio.sleep(0.01)
    assert "where its type has a cap of 1, taken at 20" in told


async def test_texts_of_strangers_in_events_and_loads_do_not_break_an_explanation(app: swf.App, raw: Raw) -> None:
    handle = await app.trigger("a.b.v1")
    other = await app.trigger("a.b.v1")
    raw.pause(handle.id)
    await announce(app, "crew")
    for odd in ('"odd"', "[1]", '{"waits_for": 7}', '{"waits_for": [7, null]}', '{"slots": "x", "caps": [1]}'):
        raw.rewrite_events("data = ?", "event_type = 'paused'", odd)
        raw.sql("UPDATE workflow.workflow_worker SET load = ?", odd)
        assert (await handle.explanation()).reason is Reason.WAITING_FOR_WAKE
        assert (await app.handle(other.id).explanation()).reason is Reason.DUE


async def test_a_suspect_stands_behind_suspects_alone_and_a_run_that_crashed_once_behind_its_like(
    app: swf.App, raw: Raw
) -> None:
    """Two queues: the one is not let in while the other has to live first."""
    await announce(app, "w")
    handles = await app.trigger_many("t.crashed.v1", [None] * 5)
    for age, (handle, crashes) in enumerate(zip(handles, [1, 1, 2, 1, 2], strict=True)):
        raw.put(handle.id, crashes=crashes)
        raw.age(handle.id, 100 - age, "run_at")
    once, twice = [(await handle.explanation()).sentence for handle in handles[3:]]
    assert "where such runs go first, behind 2 due runs like it" in once
    assert "where such suspects run one at a time, behind 1 due run like it" in twice
