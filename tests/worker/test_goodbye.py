"""A worker that has left is not among the living, whatever was under way when it left."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from simpleworkflow.store import Ledger
from simpleworkflow.store.protocol import Operation
from simpleworkflow.worker.holdings import Holdings
from simpleworkflow.worker.process import own_identity
from simpleworkflow.worker.renew import Renewer


class SlowTable:
    """Stands in for a ledger whose announcements reach the table late, as those of a loaded server do."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.under_way = threading.Event()
        self.may_land = threading.Event()

    async def run(self, operation: Operation[Any], **_: Any) -> list[Any]:
        if operation.name == "announce":
            self.under_way.set()
            landing = asyncio.ensure_future(asyncio.to_thread(self.may_land.wait, 20.0))
            landing.add_done_callback(lambda _: self.reached.append("announce"))  # cutting us off does not stop it
            await asyncio.shield(landing)
        else:
            self.reached.append(operation.name)
        return []

    async def close(self) -> None: ...


async def test_an_announcement_under_way_cannot_come_after_the_goodbye() -> None:
    table = SlowTable()
    renewer = Renewer(
        cast(Ledger, table),
        Holdings(),
        identity=own_identity("crew"),
        spans=tuple,
        load=dict,
        every=60.0,
        tell=lambda news: None,
    )
    renewer.start()
    assert await asyncio.to_thread(table.under_way.wait, 10.0)
    renewer.stop()
    table.may_land.set()
    await asyncio.to_thread(renewer.join, 10.0)
    assert not renewer.is_alive()
    assert [name for name in table.reached if name != "leased_by"] == ["announce", "retire"]
