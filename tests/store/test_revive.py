"""An operator's retry looks at a family when it holds the locks: what ends while it waits for one is seen, too."""

from __future__ import annotations

from typing import Any

import psycopg
from support.ledger import Raw, create, held_up, leased

from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import runs

PARENT, CHILD = "test.parent.v1", "test.child.v1"
CANCEL = "UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = %s"


async def test_a_retry_that_waited_for_the_end_of_a_run_opens_the_children_which_that_end_took_along(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    parent = await leased(ledger, PARENT)
    (child,) = await create(ledger, type=CHILD, parent_id=parent.id, delay=60)
    (grandchild,) = await create(ledger, type=CHILD, parent_id=child, delay=60)
    other.execute(CANCEL, [parent.id])
    retry = await held_up(raw, other, ledger.run(runs.revive([parent.id])))
    other.commit()
    assert (await retry)[0].moved
    assert {raw.row(one)["status"] for one in (parent.id, child, grandchild)} == {"pending"}


async def test_a_retry_that_waited_for_the_end_of_a_child_opens_it(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    """The child is cancelled with its parent, opened and cancelled again by others while the retry is on its way."""
    ledger, raw = pg
    parent = await leased(ledger, PARENT)
    (child,) = await create(ledger, type=CHILD, parent_id=parent.id, delay=60)
    raw.sql(CANCEL.replace("%s", "?"), parent.id)
    (grandchild,) = await create(ledger, type=CHILD, parent_id=child, delay=60)
    other.execute(CANCEL.replace("= 'cancelled'", "= 'cancelled', last_error = 'its parent ended: x'"), [grandchild])
    other.execute("SELECT FROM workflow.workflow_run WHERE id = %s FOR UPDATE", [child])
    retry = await held_up(raw, other, ledger.run(runs.revive([parent.id])))
    other.commit()
    await retry
    assert {raw.row(one)["status"] for one in (parent.id, child, grandchild)} == {"pending"}
