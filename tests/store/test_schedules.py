"""Schedules in the ledger: written by name, fired once per slot, whoever asks and however many ask at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from support.ledger import Raw, claim, define, offer, settle, succeeded
from support.schedules import TYPE, WEEK, ago, fire, get, key, keys, move, put, seconds_ago, written

from simpleworkflow.clock import new_id
from simpleworkflow.model.errors import InvalidSchedule, NotRunnable, StoreError
from simpleworkflow.model.records import Created
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import schedules, workers

DAY = timedelta(days=1)


# Writing


async def test_a_new_schedule_begins_with_its_next_slot(ledger: Ledger) -> None:
    assert await put(ledger, written(), written("daily", "0 9 * * *", tz="Europe/Berlin")) == ["added", "added"]
    now = datetime.now(UTC)
    tick, daily = await get(ledger), await get(ledger, "daily")
    assert tick.next_at is not None
    assert daily.next_at is not None
    assert now < tick.next_at <= now + WEEK
    assert now < daily.next_at <= now + DAY + timedelta(hours=1)
    assert (tick.fired, tick.skipped, tick.origin, tick.is_paused) == (0, 0, "call", False)


async def test_an_unchanged_schedule_is_left_as_it_is(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written(payload_json='{"a": 1, "b": 2}'))
    move(raw, ago(2))
    before = await get(ledger)
    assert await put(ledger, written(payload_json='{"b":2,"a":1}')) == ["unchanged"]
    assert await get(ledger) == before


@pytest.mark.parametrize(
    "change", [{"overlap": "skip"}, {"catch_up": "all"}, {"window": "1h"}, {"payload_json": "7"}, {"type": "other.v1"}]
)
async def test_a_change_that_is_not_of_the_rhythm_keeps_the_next_slot(
    ledger: Ledger, raw: Raw, change: dict[str, Any]
) -> None:
    await put(ledger, written())
    move(raw, ago(2))
    before = await get(ledger)
    assert await put(ledger, written(**change)) == ["changed"]
    assert (await get(ledger)).next_at == before.next_at


@pytest.mark.parametrize("change", [{"every": "30m"}, {"cron": "5 * * * *"}])
async def test_a_changed_rhythm_begins_anew_and_stays_paused(ledger: Ledger, raw: Raw, change: dict[str, Any]) -> None:
    await put(ledger, written())
    move(raw, ago(2))
    await ledger.run(schedules.pause("tick", "for now"))
    assert await put(ledger, written(**change)) == ["changed"]
    after = await get(ledger)
    assert after.next_at is not None
    assert after.next_at > datetime.now(UTC)
    assert (after.is_paused, after.pause_reason) == (True, "for now")


async def test_a_slot_that_a_wrong_clock_put_too_far_away_is_computed_anew(ledger: Ledger, raw: Raw) -> None:
    """Or nothing would be due for years, since a schedule that says the same is left as it is."""
    await put(ledger, written())
    right = (await get(ledger)).next_at
    move(raw, ago(0) + 1000 * WEEK)
    assert await put(ledger, written()) == ["changed"]
    assert (await get(ledger)).next_at == right
    assert await put(ledger, written()) == ["unchanged"]


async def test_two_deploys_that_say_different_things_are_heard_once_each(ledger: Ledger) -> None:
    assert await put(ledger, written(every="1w"), origin="code") == ["added"]
    assert await put(ledger, written(every="2h"), origin="code") == ["changed"]
    assert await put(ledger, written(every="2h"), origin="code") == ["unchanged"]
    assert (await get(ledger)).every_us == 2 * 3600 * 1_000_000


async def test_many_who_write_the_same_at_once_write_it_once(url: str, ledger: Ledger) -> None:
    crowd = [open_ledger(url) for _ in range(4)]
    try:
        wanted = [written(f"tick-{n}") for n in range(20)]
        told = await asyncio.gather(*(put(one, *wanted) for one in crowd))
    finally:
        for one in crowd:
            await one.close()
    assert [sorted(changes) for changes in zip(*told, strict=True)] == [["added", *["unchanged"] * 3]] * 20


async def test_a_plain_insert_is_a_complete_schedule(ledger: Ledger, raw: Raw) -> None:
    raw.sql("INSERT INTO workflow.workflow_schedule (name, type, cron) VALUES ('plain', ?, '@daily')", TYPE)
    assert await ledger.run(schedules.until_next()) == 0.0
    assert (await fire(ledger))["plain"].slots == []
    plain = await get(ledger, "plain")
    assert plain.next_at is not None
    assert timedelta(0) < plain.next_at - datetime.now(UTC) <= DAY
    assert keys(raw) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"cron": None},
        {"every_us": 5_000_000},
        {"name": "two words"},
        {"type": "two words"},
        {"overlap": "queue"},
        {"catch_up": "some"},
        {"payload": "{"},
        {"cron": None, "every_us": 10},
    ],
)
def test_plain_sql_cannot_write_what_could_not_be_fired(raw: Raw, columns: dict[str, Any]) -> None:
    row = {"name": "plain", "type": TYPE, "cron": "@daily", **columns}
    marks = ", ".join("?" * len(row))
    with pytest.raises(Exception) as refused:
        raw.sql(f"INSERT INTO workflow.workflow_schedule ({', '.join(row)}) VALUES ({marks})", *row.values())
    assert type(refused.value).__name__ in {"IntegrityError", "CheckViolation", "InvalidTextRepresentation"}


# Firing


async def test_a_slot_that_has_come_starts_its_run_and_moves_on(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written(payload_json='{"a": 1}'))
    slot = ago(0)
    move(raw, slot)
    fired = (await fire(ledger))["tick"]
    assert (fired.slots, fired.skipped, fired.trouble) == ([slot], [], None)
    assert fired.lateness[0] >= 0
    (row,) = raw.rows("type = ?", TYPE)
    assert row["idempotency_key"] == key(slot)
    assert raw.events(fired.run_ids[0]) == ["created"]
    after = await get(ledger)
    assert (after.next_at, after.last_slot_at, after.last_run_id) == (slot + WEEK, slot, fired.run_ids[0])
    assert (after.fired, after.last_fired_at) == (1, fired.now)
    assert await fire(ledger) == {}, "it is not due again"
    wait = await ledger.run(schedules.until_next())
    assert wait is not None
    assert 0 < wait <= 7 * 86400


async def test_nothing_is_started_early_or_while_paused(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written())
    assert await fire(ledger) == {}
    move(raw, ago(0))
    await ledger.run(schedules.pause("tick", None))
    assert await fire(ledger) == {}
    assert await ledger.run(schedules.until_next()) is None
    await ledger.run(schedules.resume("tick"))
    assert len((await fire(ledger))["tick"].slots) == 1


async def test_after_a_pause_missed_slots_follow_the_catch_up_policy(ledger: Ledger, raw: Raw) -> None:
    for policy in ("none", "one", "all"):
        await put(ledger, written(policy, catch_up=policy))
        move(raw, ago(5), policy)
        await ledger.run(schedules.pause(policy, None))
        await ledger.run(schedules.resume(policy))
    fired = await fire(ledger)
    last = ago(0)
    late = (datetime.now(UTC) - last).total_seconds() > 60
    assert fired["none"].slots == ([] if late else [last])
    assert fired["one"].slots == [last]
    assert fired["all"].slots == [last - n * WEEK for n in range(5, -1, -1)]
    assert {(await get(ledger, policy)).next_at for policy in fired} == {last + WEEK}


async def test_many_missed_slots_come_in_portions_and_keep_nobody_waiting(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written("behind", every="1s", catch_up="all"), written())
    start = seconds_ago(1500)
    move(raw, start, "behind")
    first = await fire(ledger)
    assert len(first["behind"].slots) == 1000
    move(raw, ago(0))
    second = await fire(ledger, limit=1)
    assert [*second] == ["tick"], "the one that was looked at last waits"
    third = await fire(ledger)
    assert first["behind"].slots[-1] + timedelta(seconds=1) == third["behind"].slots[0]
    told = [one for one in keys(raw) if ":behind:" in one]
    assert len(told) == len(set(told)) == len(first["behind"].slots) + len(third["behind"].slots)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)
async def test_each_slot_has_one_run_however_many_fire_at_once(url: str, ledger: Ledger, raw: Raw) -> None:
    """Without the index on keys, so that it is the compare-and-set which is put to the test."""
    raw.sql("DROP INDEX workflow.workflow_run_idempotency")
    names = [f"tick-{n}" for n in range(10)]
    await put(ledger, *(written(name, every="1s", catch_up="all") for name in names))
    start = seconds_ago(120)
    for name in names:
        move(raw, start, name)
    crowd = [open_ledger(url) for _ in range(4)]

    async def work(one: Ledger) -> None:
        for _ in range(5):
            await fire(one, limit=3)

    try:
        await asyncio.gather(*map(work, crowd))
    finally:
        for one in crowd:
            await one.close()
    told = keys(raw)
    assert len(told) == len(set(told)) >= 10 * 120
    assert len(told) == sum([(await get(ledger, name)).fired for name in names])
    for name in names:
        after = await get(ledger, name)
        assert after.next_at is not None
        count = round((after.next_at - start).total_seconds())
        assert [one for one in told if f":{name}:" in one] == [
            key(start + timedelta(seconds=n), name) for n in range(count)
        ]


async def test_a_slot_that_has_a_run_already_is_not_started_again(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written(overlap="cancel"))
    slot = ago(0)
    move(raw, slot)
    await fire(ledger)
    move(raw, slot)
    again = (await fire(ledger))["tick"]
    assert (again.slots, again.skipped) == ([], [])
    await put(ledger, written(payload_json='"another"', overlap="cancel"))
    move(raw, slot)
    assert (await fire(ledger))["tick"].slots == []
    assert keys(raw) == [key(slot)]
    assert [row["status"] for row in raw.rows("type = ?", TYPE)] == ["pending"], "its own run is in nobody's way"
    after = await get(ledger)
    assert (after.fired, after.next_at) == (1, slot + WEEK)


async def test_what_somebody_moved_on_meanwhile_is_not_fired(ledger: Ledger, raw: Raw) -> None:
    """The compare-and-set itself: a plan that was made for another slot writes nothing at all."""
    await put(ledger, written())
    move(raw, ago(0))
    stale = schedules.Fired(await get(ledger), datetime.now(UTC), ago(0) + WEEK, [ago(0)])
    move(raw, ago(1))

    @schedules.transaction
    def advance() -> Any:
        yield from schedules._start([stale])
        yield from schedules._advance([stale])

    with pytest.raises(StoreError, match="moved on by somebody else"):
        await ledger.run(advance())
    assert keys(raw) == []


async def test_a_disabled_type_skips_its_slots_and_says_so(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, TYPE)
    await ledger.run(workers.enable(TYPE, False))
    await put(ledger, written())
    move(raw, ago(0))
    fired = (await fire(ledger))["tick"]
    assert (fired.slots, fired.skipped) == ([], [ago(0)])
    after = await get(ledger)
    assert (after.fired, after.skipped, after.last_skipped_at) == (0, 1, ago(0))


# Overlap


async def started(ledger: Ledger, raw: Raw, **how: Any) -> UUID:
    """A schedule whose slot before has an open run, and whose next slot has come."""
    await put(ledger, written(**how))
    await ledger.run(schedules.start_slots(await get(ledger), [ago(1)]))
    raw.sql("UPDATE workflow.workflow_schedule SET last_run_id = (SELECT id FROM workflow.workflow_run)")
    move(raw, ago(0))
    before = (await get(ledger)).last_run_id
    assert before is not None
    return before


@pytest.mark.parametrize(
    ("overlap", "slots", "skipped", "status"),
    [("allow", 1, 0, "leased"), ("skip", 0, 1, "leased"), ("cancel", 1, 0, "cancelled")],
)
async def test_while_the_run_before_is_open_the_policy_decides(
    ledger: Ledger, raw: Raw, overlap: str, slots: int, skipped: int, status: str
) -> None:
    before = await started(ledger, raw, overlap=overlap)
    await claim(ledger, offer(TYPE))
    fired = (await fire(ledger))["tick"]
    assert (len(fired.slots), len(fired.skipped)) == (slots, skipped)
    assert raw.row(before)["status"] == status
    after = await get(ledger)
    assert (after.fired, after.skipped) == (slots, skipped)
    assert after.last_skipped_at == (ago(0) if skipped else None)
    assert after.next_at == ago(0) + WEEK


async def test_a_run_that_has_ended_is_in_nobodys_way(ledger: Ledger, raw: Raw) -> None:
    before = await started(ledger, raw, overlap="skip")
    (lease,) = await claim(ledger, offer(TYPE))
    await settle(ledger, succeeded(lease))
    assert len((await fire(ledger))["tick"].slots) == 1
    assert raw.row(before)["status"] == "succeeded"


async def test_a_cancelled_run_before_takes_its_children_along_and_starts_its_undo(ledger: Ledger, raw: Raw) -> None:
    await define(ledger, TYPE, on_cancel="test.undo.v1")
    before = await started(ledger, raw, overlap="cancel")
    raw.sql("INSERT INTO workflow.workflow_run (type, parent_id) VALUES ('test.child.v1', ?)", before)
    fired = (await fire(ledger))["tick"]
    assert fired.cancelled == [before]
    assert raw.events(before) == ["created", "cancelled"]
    assert [row["status"] for row in raw.rows("type = 'test.child.v1'")] == ["cancelled"]
    assert len(raw.rows("type = 'test.undo.v1'")) == 1


async def test_of_missed_slots_only_one_can_be_without_overlapping(ledger: Ledger, raw: Raw) -> None:
    for policy in ("skip", "cancel"):
        await put(ledger, written(policy, overlap=policy, catch_up="all"))
        move(raw, ago(2), policy)
    fired = await fire(ledger)
    first, last = ago(2), ago(0)
    assert (fired["skip"].slots, fired["skip"].skipped) == ([first], [first + WEEK, last])
    assert (fired["cancel"].slots, fired["cancel"].skipped) == ([last], [first, first + WEEK])


async def test_of_more_slots_than_one_look_takes_only_the_last_one_cancels(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written(every="1s", overlap="cancel", catch_up="all"))
    move(raw, seconds_ago(1500))
    first = (await fire(ledger))["tick"]
    assert (first.slots, len(first.skipped)) == ([], 1000)
    rest = (await fire(ledger))["tick"]
    assert (len(rest.slots), rest.cancelled) == (1, [])
    assert keys(raw) == [key(rest.slots[0])], "nothing was started only to be cancelled"
    assert (await get(ledger)).skipped == 1000 + len(rest.skipped)


# Between slots, and slots of the past


async def test_a_run_now_moves_no_slot_but_is_in_the_way_of_the_next(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written(overlap="skip"))
    before = await get(ledger)
    run_id = new_id()
    assert await ledger.run(schedules.run_now("tick", run_id)) == Created(run_id, True)
    after = await get(ledger)
    assert (after.next_at, after.fired, after.extra_run_id) == (before.next_at, 0, run_id)
    assert keys(raw)[0].startswith("schedule:tick:now:2")
    move(raw, ago(0))
    assert (await fire(ledger))["tick"].slots == []
    assert await ledger.run(schedules.run_now("nobody", new_id())) is None


async def test_two_runs_now_at_the_same_instant_are_two(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written())
    first, second = new_id(), new_id()

    @schedules.transaction
    def both() -> Any:
        one = yield from schedules.run_now("tick", first).steps()
        two = yield from schedules.run_now("tick", second).steps()
        lost = yield from schedules.run_now("tick", second).steps()  # as after a try whose answer was lost
        return [one, two, lost]

    assert [answer.id for answer in await ledger.run(both())] == [first, second, second]
    assert len(set(keys(raw))) == 2


async def test_a_run_now_of_a_disabled_type_is_refused(ledger: Ledger) -> None:
    await define(ledger, TYPE)
    await ledger.run(workers.enable(TYPE, False))
    await put(ledger, written())
    assert isinstance(await ledger.run(schedules.run_now("tick", new_id())), NotRunnable)
    with pytest.raises(NotRunnable):
        await ledger.run(schedules.start_slots(await get(ledger), [ago(0)]))


async def test_slots_of_the_past_are_started_once(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written())
    move(raw, ago(1))
    await fire(ledger)
    before = await get(ledger)
    slots = [ago(0) - n * WEEK for n in range(10)]
    assert await ledger.run(schedules.start_slots(before, slots)) == 9, "the last one had been started by its schedule"
    assert await ledger.run(schedules.start_slots(before, slots)) == 0
    assert sorted(keys(raw)) == sorted(key(slot) for slot in slots)
    assert await get(ledger) == before


# Trouble


async def test_a_zone_that_is_unknown_here_stops_only_its_own_schedule(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written("lost", "0 * * * *"), written())
    raw.sql("UPDATE workflow.workflow_schedule SET tz = 'Mars/Phobos' WHERE name = 'lost'")
    for name in ("lost", "tick"):
        move(raw, ago(0), name)
    fired = await fire(ledger)
    assert len(fired["tick"].slots) == 1
    assert "Mars/Phobos" in str(fired["lost"].trouble)
    lost = await get(ledger, "lost")
    assert lost.next_at == ago(0), "its slot waits"
    assert lost.trouble is not None
    assert "a worker on here" in lost.trouble
    assert await fire(ledger, but=["lost"]) == {}
    wait = await ledger.run(schedules.until_next(["lost"]))
    assert wait is not None
    assert wait > 0
    raw.sql("UPDATE workflow.workflow_schedule SET tz = 'Europe/Berlin' WHERE name = 'lost'")
    assert len((await fire(ledger))["lost"].slots) == 1
    assert (await get(ledger, "lost")).trouble is None


async def test_an_expression_that_plain_sql_spoiled_is_told_too(ledger: Ledger, raw: Raw) -> None:
    raw.sql("INSERT INTO workflow.workflow_schedule (name, type, cron) VALUES ('odd', ?, 'whenever')", TYPE)
    assert "has 1 fields" in str((await fire(ledger))["odd"].trouble)


async def test_what_is_deleted_is_gone_and_its_runs_stay(ledger: Ledger, raw: Raw) -> None:
    await put(ledger, written())
    move(raw, ago(0))
    await fire(ledger)
    gone = await ledger.run(schedules.delete("tick"))
    assert gone is not None
    assert gone.fired == 1
    assert await ledger.run(schedules.get("tick")) is None
    assert await ledger.run(schedules.delete("tick")) is None
    assert len(keys(raw)) == 1


async def test_listing_goes_page_by_page(ledger: Ledger) -> None:
    await put(ledger, *(written(f"tick-{n}") for n in range(5)))
    first = await ledger.run(schedules.page(limit=3))
    rest = await ledger.run(schedules.page(after=first[-1][0].name, limit=3))
    assert [one.name for one, _ in [*first, *rest]] == [f"tick-{n}" for n in range(5)]


def test_the_helpers_speak_of_valid_schedules() -> None:
    with pytest.raises(InvalidSchedule):
        written("two words")
