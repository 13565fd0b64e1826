"""Listings are newest first by creation, whatever the ids tell, and pages of them neither skip nor repeat a run."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from support.ledger import Raw, create, new

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.place import place_of
from simpleworkflow.runtime.durable.children import child_id_of
from simpleworkflow.store import Ledger


def id_of(ago: float) -> UUID:
    """An id as it was made so many seconds ago."""
    return UUID(int=new_id().int - (round(ago * 1000) << 80))


async def born(ledger: Ledger, raw: Raw, run_id: UUID, ago: float, parent_id: UUID | None = None) -> UUID:
    await create(ledger, new(id=run_id, parent_id=parent_id))
    raw.age(run_id, ago, "created_at")
    return run_id


async def mixed(ledger: Ledger, raw: Raw, count: int) -> list[UUID]:
    """Runs of every kind, ten seconds apart, made in no order; newest first."""
    dice, ages = random.Random(7), [10.0 * n for n in range(1, count + 1)]
    week_old = id_of(7 * 86400)
    made: dict[float, UUID] = {}
    for place, ago in enumerate(dice.sample(ages, count)):
        kind = place % 3
        fresh = id_of(ago) if kind == 0 else uuid4() if kind == 1 else child_id_of(week_old, f"a#{place}")
        made[ago] = await born(ledger, raw, fresh, ago, week_old if kind == 2 else None)
    return [made[ago] for ago in ages]


async def listed(app: swf.App, limit: int, before: UUID | None = None) -> list[UUID]:
    return [run.id async for run in app.runs(limit=limit, before=before)]


async def test_a_child_started_today_by_a_parent_of_last_week_is_listed_first(
    app: swf.App, ledger: Ledger, raw: Raw
) -> None:
    parent = await born(ledger, raw, id_of(7 * 86400), 7 * 86400)
    others = [await born(ledger, raw, id_of(ago), ago) for ago in (10, 20, 30)]
    child = await born(ledger, raw, child_id_of(parent, "ship#0"), 5, parent)
    assert await listed(app, 10) == [child, *others, parent]
    assert await listed(app, 1) == [child]
    assert await listed(app, 2, before=child) == others[:2]
    assert await listed(app, 2, before=others[2]) == [parent]


@pytest.mark.parametrize("size", [1, 2, 5, 7])
async def test_pages_go_on_exactly_where_the_last_one_stopped(
    app: swf.App, ledger: Ledger, raw: Raw, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await mixed(ledger, raw, 24)
    assert await listed(app, 100) == expected
    seen: list[UUID] = []
    while page := await listed(app, size, before=seen[-1] if seen else None):
        seen += page
        await born(ledger, raw, new_id(), 0)  # newer ones come meanwhile, of every kind
        await born(ledger, raw, child_id_of(expected[-1], f"late#{len(seen)}"), 0, expected[-1])
    assert seen == expected
    monkeypatch.setattr("simpleworkflow.client.run_calls.PAGE", size)
    assert (await listed(app, 1000))[-24:] == expected


async def test_runs_of_one_instant_are_listed_once_each(app: swf.App, ledger: Ledger, raw: Raw) -> None:
    """Strangers insert many in one transaction: their instants are the same, and their ids tell nothing."""
    made = [await born(ledger, raw, uuid4(), 0) for _ in range(9)] + await create(ledger, *(new() for _ in range(9)))
    raw.sql(f"UPDATE workflow.workflow_run SET created_at = {raw.now}")
    seen: list[UUID] = []
    while page := await listed(app, 4, before=seen[-1] if seen else None):
        seen += page
    assert len(seen) == len(made)
    assert set(seen) == set(made)


async def test_a_listing_goes_on_behind_a_run_that_was_pruned_meanwhile(app: swf.App, ledger: Ledger, raw: Raw) -> None:
    made = [await born(ledger, raw, id_of(ago), ago) for ago in (10, 20, 30)]
    raw.sql("DELETE FROM workflow.workflow_run WHERE id = ?", made[1])
    assert await listed(app, 5, before=made[1]) == [made[2]]


async def test_a_listing_follows_the_clock_of_a_test() -> None:
    app = swf.App()

    @app.workflow("orders.parent.v1")
    async def parent(ctx: swf.Context) -> None:
        await ctx.sleep("1 hour")
        await ctx.trigger("orders.child.v1")
        await ctx.sleep("2 hours")

    async with swf.testing.env(app) as env:
        first = await app.trigger(parent)
        await env.advance("30m")
        second = await app.trigger("orders.other.v1")
        await env.advance("31m")
        kinds = [run.type async for run in app.runs()]
        assert kinds == ["orders.child.v1", "orders.other.v1", "orders.parent.v1"]
        assert first.id != second.id


def test_a_place_is_the_id_where_the_id_tells_the_time() -> None:
    fresh, at = new_id(), datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    assert place_of(fresh, at).below == fresh
    child = child_id_of(fresh, "a#0")
    assert place_of(child, at).below.int >> 80 == round(at.timestamp() * 1000 - 0.5)
    assert place_of(child, datetime.max.replace(tzinfo=UTC)).below.int < 1 << 128
    assert place_of(UUID(int=(1 << 128) - 1), None).at.year == 9999 or place_of(child, None).at.year > 2025


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_the_children_of_a_run_are_listed_oldest_first_page_by_page(
    app: swf.App, ledger: Ledger, raw: Raw, size: int
) -> None:
    parent = await born(ledger, raw, id_of(100), 100)
    children = [
        await born(ledger, raw, child_id_of(parent, f"ship#{number}"), 50 - number, parent) for number in range(8)
    ]
    seen: list[UUID] = []
    while page := await app.handle(parent).children(after=seen[-1] if seen else None, limit=size):
        seen += [run.id for run in page]
    assert seen == children
    with pytest.raises(swf.RunNotFound):
        await app.handle(parent).children(after=uuid4())
