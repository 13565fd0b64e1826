"""Lanes of the outbox: shared by those who come, taken over from those who go; nobody waits in a circle."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from support.ledger import Raw, held_up
from support.outbox import LEASE, take

from simpleworkflow.model.outbox import LANES
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import outbox_lanes


async def test_lanes_are_shared_by_those_who_come_and_taken_over_from_those_who_go(ledger: Ledger) -> None:
    assert len(await take(ledger, "a")) == 16
    assert len(await take(ledger, "b")) == 0, "nothing is free yet"
    a = await take(ledger, "a")
    assert len(a) == 8, "the surplus was given up"
    b = await take(ledger, "b")
    assert set(a) | set(b) == set(LANES)
    await take(ledger, "c")
    sizes = [len(await take(ledger, one)) for one in ("a", "b", "c")]
    assert sizes == [6, 6, 4]
    await take(ledger, "a")
    await ledger.run(outbox_lanes.leave("a"))
    sizes = [len(await take(ledger, one)) for one in ("b", "c")]
    assert sizes == [8, 8]


async def test_lanes_that_are_in_use_are_not_given_up(ledger: Ledger) -> None:
    await take(ledger, "a")
    await take(ledger, "b")
    assert len(await take(ledger, "a", spare=["0", "1"])) == 14
    assert set(await take(ledger, "b")) == {"0", "1"}


async def test_lanes_of_the_dead_are_taken_at_once_and_of_the_silent_when_their_lease_ends(
    ledger: Ledger, raw: Raw
) -> None:
    first = await take(ledger, "a")
    assert await take(ledger, "b", dead=[]) == {}
    second = await take(ledger, "b", dead=["a"])
    assert second == {lane: epoch + 1 for lane, epoch in first.items()}
    raw.sql(f"UPDATE workflow.outbox_lane SET lease_until = {raw.now} {raw.back(1)}")
    raw.sql(f"UPDATE workflow.outbox_dispatcher SET seen_at = {raw.now} {raw.back(LEASE + 1)}")
    assert await take(ledger, "c") == {lane: epoch + 1 for lane, epoch in second.items()}


async def test_a_renewal_and_a_mark_lock_the_lanes_in_one_order(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    await take(ledger, "me")
    raw.sql("UPDATE workflow.outbox_lane SET epoch = epoch WHERE lane = '0'")  # now the last one of the table
    lock = "SELECT FROM workflow.outbox_lane WHERE lane = %s FOR NO KEY UPDATE"
    other.execute(lock, ["0"])
    renewal = await held_up(raw, other, take(ledger, "me"))
    other.execute("SET lock_timeout = '200ms'")
    other.execute(lock, ["1"])
    other.commit()
    assert len(await renewal) == 16


async def test_dispatchers_that_come_back_together_do_not_wait_for_each_other(
    pg: tuple[Ledger, Raw], other: psycopg.Connection[Any]
) -> None:
    ledger, raw = pg
    await take(ledger, "you")
    raw.sql(f"UPDATE workflow.outbox_dispatcher SET seen_at = {raw.now} {raw.back(2 * LEASE)}")
    other.execute("UPDATE workflow.outbox_dispatcher SET seen_at = now() WHERE id = %s", ["you"])
    async with asyncio.timeout(3):
        await take(ledger, "me")
    other.commit()
    scene = await ledger.run(outbox_lanes.scene(silence=LEASE))
    assert scene.alive == ["me", "you"]
