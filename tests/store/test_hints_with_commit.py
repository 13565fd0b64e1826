"""A trigger that comes alone, and a run that ends alone, notify with their own commit (PostgreSQL): one round trip, one
hint, none when undone."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import pytest
from support.ledger import leased, succeeded

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.errors import StoreError, StoreUnavailable
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.records import NewRun
from simpleworkflow.runtime import hints
from simpleworkflow.runtime.hints import Hinter
from simpleworkflow.runtime.journal import Journal
from simpleworkflow.store import open_ledger
from simpleworkflow.store.drivers.postgres import PostgresDriver
from simpleworkflow.store.operations import runs, writing


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


async def test_a_run_that_ends_alone_is_told_with_its_commit_and_only_if_it_was_ours(postgres_url: str) -> None:
    ledger = open_ledger(postgres_url)
    lease = await leased(ledger)
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute("LISTEN simpleworkflow_workflow")
        ended = writing.write([succeeded(lease)], "w1", fused=True, telling=True)
        assert await ledger.run(ended) == [Outcome.DONE]
        assert heard(listener) == ["finished"]
        late = writing.write([succeeded(lease._replace(epoch=7))], "w1", fused=True, telling=True)
        assert await ledger.run(late) == [Outcome.LOST]
        assert heard(listener) == []
    await ledger.close()


async def test_a_worker_tells_once_of_a_run_that_ends_alone(postgres_url: str) -> None:
    app = swf.App(postgres_url)

    @app.workflow("t.alone.v1")
    async def alone(ctx: swf.Context, number: int) -> int:
        return number + 1

    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute("LISTEN simpleworkflow_workflow")
        async with app.worker(poll_every=60):
            assert await (await app.trigger(alone, 1)).result(timeout=10) == 2
        await app.close()  # the last hints are out
        assert [note.payload for note in listener.notifies(timeout=0.2)] == ["ready", "finished"]


async def test_an_end_whose_answer_was_lost_is_told_by_the_next_try(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try was not alone with its news and told nothing; the second finds the run ended and is silent, too."""
    ledger = open_ledger(postgres_url)
    hinter = Hinter(ledger)
    journal = Journal(ledger, hinter, capacity=10, worker="w1")
    lease = await leased(ledger)
    run, lost = ledger.run, 0

    async def losing(operation: Any, **rest: Any) -> Any:
        nonlocal lost
        answer = await run(operation, **rest)
        lost += 1
        if lost == 1:
            raise StoreUnavailable("the answer was lost")
        return answer

    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute("LISTEN simpleworkflow_workflow")
        assert hinter.may_tell_now(), "somebody else has this turn"
        monkeypatch.setattr(ledger, "run", losing)
        assert await journal.write(succeeded(lease)) is Outcome.DONE
        await hinter.stop()
        assert heard(listener) == ["finished"]
    assert lost == 2
    await ledger.close()


async def test_a_hint_that_the_server_refuses_fails_neither_a_trigger_nor_an_end(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue of notifications, which may be another database's doing, refuses the commit that brings one more."""
    execute, refused, both = PostgresDriver._execute, list[str](), {"insert_runs", "finish_counted"}

    async def full(self: PostgresDriver, connection: Any, wanted: Any) -> Any:
        if getattr(wanted, "name", "") in both and wanted.parameters["telling"]:
            refused.append(wanted.name)
            raise asyncpg.ProgramLimitExceededError("too many notifications in the NOTIFY queue")
        return await execute(self, connection, wanted)

    monkeypatch.setattr(PostgresDriver, "_execute", full)
    monkeypatch.setattr(hints, "SILENCE", 0.0)
    app = swf.App(postgres_url)

    @app.workflow("t.alone.v1", retry=swf.Retry(max_attempts=1))
    async def alone(ctx: swf.Context, number: int) -> int:
        return number + 1

    async with app.worker():
        for number in range(200):  # a hint rides with a commit when its turn comes, and these two share the turns
            assert await app.run(alone, number, timeout=10) == number + 1
            if both <= set(refused):
                break
    await app.close()
    assert both <= set(refused), "nothing was told with a commit"


async def test_after_a_refusal_commits_are_silent_for_a_while(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "PAUSE", 0.0)
    ledger = open_ledger(postgres_url)
    hinter = Hinter(ledger)
    assert not hinter.may_be_to_blame(StoreUnavailable("nobody was there to refuse it"))
    assert [hinter.may_tell_now() for _ in range(2)] == [True, True]
    assert hinter.may_be_to_blame(StoreError("too many notifications"))
    assert not hinter.may_tell_now()
    await ledger.close()


async def test_what_is_refused_for_its_own_sake_is_refused_without_a_hint_too(postgres_url: str) -> None:
    app = swf.App(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE workflow.workflow_run ADD CHECK (type <> 't.bad.v1')")
    with pytest.raises(StoreError):
        await app.trigger("t.bad.v1")
    await app.close()
