"""The schedule's role in a real worker: slots start on time, and trouble stops only its own schedule."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from support.ledger import Raw
from support.schedules import WEEK, ago, key, keys, move, seconds_ago
from support.scraping import free_port, scrape
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.model.schedule import ScheduledSlot
from simpleworkflow.runtime.hints import Hint
from simpleworkflow.worker.schedule import Scheduler


@pytest.fixture
def seen() -> list[ScheduledSlot | None]:
    return []


@pytest.fixture
def tick(app: swf.App, seen: list[ScheduledSlot | None]) -> swf.Workflow[Any, Any]:
    @app.workflow("t.tick.v1")
    async def tick(ctx: swf.Context, word: str) -> str:
        seen.append(ctx.schedule)
        return word

    return tick


@pytest.fixture
async def raw(app: swf.App, url: str) -> Any:
    await app.doctor.check()
    connection = Raw(url)
    yield connection
    connection.close()


# Beside the code


async def test_schedules_beside_the_code_are_written_down_when_a_worker_starts(app: swf.App, tick: Any) -> None:
    app.schedule("0 9 * * *", tz="Europe/Berlin", payload="morning")(tick)
    app.schedule(every="15m", payload="often", name="often", overlap="skip", catch_up="all", window="1h")(tick)
    assert await app.schedules.all() == []
    async with app.worker():
        often, morning = await app.schedules.all()
    assert (morning.name, morning.cron, morning.tz, morning.payload) == (
        "t.tick.v1",
        "0 9 * * *",
        "Europe/Berlin",
        "morning",
    )
    assert (often.name, often.rhythm, often.overlap, often.catch_up) == ("often", "every 15m", "skip", "all")
    assert (often.type, often.origin, often.payload) == ("t.tick.v1", "code", "often")
    await app.schedules.pause("often")
    async with app.worker():
        assert (await app.schedules.get("often")).is_paused, "what is paused stays paused"
    assert (await app.schedules.get("t.tick.v1")) == morning, "what says the same is left as it is"


async def test_a_worker_writes_down_only_what_it_serves_and_nothing_when_told_so(app: swf.App, tick: Any) -> None:
    app.schedule("@daily", payload="x")(tick)
    async with app.worker(prefixes="other."):
        assert await app.schedules.all() == []
    async with app.worker(schedules=False):
        assert await app.schedules.all() == []
        await app.schedules.put("due", tick, every="1 week", payload="x")


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_a_worker_starts_although_a_stranger_has_locked_a_schedule_that_says_the_same(
    app: swf.App, tick: Any, raw: Raw
) -> None:
    app.schedule("@daily", payload="x")(tick)
    async with app.worker():
        pass
    with raw.connection.transaction():
        raw.sql("UPDATE workflow.workflow_schedule SET updated_at = now()")
        async with asyncio.timeout(5), app.worker():
            assert await app.run(tick, "by hand", timeout="5s") == "by hand"


async def test_what_cannot_be_is_refused_where_it_is_written(app: swf.App, tick: Any) -> None:
    with pytest.raises(swf.InvalidSchedule, match="fields"):
        app.schedule("whenever", payload="x")(tick)
    with pytest.raises(swf.InvalidSchedule, match=r"t\.tick\.v1"):
        app.schedule("@daily", payload=7)(tick)
    with pytest.raises(swf.InvalidSchedule, match="payload"):
        app.schedule("@daily", payload=object())(tick)
    with pytest.raises(swf.InvalidSchedule, match="above"):
        app.schedule("@daily")(lambda ctx: None)  # type: ignore[type-var]
    with pytest.raises(swf.InvalidSchedule, match="with a cron expression"):
        app.schedule(tick)  # type: ignore[arg-type]
    with pytest.raises(swf.InvalidSchedule, match="no handler in this App"):
        app.schedule("@daily")(app.declare("t.elsewhere.v1"))
    app.schedule("@daily", payload="x")(tick)
    with pytest.raises(swf.InvalidSchedule, match="two schedules of the name"):
        app.schedule("@weekly", payload="x")(tick)
    with pytest.raises(swf.InvalidSchedule, match="Atlantis"):
        await app.schedules.put("x", tick, "@daily", tz="Europe/Atlantis", payload="x")
    assert await app.schedules.all() == []


# On time


async def test_slots_start_on_time_and_their_runs_know_them(app: swf.App, tick: Any, seen: list[Any], raw: Raw) -> None:
    app.schedule(every="1s", payload="now")(tick)
    port = free_port()
    async with app.worker(metrics_port=port, poll_every="10s"):
        await eventually(lambda: _enough(seen, 3), "three slots")
        scraped = await asyncio.to_thread(scrape, port)
    assert [slot.name for slot in seen] == ["t.tick.v1"] * len(seen)
    steps = [b.at - a.at for a, b in pairwise(seen)]
    assert steps == [timedelta(seconds=1)] * len(steps)
    assert [key(slot.at, "t.tick.v1") for slot in seen] == keys(raw)[: len(seen)]
    assert scraped.value("workflow_schedule_slot_total", outcome="started") >= 3
    lateness = scraped.value("workflow_schedule_lateness_seconds_sum")
    assert lateness / scraped.value("workflow_schedule_lateness_seconds_count") < 0.25


async def _enough(seen: list[Any], count: int) -> bool:
    return len(seen) >= count


async def test_a_schedule_that_is_written_while_the_worker_sleeps_is_heard_of(
    app: swf.App, tick: Any, seen: list[Any]
) -> None:
    """Whether hints or the look at other commits tell it: much sooner than the next look at an empty table."""
    async with app.worker(poll_every="1s"):
        await app.schedules.put("soon", tick, every="1s", payload="x")
        await eventually(lambda: _enough(seen, 1), "its first slot", 5.0)


async def test_resumed_is_run_now_and_backfilled_by_call(app: swf.App, tick: Any, seen: list[Any], raw: Raw) -> None:
    async with app.worker():
        await app.schedules.put("weekly", tick, every="1 week", payload="x")
        await app.schedules.pause("weekly", reason="holidays")
        move(raw, ago(0), "weekly")
        run_id = await app.schedules.run_now("weekly")
        assert await app.handle(run_id).result("10s") == "x"
        assert seen[0].is_extra
        assert (seen[0].name, datetime.now(UTC) - seen[0].at < timedelta(seconds=30)) == ("weekly", True)
        told: list[tuple[int, int]] = []
        done = await app.schedules.backfill(
            "weekly", ago(3), ago(0), tell=lambda done, total: told.append((done, total))
        )
        assert (done, told) == (swf.Backfill(3, 3), [(3, 3)])
        assert await app.schedules.backfill("weekly", ago(4), ago(0)) == swf.Backfill(4, 1)
        await eventually(lambda: _enough(seen, 5), "the slots of four weeks")
        assert len(seen) == 5, "paused"
        await app.schedules.resume("weekly")
        await eventually(lambda: _enough(seen, 6), "the slot that was missed")
    assert {slot.at for slot in seen[1:]} == {ago(n) for n in range(5)}
    assert (await app.schedules.delete("weekly")).fired == 1


async def test_calls_about_nobody_and_nonsense_are_refused_by_name(app: swf.App, tick: Any) -> None:
    for call in (
        app.schedules.get,
        app.schedules.pause,
        app.schedules.resume,
        app.schedules.delete,
        app.schedules.run_now,
    ):
        for name in ("nobody", "no\0body", "no\udcffbody", "", 7):
            with pytest.raises(swf.ScheduleNotFound, match="there is no schedule"):
                await call(name)  # type: ignore[arg-type]
    await app.schedules.put("weekly", tick, every="1 week", payload="x")
    now = datetime.now(UTC)
    with pytest.raises(swf.InvalidInput, match="time zone"):
        await app.schedules.backfill("weekly", now.replace(tzinfo=None), now)
    with pytest.raises(swf.InvalidInput, match="between the years"):
        await app.schedules.backfill("weekly", now.replace(year=1), now)
    with pytest.raises(swf.InvalidSchedule, match="still to come"):
        await app.schedules.backfill("weekly", now, now + WEEK)
    await app.schedules.put("often", tick, every="1s", payload="x")
    with pytest.raises(swf.InvalidSchedule, match="100,000"):
        await app.schedules.backfill("often", now - WEEK, now)


async def test_the_blocking_twin_says_the_same(app: swf.App, tick: Any) -> None:
    def by_hand() -> str:
        app.sync.schedules.put("weekly", tick, every="1 week", payload="x")
        app.sync.schedules.pause("weekly")
        return app.sync.schedules.resume("weekly").name

    assert await asyncio.to_thread(by_hand) == "weekly"


# Trouble


async def test_a_broken_schedule_stops_alone_and_is_told_of_once(
    app: swf.App, tick: Any, seen: list[Any], raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("broken", "sound"):
        await app.schedules.put(name, tick, "0 0 * * *", tz="Europe/Berlin", payload="x")
    raw.sql("UPDATE workflow.workflow_schedule SET tz = 'Mars/Phobos' WHERE name = 'broken'")
    for name in ("broken", "sound"):
        move(raw, seconds_ago(5), name)
    with caplog.at_level(logging.ERROR, "simpleworkflow.schedule"):
        async with app.worker():
            await eventually(lambda: _enough(seen, 1), "the sound one")
            move(raw, seconds_ago(3), "sound")
            await eventually(lambda: _enough(seen, 2), "the sound one, again")
            assert "Mars/Phobos" in str((await app.schedules.get("broken")).trouble)
            await app.schedules.put("broken", tick, "0 0 * * *", tz="Europe/Berlin", payload="x")
            move(raw, seconds_ago(2), "broken")
            await app.schedules.resume("broken")
            await eventually(lambda: _enough(seen, 3), "it goes on as soon as it is mended")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "schedule broken stands still here" in told[0]


async def test_missed_slots_that_are_left_out_are_told_of(
    app: swf.App, tick: Any, seen: list[Any], raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    await app.schedules.put("weekly", tick, every="1 week", payload="x")
    move(raw, ago(3), "weekly")
    with caplog.at_level(logging.WARNING, "simpleworkflow.schedule"):
        async with app.worker():
            await eventually(lambda: _enough(seen, 1), "the last one")
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"missed its slot {ago(3).isoformat()}" in told
    assert "not all of them are made up for (catch_up=one)" in told


async def test_the_doctor_names_schedules_that_are_in_vain_or_wait_too_long(app: swf.App, tick: Any, raw: Raw) -> None:
    for name, type in (("fine", "t.tick.v1"), ("typo", "t.tock.v1"), ("off", "t.off.v1"), ("far", "t.tick.v1")):
        await app.schedules.put(name, type, every="1 week", payload="x")
    move(raw, ago(0) + 1000 * WEEK, "far")
    app.workflow("t.off.v1")(tick.handler)
    async with app.worker():
        await app.definitions.disable("t.off.v1")
        found = [one for one in await app.doctor.examine() if one.check == "schedules"]
    assert [(one.subject, one.level.value) for one in found] == [
        ("far", "warning"),
        ("t.off.v1", "note"),
        ("t.tock.v1", "warning"),
    ]
    assert "every 7d is due at" in found[0].seen
    assert "slots of off are skipped" in found[1].seen
    assert "started by typo" in found[2].seen


REFUSE = {
    "sqlite": (
        "CREATE TRIGGER no_tick BEFORE INSERT ON workflow_run WHEN NEW.idempotency_key LIKE 'schedule:bad:%' "
        "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    ),
    "postgres": (
        "CREATE FUNCTION no_tick() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;"
        "CREATE TRIGGER no_tick BEFORE INSERT ON workflow.workflow_run FOR EACH ROW"
        " WHEN (NEW.idempotency_key LIKE 'schedule:bad:%') EXECUTE FUNCTION no_tick()"
    ),
}


async def test_a_slot_that_the_database_refuses_holds_up_nobody_else(
    app: swf.App, tick: Any, seen: list[Any], raw: Raw, backend: str
) -> None:
    raw.connection.execute(REFUSE[backend])
    for name in ("bad", "good"):
        await app.schedules.put(name, tick, every="1 week", payload="x")
        move(raw, ago(0), name)
    async with app.worker():
        await eventually(lambda: _enough(seen, 1), "the good one")
        assert seen[0].name == "good"

        async def is_blamed() -> bool:
            return "not this one" in ((await app.schedules.get("bad")).trouble or "")

        await eventually(is_blamed, "the bad one is blamed")
    assert keys(raw) == [key(ago(0), "good")]


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_a_run_that_a_stranger_has_locked_holds_up_only_its_own_schedule(
    app: swf.App, tick: Any, seen: list[Any], raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite whoever writes has the whole file, and nothing can be done about it."""
    monkeypatch.setattr("simpleworkflow.worker.schedule.BUSY_AGAIN", 0.1)
    await app.schedules.put("stuck", "t.nobody.v1", every="1 week", overlap="cancel")
    await app.schedules.put("free", tick, every="1 week", payload="x")
    before = await app.schedules.run_now("stuck")
    for name in ("stuck", "free"):
        move(raw, ago(0), name)
    with raw.connection.transaction():
        raw.sql("SELECT 1 FROM workflow.workflow_run WHERE id = ? FOR UPDATE", before)
        async with app.worker():
            await eventually(lambda: _enough(seen, 1), "the free one", 10.0)
    assert seen[0].name == "free"
    async with app.worker():

        async def has_fired() -> bool:
            return (await app.schedules.get("stuck")).fired == 1

        await eventually(has_fired, "the other one, now that nobody is in its way", 10.0)
    assert raw.row(before)["status"] == "cancelled"


async def test_an_outage_does_not_end_the_role(
    app: swf.App, tick: Any, seen: list[Any], raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.schedules.put("weekly", tick, every="1 week", payload="x")
    embedded = app.worker()
    async with embedded:
        worker = embedded._worker
        assert worker is not None
        run, refused = worker._ledger.run, list[str]()

        async def away(operation: Any, **rest: Any) -> Any:
            if operation.name in {"until_next", "fire"} and len(refused) < 4:
                refused.append(operation.name)
                raise StoreUnavailable("away") if len(refused) % 2 else ValueError("odd")
            return await run(operation, **rest)

        monkeypatch.setattr(worker._ledger, "run", away)
        move(raw, ago(0), "weekly")
        await app.schedules.resume("weekly")
        await eventually(lambda: _enough(seen, 1), "it goes on")
    assert len(refused) == 4


async def test_two_workers_start_each_slot_once(app: swf.App, url: str, tick: Any, seen: list[Any], raw: Raw) -> None:
    await app.schedules.put("tick", tick, every="1s", payload="x", catch_up="all")
    start = seconds_ago(60)
    move(raw, start)
    async with app.worker(), app.worker():
        await eventually(lambda: _enough(seen, 62), "a minute's slots and two more")
    told = keys(raw)
    assert told == [key(start + timedelta(seconds=n)) for n in range(len(told))]


class Quiet:
    """A ledger without schedules that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def run(self, operation: Any) -> None:
        assert operation.name == "until_next"
        self.asked += 1


async def test_where_there_is_no_schedule_looks_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger: Any = Quiet()
    role = Scheduler(ledger, None, swf.Settings(poll_every=0.05), [], lambda: None, None)  # type: ignore[arg-type]
    task = asyncio.ensure_future(_turns(role))
    for _ in range(40):
        await asyncio.sleep(0.005)
        role.hear(Hint.READY)  # not our business
    assert ledger.asked == 1
    for _ in range(40):
        await asyncio.sleep(0.005)
        role.hear(Hint.CHANGED)  # what other processes commit on SQLite
    assert 2 <= ledger.asked <= 7, "at most once per poll"
    before = ledger.asked
    role.hear(Hint.SCHEDULES)
    await asyncio.sleep(0.02)
    assert ledger.asked == before + 1
    task.cancel()


class Taken:
    """A ledger whose one schedule is due, and locked by a stranger."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def run(self, operation: Any) -> Any:
        self.asked.append(operation.name)
        return -1.0 if operation.name == "until_next" else []


async def test_a_schedule_that_a_stranger_has_locked_is_not_asked_for_without_end() -> None:
    ledger: Any = Taken()
    role = Scheduler(ledger, None, swf.Settings(), [], lambda: None, None)  # type: ignore[arg-type]
    task = asyncio.ensure_future(_turns(role))
    await asyncio.sleep(0.35)
    task.cancel()
    assert ledger.asked[:4] == ["until_next", "fire"] * 2, "it looks again"
    assert len(ledger.asked) <= 8


async def _turns(role: Scheduler) -> None:
    while True:
        await role.turn()


def test_in_the_test_kit_no_slot_comes_unasked(seen: list[Any]) -> None:
    app = swf.App("unused.db")

    @app.schedule("@hourly", payload="x")
    @app.workflow("t.tick.v1")
    async def tick(ctx: swf.Context, word: str) -> str:
        seen.append(ctx.schedule)
        return word

    with swf.testing.env(app) as env:
        env.advance("3 days")
        assert env.run(tick, "by hand") == "by hand"
    assert seen == [None]
