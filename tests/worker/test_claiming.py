"""Which runs a worker takes, how many at a time, and what it leaves to others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.names import Span, span_of_type
from simpleworkflow.store.operations import leases
from simpleworkflow.worker.process import host_token, is_dead, own_identity, start_time


class Gauge:
    """How many executions there are now, and how many there were at most."""

    def __init__(self) -> None:
        self.now, self.most = Counter[str](), Counter[str]()
        self.gate = threading.Event()
        self._guard = threading.Lock()

    def enter(self, name: str) -> None:
        with self._guard:
            self.now[name] += 1
            self.now["all"] += 1
            for key in (name, "all"):
                self.most[key] = max(self.most[key], self.now[key])

    def leave(self, name: str) -> None:
        with self._guard:
            self.now[name] -= 1
            self.now["all"] -= 1

    async def visit(self, name: str) -> None:
        self.enter(name)
        try:
            while not self.gate.is_set():
                await asyncio.sleep(0.005)
        finally:
            self.leave(name)


async def settled(handles: list[swf.RunHandle[Any]]) -> None:
    await asyncio.gather(*(handle.result("20s") for handle in handles))


async def test_no_more_runs_are_taken_than_there_are_slots(app: swf.App) -> None:
    gauge = Gauge()

    @app.workflow("t.slot.v1")
    async def slot(ctx: swf.Context, number: int) -> None:
        await gauge.visit("slot")

    handles = await app.trigger_many(slot, range(12))
    async with app.worker(concurrency=5):
        await eventually(lambda: gauge.now["slot"] == 5, "five run")
        assert Counter(run.status for run in [await h.get() for h in handles]) == {"leased": 5, "pending": 7}
        gauge.gate.set()
        await settled(handles)
    assert gauge.most["slot"] == 5


async def test_a_type_can_be_capped_in_one_process(app: swf.App) -> None:
    gauge = Gauge()

    @app.workflow("t.capped.v1", concurrency=2)
    async def capped(ctx: swf.Context, number: int) -> None:
        await gauge.visit("capped")

    @app.workflow("t.free.v1")
    async def free(ctx: swf.Context, number: int) -> None:
        await gauge.visit("free")

    handles = [
        *await app.trigger_many(capped, range(6), priority=1),
        *await app.trigger_many(capped, range(2), priority=2),
        *await app.trigger_many(free, range(6)),
    ]
    async with app.worker(concurrency=20):
        await eventually(lambda: gauge.now["capped"] == 2 and gauge.now["free"] == 6)
        gauge.gate.set()
        await settled(handles)
    assert gauge.most["capped"] == 2


async def test_urgent_runs_go_first_and_equals_go_in_order(app: swf.App) -> None:
    order: list[tuple[int, int]] = []

    @app.workflow("t.order.v1")
    async def ordered(ctx: swf.Context, item: list[int]) -> None:
        order.append((item[0], item[1]))

    handles: list[swf.RunHandle[None]] = []
    for priority in (500, 100, 1):
        handles += await app.trigger_many(ordered, [[priority, number] for number in range(9)], priority=priority)
    async with app.worker(concurrency=1):
        await settled(handles)
    assert order == sorted(order)


async def test_types_of_equal_priority_take_turns(app: swf.App) -> None:
    order: list[str] = []

    @app.workflow("t.many.v1")
    async def many(ctx: swf.Context, number: int) -> None:
        order.append("many")

    @app.workflow("t.few.v1")
    async def few(ctx: swf.Context, number: int) -> None:
        order.append("few")

    handles = [*await app.trigger_many(many, range(40)), *await app.trigger_many(few, range(4))]
    async with app.worker(concurrency=1):
        await settled(handles)
    assert order.index("few") < 4, "a long queue of one type does not hide the other"
    assert "few" in order[:20][2:]


async def test_a_worker_leaves_types_it_has_no_handler_for(app: swf.App) -> None:
    @app.workflow("t.known.v1")
    async def known(ctx: swf.Context) -> str:
        return "known"

    stranger = await app.trigger("t.stranger.v1")
    async with app.worker():
        assert await app.run(known, timeout="10s") == "known"
    assert (await stranger.get()).lease_epoch == 0


async def test_a_workflow_that_is_added_while_a_worker_runs_is_served(app: swf.App) -> None:
    @app.workflow("t.early.v1")
    async def early(ctx: swf.Context) -> str:
        return "early"

    async with app.worker():
        assert await app.run(early, timeout="20s") == "early"

        @app.workflow("t.later.v1")
        async def later(ctx: swf.Context) -> str:
            return "later"

        assert await app.run(later, timeout="20s") == "later"


async def test_a_worker_told_to_fails_types_it_has_no_handler_for(app: swf.App) -> None:
    stranger = await app.trigger("t.stranger.v1")
    async with app.worker(on_unknown="fail"):
        with pytest.raises(swf.RunFailed, match="no_handler_registered"):
            await stranger.result("10s")
    assert (await stranger.get()).last_error == "no_handler_registered"


@pytest.mark.parametrize("spelling", ["billing.", "billing.%", "billing.*"])
async def test_prefixes_route_types_to_workers(app: swf.App, spelling: str) -> None:
    for name in ("billing.invoice.v1", "billingx.invoice.v1", "media.thumb.v1"):

        @app.workflow(name)
        async def handler(ctx: swf.Context) -> str:
            return ctx.type

    others = [await app.trigger("billingx.invoice.v1"), await app.trigger("media.thumb.v1")]
    async with app.worker(prefixes=[spelling]):
        assert await app.run("billing.invoice.v1", timeout="10s") == "billing.invoice.v1"
    assert [(await other.get()).lease_epoch for other in others] == [0, 0]


async def test_prefixes_come_from_the_environment_too(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.workflow("media.thumb.v1")
    async def thumb(ctx: swf.Context) -> None: ...

    @app.workflow("email.send.v1")
    async def send(ctx: swf.Context) -> str:
        return "sent"

    monkeypatch.setenv("WORKER_TYPE_PREFIXES", "email., other.*")
    left = await app.trigger(thumb)
    async with app.worker():
        assert await app.run(send, timeout="10s") == "sent"
    assert (await left.get()).lease_epoch == 0


async def test_a_held_run_is_handed_back_unburned_and_goes_on_when_resumed(app: swf.App) -> None:
    gauge = Gauge()

    @app.workflow("t.held.v1", lease="60s")
    async def held(ctx: swf.Context) -> int:
        await gauge.visit("held")
        return ctx.epoch

    async with app.worker():
        handle = await app.trigger(held)
        await eventually(lambda: gauge.now["held"] == 1)
        assert (await handle.hold("wait for the bank")).is_held
        await eventually(lambda: gauge.now["held"] == 0, "its code was stopped")
        async with asyncio.timeout(10):
            while (run := await handle.get()).status != "pending":
                await asyncio.sleep(0.01)
        assert (run.attempt, run.crashes, run.hold_reason) == (0, 0, "wait for the bank")
        gauge.gate.set()
        assert (await handle.resume()).held_at is None
        assert await handle.result("10s") == 2
    trail = [str(event.type) for event in await handle.events()]
    assert trail == ["created", "leased", "held", "started", "released", "resumed", "leased", "started", "succeeded"]


async def crashed(app: swf.App, handles: list[swf.RunHandle[Any]], *, twice: bool = False) -> None:
    """Lease the runs as a process that is gone: the first look around finds that. Twice makes suspects of them."""
    gone = f"gone@{host_token()}.4194300.1.ab"
    offer = leases.Offer((await handles[0].get()).type, 100, 3, 60_000_000, None)
    one_by_one = not app._client.engine.ledger.can.walks_lanes
    taken = await app._client.engine.run(leases.claim([offer], len(handles), gone, lane_by_lane=one_by_one))
    assert {lease.id for lease in taken} == {handle.id for handle in handles}
    if twice:
        await app._client.engine.run(leases.crash([gone], limit=10, chance=0))
        again = leases.claim([offer], len(handles), gone, crashes=leases.ONCE, lane_by_lane=one_by_one)
        assert len(await app._client.engine.run(again)) == len(handles)


async def test_runs_whose_process_ended_once_go_on_together(app: swf.App) -> None:
    """Most of them were there by chance: nobody waits for another one to prove itself."""
    gauge = Gauge()

    @app.workflow("t.once.v1")
    async def once(ctx: swf.Context, number: int) -> None:
        await gauge.visit("once")

    handles = await app.trigger_many(once, range(8))
    await crashed(app, handles)
    async with app.worker():
        await eventually(lambda: gauge.now["once"] == 8, "all of them run")
        gauge.gate.set()
        await settled(handles)


async def test_suspects_run_one_at_a_time(app: swf.App) -> None:
    gauge = Gauge()

    @app.workflow("t.suspect.v1")
    async def suspect(ctx: swf.Context, number: int) -> None:
        await gauge.visit("suspect")

    handles = await app.trigger_many(suspect, range(4))
    await crashed(app, handles, twice=True)
    async with app.worker():
        await eventually(lambda: gauge.now["suspect"] == 1, "one suspect runs")
        fresh = await app.trigger_many(suspect, range(3))
        await eventually(lambda: gauge.now["suspect"] == 4, "the innocent run beside it")
        assert sum([(await h.get()).status == "leased" for h in handles]) == 1
        gauge.gate.set()
        await settled([*handles, *fresh])
    assert {(await handle.get()).crashes for handle in handles} == {2}


async def test_a_suspect_does_not_starve_behind_a_backlog(app: swf.App) -> None:
    order: list[int] = []

    @app.workflow("t.busy.v1")
    async def busy(ctx: swf.Context, number: int) -> None:
        order.append(number)

    (suspect,) = await app.trigger_many(busy, [-1], priority=999)
    offer = leases.Offer("t.busy.v1", 999, 3, 60_000_000, None)
    gone = f"gone@{host_token()}.4194300.1.ab"
    one_by_one = not app._client.engine.ledger.can.walks_lanes
    assert await app._client.engine.run(leases.claim([offer], 1, gone, lane_by_lane=one_by_one))
    assert await app._client.engine.run(leases.crash([gone], limit=10, chance=0))
    await app.trigger_many(busy, range(500))
    async with app.worker(concurrency=2):
        await suspect.result("20s")
    assert order.index(-1) < 100, "it ran long before the backlog was done"


async def test_a_suspect_that_lives_long_enough_is_trusted(url: str) -> None:
    app = swf.App(url, settings=swf.Settings(lease=2, poll_every=0.05, local_check_every=0.1, suspect_seconds=0.2))
    gauge = Gauge()

    @app.workflow("t.suspect.v1")
    async def suspect(ctx: swf.Context, number: int) -> None:
        await gauge.visit("suspect")

    handles = await app.trigger_many(suspect, range(3))
    await crashed(app, handles, twice=True)
    async with app.worker():
        await eventually(lambda: gauge.now["suspect"] == 3, "each got its turn while the others still run")
        gauge.gate.set()
        await settled(handles)
    await app.close()


async def test_a_claim_whose_answer_was_lost_is_handed_back_unburned(app: swf.App) -> None:
    """As if the connection had died after the commit: the database says leased to this worker, which knows nothing."""

    @app.workflow("t.lost.v1", lease="60s")
    async def lost(ctx: swf.Context) -> int:
        return ctx.epoch

    handle = await app.trigger(lost)
    embedded = app.worker(lease="300ms", prefixes=["t.other.*"])
    async with embedded:
        assert embedded._worker is not None
        offer = leases.Offer("t.lost.v1", 100, 3, 60_000_000, None)
        one_by_one = not app._client.engine.ledger.can.walks_lanes
        claim = leases.claim([offer], 1, embedded._worker.identity.id, lane_by_lane=one_by_one)
        assert len(await app._client.engine.run(claim)) == 1
        async with asyncio.timeout(10):
            while (run := await handle.get()).status != "pending":
                await asyncio.sleep(0.01)
    assert (run.attempt, run.crashes, run.lease_epoch) == (0, 0, 1)
    assert [str(event.type) for event in await handle.events()] == ["created", "leased", "released"]


def test_a_process_on_this_host_can_be_judged_dead() -> None:
    me = own_identity("me@home")
    assert not is_dead(me.id)
    assert is_dead(f"x@{host_token()}.4194300.1"), "no such pid"
    assert is_dead(f"x@{host_token()}.{me.pid}.1"), "the pid lives, but as another process"
    assert not is_dead("x@ffffffffff.4194300.1"), "another host is never judged"
    assert not is_dead("go-worker"), "a foreign holder is never judged"
    assert start_time(me.pid) is not None


def test_two_workers_of_one_process_are_different_holders() -> None:
    assert own_identity("a").id != own_identity("a").id


def test_spans_of_a_worker_are_the_types_it_serves() -> None:
    app = swf.App(":memory:")

    @app.workflow("t.one.v1")
    async def one(ctx: swf.Context) -> None: ...

    async def look() -> tuple[Sequence[Span], Sequence[Span]]:
        leaving, failing = app._make_worker(), app._make_worker(on_unknown="fail", prefixes=["t."])
        return leaving._claimer.spans(), failing._claimer.spans()

    leaving, failing = asyncio.run(look())
    assert leaving == (span_of_type("t.one.v1"),)
    assert failing == (Span("t.", "t/"),)
    app.sync.close()
