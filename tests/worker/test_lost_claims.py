"""What a claim with a lost answer has leased to a worker is handed back, however busy the worker is with others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.ledger import get, leased

from simpleworkflow.clock import monotonic
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.model.records import Lease
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases
from simpleworkflow.worker import loop as crew_loop
from simpleworkflow.worker.held_leases import HeldLeases
from simpleworkflow.worker.loop import forever
from simpleworkflow.worker.process import Identity
from simpleworkflow.worker.renew import Renewer

OUTAGE = 1_100
"""Tries in a row that fail: more doublings than a number can take."""


class Crew:
    """A renewer that does one thing at a time, and what its worker knows."""

    def __init__(self, ledger: Ledger, worker: str) -> None:
        self.held_leases = HeldLeases()
        rest: dict[str, Any] = {"identity": Identity(worker, "test", "here", 1), "spans": tuple, "load": dict}
        self.renewer = Renewer(ledger, self.held_leases, every=60.0, tell=lambda _: None, **rest)

    def begins_a_claim(self) -> None:
        self.held_leases.claiming_since = monotonic()

    async def reconciles(self) -> None:
        await self.renewer._reconcile()


@pytest.fixture
async def stranger(ledger: Ledger) -> Lease:
    return await leased(ledger)


@pytest.fixture
async def crew(ledger: Ledger, stranger: Lease) -> Any:
    (worker,) = await ledger.run(leases.lease_holders())
    crew = Crew(ledger, worker)
    yield crew
    crew.renewer._loop.close()


async def is_handed_back(ledger: Ledger, lease: Lease) -> bool:
    run = await get(ledger, lease.id)
    assert (run.attempt, run.crashes) == (0, 0)
    return run.status == "pending"


async def test_a_worker_that_always_has_a_claim_under_way_hands_back_what_another_one_lost(
    ledger: Ledger, crew: Crew, stranger: Lease
) -> None:
    crew.begins_a_claim()
    for _ in range(3):
        await crew.reconciles()
        assert not await is_handed_back(ledger, stranger), "the claim under way may have brought it"
    crew.begins_a_claim()
    await crew.reconciles()
    assert await is_handed_back(ledger, stranger)


async def test_it_is_handed_back_when_no_claim_is_under_way(ledger: Ledger, crew: Crew, stranger: Lease) -> None:
    await crew.reconciles()
    assert not await is_handed_back(ledger, stranger), "it has been seen only once"
    await crew.reconciles()
    assert await is_handed_back(ledger, stranger)


async def test_what_a_claim_has_brought_is_not_handed_back(ledger: Ledger, crew: Crew, stranger: Lease) -> None:
    crew.begins_a_claim()
    await crew.reconciles()
    crew.held_leases.add(stranger, monotonic())
    for _ in range(2):
        crew.begins_a_claim()
        await crew.reconciles()
    assert not await is_handed_back(ledger, stranger)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    asked: list[float] = []

    async def pause(stopping: asyncio.Event, seconds: float) -> bool:
        asked.append(seconds)
        if len(asked) == OUTAGE:
            stopping.set()
        return stopping.is_set()

    monkeypatch.setattr(crew_loop, "pause_unless", pause)
    return asked


async def _fails() -> None:
    raise StoreUnavailable("away")


async def test_a_role_in_trouble_pauses_ever_longer(pauses: list[float]) -> None:
    await forever("test", 0.1, _fails, asyncio.Event())
    assert len(pauses) == OUTAGE
    assert 4.0 <= pauses[-1] <= 5.0


async def test_one_that_must_not_be_late_does_not(pauses: list[float]) -> None:
    """The renewal of a short lease: the database may be back long before the lease ends."""
    await forever("test", 0.1, _fails, asyncio.Event(), longest=0.1)
    assert max(pauses) <= 0.1
