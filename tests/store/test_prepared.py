"""What a connection has to find out before it can work, on PostgreSQL: as little as possible, and once.

Left to itself the server plans every claim of a table that it has counted anew, and asyncpg asks each new connection
what an array is; both cost more than what they are for. What is planned once must not be what depends on the question:
a page of a listing costs a page, wherever it begins.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import pytest
from support.ledger import claim, create, new, settle, succeeded
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.store import open_ledger
from simpleworkflow.store.operations import runs

OFTEN = 8
"""PostgreSQL compares plans after the fifth execution."""


async def test_what_a_worker_does_all_day_is_planned_once(postgres_url: str) -> None:
    ledger = open_ledger(postgres_url)
    await create(ledger, *(new() for _ in range(300)))
    with psycopg.connect(postgres_url, autocommit=True) as operator:
        operator.execute("ANALYZE")
    for _ in range(OFTEN):
        await settle(ledger, *map(succeeded, await claim(ledger, limit=10)))
    (connection,) = ledger._driver._idle
    plans = await connection.fetch(
        "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE 'WITH due%'"
    )
    assert [(plan["generic_plans"], plan["custom_plans"]) for plan in plans] == [(OFTEN, 0)]
    await ledger.close()


async def test_no_connection_is_asked_what_its_types_are(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that comes alone needs no arrays, all its life: a step, an event for others, a signal, a child."""
    asked: list[Any] = []
    introspect = asyncpg.Connection._introspect_types

    async def noted(self: Any, typeoids: Any, timeout: Any) -> Any:
        asked.append(typeoids)
        return await introspect(self, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", noted)
    app = swf.App(postgres_url)

    @app.workflow("t.life.v1")
    async def life(ctx: swf.Context, number: int) -> int:
        if number == 0:
            return 1
        number = await ctx.step("add", lambda n: n + 1, number)
        await ctx.emit("t.happened", {"number": number})
        number += await ctx.wait_for_signal("more", int)
        return number + await ctx.run("t.life.v1", 0)

    async with app.worker():
        handle = await app.trigger(life, 1)
        await handle.signal("more", 10)
        assert await handle.result() == 13
    await app.close()
    assert asked == []


async def test_a_page_of_a_listing_costs_a_page_wherever_it_begins(postgres_url: str) -> None:
    ledger = open_ledger(postgres_url)
    made = await create(ledger, *(new() for _ in range(500)))
    with psycopg.connect(postgres_url, autocommit=True) as operator:
        operator.execute("ANALYZE")
        wanted: dict[str, Any] = dict.fromkeys(("type", "span", "since", "until", "idempotency_key"))
        wanted |= {"statuses": (), "with_deleted": False, "held": False, "before": sorted(made)[20], "limit": 10}
        for _ in range(OFTEN):
            assert len(await ledger.run(runs.list_page(**wanted))) == 10
        await ledger.close()  # a session that ends tells what it has read

        def read() -> int:
            counted = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = 'workflow_run'"
            (rows,) = operator.execute(counted).fetchone() or (0,)
            return int(rows)

        assert OFTEN * 10 <= await eventually(read, "the server counts what was read") < OFTEN * 100
