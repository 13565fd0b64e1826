"""Explanations as an operator asks for them: by real workers, real waits, and the states that only operators make.

The property test in tests/machine shows that every reachable state is explained truly; here are the words, the tree of
children, the bounds, and what strangers may have written into the tables.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.explanation import Explanation
from simpleworkflow.model.states import Reason
from simpleworkflow.store.operations import workers


@pytest.fixture
def raw(app: swf.App, url: str) -> Iterator[Raw]:
    app.sync.doctor.check()
    connection = Raw(url)
    yield connection
    connection.close()


async def explained_by(told: Callable[[], Awaitable[Explanation]], reason: Reason) -> Explanation:
    async def reached() -> Explanation | None:
        one = await told()
        return one if one.reason is reason else None

    found: Explanation = await eventually(reached, f"the reason is {reason}", 20)
    return found


def values(told: Explanation, label: str) -> list[str]:
    return [detail.value for detail in told.details if detail.label == label]


async def announce(app: swf.App, name: str, *spans: tuple[str, str]) -> None:
    await app._client.run(workers.announce(name, name, "here", 1, spans or [("", "\U0010ffff")]))


async def test_a_run_that_waits_for_a_child_is_explained_down_to_the_signal(app: swf.App) -> None:
    @app.workflow("t.leaf.v1")
    async def leaf(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("approved")

    @app.workflow("t.middle.v1")
    async def middle(ctx: swf.Context) -> None:
        await ctx.run(leaf)

    @app.workflow("t.top.v1")
    async def top(ctx: swf.Context) -> None:
        await ctx.run(middle)

    async with app.worker(name="crew"):
        handle = await app.trigger(top)

        async def at_the_leaf() -> Explanation:
            found = await handle.explanation()
            return list(found.walk())[-1]

        await explained_by(at_the_leaf, Reason.WAITING_FOR_SIGNAL)
        told = await handle.explanation()
    assert [one.reason for one in told.walk()] == [
        Reason.WAITING_FOR_CHILD,
        Reason.WAITING_FOR_CHILD,
        Reason.WAITING_FOR_SIGNAL,
    ]
    assert [one.type for one in told.walk()] == ["t.top.v1", "t.middle.v1", "t.leaf.v1"]
    below, last = told.children[0], told.children[0].children[0]
    assert f"waits for child run {below.run_id} (t.middle.v1), which is paused and waits for child run" in told.sentence
    assert last.sentence.startswith(f"run {last.run_id} (t.leaf.v1) is paused and waits for signal 'approved' since 20")
    assert values(last, "parent") == [str(below.run_id)]
    assert await app.explain(handle.id) == told.sentence, "one sentence, however it is asked for"


async def test_a_running_run_tells_its_worker_its_attempt_and_its_last_step(app: swf.App) -> None:
    here = threading.Event()

    @app.workflow("t.steps.v1")
    async def steps(ctx: swf.Context) -> None:
        async def charge() -> int:
            return 1

        await ctx.step("charge", charge)
        await ctx.heartbeat("10m")
        here.set()
        await asyncio.sleep(600)

    async with app.worker(name="crew", drain=0):
        handle = await app.trigger(steps)
        assert await asyncio.to_thread(here.wait, 20)
        told = await explained_by(lambda: handle.explanation(), Reason.RUNNING)
        assert " is running on crew@" in told.sentence
        assert ", attempt 1 of 3, after step charge; its lease lasts until " in told.sentence
        assert len(values(told, "heartbeat")) == 1
        assert "last seen at" in values(told, "worker process")[0]
        assert values(told, "last record")[0].startswith("step charge succeeded at")


async def test_a_run_that_waits_for_two_things_names_both_and_a_signal_gives_the_reason(app: swf.App) -> None:
    @app.workflow("t.below.v1")
    async def below(ctx: swf.Context) -> None:
        await ctx.sleep("1h")

    @app.workflow("t.both.v1")
    async def both(ctx: swf.Context) -> None:
        await ctx.race(ctx.run(below), ctx.wait_for_signal("enough", timeout="2h"))

    async with app.worker():
        handle = await app.trigger(both)
        told = await explained_by(lambda: handle.explanation(), Reason.WAITING_FOR_SIGNAL)
        (child,) = told.children
        await explained_by(lambda: app.handle(child.run_id).explanation(), Reason.SLEEPING)
        told = await handle.explanation()
    assert told.reason is Reason.WAITING_FOR_SIGNAL
    assert f"child run {child.run_id} (t.below.v1), which is paused and waits for 20" in told.sentence
    assert "signal 'enough' since 20" in told.sentence
    assert " (until 20" in told.sentence, "its signal has a time limit"
    assert "looks again" not in told.sentence, "and no instant is told twice"


async def test_the_page_about_explanations_names_every_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []


async def test_a_step_that_will_be_tried_again_tells_its_error(app: swf.App) -> None:
    @swf.step(retry=swf.Retry(max_attempts=5, initial="1h", max_delay="1h"))
    async def pay() -> None:
        raise OSError("the bank is closed")

    @app.workflow("t.again.v1")
    async def again(ctx: swf.Context) -> None:
        await ctx.step("pay", pay)

    async with app.worker():
        handle = await app.trigger(again)
        told = await explained_by(lambda: handle.explanation(), Reason.WAITING_FOR_RETRY)
    assert "waits for the next attempt of step pay at " in told.sentence
    assert "the bank is closed" in told.sentence


async def test_no_worker_for_the_type_names_those_alive_and_what_they_serve(app: swf.App) -> None:
    handle = await app.trigger("billing.invoice.v1")
    await announce(app, "media-1", ("media.", "media/"), ("images.resize.v1", "images.resize.v1\x01"))
    told = await handle.explanation()
    assert told.reason is Reason.NO_WORKER
    assert "no live worker serves its type (alive: media-1 serves media.*, images.resize.v1)" in told.sentence
    assert told.sentence.endswith(f" in the database {app._client.address}"), "perhaps the worker uses another one"


async def test_strict_priority_is_told_within_a_type_and_across_types(app: swf.App) -> None:
    waiting = await app.trigger("a.late.v1", priority=500)
    await announce(app, "crew")
    assert (await app.handle(waiting.id).explanation()).reason is Reason.DUE
    for type in ("a.late.v1", "b.other.v1"):
        await app.trigger(type, priority=10)
    told = await app.handle(waiting.id).explanation()
    assert told.reason is Reason.OUTRANKED
    assert "2 more urgent due runs go first (its priority is 500)" in told.sentence
    assert values(told, "more urgent") == ["1 run of a.late.v1, priority 10, 1 run of b.other.v1, priority 10"]
    # Another worker that serves this type alone would take it, whatever the others have to do.
    await announce(app, "helper", ("a.late.v1", "a.late.v1\x01"))
    assert "1 more urgent due run goes first" in await app.explain(waiting.id)


async def test_a_queue_is_counted_and_counting_stops_somewhere(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    await announce(app, "crew")
    handles = [await app.trigger("a.b.v1") for _ in range(5)]
    assert "behind 4 due runs of its type" in await app.explain(handles[-1].id)
    assert "behind" not in await app.explain(handles[0].id)
    for module in ("simpleworkflow.store.operations.explain", "simpleworkflow.client.explaining.words"):
        monkeypatch.setattr(f"{module}.MOST_COUNTED", 3)
    assert "behind at least 3 due runs of its type" in await app.explain(handles[-1].id)


async def test_crashes_disabled_types_and_passed_deadlines_are_told(app: swf.App, raw: Raw) -> None:
    handle = await app.trigger("a.b.v1", start_within="1h")
    await announce(app, "crew")
    raw.put(handle.id, crashes=2, last_error="its worker stopped without finishing it: w")
    told = await handle.explanation()
    assert told.reason is Reason.SUSPECT
    assert "after 2 crashes, the last with: its worker stopped" in told.sentence
    await app.definitions.disable("a.b.v1")
    assert (await handle.explanation()).reason is Reason.DISABLED
    assert len(values(await handle.explanation(), "must start by")) == 1
    await app.hold(handle.id)
    raw.age(handle.id, 7200, "start_by")
    told = await handle.explanation()
    assert told.reason is Reason.OVERDUE, "held runs time out too"
    assert "should have been started by" in told.sentence


async def test_out_of_attempts_and_deleted_runs_say_so(app: swf.App) -> None:
    @app.workflow("t.fail.v1", retry=swf.Retry(max_attempts=1))
    async def fail(ctx: swf.Context) -> None:
        raise ValueError("no such order")

    async with app.worker():
        handle = await app.trigger(fail)
        await handle.wait(timeout=20)
    told = await handle.explanation()
    assert told.reason is Reason.OUT_OF_ATTEMPTS
    assert "out of attempts (1 failed attempt, 1 allowed): ValueError: no such order" in told.sentence
    await app.delete(handle.id, reason="tidying up")
    told = await handle.explanation()
    assert told.reason is Reason.OUT_OF_ATTEMPTS
    assert told.sentence.endswith("UTC (tidying up)")


async def test_a_child_whose_row_is_gone_is_told_and_nothing_goes_round_in_circles(app: swf.App, raw: Raw) -> None:
    first, second = await app.trigger("a.b.v1"), await app.trigger("a.b.v1")
    gone = new_id()
    for run_id, child in ((first.id, second.id), (second.id, first.id), (second.id, gone)):
        raw.pause(run_id)
        raw.sql(
            "INSERT INTO workflow.workflow_step (run_id, seq, lease_epoch, kind, status, step_id, started_at)"
            f" VALUES (?, 1, 0, 'result', 'waiting', ?, {raw.now})",
            run_id,
            f"@result {child}#0",
        )
    told = await app.handle(first.id).explanation()
    assert [one.run_id for one in told.walk()] == [first.id, second.id]
    assert f"child run {gone}, whose row is gone" in told.children[0].sentence


async def test_a_wide_fan_out_is_explained_in_part_and_counted(app: swf.App, raw: Raw) -> None:
    parent = await app.trigger("a.b.v1")
    raw.pause(parent.id)
    children = [await app.trigger("a.c.v1") for _ in range(30)]
    for child in children:
        raw.sql(
            "INSERT INTO workflow.workflow_step (run_id, seq, lease_epoch, kind, status, step_id, started_at)"
            f" VALUES (?, 1, 0, 'result', 'waiting', ?, {raw.now})",
            parent.id,
            f"@result {child.id}#0",
        )
    told = await app.handle(parent.id).explanation()
    assert len(told.children) == 20
    assert told.sentence.endswith("and 27 more")
    assert values(told, "waits for")[-1] == "10 more"


async def test_what_others_wrote_stays_one_printable_line(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1")
    await app.hold(handle.id, reason="first\nsecond \x1b[31mred" + "x" * 9000)
    told = await handle.explanation()
    assert "(first\\nsecond \\x1b[31mred" in told.sentence
    assert told.sentence.isprintable()
    assert len(told.sentence) < 3000


async def test_everything_comes_from_one_snapshot_by_the_databases_clock(
    app: swf.App, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is cancelled between two statements of the look: the explanation still tells of one moment."""
    from simpleworkflow.store.operations import explain as looks

    handle = await app.trigger("a.b.v1")
    raw.pause(handle.id)
    usual = looks._look_closer

    def interrupted(drawn, found):  # type: ignore[no-untyped-def]
        raw.sql(
            "INSERT INTO workflow.workflow_step (run_id, seq, lease_epoch, kind, status, step_id, started_at)"
            f" VALUES (?, 1, 0, 'signal', 'waiting', 'late#0', {raw.now})",
            handle.id,
        )
        raw.sql("UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = ?", handle.id)
        return (yield from usual(drawn, found))

    monkeypatch.setattr(looks, "_look_closer", interrupted)
    told = await handle.explanation()
    assert told.reason is Reason.WAITING_FOR_WAKE
    assert not values(told, "waits for")
    monkeypatch.undo()
    assert (await handle.explanation()).reason is Reason.CANCELLED


async def test_the_instant_is_the_databases_own(app: swf.App, raw: Raw) -> None:
    handle = await app.trigger("a.b.v1")
    run = await app.get(handle.id)
    told = await handle.explanation()
    assert timedelta(0) <= told.at - run.created_at < timedelta(seconds=60)


async def test_a_run_that_does_not_exist_has_no_explanation(app: swf.App) -> None:
    for missing in (uuid4(), UUID(int=0)):
        with pytest.raises(swf.RunNotFound, match=f"there is no run {missing}"):
            await app.handle(missing).explanation()


async def test_runs_are_found_by_the_beginning_of_their_id(app: swf.App) -> None:
    handle = await app.trigger("a.b.v1", id="abcdef01-0000-7000-8000-000000000001")
    other = await app.trigger("a.c.v1", id="abcdef01-0000-7000-8000-000000000002")
    await app.trigger("a.b.v1", id="abcdef02-0000-7000-8000-000000000000")
    assert [found.id for found in await app.activity.find("abcdef01")] == [handle.id, other.id]
    assert [found.id for found in await app.activity.find("ABCDEF01-0000-7000-8000-000000000002")] == [other.id]
    assert await app.activity.find("0123") == []
    assert len(await app.activity.find("abcdef", limit=2)) == 2
    for wrong in ("", "xyz", "a" * 33):
        with pytest.raises(swf.SimpleWorkflowError, match="is not the beginning of an id"):
            await app.activity.find(wrong)
