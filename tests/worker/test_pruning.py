"""The pruning role of a worker: by its App's policy, in turns, counted, and in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
from support.ledger import Raw
from support.old_runs import DAY, ended, left, orphans, still_open
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.retention import Retention, fingerprint, rules_of
from simpleworkflow.runtime import pruning
from simpleworkflow.runtime.meter import Meter
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import prune
from simpleworkflow.worker import metrics
from simpleworkflow.worker import prune as role
from simpleworkflow.worker.metrics_database import Reading
from simpleworkflow.worker.prune import Pruner

QUICK = swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.2, drain=2.0)
MONTH = Retention("*", "30 days")
RULES = rules_of([MONTH])


@pytest.fixture
async def keeping(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url, settings=replace(QUICK, prune_every=0.1), keep=[MONTH])
    yield app
    await app.close()


def pruner(ledger: Ledger, me: str = "w1", *, meter: Meter | None = None, every: float = 300.0) -> Pruner:
    return Pruner(ledger, RULES, asyncio.Event(), me=me, every=every, meter=meter)


async def test_a_worker_removes_what_is_older_than_its_app_keeps(keeping: swf.App, url: str, ledger: Ledger) -> None:
    raw = Raw(url)
    ended(raw, 40 * DAY)
    young, last = ended(raw, 20 * DAY), still_open(raw, 0.0)
    async with keeping.worker():
        await eventually(lambda: left(raw) == {young, last}, "the old one is gone")
        later = ended(raw, 31 * DAY)
        final = still_open(raw, 0.0)
        await eventually(lambda: left(raw) == {young, last, final}, "the next pass sees what has aged since")
    assert later not in left(raw)
    assert orphans(raw) == {}
    raw.close()


async def test_a_worker_without_a_policy_removes_nothing(app: swf.App, url: str, ledger: Ledger) -> None:
    raw = Raw(url)
    old = ended(raw, 4000 * DAY, deleted=3000 * DAY)
    still_open(raw, 0.0)

    @app.workflow("test.busy.v1")
    async def busy(ctx: swf.Context, n: int) -> int:
        return n

    async with app.worker():
        assert await app.run(busy, 7) == 7
    assert old in left(raw)
    assert raw.sql("SELECT * FROM workflow.workflow_pruning") == []
    raw.close()


async def test_workers_take_turns_and_rest_after_a_pass(ledger: Ledger, raw: Raw) -> None:
    ended(raw, 40 * DAY)
    last = still_open(raw, 0.0)
    await pruner(ledger, "w1").turn()
    assert left(raw) == {last}
    ended(raw, 40 * DAY)
    newest = still_open(raw, 0.0)
    await pruner(ledger, "w2").turn()
    assert len(left(raw)) == 3, "the pass has just been made; the next one is due in five minutes"
    raw.sql(f"UPDATE workflow.workflow_pruning SET held_until = held_until {raw.back(301)}")
    await pruner(ledger, "w2").turn()
    assert left(raw) == {last, newest}


async def test_a_long_pass_is_followed_by_a_longer_rest(ledger: Ledger, raw: Raw) -> None:
    ended(raw, 40 * DAY)
    still_open(raw, 0.0)
    policy = fingerprint(RULES)
    await ledger.run(prune.take_turn(policy, "w0", lease=60))
    place = UUID(int=1)
    await ledger.run(prune.save_turn(policy, "w0", place, more=0, lease=0))
    raw.sql(f"UPDATE workflow.workflow_pruning SET started_at = started_at {raw.back(100)}")
    await pruner(ledger).turn()
    (row,) = raw.sql("SELECT held_until, finished_at FROM workflow.workflow_pruning")
    rest = row["held_until"] - row["finished_at"]
    assert (rest / 1e6 if raw.is_sqlite else rest.total_seconds()) == pytest.approx(1000, rel=0.1)


async def test_a_turn_is_bounded_and_the_next_worker_goes_on(
    ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PAGE", 3)
    monkeypatch.setattr(role, "TURN", 0.0)
    for n in range(9):
        ended(raw, 40 * DAY - n)
    last = still_open(raw, 0.0)
    for turn, remaining in enumerate([6, 3, 0], 1):
        await pruner(ledger, f"w{turn}").turn()
        assert len(left(raw)) == remaining + 1
    assert left(raw) == {last}


async def test_a_worker_that_stops_hands_its_turn_on(ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PAGE", 3)
    for n in range(9):
        ended(raw, 40 * DAY - n)
    still_open(raw, 0.0)
    stopping = asyncio.Event()
    stopping.set()
    await Pruner(ledger, RULES, stopping, me="w1", every=300, meter=None).turn()
    assert len(left(raw)) == 7
    taken = await ledger.run(prune.take_turn(fingerprint(RULES), "w2", lease=60))
    assert taken is not None
    assert taken.place is not None


async def test_a_worker_that_lost_its_turn_stops(ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was frozen past its time; another one walks now."""
    monkeypatch.setattr(pruning, "PAGE", 3)
    monkeypatch.setattr(role, "SAVE_EVERY", 0.0)
    for n in range(9):
        ended(raw, 40 * DAY - n)
    still_open(raw, 0.0)

    def taken_over(*_: object) -> None:
        raw.sql("UPDATE workflow.workflow_pruning SET holder = 'w2'")

    monkeypatch.setattr(Pruner, "_count", taken_over)
    await pruner(ledger).turn()
    assert len(left(raw)) == 7, "the page that was under way, and no more"
    (row,) = raw.sql("SELECT holder, place, finished_at FROM workflow.workflow_pruning")
    assert (row["holder"], row["place"], row["finished_at"]) == ("w2", None, None)


async def test_two_policies_do_not_wait_for_each_other(ledger: Ledger, raw: Raw) -> None:
    ours, theirs = ended(raw, 40 * DAY), ended(raw, 40 * DAY, type="media.cut.v1")
    last = still_open(raw, 0.0)
    stopping = asyncio.Event()
    await Pruner(ledger, rules_of([Retention("test.*", "1d")]), stopping, me="w1", every=300, meter=None).turn()
    assert left(raw) == {theirs, last}
    await Pruner(ledger, rules_of([Retention("media.*", "1d")]), stopping, me="w2", every=300, meter=None).turn()
    assert left(raw) == {last}
    assert ours not in left(raw)


async def test_what_was_pruned_is_counted(ledger: Ledger, raw: Raw) -> None:
    for status in ("failed", "failed", "succeeded"):
        ended(raw, 40 * DAY, status=status)
    still_open(raw, 0.0)
    meter = Meter(lambda _: None)
    await pruner(ledger, meter=meter).turn()
    samples = metrics.read(meter, "w1", lambda: metrics.Vitals(1, 0, 0, 0, 0), Reading())
    told = {(sample.name, *sample.labels): sample.value for sample in samples if "prune" in sample.name}
    assert told.pop(("workflow_prune_last_pass_timestamp", "w1")) == pytest.approx(ledger.clock.wall() / 1e6, abs=60)
    assert told == {
        ("workflow_run_pruned_total", "test.work.v1", "w1", "failed"): 2,
        ("workflow_run_pruned_total", "test.work.v1", "w1", "succeeded"): 1,
    }


async def test_a_retried_parent_whose_child_was_pruned_fails_and_says_so(url: str) -> None:
    """It never waits for a run that is not there."""
    app = swf.App(url, settings=QUICK)
    broken = asyncio.Event()

    @app.workflow("test.child.v1")
    async def child(ctx: swf.Context) -> str:
        return "done"

    @app.workflow("test.parent.v1", retry=swf.Retry(max_attempts=1))
    async def parent(ctx: swf.Context) -> str:
        handle = await ctx.trigger(child)
        if not broken.is_set():
            while not (await app.get(handle.id)).is_finished:
                await asyncio.sleep(0.01)
            raise swf.PermanentError("broken before it asked for the result")
        return await handle.result()

    async with app.worker():
        run = await app.trigger(parent)
        with pytest.raises(swf.RunFailed, match="broken before"):
            await run.result("20s")
        await app.trigger(child, delay="1h")  # heard of last
        broken.set()
        gone = await app.retention.prune(older_than="0s", prefix="test.child.v1")
        assert gone.total == 1
        await app.retry(run.id)
        with pytest.raises(swf.RunFailed, match="is gone: its row was removed"):
            await run.result("20s")
    await app.close()


async def test_claims_go_on_while_a_pass_is_under_way(url: str) -> None:
    """Pruners and a busy worker on one database: every run ends, and everything old is gone."""
    app = swf.App(url, settings=replace(QUICK, prune_every=0.1), keep=[MONTH])
    raw: Raw | None = None

    @app.workflow("test.busy.v1")
    async def busy(ctx: swf.Context, n: int) -> int:
        return await ctx.step("add", lambda: n + 1)

    async with app.worker(), app.worker():
        raw = Raw(url)
        for n in range(60):
            ended(raw, 40 * DAY + n)
        handles = await app.trigger_many(busy, range(200))
        assert [await handle.result("30s") for handle in handles] == list(range(1, 201))
        seen = raw
        await eventually(lambda: not seen.rows("type = 'test.work.v1'"), "the old ones are gone")
    assert len(left(raw)) == 200
    assert orphans(raw) == {}
    raw.close()
    await app.close()


async def test_an_unreachable_database_is_waited_for(tmp_path: object) -> None:
    """The role's loop survives; nothing is half done."""
    ledger = open_ledger(f"{tmp_path}/nowhere/test.db")
    with pytest.raises(swf.StoreUnavailable):
        await Pruner(ledger, RULES, asyncio.Event(), me=str(new_id()), every=300, meter=None).turn()
    await ledger.close()
