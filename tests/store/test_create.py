"""Creation: one run per request, however often and by however many it is asked for (promise P9).

The answer to every request is an id and whether this call made it, or an error that harms no neighbour of the batch.
A bare INSERT is a complete trigger, so that any language can speak the contract; what it must not do, CHECKs refuse.
"""

from __future__ import annotations

import asyncio
import sqlite3
from uuid import UUID, uuid4

import psycopg
import pytest
from support.ledger import TYPE, Raw, claim, create, get, lanes, leased, new, settle, succeeded

from simpleworkflow.model.errors import IdempotencyConflict, NotRunnable
from simpleworkflow.model.names import EVERYTHING
from simpleworkflow.model.records import Created, Lane
from simpleworkflow.model.states import Status
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs, workers

REFUSED = (sqlite3.IntegrityError, psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation)


async def test_asking_twice_with_one_id_creates_once(ledger: Ledger, raw: Raw) -> None:
    wanted = new(payload='{"a":1}')
    first, second = [await ledger.run(runs.create([wanted])) for _ in range(2)]
    assert first == [Created(wanted.id, True)]
    assert second == [Created(wanted.id, False)]
    assert raw.events(wanted.id) == ["created"]


async def test_one_id_for_two_requests_is_a_conflict(ledger: Ledger) -> None:
    wanted = new(payload="1")
    await create(ledger, wanted)
    (other,) = await ledger.run(runs.create([new(id=wanted.id, payload="2")]))
    assert isinstance(other, IdempotencyConflict)
    assert str(wanted.id) in str(other)


async def test_one_key_gives_one_run(ledger: Ledger) -> None:
    (first,) = await create(ledger, idempotency_key="k", payload="[1]")
    (again,) = await ledger.run(runs.create([new(idempotency_key="k", payload="[1]")]))
    assert again == Created(first, False)


async def test_a_conflict_harms_no_neighbour(ledger: Ledger) -> None:
    (taken,) = await create(ledger, idempotency_key="k", payload="1")
    batch = [
        new(),
        new(idempotency_key="k", payload="2"),
        new(type="test.other.v1", idempotency_key="k", payload="1"),
        new(idempotency_key="k", payload="1"),
        new(idempotency_key="free"),
    ]
    answers = await ledger.run(runs.create(batch))
    assert answers[0] == Created(batch[0].id, True)
    assert isinstance(answers[1], IdempotencyConflict)
    assert "another payload" in str(answers[1])
    assert isinstance(answers[2], IdempotencyConflict)
    assert TYPE in str(answers[2])
    assert answers[3] == Created(taken, False)
    assert answers[4] == Created(batch[4].id, True)


async def test_one_key_twice_in_a_batch_is_one_run(ledger: Ledger, raw: Raw) -> None:
    answers = await ledger.run(runs.create([new(idempotency_key="k"), new(idempotency_key="k")]))
    ids = {answer.id for answer in answers if isinstance(answer, Created)}
    assert len(ids) == 1
    assert sorted(answer.is_new for answer in answers if isinstance(answer, Created)) == [False, True]
    assert len(raw.rows("idempotency_key = 'k'")) == 1


async def test_one_id_twice_in_a_batch_is_one_run(ledger: Ledger, raw: Raw) -> None:
    wanted = new()
    answers = await ledger.run(runs.create([wanted, wanted]))
    assert answers == [Created(wanted.id, True), Created(wanted.id, False)]
    assert raw.events(wanted.id) == ["created"]


async def test_one_key_with_two_payloads_in_a_batch_is_a_conflict_for_one(ledger: Ledger, raw: Raw) -> None:
    answers = await ledger.run(
        runs.create([new(idempotency_key="k", payload="1"), new(idempotency_key="k", payload="2")])
    )
    assert {type(answer) for answer in answers} == {Created, IdempotencyConflict}
    assert len(raw.rows("idempotency_key = 'k'")) == 1


async def test_soft_delete_frees_the_key(ledger: Ledger) -> None:
    (first,) = await create(ledger, idempotency_key="k", payload="1")
    await ledger.run(runs.delete([first]))
    (second,) = await create(ledger, idempotency_key="k", payload="2")
    assert second != first
    (third,) = await create(ledger, idempotency_key="k", payload="2")
    assert third == second


async def test_a_finished_run_keeps_its_key(ledger: Ledger) -> None:
    lease = await leased(ledger, idempotency_key="k")
    await settle(ledger, succeeded(lease))
    assert await create(ledger, idempotency_key="k") == [lease.id]


@pytest.mark.parametrize(
    ("stored", "asked", "same"),
    [
        ('{"a":1,"b":[2]}', '{ "b": [2], "a": 1 }', True),
        ("1", "1.0", True),
        ("1", "true", False),
        ("0", "false", False),
        ('"1"', "1", False),
        ("null", "{}", False),
        ("[1,2]", "[2,1]", False),
        ('"\\u00e9"', '"é"', True),
    ],
)
async def test_payloads_are_compared_as_json(ledger: Ledger, stored: str, asked: str, same: bool) -> None:
    (first,) = await create(ledger, idempotency_key="k", payload=stored)
    (answer,) = await ledger.run(runs.create([new(idempotency_key="k", payload=asked)]))
    assert (answer == Created(first, False)) is same
    assert isinstance(answer, Created if same else IdempotencyConflict)


async def test_many_creators_of_one_key_get_one_run(ledger: Ledger, raw: Raw) -> None:
    keys = [f"key-{n:03}" for n in range(200)]

    async def creator(number: int) -> list[UUID]:
        mine = keys[number:] + keys[:number]  # everyone starts elsewhere
        made = await create(ledger, *(new(idempotency_key=key, payload="{}") for key in mine))
        by_key = dict(zip(mine, made, strict=True))
        return [by_key[key] for key in keys]

    everyone = await asyncio.gather(*(creator(number) for number in range(32)))
    assert all(answer == everyone[0] for answer in everyone)
    assert len(set(everyone[0])) == 200
    (count,) = raw.sql("SELECT count(*) AS n FROM workflow.workflow_run")
    (told,) = raw.sql("SELECT count(*) AS n FROM workflow.workflow_event WHERE event_type = 'created'")
    assert (count["n"], told["n"]) == (200, 200)


async def test_client_ids_of_any_version_are_kept(ledger: Ledger) -> None:
    ids = [uuid4(), UUID(int=0), UUID(int=2**128 - 1)]
    assert await create(ledger, *(new(id=one) for one in ids)) == ids
    assert {lease.id for lease in await claim(ledger)} == set(ids)


async def test_a_disabled_definition_is_neither_triggered_nor_claimed(ledger: Ledger, raw: Raw) -> None:
    (before,) = await create(ledger)
    await ledger.run(workers.enable(TYPE, False))
    refused, made = await ledger.run(runs.create([new(), new(type="test.other.v1")]))
    assert isinstance(refused, NotRunnable)
    assert TYPE in str(refused)
    assert isinstance(made, Created)
    assert [lane.type for lane in await lanes(ledger)] == ["test.other.v1"]
    await ledger.run(workers.enable(TYPE, True))
    assert [lane.type for lane in await lanes(ledger)] == ["test.other.v1", TYPE]
    assert raw.row(before)["status"] == "pending"


async def test_a_known_key_of_a_disabled_definition_still_answers(ledger: Ledger) -> None:
    (first,) = await create(ledger, idempotency_key="k")
    await ledger.run(workers.enable(TYPE, False))
    assert await create(ledger, idempotency_key="k") == [first]


async def test_a_request_is_stored_as_asked(ledger: Ledger) -> None:
    (run_id,) = await create(
        ledger,
        payload='{"n":[1,2.5,"é\\ud83d\\ude00",null,true]}',
        priority=7,
        delay=60,
        max_attempts=5,
        start_within=90,
    )
    run = await get(ledger, run_id)
    assert run.payload == {"n": [1, 2.5, "é😀", None, True]}
    assert (run.status, run.priority, run.max_attempts, run.attempt) == (Status.PENDING, 7, 5, 0)
    assert run.run_at is not None
    assert run.start_by is not None
    assert (run.run_at - run.created_at).total_seconds() == 60
    assert (run.start_by - run.run_at).total_seconds() == 90
    assert await claim(ledger) == []


async def test_an_empty_batch_creates_nothing(ledger: Ledger) -> None:
    assert await ledger.run(runs.create([])) == []


async def test_a_bare_insert_is_a_complete_trigger(ledger: Ledger, raw: Raw) -> None:
    raw.sql("INSERT INTO workflow.workflow_run (type, payload) VALUES (?, ?)", TYPE, '{"from":"sql"}')
    ((lane,), _, _) = await ledger.run(leases.find_lanes([EVERYTHING], Lane("", -1), 10))
    assert lane == (TYPE, 100)
    (lease,) = await claim(ledger)
    assert lease.payload == '{"from":"sql"}'
    assert lease.id.version == 7
    assert lease.id.variant == "specified in RFC 4122"
    assert raw.events(lease.id) == ["created", "leased"]
    run = await get(ledger, lease.id)
    assert abs((lease.id.int >> 80) / 1000 - run.created_at.timestamp()) < 1


async def test_bare_inserts_get_different_ids(ledger: Ledger, raw: Raw) -> None:
    values = ", ".join(["('test.work.v1')"] * 500)
    raw.sql(f"INSERT INTO workflow.workflow_run (type) VALUES {values}")
    ids = [UUID(str(row["id"])) for row in raw.rows("1 = 1")]
    assert len(set(ids)) == 500
    assert {one.version for one in ids} == {7}


@pytest.mark.parametrize(
    "columns",
    [
        {"type": ""},
        {"type": "white space"},
        {"type": "quo'te"},
        {"type": "x" * 201},
        {"type": None},
        {"priority": 1000},
        {"priority": -1},
        {"status": "running"},
        {"status": "leased"},
        {"status": "succeeded"},
        {"leased_by": "me"},
        {"run_at": None},
        {"attempt": -1},
        {"max_attempts": 0},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 256},
        {"payload": None},
    ],
    ids=lambda columns: ",".join(f"{k}={str(v)[:12]}" for k, v in columns.items()),
)
async def test_a_bare_insert_that_breaks_the_law_is_refused(raw: Raw, columns: dict[str, object]) -> None:
    row = {"type": TYPE, **columns}
    marks = ", ".join("?" * len(row))
    with pytest.raises(REFUSED):
        raw.sql(f"INSERT INTO workflow.workflow_run ({', '.join(row)}) VALUES ({marks})", *row.values())
    assert raw.rows("1 = 1") == []


async def test_a_payload_that_is_not_json_is_refused(raw: Raw) -> None:
    with pytest.raises((sqlite3.IntegrityError, psycopg.DataError)):
        raw.sql("INSERT INTO workflow.workflow_run (type, payload) VALUES (?, ?)", TYPE, "{nope")
