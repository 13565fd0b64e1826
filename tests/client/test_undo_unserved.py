"""The App that cancels knows what undoes a run, also when no worker has served the type yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.ledger import Raw

import simpleworkflow as swf


@pytest.fixture
async def app(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url)

    @app.workflow("t.book.v1", on_cancel="t.unbook.v1")
    async def book(ctx: swf.Context) -> None: ...

    @app.workflow("t.trip.v1")
    async def trip(ctx: swf.Context) -> None: ...

    yield app
    await app.close()


def undone(raw: Raw) -> list[str]:
    """Ids of the runs for which an undo run was started."""
    return [str(row["idempotency_key"]).split(":")[1] for row in raw.rows("type = 't.unbook.v1'")]


async def test_a_run_that_no_worker_has_served_is_undone_when_it_is_cancelled(app: swf.App, raw: Raw) -> None:
    handle = await app.trigger("t.book.v1")
    await handle.cancel()
    await handle.cancel()
    assert undone(raw) == [str(handle.id)]


async def test_so_is_a_child_that_the_cancel_takes_along(app: swf.App, raw: Raw) -> None:
    parent = await app.trigger("t.trip.v1")
    child = await app.trigger("t.book.v1")
    raw.put_as_ours(child.id, parent_id=str(parent.id))
    await parent.cancel()
    assert undone(raw) == [str(child.id)]


async def test_so_is_a_run_that_is_deleted(app: swf.App, raw: Raw) -> None:
    handle = await app.trigger("t.book.v1")
    await app.delete(handle.id)
    assert undone(raw) == [str(handle.id)]


@pytest.mark.parametrize("before", ["create", "enable"])
async def test_a_name_that_was_made_known_by_this_app_knows_its_undo(app: swf.App, raw: Raw, before: str) -> None:
    await getattr(app.definitions, before)("t.book.v1")
    handle = await app.trigger("t.book.v1")
    raw.sql("UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = ?", handle.id)
    assert undone(raw) == [str(handle.id)], "plain SQL obeys what is on record"


async def test_what_a_worker_has_told_is_left_as_it_is(app: swf.App, raw: Raw) -> None:
    raw.sql("INSERT INTO workflow.workflow_registry (workflow_name, on_cancel) VALUES ('t.book.v1', 't.other.v1')")
    await (await app.trigger("t.book.v1")).cancel()
    assert (undone(raw), len(raw.rows("type = 't.other.v1'"))) == ([], 1)
