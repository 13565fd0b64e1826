"""Signals (P6): an accepted one is consumed exactly once, in order per name, or listed as unconsumed at the end.

A signal touches the run first and is inserted second. So it meets a finish or a pause at the run's row, and one of two
things happens: it is accepted and seen (the pause is refused, or the paused run becomes due), or it is refused because
the run has finished. The PostgreSQL tests at the end hold either side up in the middle and look at both outcomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import (
    Raw,
    check_invariants,
    check_path,
    claim,
    create,
    failed,
    flush,
    held_up,
    history,
    leased,
    new,
    overran,
    paused,
    record,
    released,
    retried,
    settle,
    stub,
    succeeded,
    sweep,
    tell,
    waiting,
)

from simpleworkflow.model.errors import AlreadyFinished, IdempotencyConflict, RunNotFound, StoreError
from simpleworkflow.model.moves import Outcome, Record
from simpleworkflow.model.records import Lease, Signal
from simpleworkflow.model.states import Status, StepKind
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.drivers.borrowed import run_on
from simpleworkflow.store.operations import leases, runs, steps, writing

DONE, WOKEN, LOST = Outcome.DONE, Outcome.WOKEN, Outcome.LOST


def awaited(lease: Any, step_id: str = "go#1") -> Record:
    return waiting(lease, step_id, kind=StepKind.SIGNAL)


def consuming(lease: Any, signal: Signal, step_id: str = "go#1") -> Record:
    return record(lease, step_id, kind=StepKind.SIGNAL, output=signal.payload_json, signal_id=signal.id)


async def unread(ledger: Ledger, run_id: UUID) -> list[Signal]:
    return (await history(ledger, run_id)).signals


async def listed(ledger: Ledger, run_id: UUID) -> list[Signal]:
    return await ledger.run(steps.signals_of(run_id))


# Accepted


async def test_a_signal_may_come_before_the_first_claim(ledger: Ledger, raw: Raw) -> None:
    (run_id,) = await create(ledger)
    signal_id = await tell(ledger, run_id, "go", '{"by":"ada"}')
    (lease,) = await claim(ledger)
    assert (lease.wakes, lease.is_fresh) == (1, False), "such a run must not skip its history"
    (signal,) = await unread(ledger, run_id)
    assert (signal.id, signal.run_id, signal.name, signal.payload) == (signal_id, run_id, "go", {"by": "ada"})
    assert isinstance(signal.created_at, datetime)
    assert signal.consumed_at is None
    assert raw.events(run_id) == ["created", "leased"]


async def test_a_signal_to_a_leased_run_is_seen_by_its_worker(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    before = raw.row(lease.id)
    await tell(ledger, lease.id)
    after = raw.row(lease.id)
    assert (after["status"], after["run_at"], after["lease_until"]) == (
        "leased",
        before["run_at"],
        before["lease_until"],
    )
    (news,) = await ledger.run(leases.check_leases([(lease.id, lease.epoch)], "w1"))
    assert (news.owned, news.wakes) == (True, 1)
    assert len(await unread(ledger, lease.id)) == 1


async def test_a_signal_between_reading_and_pausing_refuses_the_pause(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    assert await unread(ledger, lease.id) == []
    await tell(ledger, lease.id)
    before = raw.everything()
    assert await flush(ledger, paused(lease, awaited(lease))) == [WOKEN]
    assert raw.everything() == before
    state, again = await ledger.run(steps.reload(lease.id, lease.epoch, "w1"))
    wakes = state.wakes
    assert (wakes, len(again.signals)) == (1, 1)
    assert await flush(ledger, consuming(lease, again.signals[0]), paused(lease, wakes=wakes)) == [DONE, DONE]


def test_the_counter_is_read_no_later_than_the_history_that_it_guards() -> None:
    asked = []
    steps_of_it = steps.reload(new().id, 1, "w1").steps()
    wanted: Any = next(steps_of_it)
    while True:
        asked.append(wanted.name)
        try:
            wanted = steps_of_it.send([])
        except StopIteration:
            break
    assert asked == ["lease_states", "load_steps", "load_signals"]


async def test_a_signal_wakes_a_run_that_waits_for_it(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, paused(lease, awaited(lease)))
    assert await claim(ledger) == []
    await tell(ledger, lease.id)
    row = raw.row(lease.id)
    check_invariants(row)
    assert (row["status"], row["wakes"]) == ("paused", 1), "the claim moves it, not the signal"
    assert raw.events(lease.id)[-1] == "paused"
    (again,) = await claim(ledger)
    assert (again.id, again.wakes, again.attempt) == (lease.id, 1, 0)
    assert raw.events(lease.id)[-2:] == ["woken", "leased"]
    assert check_path(raw.events(lease.id)) is Status.LEASED


async def test_a_signal_wakes_a_sleeping_run_early_but_delays_no_due_one(ledger: Ledger, raw: Raw) -> None:
    sleeping, due = await leased(ledger), await leased(ledger)
    await flush(ledger, paused(sleeping, due_in=3600), paused(due, due_in=0))
    raw.age(due.id, 10, "run_at")
    before = raw.row(due.id)["run_at"]
    for lease in (sleeping, due):
        await tell(ledger, lease.id)
    assert raw.delay(sleeping.id) == 0.0
    assert raw.row(due.id)["run_at"] == before
    assert [lease.id for lease in await claim(ledger)] == [due.id, sleeping.id]


async def test_a_signal_does_not_shorten_the_backoff_of_a_failed_attempt(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await settle(ledger, retried(lease, delay=60))
    before = raw.row(lease.id)["run_at"]
    await tell(ledger, lease.id)
    assert raw.row(lease.id)["run_at"] == before
    assert await claim(ledger) == []


async def test_a_held_paused_run_is_not_claimed_but_its_signal_is_kept(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await flush(ledger, paused(lease, awaited(lease)))
    await ledger.run(runs.hold([lease.id]))
    await tell(ledger, lease.id)
    row = raw.row(lease.id)
    assert (row["status"], row["wakes"]) == ("paused", 1)
    assert raw.delay(lease.id) == 0.0
    assert await claim(ledger) == []
    await ledger.run(runs.resume([lease.id]))
    assert [again.id for again in await claim(ledger)] == [lease.id]
    assert len(await unread(ledger, lease.id)) == 1


async def test_a_refused_name_leaves_no_trace(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    before = raw.everything()
    for name in ("", "x" * 201):
        with pytest.raises(StoreError):
            await tell(ledger, lease.id, name)
    assert raw.everything() == before


# Order


async def test_signals_are_read_in_the_order_in_which_they_were_accepted(ledger: Ledger, raw: Raw) -> None:
    one, two = await leased(ledger), await leased(ledger)
    for n in range(4):
        for lease in (two, one):
            await tell(ledger, lease.id, "go", str(n))
            await tell(ledger, lease.id, "stop", str(-n))
    found = await ledger.run(steps.load([one.id, two.id]))
    for lease in (one, two):
        signals = found[lease.id].signals
        assert [s.payload for s in signals if s.name == "go"] == [0, 1, 2, 3]
        assert [s.payload for s in signals if s.name == "stop"] == [0, -1, -2, -3]
        assert [s.id for s in signals] == [s.id for s in await listed(ledger, lease.id)]
        assert [str(row["id"]) for row in raw.signals(lease.id)] == [str(s.id) for s in signals]


async def test_an_older_id_does_not_jump_the_queue(ledger: Ledger) -> None:
    """Clients choose ids as they like; the order is the order of acceptance."""
    lease = await leased(ledger)
    await tell(ledger, lease.id, payload="1", id=UUID(int=9))
    await tell(ledger, lease.id, payload="2", id=UUID(int=1))
    assert [signal.payload for signal in await unread(ledger, lease.id)] == [1, 2]


async def test_signals_sent_at_once_all_arrive_and_keep_one_order(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    sent = await asyncio.gather(*(tell(ledger, lease.id, payload=str(n)) for n in range(30)))
    assert {signal.id for signal in await unread(ledger, lease.id)} == set(sent)
    first = await unread(ledger, lease.id)
    assert first == await unread(ledger, lease.id)
    assert [str(row["id"]) for row in raw.signals(lease.id)] == [str(signal.id) for signal in first]
    assert raw.row(lease.id)["wakes"] == 30


async def test_loading_one_run_twice_lists_its_signals_once(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await tell(ledger, lease.id)
    found = await ledger.run(steps.load([lease.id, lease.id]))
    assert len(found[lease.id].signals) == 1


# Refused


async def _cancel(ledger: Ledger, lease: Lease) -> None:
    await ledger.run(runs.cancel([lease.id]))


async def _delete(ledger: Ledger, lease: Lease) -> None:
    await ledger.run(runs.delete([lease.id]))


ENDS: dict[str, Callable[[Ledger, Lease], Awaitable[Any]]] = {
    "succeeded": lambda ledger, lease: settle(ledger, succeeded(lease)),
    "failed": lambda ledger, lease: settle(ledger, failed(lease)),
    "timed_out": lambda ledger, lease: settle(ledger, overran(lease)),
    "cancelled": _cancel,
    "deleted": _delete,
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_signal_to_a_finished_run_is_refused(ledger: Ledger, raw: Raw, end: str) -> None:
    lease = await leased(ledger)
    await ENDS[end](ledger, lease)
    before = raw.everything()
    with pytest.raises(AlreadyFinished, match=f"{lease.id} (has|was) already"):
        await tell(ledger, lease.id)
    assert raw.everything() == before


async def test_a_signal_to_an_unknown_run_is_refused(ledger: Ledger, raw: Raw) -> None:
    before = raw.everything()
    with pytest.raises(RunNotFound):
        await tell(ledger, new().id)
    assert raw.everything() == before


async def test_a_revived_run_is_told_again_and_finds_what_it_had_not_read(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await tell(ledger, lease.id, payload="1")
    await settle(ledger, failed(lease))
    await ledger.run(runs.revive([lease.id]))
    await tell(ledger, lease.id, payload="2")
    assert [signal.payload for signal in await unread(ledger, lease.id)] == [1, 2]


# Sent twice


async def test_the_same_signal_twice_is_one_signal(ledger: Ledger) -> None:
    lease = await leased(ledger)
    signal_id = await tell(ledger, lease.id, payload="[1]")
    await tell(ledger, lease.id, payload="[ 1 ]", id=signal_id)
    assert [signal.payload for signal in await unread(ledger, lease.id)] == [[1]]


async def test_the_same_signal_after_it_was_consumed_is_not_read_again(ledger: Ledger) -> None:
    lease = await leased(ledger)
    signal_id = await tell(ledger, lease.id)
    (signal,) = await unread(ledger, lease.id)
    await flush(ledger, consuming(lease, signal))
    await tell(ledger, lease.id, id=signal_id)
    assert await unread(ledger, lease.id) == []
    assert len(await listed(ledger, lease.id)) == 1


@pytest.mark.parametrize("end", ENDS)
async def test_a_signal_that_was_accepted_stays_accepted_when_it_is_sent_again_too_late(
    ledger: Ledger, raw: Raw, end: str
) -> None:
    """A client that never saw the answer asks again; meanwhile the run has read it and finished."""
    lease = await leased(ledger)
    signal_id = await tell(ledger, lease.id)
    await ENDS[end](ledger, lease)
    before = raw.everything()
    await tell(ledger, lease.id, id=signal_id)
    assert raw.everything() == before


@pytest.mark.parametrize("difference", ["run", "name", "payload"])
@pytest.mark.parametrize("finished", [False, True], ids=["open", "finished"])
async def test_one_id_for_two_different_signals_is_a_clear_error(
    ledger: Ledger, raw: Raw, difference: str, finished: bool
) -> None:
    """Otherwise the second would count as accepted and never be read."""
    lease, stranger = await leased(ledger), await leased(ledger)
    signal_id = await tell(ledger, lease.id)
    if finished:
        await settle(ledger, succeeded(lease), succeeded(stranger))
    before = raw.everything()
    rest: dict[str, Any] = {"name": {"name": "stop"}, "payload": {"payload": "1"}}.get(difference, {})
    with pytest.raises(IdempotencyConflict, match=str(signal_id)):
        await tell(ledger, stranger.id if difference == "run" else lease.id, id=signal_id, **rest)
    assert raw.everything() == before


# Consumed


async def test_a_signal_is_consumed_with_the_record_that_read_it(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await tell(ledger, lease.id, payload="1")
    await tell(ledger, lease.id, payload="2")
    first, second = await unread(ledger, lease.id)
    assert await flush(ledger, consuming(lease, first)) == [DONE]
    assert await unread(ledger, lease.id) == [second]
    assert (await history(ledger, lease.id)).steps["go#1"].output_json == "1"
    one, two = await listed(ledger, lease.id)
    assert isinstance(one.consumed_at, datetime)
    assert two.consumed_at is None
    assert [row["consumed_by"] for row in raw.signals(lease.id)] == ["go#1", None]


async def test_a_lost_lease_consumes_nothing(ledger: Ledger, raw: Raw) -> None:
    lease, neighbour = await leased(ledger), await leased(ledger)
    for one in (lease, neighbour):
        await tell(ledger, one.id)
    (signal,), (beside,) = await unread(ledger, lease.id), await unread(ledger, neighbour.id)
    raw.age(lease.id, 60, "lease_until")
    await sweep(ledger)
    (current,) = await claim(ledger, suspects=True)
    before = raw.signals(lease.id)
    assert await flush(ledger, consuming(lease, signal), consuming(neighbour, beside)) == [LOST, DONE]
    assert raw.signals(lease.id) == before
    assert raw.steps(lease.id) == []
    assert await unread(ledger, neighbour.id) == []
    assert await unread(ledger, lease.id) == [signal]
    assert await flush(ledger, consuming(current, signal)) == [DONE]


async def test_consuming_again_after_an_ambiguous_commit_changes_nothing(ledger: Ledger, raw: Raw) -> None:
    lease = await leased(ledger)
    await tell(ledger, lease.id)
    (signal,) = await unread(ledger, lease.id)
    await flush(ledger, consuming(lease, signal))
    before = raw.signals(lease.id)
    assert await flush(ledger, consuming(lease, signal)) == [DONE]
    assert raw.signals(lease.id) == before


async def test_a_signal_is_consumed_with_the_end_of_its_run(ledger: Ledger) -> None:
    lease = await leased(ledger)
    await tell(ledger, lease.id)
    (signal,) = await unread(ledger, lease.id)
    assert await flush(ledger, succeeded(lease), consuming(lease, signal)) == [DONE, DONE]
    assert [one.consumed_at is None for one in await listed(ledger, lease.id)] == [False]


@pytest.mark.parametrize("end", ENDS)
async def test_what_nobody_consumed_is_listed_at_the_end(ledger: Ledger, end: str) -> None:
    lease = await leased(ledger)
    sent = [await tell(ledger, lease.id, name) for name in ("go", "stop", "go")]
    (first, *_) = await unread(ledger, lease.id)
    await flush(ledger, consuming(lease, first))
    await ENDS[end](ledger, lease)
    assert [(one.id, one.consumed_at is None) for one in await listed(ledger, lease.id)] == [
        (sent[0], False),
        (sent[1], True),
        (sent[2], True),
    ]


async def test_signals_survive_a_release_and_a_failed_attempt(ledger: Ledger) -> None:
    lease = await leased(ledger)
    sent = await tell(ledger, lease.id)
    await settle(ledger, released(lease))
    (again,) = await claim(ledger)
    await settle(ledger, retried(again))
    await claim(ledger)
    assert [signal.id for signal in await unread(ledger, lease.id)] == [sent]


# Everything at once


async def serve(ledger: Ledger, run_id: UUID, number: int) -> list[int]:
    """A worker in little: claim, read, consume one after the other, pause; until so many were read."""
    read: list[int] = []
    while len(read) < number:
        for lease in await claim(ledger):
            assert lease.id == run_id
            wakes, known = lease.wakes, await history(ledger, run_id)
            while True:
                for signal in known.signals:
                    assert await flush(ledger, consuming(lease, signal, f"go#{len(read)}")) == [DONE]
                    read.append(signal.payload)
                outcome = await flush(ledger, paused(lease, awaited(lease, f"go#{len(read)}"), wakes=wakes))
                if outcome == [DONE]:
                    break
                assert outcome == [WOKEN]
                state, known = await ledger.run(steps.reload(run_id, lease.epoch, "w1"))
                wakes = state.wakes
        await asyncio.sleep(0)
    return read


async def test_no_signal_is_lost_between_reading_and_pausing(ledger: Ledger, raw: Raw, url: str) -> None:
    """Senders race a worker that pauses whenever it has read all it knows; a lost wake would leave it asleep."""
    (run_id,) = await create(ledger)
    sender = open_ledger(url)

    async def send(first: int) -> None:
        for n in range(first, first + 10):
            await tell(sender, run_id, payload=str(n))

    async with asyncio.timeout(60):
        read, *_ = await asyncio.gather(serve(ledger, run_id, 40), *(send(first) for first in (0, 10, 20, 30)))
    await sender.close()
    assert sorted(read) == list(range(40))
    for first in (0, 10, 20, 30):
        assert [n for n in read if first <= n < first + 10] == list(range(first, first + 10)), "in order per sender"
    assert all(one.consumed_at for one in await listed(ledger, run_id))
    assert raw.row(run_id)["wakes"] == 40
    check_invariants(raw.row(run_id))
    assert check_path(raw.events(run_id)) is Status.PAUSED


# The statement that was already under way (PostgreSQL; SQLite has one writer at a time)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_a_signal_behind_a_finish_is_refused_or_accepted_as_the_finish_goes(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any], commits: bool
) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    assert await run_on(other, ledger.url, writing.write([succeeded(lease)], "w1")) == [DONE]
    task = await held_up(raw, other, tell(ledger, lease.id))
    if commits:
        other.commit()
        with pytest.raises(AlreadyFinished):
            await task
        assert raw.signals(lease.id) == []
        assert raw.row(lease.id)["wakes"] == 0
    else:
        other.rollback()
        sent = await task
        assert [signal.id for signal in await unread(ledger, lease.id)] == [sent]


async def test_a_finish_behind_a_signal_lands_and_leaves_it_listed(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    signal_id = new().id
    await run_on(other, ledger.url, steps.send(signal_id, lease.id, "go", "null"))
    task = await held_up(raw, other, settle(ledger, succeeded(lease)))
    other.commit()
    assert await task == [DONE]
    assert [(one.id, one.consumed_at) for one in await listed(ledger, lease.id)] == [(signal_id, None)]
    assert raw.row(lease.id)["status"] == "succeeded"


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_a_pause_behind_a_signal_looks_again_or_rests_as_the_signal_goes(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any], commits: bool
) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    await run_on(other, ledger.url, steps.send(new().id, lease.id, "go", "null"))
    task = await held_up(raw, other, flush(ledger, paused(lease, awaited(lease))))
    if commits:
        other.commit()
        assert await task == [WOKEN]
        assert raw.steps(lease.id) == []
        assert raw.row(lease.id)["status"] == "leased"
        assert len(await unread(ledger, lease.id)) == 1
    else:
        other.rollback()
        assert await task == [DONE]
        assert raw.row(lease.id)["run_at"] is None
        assert await unread(ledger, lease.id) == []


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
async def test_a_signal_behind_a_pause_wakes_the_paused_run(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any], held: bool
) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    if held:
        await ledger.run(runs.hold([lease.id]))
    assert await run_on(other, ledger.url, writing.write([paused(lease, awaited(lease))], "w1")) == [DONE]
    task = await held_up(raw, other, tell(ledger, lease.id))
    other.commit()
    signal_id = await task
    row = raw.row(lease.id)
    assert (row["status"], row["wakes"]) == ("paused", 1)
    assert row["run_at"] is not None
    assert [again.id for again in await claim(ledger)] == ([] if held else [lease.id])
    assert [signal.id for signal in await unread(ledger, lease.id)] == [signal_id]


async def test_a_signal_behind_a_signal_comes_second(pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    await run_on(other, ledger.url, steps.send(new().id, lease.id, "go", "1"))
    task = await held_up(raw, other, tell(ledger, lease.id, payload="2"))
    other.commit()
    await task
    assert [signal.payload for signal in await unread(ledger, lease.id)] == [1, 2]
    assert len({row["seq"] for row in raw.signals(lease.id)}) == 2


async def test_a_consumption_that_waited_for_a_newer_epoch_consumes_nothing(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    await tell(ledger, lease.id)
    (signal,) = await unread(ledger, lease.id)
    other.execute(
        "UPDATE workflow.workflow_run SET lease_epoch = 2, version = version + 1 WHERE id = %s",
        [lease.id],
    )
    task = await held_up(raw, other, flush(ledger, consuming(lease, signal)))
    other.commit()
    assert await task == [LOST]
    assert await unread(ledger, lease.id) == [signal]
    assert await flush(ledger, consuming(stub(lease.id, 2), signal)) == [DONE]
    assert await unread(ledger, lease.id) == []
