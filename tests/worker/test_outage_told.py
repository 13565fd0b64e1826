"""A database that goes away is one line in the log, and one when it is back, whatever a worker's roles meet."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support.proxy import Proxy
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.errors import StoreBusy, StoreSlow, StoreUnavailable
from simpleworkflow.store import outage as outage_module
from simpleworkflow.store.drivers.postgres import PostgresDriver
from simpleworkflow.store.drivers.sqlite import SqliteDriver
from simpleworkflow.store.outage import Outage, level

SETTINGS = swf.Settings(lease=2.0, sweep_every=0.1, poll_every=0.05, local_check_every=0.1, drain=2.0)


def loud(lines: pytest.LogCaptureFixture) -> list[str]:
    """What an operator sees: warnings and worse, of our own."""
    return [
        record.getMessage()
        for record in lines.records
        if record.levelno >= logging.WARNING and record.name.startswith("simpleworkflow")
    ]


class Switch:
    """Every operation of every driver fails while it is off."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.off = False
        for kind in (PostgresDriver, SqliteDriver):
            patch.setattr(kind, "run", self._around(kind.run))

    def _around(self, run: Any) -> Any:
        async def switched(driver: Any, operation: Any, **rest: Any) -> Any:
            if self.off:
                await asyncio.sleep(0.01)
                raise StoreUnavailable("nobody answers at ada:***@db")
            return await run(driver, operation, **rest)

        return switched


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Switch:
    return Switch(monkeypatch)


async def test_an_outage_is_one_line_and_its_end_another_one(
    url: str, switch: Switch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="simpleworkflow")
    app = swf.App(url, settings=SETTINGS)
    gate, started = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.workflow("t.through.v1")
    async def through(ctx: swf.Context) -> str:
        loop.call_soon_threadsafe(started.set)
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return "written when it was back"

    def roles() -> set[str]:
        quiet = [record for record in caplog.records if record.levelno == logging.DEBUG]
        return {record.getMessage().partition(":")[0] for record in quiet}

    async with app.worker():
        handle = await app.trigger(through)
        await started.wait()
        switch.off = True
        await eventually(lambda: loud(caplog), "it is said")
        gate.set()  # its ending meets the outage
        await eventually(lambda: len([role for role in roles() if "database" in role]) >= 4, "the roles have noticed")
        await eventually(lambda: any(role.startswith("journal") for role in roles()), "and the journal")
        switch.off = False
        assert await handle.result("10s") == "written when it was back"
        await eventually(lambda: any("is back" in line for line in loud(caplog)))
    await app.close()
    away, back = loud(caplog)
    place = str(app._client.address)
    assert away.startswith(f"the database {place} is away: nobody answers at ada:***@db; 1 run under way here keeps")
    assert away.endswith("nothing is claimed until it is back")
    assert back.startswith(f"the database {place} is back after ")


async def test_a_worker_says_at_once_that_its_server_is_gone(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver tries for much longer than that before the operation fails."""
    caplog.set_level(logging.INFO, logger="simpleworkflow")
    async with Proxy(postgres_url) as proxy:
        app = swf.App(proxy.url, settings=SETTINGS)

        @app.workflow("t.some.v1")
        async def some(ctx: swf.Context) -> None: ...

        async with app.worker():
            await proxy.refuse()
            await eventually(lambda: loud(caplog), "it is said", 10)
            await proxy.accept()
            await eventually(lambda: len(loud(caplog)) > 1, "and that it is back", 20)
        await app.close()
    away, back = loud(caplog)
    assert proxy.url in away
    assert " is away: " in away or " cannot be reached: " in away
    assert f"the database {proxy.url} is back after " in back


class Hands:
    """A clock that only we move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(outage_module, "monotonic", hands)
    return hands


def refused(outage: Outage, began: float) -> int:
    error = StoreUnavailable("no answer")
    outage.failed(error, began)
    return level(error)


def test_what_is_slow_or_locked_while_others_are_answered_is_told_by_its_role(
    hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage("orders.db")
    hands.now += 5
    outage.answered(1001.0)
    for error in (StoreBusy("a lock"), StoreSlow("too much at once")):
        outage.failed(error, 1002.0)
        assert level(error) == logging.WARNING
    assert not outage.is_on
    assert caplog.records == []
    outage.failed(StoreSlow("no answer for anybody"), 1005.5)
    assert outage.is_on


def test_what_began_before_an_outage_neither_ends_it_nor_begins_another(
    hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage("orders.db")
    assert refused(outage, 1000.0) == logging.DEBUG
    hands.now += 10
    outage.answered(999.0)
    assert outage.is_on
    hands.now += 20
    outage.answered(1029.0)
    assert not outage.is_on
    hands.now += 1
    assert refused(outage, 1015.0) == logging.DEBUG
    assert [record.getMessage() for record in caplog.records] == [
        "the database orders.db is away: no answer; it is tried again until it is back",
        "the database orders.db is back after 30s",
    ]


def test_a_database_that_comes_and_goes_is_told_less_and_less_often(
    hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage("orders.db")
    for _ in range(300):
        refused(outage, hands.now)
        hands.now += 1
        outage.answered(hands.now)
        hands.now += 1
    assert len(caplog.records) < 20
    hands.now += 60
    outage.answered(hands.now)
    assert not outage.is_on
    assert caplog.records[-1].getMessage().startswith("the database orders.db is back")
