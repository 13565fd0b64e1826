"""One key in somebody's open transaction holds up its own callers, nobody else. PostgreSQL: SQLite has one writer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest

import simpleworkflow as swf

KEY = "order-held"
INSERT = "INSERT INTO workflow.workflow_run (type, payload, idempotency_key) VALUES ('t.key.v1', '1', %s)"


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[swf.App]:
    app = swf.App(postgres_url, settings=swf.Settings(store_timeout=8))
    yield app
    await app.close()


async def test_innocent_triggers_go_on_while_a_key_is_locked(app: swf.App, postgres_url: str) -> None:
    await app.trigger("t.key.v1", 0)
    with psycopg.connect(postgres_url) as other:
        other.execute(INSERT, (KEY,))
        blocked = [asyncio.create_task(app.trigger("t.key.v1", 1, idempotency_key=KEY)) for _ in range(5)]
        started = time.monotonic()
        innocents = await asyncio.gather(*(app.trigger("t.key.v1", n, idempotency_key=f"k-{n}") for n in range(49)))
        assert time.monotonic() - started < 4
        assert len({handle.id for handle in innocents}) == 49
        assert not any(task.done() for task in blocked), "the locked key waits for its transaction"
        other.commit()
        handles = await asyncio.gather(*blocked)
    assert len({handle.id for handle in handles}) == 1
    assert {handle.is_new for handle in handles} == {False}


async def test_a_key_that_is_released_by_rollback_is_created_once(app: swf.App, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute(INSERT, (KEY,))
        blocked = [asyncio.create_task(app.trigger("t.key.v1", 1, idempotency_key=KEY)) for _ in range(3)]
        await asyncio.wait(blocked, timeout=0.7)
        other.rollback()
        handles = await asyncio.gather(*blocked)
    assert len({handle.id for handle in handles}) == 1
    assert sum(bool(handle.is_new) for handle in handles) == 1


async def test_a_key_that_stays_locked_is_a_clear_error_in_time(postgres_url: str) -> None:
    app = swf.App(postgres_url, settings=swf.Settings(store_timeout=1.5))
    await app.doctor.check()
    with psycopg.connect(postgres_url) as other:
        other.execute(INSERT, (KEY,))
        started = time.monotonic()
        with pytest.raises(swf.StoreUnavailable, match="open transaction holds idempotency key 'order-held'"):
            await app.trigger("t.key.v1", 1, idempotency_key=KEY)
        assert time.monotonic() - started < 5
        other.rollback()
    await app.trigger("t.key.v1", 1, idempotency_key=KEY)
    assert [run.idempotency_key async for run in app.runs()] == [KEY], "one run, whichever call made it"
    await app.close()
