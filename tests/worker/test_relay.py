"""The relay: from the outbox to a sink, in order per run, at least once; what it does when the sink refuses, raises,
hangs or answers nonsense, when its lanes are taken while it sleeps, and when others come and go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from support.ledger import Raw
from support.outbox import Heap, put, rows, statuses, take
from support.relay import Stage
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.errors import InvalidPolicy, InvalidURL
from simpleworkflow.model.outbox import LANES, Delivery
from simpleworkflow.sinks.protocol import CloudEvent, Refusal
from simpleworkflow.store import Ledger


@pytest.fixture
def stage(ledger: Ledger, raw: Raw, url: str) -> Stage:
    return Stage(url, raw)


async def test_events_arrive_in_order_as_cloud_events(stage: Stage) -> None:
    run_id, heap = new_id(), Heap()
    put(stage.raw, run_id, 3)
    async with stage.running(heap, source="/shop"):
        await stage.until(lambda: heap.of(run_id) == [1, 2, 3], "all three arrived")
        put(stage.raw, run_id, 1, start=4)
        await stage.until(lambda: heap.of(run_id) == [1, 2, 3, 4], "the fourth arrived")
    first = heap.got[0]
    assert (first.id, first.source, first.type, first.data) == (f"{run_id}/1", "/shop", "told", "1")
    assert first.time.tzinfo is not None
    assert statuses(stage.raw, run_id) == ["published"] * 4
    assert heap.is_closed


async def test_a_stop_gives_the_lanes_back_at_once(stage: Stage, ledger: Ledger) -> None:
    async with stage.running(Heap()) as relay:
        await stage.until(lambda: relay.serves == 16, "it serves every lane")
    assert len(await take(ledger, "heir")) == 16


async def test_a_stop_also_gives_back_what_a_look_that_was_cut_short_has_taken(stage: Stage, ledger: Ledger) -> None:
    relay, stopping = stage.relay(Heap()), asyncio.Event()
    assert len(await take(ledger, "relay-a")) == 16  # committed, but the answer never came
    stopping.set()
    await relay.serve(stopping)
    assert len(await take(ledger, "heir")) == 16


async def test_an_event_is_tried_again_and_then_arrives_before_its_followers(stage: Stage) -> None:
    bad, good, heap = new_id(), new_id(), Heap()
    heap.refusing[bad] = Refusal("busy")
    put(stage.raw, bad, 2)
    async with stage.running(heap, retry=swf.Retry(max_attempts=100, initial="10ms", max_delay="10ms")):
        await stage.until(lambda: rows(stage.raw, bad)[0]["attempt"] >= 2, "it was refused twice")
        put(stage.raw, good, 2)
        await stage.until(lambda: heap.of(good) == [1, 2], "others go on")
        assert heap.of(bad) == []
        del heap.refusing[bad]
        await stage.until(lambda: heap.of(bad) == [1, 2], "it arrives, and then what stood behind it")
    assert rows(stage.raw, bad)[0]["last_error"] is None


async def test_an_event_refused_too_often_is_dead_and_holds_back_only_its_run(stage: Stage) -> None:
    bad, good, heap = new_id(), new_id(), Heap()
    heap.refusing[bad] = Refusal("busy")
    put(stage.raw, bad, 2)
    put(stage.raw, good, 1)
    async with stage.running(heap) as relay:
        await stage.until(lambda: statuses(stage.raw, bad) == ["dead", "behind"], "it was given up")
        await stage.until(lambda: heap.of(good) == [1], "the other arrived")
    assert relay.counts[Delivery.DEAD] == 1
    assert (rows(stage.raw, bad)[0]["attempt"], rows(stage.raw, bad)[0]["last_error"]) == (3, "busy")


async def test_a_permanent_refusal_needs_no_second_try(stage: Stage) -> None:
    run_id, heap = new_id(), Heap()
    heap.refusing[run_id] = Refusal("gone, postgresql://u:hunter2@h/d", is_permanent=True)
    put(stage.raw, run_id, 1)
    async with stage.running(heap):
        await stage.until(lambda: statuses(stage.raw, run_id) == ["dead"], "it was given up")
    assert heap.calls == 1
    assert "hunter2" not in rows(stage.raw, run_id)[0]["last_error"]


async def test_the_pause_that_the_other_side_asks_for_is_kept(stage: Stage) -> None:
    run_id, heap = new_id(), Heap()
    heap.refusing[run_id] = Refusal("busy", retry_after=3600.0)
    put(stage.raw, run_id, 1)
    async with stage.running(heap):
        await stage.until(lambda: statuses(stage.raw, run_id) == ["retrying"], "it was refused")
    text = f"SELECT count(*) AS n FROM workflow.outbox_event WHERE due_at > {stage.raw.now} {stage.raw.back(-3500)}"
    assert stage.raw.sql(text)[0]["n"] == 1


async def test_a_relay_that_was_frozen_past_its_lease_marks_nothing_and_its_heir_redelivers(stage: Stage) -> None:
    run_id = new_id()
    put(stage.raw, run_id, 2)
    asleep, awake = asyncio.Event(), asyncio.Event()

    class Frozen(Heap):
        async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
            answers = await super().publish(events)
            asleep.set()
            await awake.wait()
            return answers

    heap, heir = Frozen(), Heap()
    relay = stage.relay(heap)
    await relay._lanes.tend()
    late = asyncio.ensure_future(relay._round())
    await asleep.wait()
    stage.raw.sql(f"UPDATE workflow.outbox_lane SET lease_until = {stage.raw.now} {stage.raw.back(1)}")
    stage.raw.sql("DELETE FROM workflow.outbox_dispatcher")
    async with stage.running(heir):
        await stage.until(lambda: heir.of(run_id) == [1, 2], "the heir delivered them again")
        await stage.until(lambda: statuses(stage.raw, run_id) == ["published"] * 2, "and marked them")
    before = rows(stage.raw, run_id)
    awake.set()
    await late
    assert rows(stage.raw, run_id) == before
    assert heap.of(run_id) == [1, 2]
    assert relay.counts == {}
    await relay._ledger.close()


async def test_a_relay_whose_lease_may_have_run_out_offers_nothing(stage: Stage) -> None:
    run_id, heap = new_id(), Heap()
    put(stage.raw, run_id, 1)
    relay = stage.relay(heap)
    await relay._lanes.tend()
    relay._lanes._renewed -= 0.8 * 30.0
    assert await relay._round() is False
    assert heap.calls == 0
    await relay._lanes.tend()
    assert await relay._round() is True
    assert heap.of(run_id) == [1]
    await relay._ledger.close()


async def test_two_relays_share_the_lanes_and_one_alone_has_them_all_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simpleworkflow.worker.relay.LOOK_EVERY", 0.05)
    runs = [UUID(int=(1 << 64) + lane) for lane in range(16)]
    first, second = Heap(), Heap()
    async with stage.running(first) as one:
        async with stage.running(second) as two:
            await stage.until(lambda: one.serves == two.serves == 8, "each has half")
            for run_id in runs:
                put(stage.raw, run_id, 2)
            await stage.until(lambda: len(first.got) + len(second.got) == 32, "everything arrived once")
            assert len(first.got) == len(second.got) == 16
        await stage.until(lambda: one.serves == 16, "the other has left")
    for run_id in runs:
        assert [*first.of(run_id), *second.of(run_id)] == [1, 2]


async def test_a_relay_that_never_rests_still_gives_lanes_to_a_newcomer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every lane is in its hands at every moment; those that are to go are left out of the next batch."""
    monkeypatch.setattr("simpleworkflow.worker.relay.LOOK_EVERY", 0.05)
    runs = [UUID(int=(1 << 64) + lane) for lane in range(16)]

    class Busy(Heap):
        async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
            self.got += events
            await asyncio.sleep(0.02)
            return [Refusal("again") for _ in events]

    for run_id in runs:
        put(stage.raw, run_id, 1)
    at_once = swf.Retry(max_attempts=1000, initial=0, max_delay=0, jitter=0.0)
    monkeypatch.setattr("simpleworkflow.worker.relay.MANY_RUNS", 1000)
    async with stage.running(Busy(), retry=at_once) as one:
        await stage.until(lambda: one.serves == 16, "it serves every lane")
        async with stage.running(Busy(), retry=at_once) as two:
            await stage.until(lambda: one.serves == two.serves == 8, "each has half")


async def test_once_publishes_what_is_due_and_ends(stage: Stage) -> None:
    good, bad, heap = new_id(), new_id(), Heap()
    heap.refusing[bad] = Refusal("busy", retry_after=60.0)
    stage.raw.sql("BEGIN")
    put(stage.raw, good, 450)
    put(stage.raw, bad, 2)
    stage.raw.sql("COMMIT")
    relay = stage.relay(heap)
    assert await relay.run_once() == len(LANES)
    assert heap.of(good) == list(range(1, 451))
    assert relay.counts == {Delivery.PUBLISHED: 450, Delivery.RETRYING: 1}
    assert statuses(stage.raw, bad) == ["retrying", "behind"]
    assert stage.raw.sql("SELECT count(owner) AS n FROM workflow.outbox_lane")[0]["n"] == 0


async def test_the_relay_removes_what_was_published_long_ago_however_much(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simpleworkflow.worker.relay.PRUNE_BATCH", 2)
    monkeypatch.setattr("simpleworkflow.worker.relay.BREATH", 0.0)
    heap = Heap()
    stage.raw.sql("BEGIN")
    put(stage.raw, new_id(), 60)
    stage.raw.sql("COMMIT")
    await stage.relay(heap).run_once()
    stage.raw.sql(f"UPDATE workflow.outbox_event SET published_at = published_at {stage.raw.back(8 * 24 * 3600)}")
    endless, usual = stage.relay(heap, keep=None), stage.relay(heap)
    assert (await endless.prune(), await usual.prune()) == (0, 60)
    for relay in (endless, usual):
        await relay._ledger.close()


async def test_once_removes_what_is_old_too(stage: Stage) -> None:
    """Who dispatches by cron has no other relay."""
    put(stage.raw, new_id(), 3)
    await stage.relay(Heap()).run_once()
    stage.raw.sql(f"UPDATE workflow.outbox_event SET published_at = published_at {stage.raw.back(8 * 24 * 3600)}")
    await stage.relay(Heap()).run_once()
    assert stage.raw.sql("SELECT count(*) AS n FROM workflow.outbox_event")[0]["n"] == 0


async def test_a_worker_with_a_sink_takes_events_out_and_knows_its_apps_rules(url: str, raw: Raw) -> None:
    app = swf.App(url)

    @app.workflow("shop.order.v1")
    async def order(ctx: swf.Context, number: int) -> int:
        await ctx.emit("order.placed", {"number": number})
        return number

    app.outbox.emit_lifecycle("shop.*", "succeeded")
    heap = Heap()
    async with app.worker(sink=heap, sink_source="/shop"):
        handle = await app.trigger(order, 7)
        await eventually(lambda: heap.of(handle.id) == [1, 2], "both arrived")
    await app.close()
    placed, succeeded = heap.got
    assert (placed.type, json.loads(placed.data), placed.workflow_type) == (
        "order.placed",
        {"number": 7},
        "shop.order.v1",
    )
    assert (succeeded.type, succeeded.source) == ("simpleworkflow.run.succeeded", "/shop")
    assert json.loads(succeeded.data)["status"] == "succeeded"
    assert "7" not in json.loads(succeeded.data), "no results"
    assert heap.is_closed


@pytest.mark.parametrize(
    ("choices", "error"),
    [
        ({"sink": "carrier-pigeon:"}, InvalidURL),
        ({"sink": 42}, InvalidPolicy),
        ({"sink": Heap(), "keep_published": "-1s"}, swf.InvalidDuration),
        ({"sink": Heap(), "sink_source": "a\nb"}, InvalidPolicy),
        ({"sink": Heap(), "sink_source": "my shop"}, InvalidPolicy),
    ],
)
def test_a_sink_that_cannot_be_is_refused_where_it_is_written(
    tmp_path: Any, choices: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        swf.App(str(tmp_path / "never.db")).worker(**choices)
    assert list(tmp_path.iterdir()) == []
