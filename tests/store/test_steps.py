"""The memo of a run: what is recorded stands, under the lease that recorded it, and a pause loses no wake.

One flush is one transaction with an outcome per entry: *done*, *woken* (a pause must look again) or *lost*. What a lost
lease brings is not written, however it came to be lost and whatever stands beside it in the flush. The PostgreSQL tests
at the end hold a statement up in the middle, by a transaction that another session has open; that it really stands
there, behind that very session, is read from the server, not assumed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import psycopg
import pytest
from support.ledger import (
    ERROR,
    Raw,
    check_invariants,
    check_path,
    claim,
    create,
    define,
    failed,
    flush,
    get,
    held_up,
    history,
    leased,
    new,
    offer,
    overran,
    paused,
    record,
    released,
    repeated,
    retried,
    settle,
    stub,
    succeeded,
    sweep,
    waiting,
)

from simpleworkflow.model.errors import IdempotencyConflict, NotRunnable, StoreError
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import Lease, NewRun
from simpleworkflow.model.states import Status, StepKind, StepStatus
from simpleworkflow.store import Ledger
from simpleworkflow.store.drivers.borrowed import run_on
from simpleworkflow.store.operations import leases, runs, steps, workers, writing

DONE, WOKEN, LOST = Outcome.DONE, Outcome.WOKEN, Outcome.LOST
CHILD = "test.child.v1"


def child_of(lease: Any, step_id: str = "child#1", **rest: Any) -> NewRun:
    """The child that a record starts; its id follows from who asks, so that asking twice starts it once."""
    rest = {"type": CHILD, "payload": "[1]"} | rest
    return new(id=uuid5(lease.id, step_id), parent_id=lease.id, **rest)


def starting(lease: Any, step_id: str = "child#1", **rest: Any) -> Any:
    return record(lease, step_id, kind=StepKind.CHILD, child=child_of(lease, step_id, **rest))


async def crashed_once(ledger: Ledger, raw: Raw) -> Lease:
    """A run whose first worker died; its second lease is a suspect's."""
    first = await leased(ledger)
    raw.age(first.id, 60, "lease_until")
    await sweep(ledger)
    (second,) = await claim(ledger, suspects=True)
    assert (second.id, second.crashes) == (first.id, 1)
    return second


# Records


async def test_a_finished_step_is_on_record(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    before, story = raw.row(lease.id), raw.events(lease.id)
    assert await flush(ledger, record(lease, "charge#1", input="[7]", output='{"id":1}', elapsed=2.5)) == [DONE]
    (step,) = (await history(ledger, lease.id)).steps.values()
    assert (step.run_id, step.step_id, step.kind, step.status) == (lease.id, "charge#1", "step", "succeeded")
    assert (step.input_json, step.output_json, step.error_json) == ("[7]", '{"id":1}', None)
    assert isinstance(step.completed_at, datetime)
    assert isinstance(step.started_at, datetime)
    assert step.completed_at - step.started_at == timedelta(seconds=2.5)
    assert step.due_at is None
    assert [row["lease_epoch"] for row in raw.steps(lease.id)] == [1]
    assert raw.row(lease.id) == before, "a checkpoint does not touch the run's row"
    assert raw.events(lease.id) == story


async def test_a_failed_step_is_memoised(ledger: Ledger) -> None:
    lease = await leased(ledger)
    assert await flush(ledger, record(lease, status=StepStatus.FAILED, attempt=3, error=ERROR)) == [DONE]
    (step,) = (await history(ledger, lease.id)).steps.values()
    assert (step.status, step.attempt, step.error_json, step.output_json) == (StepStatus.FAILED, 3, ERROR, None)
    assert step.completed_at is not None


async def test_a_step_that_is_retried_and_succeeds_keeps_one_row(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, record(lease, status=StepStatus.RETRYING, attempt=1, error=ERROR, due_in=5, input="[7]"))
    first = (await history(ledger, lease.id)).steps["charge#1"]
    assert (first.status, first.attempt, first.error_json, first.completed_at) == ("retrying", 1, ERROR, None)
    await flush(ledger, record(lease, status=StepStatus.RETRYING, attempt=2, error=ERROR, due_in=9))
    await flush(ledger, record(lease, attempt=2, output="42"))
    (step,) = (await history(ledger, lease.id)).steps.values()
    assert (step.status, step.attempt, step.output_json, step.error_json) == ("succeeded", 2, "42", None)
    assert step.completed_at is not None
    assert (step.started_at, step.input_json) == (first.started_at, "[7]")
    assert len(raw.steps(lease.id)) == 1


async def test_a_step_that_fails_and_succeeds_within_one_flush_is_written_once(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    failing = record(lease, status=StepStatus.RETRYING, attempt=1, error=ERROR, due_in=0)
    assert await flush(ledger, failing, record(lease, attempt=1, output="42")) == [DONE, DONE]
    (step,) = (await history(ledger, lease.id)).steps.values()
    assert (step.status, step.output_json, step.error_json) == ("succeeded", "42", None)


async def test_a_wait_that_is_completed_under_a_later_lease_carries_that_epoch(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    assert await flush(ledger, paused(lease, waiting(lease, due_in=0), due_in=0)) == [DONE]
    (later,) = await claim(ledger)
    assert await flush(ledger, record(later, "sleep#1", kind=StepKind.SLEEP)) == [DONE]
    (row,) = raw.steps(lease.id)
    assert (row["lease_epoch"], row["status"]) == (2, "succeeded")


async def test_several_records_of_one_run_land_in_one_flush(ledger: Ledger) -> None:
    one, two = await leased(ledger), await leased(ledger)
    entries = [record(lease, f"s#{n}", output=str(n)) for n in range(3) for lease in (one, two)]
    assert await flush(ledger, *entries) == [DONE] * 6
    for lease in (one, two):
        found = (await history(ledger, lease.id)).steps
        assert {step_id: step.output_json for step_id, step in found.items()} == {"s#0": "0", "s#1": "1", "s#2": "2"}


@pytest.mark.parametrize("ending", [succeeded, failed, retried, released, overran], ids=lambda one: one.__name__)
async def test_a_record_and_the_end_of_its_run_land_in_one_flush(
    ledger: Ledger, raw: Raw, ending: Callable[[Any], Any]
) -> None:
    lease = await leased(ledger)
    assert await flush(ledger, ending(lease), record(lease)) == [DONE, DONE]
    assert list((await history(ledger, lease.id)).steps) == ["charge#1"]
    assert raw.row(lease.id)["status"] == ending(lease).status
    assert check_path(raw.events(lease.id)) is ending(lease).status


async def test_a_record_and_the_pause_of_its_run_land_in_one_flush(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    assert await flush(ledger, paused(lease, waiting(lease)), record(lease)) == [DONE, DONE]
    assert [row["step_id"] for row in raw.steps(lease.id)] == ["charge#1", "sleep#1"]


async def test_a_steps_due_time_comes_from_the_stores_clock_and_stays(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await flush(ledger, waiting(lease, due_in=3600.5, elapsed=0.25))
    first = (await history(ledger, lease.id)).steps["sleep#1"]
    assert isinstance(first.due_at, datetime)
    assert first.started_at is not None
    assert first.due_at - first.started_at == timedelta(seconds=3600.75)
    await flush(ledger, waiting(lease, due_in=7200))
    await flush(ledger, record(lease, "sleep#1", kind=StepKind.SLEEP, due_in=0))
    done = (await history(ledger, lease.id)).steps["sleep#1"]
    assert (done.status, done.due_at) == (StepStatus.SUCCEEDED, first.due_at)


async def test_history_is_loaded_in_the_order_in_which_it_was_recorded(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await flush(ledger, waiting(lease, "z#1", due_in=5), record(lease, "m#1"))
    await flush(ledger, record(lease, "a#1"))
    await flush(ledger, record(lease, "c#1"), record(lease, "b#1"))
    await flush(ledger, record(lease, "z#1", kind=StepKind.SLEEP))
    assert list((await history(ledger, lease.id)).steps) == ["z#1", "m#1", "a#1", "c#1", "b#1"]


async def test_histories_of_many_runs_are_loaded_in_one_call(ledger: Ledger) -> None:
    one, two, empty = [await leased(ledger) for _ in range(3)]
    unknown = new().id
    await flush(ledger, record(two, "b#1"), record(one, "a#1", output="1"), record(two, "a#1", output="2"))
    found = await ledger.run(steps.load([two.id, unknown, one.id, empty.id, two.id]))
    assert set(found) == {one.id, two.id, empty.id, unknown}
    assert {step_id: step.output_json for step_id, step in found[one.id].steps.items()} == {"a#1": "1"}
    assert list(found[two.id].steps) == ["b#1", "a#1"]
    assert found[two.id].steps["a#1"].output_json == "2"
    assert (found[empty.id].steps, found[unknown].steps) == ({}, {})


async def test_no_history_is_shared_between_runs(ledger: Ledger) -> None:
    found = await ledger.run(steps.load([new().id, new().id]))
    one, two = found.values()
    assert one.steps is not two.steps
    assert one.signals is not two.signals


async def test_history_survives_a_failed_attempt(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await flush(ledger, record(lease, output="1"), retried(lease))
    (again,) = await claim(ledger)
    assert (again.attempt, again.is_fresh) == (1, False)
    assert (await history(ledger, again.id)).steps["charge#1"].output_json == "1"


async def test_an_unknown_kind_of_record_is_refused(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    with pytest.raises(StoreError):
        await flush(ledger, record(lease, kind="coffee"))
    assert raw.steps(lease.id) == []


# Crashes and attempts


async def test_a_new_record_clears_the_suspicion(ledger: Ledger, raw: Raw) -> None:
    lease = await crashed_once(ledger, raw)
    assert await flush(ledger, record(lease, clears_suspicion=True)) == [DONE]
    row = raw.row(lease.id)
    assert (row["crashes"], row["status"], row["lease_epoch"]) == (0, "leased", 2)
    version = row["version"]
    assert await flush(ledger, record(lease, "next#1", clears_suspicion=True)) == [DONE]
    assert raw.row(lease.id)["version"] == version, "there was nothing left to clear"


async def test_a_lost_record_clears_nothing(ledger: Ledger, raw: Raw) -> None:
    lease = await crashed_once(ledger, raw)
    assert await flush(ledger, record(stub(lease.id, 1), clears_suspicion=True)) == [LOST]
    assert raw.row(lease.id)["crashes"] == 1


async def test_a_pause_is_progress_and_no_attempt(ledger: Ledger, raw: Raw) -> None:
    lease = await crashed_once(ledger, raw)
    raw.put(lease.id, attempt=1)
    assert await flush(ledger, paused(lease, due_in=0)) == [DONE]
    row = raw.row(lease.id)
    assert (row["crashes"], row["attempt"]) == (0, 1)
    (again,) = await claim(ledger)
    assert (again.attempt, again.crashes, again.epoch) == (1, 0, 3)


# Lost leases


async def _by_reclaim(ledger: Ledger, raw: Raw) -> Any:
    lease = await crashed_once(ledger, raw)
    return stub(lease.id, 1)


async def _by_sweep(ledger: Ledger, raw: Raw) -> Any:
    lease = await leased(ledger)
    raw.age(lease.id, 60, "lease_until")
    await sweep(ledger)
    return lease


async def _by_cancel(ledger: Ledger, raw: Raw) -> Any:
    lease = await leased(ledger)
    await ledger.run(runs.cancel([lease.id]))
    return lease


async def _by_own_end(ledger: Ledger, raw: Raw) -> Any:
    lease = await leased(ledger)
    await settle(ledger, succeeded(lease))
    return lease


async def _by_own_pause(ledger: Ledger, raw: Raw) -> Any:
    lease = await leased(ledger)
    await flush(ledger, paused(lease))
    return lease


async def _by_never_being_known(ledger: Ledger, raw: Raw) -> Any:
    return stub(new().id, 1)


LOSSES: dict[str, Callable[[Ledger, Raw], Awaitable[Any]]] = {
    "reclaimed": _by_reclaim,
    "swept": _by_sweep,
    "cancelled": _by_cancel,
    "ended": _by_own_end,
    "paused": _by_own_pause,
    "unknown": _by_never_being_known,
}
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "record": record,
    "record with a child": starting,
    "record that clears suspicion": lambda lease: record(lease, clears_suspicion=True),
    "pause": lambda lease: paused(lease, waiting(lease), due_in=5),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_lease_writes_nothing(ledger: Ledger, raw: Raw, loss: str, entry: str) -> None:
    lost = await LOSSES[loss](ledger, raw)
    before = raw.everything()
    assert await flush(ledger, ENTRIES[entry](lost)) == [LOST]
    assert raw.everything() == before


@pytest.mark.parametrize("entry", ENTRIES)
async def test_neighbours_of_a_lost_entry_land(ledger: Ledger, raw: Raw, entry: str) -> None:
    lost = await _by_reclaim(ledger, raw)
    steady, resting, ended, starts = [await leased(ledger) for _ in range(4)]
    outcomes = await flush(
        ledger,
        record(steady),
        ENTRIES[entry](lost),
        paused(resting),
        succeeded(ended),
        record(lost, "b#1"),
        starting(starts),
    )
    assert outcomes == [DONE, LOST, DONE, DONE, LOST, DONE]
    assert raw.steps(lost.id) == []
    assert [len(raw.steps(lease.id)) for lease in (steady, starts)] == [1, 1]
    assert [raw.row(lease.id)["status"] for lease in (resting, ended)] == ["paused", "succeeded"]
    assert [row["parent_id"] for row in raw.rows("type = ?", CHILD)] == [raw.row(starts.id)["id"]]


async def test_one_flush_may_hold_a_stale_and_a_current_record_of_one_run(ledger: Ledger, raw: Raw) -> None:
    current = await crashed_once(ledger, raw)
    stale = record(stub(current.id, 1), output='"stale"')
    assert await flush(ledger, stale, record(current, output='"current"')) == [LOST, DONE]
    assert (await history(ledger, current.id)).steps["charge#1"].output_json == '"current"'
    late = record(stub(current.id, 1), "late#1", clears_suspicion=True)
    assert await flush(ledger, late, paused(current), paused(stub(current.id, 1))) == [LOST, DONE, LOST]
    assert list((await history(ledger, current.id)).steps) == ["charge#1"]
    assert check_path(raw.events(current.id)) is Status.PAUSED


# Pauses


@pytest.mark.parametrize("due_in", [None, 0.0, 90.5])
async def test_a_pause_gives_up_the_lease_and_sets_the_time(ledger: Ledger, raw: Raw, due_in: float | None) -> None:
    lease = await leased(ledger)
    version = raw.row(lease.id)["version"]
    waits = waiting(lease, "sleep#1", due_in=due_in), waiting(lease, "approved#1", kind=StepKind.SIGNAL)
    assert await flush(ledger, paused(lease, *waits, due_in=due_in)) == [DONE]
    row = raw.row(lease.id)
    check_invariants(row)
    assert (row["status"], row["lease_until"], row["leased_by"]) == ("paused", None, None)
    assert (row["lease_epoch"], row["attempt"], row["wakes"]) == (1, 0, 0)
    assert row["version"] > version
    if due_in is None:
        assert row["run_at"] is None
    else:
        assert raw.delay(lease.id) == due_in
    assert raw.events(lease.id) == ["created", "leased", "started", "paused"]
    assert check_path(raw.events(lease.id)) is Status.PAUSED
    found = (await history(ledger, lease.id)).steps
    assert {step_id: (step.kind, step.status) for step_id, step in found.items()} == {
        "sleep#1": ("sleep", "waiting"),
        "approved#1": ("signal", "waiting"),
    }
    assert found["sleep#1"].due_at == (None if due_in is None else (await get(ledger, lease.id)).run_at)
    assert found["approved#1"].due_at is None


async def test_the_events_of_a_pause_carry_the_epoch_and_the_times(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, paused(lease))
    text = "SELECT event_type, lease_epoch, created_at FROM workflow.workflow_event WHERE workflow_id = ? ORDER BY id"
    started, rested = raw.sql(text, lease.id)[-2:]
    assert (started["event_type"], rested["event_type"]) == ("started", "paused")
    assert (started["lease_epoch"], rested["lease_epoch"]) == (1, 1)
    assert rested["created_at"] - started["created_at"] == (10_000 if raw.is_sqlite else timedelta(seconds=0.01))
    assert rested["created_at"] == raw.row(lease.id)["updated_at"]


async def test_a_wake_between_reading_and_pausing_refuses_the_pause(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    await history(ledger, parent.id)
    await settle(ledger, succeeded(child))
    before = raw.everything()
    pause = paused(parent, waiting(parent), due_in=60)
    assert await flush(ledger, pause) == [WOKEN]
    assert raw.everything() == before, "it is still leased; nothing was written"
    (news,) = await ledger.run(leases.check_leases([(parent.id, parent.epoch)], "w1"))
    assert (news.owned, news.wakes) == (True, 1)
    assert await flush(ledger, paused(parent, waiting(parent), wakes=news.wakes)) == [DONE]


async def test_a_refused_pause_harms_no_record_beside_it(ledger: Ledger, raw: Raw) -> None:
    parent, other = await leased(ledger), await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    await settle(ledger, succeeded(child))
    outcomes = await flush(ledger, record(parent), paused(parent, waiting(parent)), paused(other))
    assert outcomes == [DONE, WOKEN, DONE]
    assert [row["step_id"] for row in raw.steps(parent.id)] == ["charge#1"]
    assert [raw.row(lease.id)["status"] for lease in (parent, other)] == ["leased", "paused"]


async def test_a_stale_pause_is_lost_even_when_a_wake_came(ledger: Ledger, raw: Raw) -> None:
    current = await crashed_once(ledger, raw)
    child = await leased(ledger, CHILD, parent_id=current.id)
    await settle(ledger, succeeded(child))
    assert await flush(ledger, paused(stub(current.id, 1))) == [LOST]


@pytest.mark.parametrize("child_first", [True, False])
async def test_a_child_that_ends_in_the_flush_of_its_parents_pause_is_not_missed(
    ledger: Ledger, raw: Raw, child_first: bool
) -> None:
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    entries = [succeeded(child), paused(parent)]
    outcomes = await flush(ledger, *(entries if child_first else entries[::-1]))
    assert sorted(outcomes) == [DONE, WOKEN]
    assert outcomes[0 if child_first else 1] is DONE
    assert raw.row(parent.id)["status"] == "leased"


@pytest.mark.parametrize("entry", ["pause", "record", "record with a child"])
async def test_a_parent_that_fails_takes_along_what_pauses_or_records_beside_it(
    ledger: Ledger, raw: Raw, entry: str
) -> None:
    """The child's entry is written before its parent's end, or it is lost; woken would be a lie."""
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    outcomes = await flush(ledger, ENTRIES[entry](child), failed(parent))
    assert outcomes == [LOST if entry == "pause" else DONE, DONE]
    for row in raw.rows("id <> ?", parent.id):
        check_invariants(row)
        assert row["status"] == "cancelled"
    assert check_path(raw.events(child.id)) is Status.CANCELLED


async def test_each_pause_of_a_flush_has_its_own_outcome(ledger: Ledger, raw: Raw) -> None:
    resting = [await leased(ledger) for _ in range(3)]
    lost, woken = await _by_reclaim(ledger, raw), await leased(ledger)
    await settle(ledger, succeeded(await leased(ledger, CHILD, parent_id=woken.id)))
    entries = [paused(lease, due_in=n * 10.0) for n, lease in enumerate(resting)]
    outcomes = await flush(ledger, entries[2], paused(lost), entries[0], paused(woken), entries[1])
    assert outcomes == [DONE, LOST, DONE, WOKEN, DONE]
    assert [raw.delay(lease.id) for lease in resting] == [0.0, 10.0, 20.0]


async def test_a_paused_run_is_not_claimed_until_it_is_woken(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    await flush(ledger, paused(parent))
    assert await claim(ledger) == []
    await settle(ledger, succeeded(child))
    (again,) = await claim(ledger)
    assert (again.id, again.epoch, again.wakes, again.is_fresh) == (parent.id, 2, 1, False)


async def test_a_timer_is_claimed_when_it_is_due_and_not_before(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, paused(lease, waiting(lease, due_in=3600), due_in=3600))
    raw.age(lease.id, 3590, "run_at")
    assert await claim(ledger) == []
    raw.age(lease.id, 10, "run_at")
    assert [again.id for again in await claim(ledger)] == [lease.id]


async def test_a_claim_of_a_paused_run_tells_that_it_was_woken_first(ledger: Ledger, raw: Raw) -> None:
    rested, fresh = await leased(ledger), (await create(ledger))[0]
    await flush(ledger, paused(rested, due_in=0))
    await claim(ledger)
    text = "SELECT event_type, lease_epoch FROM workflow.workflow_event WHERE workflow_id = ? ORDER BY id"
    told = [tuple(row.values()) for row in raw.sql(text, rested.id)]
    assert told[-3:] == [("paused", 1), ("woken", 2), ("leased", 2)]
    assert check_path(raw.events(rested.id)) is Status.LEASED
    assert raw.events(fresh) == ["created", "leased"]


async def test_a_suspect_that_paused_is_claimed_as_innocent_and_woken_once(ledger: Ledger, raw: Raw) -> None:
    lease = await crashed_once(ledger, raw)
    await flush(ledger, paused(lease, due_in=0))
    assert await claim(ledger, suspects=True) == []
    assert len(await claim(ledger)) == 1
    assert raw.events(lease.id).count("woken") == 1


async def test_a_held_paused_run_is_not_claimed_and_its_wake_is_kept(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    await flush(ledger, paused(parent))
    await ledger.run(runs.hold([parent.id]))
    await settle(ledger, succeeded(child))
    row = raw.row(parent.id)
    assert (row["wakes"], row["status"]) == (1, "paused")
    assert row["run_at"] is not None
    assert await claim(ledger) == []
    await ledger.run(runs.resume([parent.id]))
    assert [again.id for again in await claim(ledger)] == [parent.id]


async def test_a_run_that_is_held_while_leased_may_pause(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await ledger.run(runs.hold([lease.id], "look first"))
    assert await flush(ledger, record(lease), paused(lease, due_in=0)) == [DONE, DONE]
    row = raw.row(lease.id)
    check_invariants(row)
    assert (row["status"], row["hold_reason"]) == ("paused", "look first")
    assert await claim(ledger) == []


async def test_a_paused_run_can_be_cancelled_and_its_history_stays(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, record(lease), paused(lease, waiting(lease)))
    await ledger.run(runs.cancel([lease.id]))
    assert check_path(raw.events(lease.id)) is Status.CANCELLED
    assert list((await history(ledger, lease.id)).steps) == ["charge#1", "sleep#1"]


# A flush repeated after an ambiguous commit


async def again(ledger: Ledger, *entries: Any) -> list[Outcome]:
    """As the driver repeats it: it is ours to know whether the first try has landed."""
    return await ledger.run(repeated(writing._write_locked(entries, "w1")))


async def test_a_repeated_pause_that_had_landed_is_done(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    pause = paused(lease, waiting(lease, due_in=60), due_in=60)
    assert await flush(ledger, pause) == [DONE]
    before = raw.everything()
    assert await again(ledger, pause) == [DONE]
    assert raw.everything() == before


async def test_a_repeated_pause_that_had_landed_and_was_woken_since_is_done(ledger: Ledger, raw: Raw) -> None:
    """Woken but not yet claimed: it stands as it was meant, and the wake is on the row."""
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    assert await flush(ledger, paused(parent)) == [DONE]
    await settle(ledger, succeeded(child))
    before = raw.everything()
    assert await again(ledger, paused(parent)) == [DONE]
    assert raw.everything() == before
    assert len(await claim(ledger)) == 1


@pytest.mark.parametrize("ending", [succeeded, failed, retried, released, overran], ids=lambda one: one.__name__)
async def test_a_repeated_ending_that_had_landed_is_done(
    ledger: Ledger, raw: Raw, ending: Callable[[Any], Any]
) -> None:
    lease, other = await leased(ledger), await leased(ledger)
    assert await flush(ledger, ending(lease), record(other)) == [DONE, DONE]
    before, story = raw.row(lease.id), raw.events(lease.id)
    assert await again(ledger, ending(lease), record(other)) == [DONE, DONE]
    assert (raw.row(lease.id), raw.events(lease.id)) == (before, story)


async def test_a_repeated_record_under_the_same_lease_is_done(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    entries = record(lease, output="1"), starting(lease)
    assert await flush(ledger, *entries) == [DONE, DONE]
    assert await again(ledger, *entries) == [DONE, DONE]
    assert {row["step_id"]: row["status"] for row in raw.steps(lease.id)} == {
        "charge#1": "succeeded",
        "child#1": "succeeded",
    }
    assert len(raw.rows("type = ?", CHILD)) == 1


async def test_a_repeated_record_under_a_newer_epoch_is_lost(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    assert await flush(ledger, record(lease, output="1")) == [DONE]
    raw.age(lease.id, 60, "lease_until")
    await sweep(ledger)
    await claim(ledger, suspects=True)
    before = raw.everything()
    assert await again(ledger, record(lease, output="1")) == [LOST]
    assert raw.everything() == before


@pytest.mark.parametrize("entry", [paused, succeeded], ids=lambda one: one.__name__)
async def test_a_record_that_landed_with_the_end_of_its_execution_is_done_when_repeated(
    ledger: Ledger, raw: Raw, entry: Callable[[Any], Any]
) -> None:
    """One transaction: if the end stands, so does what came with it."""
    lease = await leased(ledger)
    assert await flush(ledger, record(lease), entry(lease)) == [DONE, DONE]
    before = raw.everything()
    assert await again(ledger, record(lease), entry(lease)) == [DONE, DONE]
    assert raw.everything() == before


async def test_a_repeated_flush_believes_only_its_own_epoch(ledger: Ledger, raw: Raw) -> None:
    """What stands under the current lease says nothing of an entry that a former lease left in the journal."""
    current, other = await crashed_once(ledger, raw), await leased(ledger)
    former = stub(current.id, 1)
    entries = record(former), paused(current), paused(former), record(stub(other.id, 0)), succeeded(other)
    assert await flush(ledger, *entries) == [LOST, DONE, LOST, LOST, DONE]
    before = raw.everything()
    assert await again(ledger, *entries) == [LOST, DONE, LOST, LOST, DONE]
    assert raw.everything() == before


async def test_a_repeated_flush_that_had_not_landed_lands(ledger: Ledger, raw: Raw) -> None:
    one, two, three = [await leased(ledger) for _ in range(3)]
    assert await again(ledger, record(one), paused(two, waiting(two)), succeeded(three)) == [DONE, DONE, DONE]
    assert [raw.row(lease.id)["status"] for lease in (one, two, three)] == ["leased", "paused", "succeeded"]
    assert [len(raw.steps(lease.id)) for lease in (one, two)] == [1, 1]


async def test_a_repeated_pause_that_had_not_landed_sees_the_wake(ledger: Ledger) -> None:
    parent = await leased(ledger)
    await settle(ledger, succeeded(await leased(ledger, CHILD, parent_id=parent.id)))
    assert await again(ledger, paused(parent)) == [WOKEN]


async def test_a_repeated_pause_is_lost_when_the_run_went_on(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await flush(ledger, paused(lease, due_in=0))
    (current,) = await claim(ledger)
    assert await again(ledger, paused(lease, due_in=0)) == [LOST]
    await flush(ledger, paused(current, due_in=0))
    assert await again(ledger, paused(lease, due_in=0)) == [LOST]


async def test_a_repeated_pause_is_lost_when_the_run_was_cancelled(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await flush(ledger, paused(lease))
    await ledger.run(runs.cancel([lease.id]))
    assert await again(ledger, paused(lease)) == [LOST]


# Children


async def test_a_child_starts_with_its_record(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    assert await flush(ledger, starting(parent, priority=7)) == [DONE]
    (row,) = raw.rows("type = ?", CHILD)
    assert str(row["id"]) == str(uuid5(parent.id, "child#1"))
    assert (row["status"], str(row["parent_id"]), row["priority"]) == ("pending", str(parent.id), 7)
    assert raw.events(UUID(str(row["id"]))) == ["created"]
    assert (await history(ledger, parent.id)).steps["child#1"].kind is StepKind.CHILD


async def test_asking_twice_for_a_child_starts_it_once(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    assert await flush(ledger, starting(parent)) == [DONE]
    assert await flush(ledger, starting(parent)) == [DONE]
    (again,) = await claim(ledger, offer(CHILD))
    await settle(ledger, succeeded(again))
    assert await flush(ledger, starting(parent)) == [DONE]
    assert [row["status"] for row in raw.rows("type = ?", CHILD)] == ["succeeded"]


async def test_many_children_start_in_one_flush(ledger: Ledger, raw: Raw) -> None:
    one, two = await leased(ledger), await leased(ledger)
    entries = [starting(lease, f"child#{n}") for n in range(5) for lease in (one, two)]
    assert await flush(ledger, *entries, paused(one)) == [DONE] * 11
    assert sorted(str(row["parent_id"]) for row in raw.rows("type = ?", CHILD)) == sorted(
        [str(one.id)] * 5 + [str(two.id)] * 5
    )


async def test_the_end_of_a_recorded_child_wakes_its_paused_parent(ledger: Ledger) -> None:
    parent = await leased(ledger)
    await flush(ledger, starting(parent), paused(parent, waiting(parent, "result#1", kind=StepKind.CHILD)))
    (child,) = await claim(ledger, offer(CHILD))
    assert child.parent_id == parent.id
    await settle(ledger, succeeded(child))
    assert [woken.id for woken in await claim(ledger)] == [parent.id]


async def test_a_cancelled_parent_takes_its_recorded_child_along(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    await flush(ledger, starting(parent))
    await ledger.run(runs.cancel([parent.id]))
    assert [row["status"] for row in raw.rows("type = ?", CHILD)] == ["cancelled"]


async def test_a_parent_that_fails_in_the_flush_of_its_childs_start_takes_it_along(ledger: Ledger, raw: Raw) -> None:
    parent = await leased(ledger)
    assert await flush(ledger, starting(parent), failed(parent)) == [DONE, DONE]
    assert [row["status"] for row in raw.rows("type = ?", CHILD)] == ["cancelled"]


BAD_CHILDREN: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "a bad type": ({"type": "no such type!"}, StoreError),
    "a bad priority": ({"type": CHILD, "priority": 5000}, StoreError),
    "a disabled type": ({"type": "test.disabled.v1"}, NotRunnable),
    "the id of another run": ({"type": CHILD, "payload": "[2]"}, IdempotencyConflict),
}


@pytest.mark.parametrize("bad", BAD_CHILDREN)
async def test_one_bad_entry_fails_its_flush_and_writes_nothing_at_all(ledger: Ledger, raw: Raw, bad: str) -> None:
    await define(ledger, "test.disabled.v1")
    await ledger.run(workers.enable("test.disabled.v1", False))
    good, resting, ended, culprit = [await leased(ledger) for _ in range(4)]
    if bad == "the id of another run":
        await create(ledger, new(CHILD, id=uuid5(culprit.id, "bad#1")))
    rest, refusal = BAD_CHILDREN[bad]
    before = raw.everything()
    entries = [record(good), starting(good), starting(culprit, "bad#1", **rest), paused(resting, waiting(resting))]
    with pytest.raises(refusal):
        await flush(ledger, *entries, succeeded(ended))
    assert raw.everything() == before
    with pytest.raises(refusal):
        await flush(ledger, entries[2])
    assert raw.everything() == before
    assert await flush(ledger, *entries[:2], entries[3], succeeded(ended)) == [DONE] * 4


# The statement that was already under way (PostgreSQL; SQLite has one writer at a time)


@pytest.mark.parametrize("entry", ENTRIES)
async def test_an_entry_waits_for_the_row_looks_again_and_is_refused(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any], entry: str
) -> None:
    ledger, raw = pg
    stale = await leased(ledger)
    neighbour = await leased(ledger)
    other.execute(
        "UPDATE workflow.workflow_run SET lease_epoch = 2, version = version + 1 WHERE id = %s",
        [stale.id],
    )
    task = await held_up(raw, other, flush(ledger, record(neighbour), ENTRIES[entry](stale)))
    other.commit()
    assert await task == [DONE, LOST]
    assert raw.steps(stale.id) == []
    assert len(raw.steps(neighbour.id)) == 1
    assert raw.rows("type = ?", CHILD) == []
    assert raw.events(stale.id) == ["created", "leased"]
    run = await get(ledger, stale.id)
    assert (run.status, run.lease_epoch, run.leased_by) == (Status.LEASED, 2, "w1")


async def test_no_newer_epoch_can_come_while_a_checkpoint_is_under_way(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    """The interleaving in which an unfenced insert lands late (test_fencing.py): here the run's lock is held."""
    ledger, raw = pg
    lease = await leased(ledger)
    other.execute(
        "INSERT INTO workflow.workflow_step (run_id, step_id, kind, status, lease_epoch) "
        "VALUES (%s, 'charge#1', 'step', 'waiting', 0)",
        [lease.id],
    )
    task = await held_up(raw, other, flush(ledger, record(lease, output="1")))
    raw.sql("SET lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        raw.age(lease.id, 60, "lease_until")
    assert await sweep(ledger, "w1") == {}, "the sweep leaves alone what is being written"
    assert await claim(ledger, suspects=True) == []
    assert not task.done()
    other.rollback()
    assert await task == [DONE]
    assert [(row["lease_epoch"], row["status"]) for row in raw.steps(lease.id)] == [(1, "succeeded")]
    assert await sweep(ledger, "w1") == {lease.id: Status.PENDING}


async def test_a_flush_takes_its_locks_in_the_order_of_ids(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    """Parents and records alike: while it waits for the first run it holds none of the later ones."""
    ledger, raw = pg
    first, parent = await leased(ledger), await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    assert first.id < parent.id < child.id
    other.execute("SELECT 1 FROM workflow.workflow_run WHERE id = %s FOR UPDATE", [first.id])
    task = await held_up(raw, other, flush(ledger, record(first), succeeded(child)))
    for later in (parent, child):
        raw.sql("SELECT 1 FROM workflow.workflow_run WHERE id = ? FOR UPDATE NOWAIT", later.id)
    other.rollback()
    assert await task == [DONE, DONE]


async def test_a_parent_cancelled_first_gets_no_child(pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]) -> None:
    ledger, raw = pg
    parent = await leased(ledger)
    await run_on(other, ledger.url, runs.cancel([parent.id]))
    task = await held_up(raw, other, flush(ledger, starting(parent)))
    other.commit()
    assert await task == [LOST]
    assert raw.rows("type = ?", CHILD) == []
    assert raw.steps(parent.id) == []


async def test_a_parent_cancelled_second_takes_its_new_child_along(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    parent = await leased(ledger)
    assert await run_on(other, ledger.url, writing.write([starting(parent)], "w1")) == [DONE]
    task = await held_up(raw, other, ledger.run(runs.cancel([parent.id])))
    other.commit()
    (answer,) = await task
    assert answer.moved
    (child,) = raw.rows("type = ?", CHILD)
    check_invariants(child)
    assert child["status"] == "cancelled"


async def test_a_child_that_ends_while_its_parent_pauses_wakes_it(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    assert await run_on(other, ledger.url, writing.write([paused(parent)], "w1")) == [DONE]
    task = await held_up(raw, other, settle(ledger, succeeded(child)))
    other.commit()
    assert await task == [DONE]
    assert [woken.id for woken in await claim(ledger)] == [parent.id]


async def test_a_pause_that_waits_for_the_end_of_a_child_is_woken(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    parent = await leased(ledger)
    child = await leased(ledger, CHILD, parent_id=parent.id)
    assert await run_on(other, ledger.url, writing.write([succeeded(child)], "w1")) == [DONE]
    task = await held_up(raw, other, flush(ledger, paused(parent, waiting(parent))))
    other.commit()
    assert await task == [WOKEN]
    assert raw.steps(parent.id) == []
    assert raw.events(parent.id) == ["created", "leased"]
