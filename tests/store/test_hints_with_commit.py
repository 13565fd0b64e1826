"""A trigger that comes alone notifies with its own commit (PostgreSQL): one round trip, one hint, none when undone."""

from __future__ import annotations

import psycopg

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.records import NewRun
from simpleworkflow.store import open_ledger
from simpleworkflow.store.operations import runs


def heard(listener: psycopg.Connection[tuple[object, ...]]) -> list[str]:
    return [note.payload for note in listener.notifies(timeout=1.0, stop_after=2)]


async def test_whoever_listens_hears_of_a_new_run_once(postgres_url: str) -> None:
    ledger = open_ledger(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute("LISTEN simpleworkflow_workflow")
        new = NewRun(new_id(), "t.told.v1", "1")
        (made,) = await ledger.run(runs.create([new], telling=True))
        assert made == runs.Created(new.id, True)
        assert heard(listener) == ["ready"]
        (again,) = await ledger.run(runs.create([new], telling=True))
        assert again == runs.Created(new.id, False)
        assert heard(listener) == [], "there is nothing new to tell"
    await ledger.close()


async def test_a_lone_trigger_sends_one_hint_and_a_crowd_shares_one(postgres_url: str) -> None:
    app = swf.App(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute("LISTEN simpleworkflow_workflow")
        await app.trigger("t.told.v1")
        assert heard(listener) == ["ready"]
        await app.trigger_many("t.told.v1", [None] * 50)
        assert heard(listener) == ["ready"]
    await app.close()
