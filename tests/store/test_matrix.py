"""Every state, every move, every kind of lease, on every database: the law of model/moves.py, walked exhaustively.

A move that the law allows lands in one of its targets and writes its event. One that it refuses leaves the row as it
was, to the last column, and the audit trail silent. There is no third outcome. So it is with plain SQL, which makes the
moves that name it as a performer. The states are reached by lawful moves; what a move needs besides the state (a
deadline that passed, a lease that ran out, a hold to lift) is prepared, so that a refusal can have one reason only. The
cases share one PostgreSQL database, each with a type of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.ledger import (
    Raw,
    check_invariants,
    claim,
    create,
    exhausted,
    failed,
    flush,
    leased,
    offer,
    overran,
    paused,
    released,
    retried,
    set_aside,
    settle,
    stub,
    succeeded,
    sweep,
)
from support.postgres import Server

from simpleworkflow.clock import new_id
from simpleworkflow.model.moves import MOVES, PLAIN_SQL, PLAIN_SQL_ON_POSTGRES, Needs, Outcome
from simpleworkflow.model.records import Definition
from simpleworkflow.model.states import OPEN, Status
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs, workers

BY_JOURNAL: dict[str, Callable[[Any], Any]] = {
    "succeed": succeeded,
    "fail": failed,
    "retry": retried,
    "exhaust": exhausted,
    "set_aside": set_aside,
    "release": released,
    "pause": paused,
    "overrun": overran,
}
BY_CONTROL = {"cancel": runs.cancel, "hold": runs.hold, "resume": runs.resume, "revive": runs.revive}
PERFORMED = [name for name in MOVES if name != "create"]
CREDENTIALS = {
    Needs.NOTHING: ("none",),
    Needs.LEASE: ("right", "stale", "none"),
    Needs.ENDED_LEASE: ("ended", "live"),
}
CASES = [
    pytest.param(state, move, credential, id=f"{state}-{move}-{credential}")
    for state, move in product(Status, PERFORMED)
    for credential in CREDENTIALS[MOVES[move].needs]
]


@pytest.fixture(scope="module")
def postgres_url(postgres: Server) -> Iterator[str]:
    postgres.create_database("swf_matrix", template="template_swf")
    yield postgres.url("swf_matrix")
    postgres.drop_database("swf_matrix")


async def build(ledger: Ledger, raw: Raw, state: Status) -> UUID:
    """A run in that state; its epoch is 2 wherever a lease has been."""
    type = f"matrix.{new_id().hex}"
    if state is Status.PENDING:
        return (await create(ledger, type=type))[0]
    first = await leased(ledger, type)
    await settle(ledger, released(first))
    (lease,) = await claim(ledger, offer(type))
    endings = {Status.SUCCEEDED: succeeded, Status.FAILED: failed, Status.TIMED_OUT: overran}
    if state is Status.PAUSED:
        assert await flush(ledger, paused(lease, due_in=0.0)) == [Outcome.DONE]
    elif state is Status.CANCELLED:
        await ledger.run(runs.cancel([lease.id]))
    elif state in endings:
        assert await settle(ledger, endings[state](lease)) == [Outcome.DONE]
    return lease.id


def prepare(raw: Raw, run_id: UUID, move: str, credential: str) -> None:
    if move == "expire":
        raw.sql(f"UPDATE workflow.workflow_run SET deadline_at = {raw.now} {raw.back(5)} WHERE id = ?", run_id)
    if move == "resume":
        raw.sql(f"UPDATE workflow.workflow_run SET held_at = {raw.now} WHERE id = ?", run_id)
    if move in {"crash", "give_up", "hold_spent"}:
        raw.put(run_id, max_attempts=9 if move == "crash" else 1)
    if credential == "ended":
        raw.age(run_id, 60, "lease_until")


async def perform(ledger: Ledger, move: str, run_id: UUID, type: str, epoch: int) -> bool:
    """Make the move as its performer would; did it say that it moved?"""
    if move == "hold_spent":
        await ledger.run(workers.define([Definition(type, on_exhausted="hold")]))
    if move in BY_JOURNAL:
        return await flush(ledger, BY_JOURNAL[move](stub(run_id, epoch))) == [Outcome.DONE]
    if move in BY_CONTROL:
        build_operation: Callable[[list[UUID]], Any] = BY_CONTROL[move]
        (answer,) = await ledger.run(build_operation([run_id]))
        assert answer.run is not None
        return bool(answer.moved)
    others: dict[str, Callable[[], Awaitable[bool]]] = {
        "claim": lambda: _claimed(ledger, run_id, type),
        "crash": lambda: _swept(ledger, run_id, Status.PENDING),
        "give_up": lambda: _swept(ledger, run_id, Status.FAILED),
        "hold_spent": lambda: _swept(ledger, run_id, Status.PENDING),
        "expire": lambda: _expired(ledger, run_id),
    }
    return await others[move]()


async def _claimed(ledger: Ledger, run_id: UUID, type: str) -> bool:
    return run_id in {lease.id for lease in await claim(ledger, offer(type), worker="w2")}


async def _swept(ledger: Ledger, run_id: UUID, target: Status) -> bool:
    return (await sweep(ledger)).get(run_id) is target


async def _expired(ledger: Ledger, run_id: UUID) -> bool:
    return run_id in await ledger.run(leases.expire(limit=10))


def allowed(state: Status, move: str, credential: str) -> bool:
    return state in MOVES[move].sources and credential in {"right", "ended"} | (
        {"none"} if MOVES[move].needs is Needs.NOTHING else set()
    )


@pytest.mark.parametrize(("state", "move", "credential"), CASES)
async def test_a_move_lands_exactly_when_the_law_allows_it(
    ledger: Ledger, raw: Raw, state: Status, move: str, credential: str
) -> None:
    run_id = await build(ledger, raw, state)
    prepare(raw, run_id, move, credential)
    before, story = raw.row(run_id), raw.events(run_id)
    assert before["status"] == state
    epoch = {"right": before["lease_epoch"], "stale": before["lease_epoch"] - 1}.get(credential, 0)

    moved = await perform(ledger, move, run_id, before["type"], epoch)

    after, told = raw.row(run_id), raw.events(run_id)[len(story) :]
    check_invariants(after)
    assert moved is allowed(state, move, credential)
    if not moved:
        assert after == before
        assert told == []
        return
    law = MOVES[move]
    woken = ["woken"] if (state, move) == (Status.PAUSED, "claim") else []
    held = ["held"] if law.holds and move != "hold" else []
    assert [event for event in told if event != "started"] == [*woken, law.event, *held]
    assert (after["held_at"] is not None) == law.holds
    assert after["status"] == (state if law.targets == OPEN else next(iter(law.targets)))
    assert after["lease_epoch"] == before["lease_epoch"] + (1 if move == "claim" else 0)
    assert after["version"] > before["version"]


PAIRS = [pytest.param(*pair, id="-".join(pair)) for pair in product(Status, Status) if pair[0] is not pair[1]]
LEASE = "leased_by = 'another program', lease_until = "


def write_by_sql(raw: Raw, run_id: UUID, target: Status) -> bool:
    """Set the state as another program does, and its own lease with it; was it taken?"""
    lease = f", {LEASE}{raw.now} {raw.back(-30)}" if target is Status.LEASED else ""
    try:
        raw.sql(f"UPDATE workflow.workflow_run SET status = '{target}'{lease} WHERE id = ?", run_id)
    except (sqlite3.IntegrityError, psycopg.errors.CheckViolation):
        return False
    return True


@pytest.mark.parametrize(("state", "target"), PAIRS)
async def test_plain_sql_makes_the_moves_that_the_table_says_and_no_other(
    ledger: Ledger, raw: Raw, backend: str, state: Status, target: Status
) -> None:
    performers = {PLAIN_SQL} if backend == "sqlite" else {PLAIN_SQL, PLAIN_SQL_ON_POSTGRES}
    by_sql = [move for move in MOVES.values() if performers & set(move.performers)]
    lawful = [move for move in by_sql if state in move.sources and target in move.targets]
    run_id = await build(ledger, raw, state)
    before, story = raw.row(run_id), raw.events(run_id)

    assert write_by_sql(raw, run_id, target) is bool(lawful)

    after, told = raw.row(run_id), raw.events(run_id)[len(story) :]
    check_invariants(after)
    if lawful:
        assert after["status"] == target
        assert {event for event in told if event != "woken"} == {move.event for move in lawful}
    else:
        assert (after, told) == (before, [])


async def test_plain_sql_takes_a_lease_that_ended_where_the_table_says_so(
    ledger: Ledger, raw: Raw, backend: str
) -> None:
    """Two moves in one statement: the lease is taken back, and taken."""
    run_id = await build(ledger, raw, Status.LEASED)
    raw.put(run_id, max_attempts=9)
    raw.age(run_id, 60, "lease_until")
    story = raw.events(run_id)
    both = all(PLAIN_SQL_ON_POSTGRES in MOVES[name].performers for name in ("crash", "claim"))
    assert write_by_sql(raw, run_id, Status.LEASED) is (both and backend == "postgres")
    assert raw.events(run_id)[len(story) :] == (["retried", "leased"] if backend == "postgres" else [])


def test_the_matrix_knows_every_move_of_the_law() -> None:
    known = {*BY_JOURNAL, *BY_CONTROL, "claim", "crash", "give_up", "hold_spent", "expire"}
    assert set(PERFORMED) == known, "a new move needs a line in BY_JOURNAL or BY_CONTROL, or one in perform()"
