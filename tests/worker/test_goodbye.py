"""A worker that has left is not among the living, whatever was under way when it left, and leaves nothing half done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from support.waiting import eventually

from simpleworkflow.clock import monotonic, new_id
from simpleworkflow.model.records import Lease
from simpleworkflow.store import Ledger
from simpleworkflow.store.protocol import Operation
from simpleworkflow.worker import renew
from simpleworkflow.worker.held_leases import HeldLeases
from simpleworkflow.worker.process import own_identity
from simpleworkflow.worker.renew import Renewer


class SlowTable:
    """Stands in for a ledger that is slow with one operation, as that of a loaded server is."""

    def __init__(self, slow: str) -> None:
        self.slow = slow
        self.reached: list[str] = []
        self.under_way = threading.Event()
        self.may_land = threading.Event()
        self.cut_off = threading.Event()
        self.may_part = threading.Event()

    async def run(self, operation: Operation[Any], **_: Any) -> list[Any]:
        if operation.name == self.slow:
            self.under_way.set()
            landing = asyncio.ensure_future(asyncio.to_thread(self.may_land.wait, 20.0))
            landing.add_done_callback(lambda _: self.reached.append(self.slow))  # cutting us off does not stop it
            try:
                await asyncio.shield(landing)
            except asyncio.CancelledError:
                self.cut_off.set()
                try:
                    await asyncio.to_thread(self.may_part.wait, 20.0)
                finally:
                    self.reached.append("parted")
                raise
        else:
            self.reached.append(operation.name)
        return []

    async def close(self) -> None: ...

    def seen(self) -> list[str]:
        return [name for name in self.reached if name in {self.slow, "parted", "retire"}]


@contextmanager
def a_renewer(table: SlowTable) -> Iterator[Renewer]:
    held_leases = HeldLeases()
    held_leases.add(
        Lease(new_id(), "a.run.v1", 1, 1, 0, 50, 100, "null", 600.0, None, None, 0, None, 0, 0), monotonic()
    )
    renewer = Renewer(
        cast(Ledger, table),
        held_leases,
        identity=own_identity("crew"),
        spans=tuple,
        load=dict,
        every=60.0,
        tell=lambda news: None,
    )
    renewer.start()
    try:
        yield renewer
    finally:
        table.may_land.set()
        table.may_part.set()
        renewer.stop()
        renewer.join(20.0)


async def test_an_announcement_under_way_cannot_come_after_the_goodbye() -> None:
    table = SlowTable("announce")
    with a_renewer(table) as renewer:
        assert await asyncio.to_thread(table.under_way.wait, 10.0)
        renewer.stop()
        table.may_land.set()
        await asyncio.to_thread(renewer.join, 10.0)
        assert not renewer.is_alive()
    assert table.seen() == ["announce", "retire"]


async def test_a_look_at_the_leases_is_heard_out_before_the_goodbye() -> None:
    table = SlowTable("check_leases")
    with a_renewer(table) as renewer:
        renewer.look()
        assert await asyncio.to_thread(table.under_way.wait, 10.0)
        renewer.stop()
        table.may_land.set()
        await asyncio.to_thread(renewer.join, 10.0)
        assert not renewer.is_alive()
        assert not asyncio.all_tasks(renewer._loop)
    assert table.seen() == ["check_leases", "retire"]


async def test_what_is_cut_off_parts_with_its_connection_before_the_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renew, "GOODBYE", 0.05)
    monkeypatch.setattr(renew, "PARTING", 20.0)
    table = SlowTable("check_leases")
    with a_renewer(table) as renewer:
        renewer.look()
        assert await asyncio.to_thread(table.under_way.wait, 10.0)
        renewer.stop()
        assert await asyncio.to_thread(table.cut_off.wait, 10.0)
        table.may_part.set()
        assert await eventually(lambda: "retire" in table.reached)
        assert table.seen()[:2] == ["parted", "retire"]


async def test_a_parting_that_drags_on_is_broken_off_before_the_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renew, "GOODBYE", 0.05)
    monkeypatch.setattr(renew, "PARTING", 0.05)
    table = SlowTable("check_leases")
    with a_renewer(table) as renewer:
        renewer.look()
        assert await asyncio.to_thread(table.under_way.wait, 10.0)
        renewer.stop()
        assert await eventually(lambda: "parted" in table.reached)
        assert "retire" in table.reached
    assert not renewer.is_alive()
    assert not asyncio.all_tasks(renewer._loop)
