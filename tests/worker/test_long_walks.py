"""Where dead index entries pile up, walking over them takes a small part of a worker's time, however many there are."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from simpleworkflow.clock import new_id
from simpleworkflow.config import Settings
from simpleworkflow.model.names import span_of_type
from simpleworkflow.model.records import Lane, Lease
from simpleworkflow.runtime.registry import Registry
from simpleworkflow.store import Ledger
from simpleworkflow.store.drivers.postgres import PostgresDriver
from simpleworkflow.store.operations import leases
from simpleworkflow.store.protocol import Operation
from simpleworkflow.worker import claim
from simpleworkflow.worker.claim import Claimer

LANE = Lane("t.many.v1", 100)
BATCH = 10
QUICK = 0.001


class Cluttered:
    """Stands in for a ledger with more due runs than anybody takes, where every walk from the head takes long."""

    can = PostgresDriver.can

    def __init__(self, walk: float) -> None:
        self.walk = walk
        self.now = 1_000.0
        self.spent: Counter[str] = Counter()
        self.lows: list[datetime | None] = []

    def monotonic(self) -> float:
        return self.now

    async def run(self, operation: Operation[Any], **_: Any) -> Any:
        if operation.name == "find_lanes":
            return self.took(self.walk, "look", ([LANE], None, float("inf")))
        low = self.lows[-1]
        due = (low or datetime(2026, 1, 1, tzinfo=UTC)) + timedelta(milliseconds=1)
        rest: Any = (100, "null", 30.0, None, None, 0, None, due, due)
        return self.took(
            self.walk if low is None else QUICK,
            "head" if low is None else "claim",
            [Lease(new_id(), LANE.type, 1, 0, 0, 3, *rest) for _ in range(BATCH)],
        )

    def took(self, seconds: float, what: str, answer: Any) -> Any:
        self.now += seconds
        self.spent[what] += 1
        return answer


@pytest.fixture
def ledger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cluttered:
    ledger = Cluttered(request.param)
    real = leases.claim

    def seen(offers: Any, *args: Any, **kwargs: Any) -> Operation[Any]:
        ledger.lows.append(offers[0].low)
        return real(offers, *args, **kwargs)

    monkeypatch.setattr(leases, "claim", seen)
    monkeypatch.setattr(claim, "monotonic", ledger.monotonic)
    return ledger


async def work(ledger: Cluttered, seconds: float) -> None:
    claimer = Claimer(
        cast(Ledger, ledger), Registry(), Settings(), worker="w", spans=[span_of_type(LANE.type)], any_type=True
    )
    began = ledger.now
    while ledger.now - began < seconds:
        assert len(await claimer.claim(BATCH, {})) == BATCH


@pytest.mark.parametrize("ledger", [0.1], indirect=True)
async def test_long_walks_are_made_less_often(ledger: Cluttered) -> None:
    await work(ledger, 60.0)
    walked = (ledger.spent["look"] + ledger.spent["head"]) * ledger.walk
    assert walked < 0.15 * 60.0
    assert ledger.spent["head"] >= 60.0 / (2 * claim.LONGEST_REST) - 2, "what was passed over is still found"


@pytest.mark.parametrize("ledger", [QUICK], indirect=True)
async def test_quick_looks_are_made_as_often_as_ever(ledger: Cluttered) -> None:
    await work(ledger, 10.0)
    assert ledger.spent["look"] >= 10.0 / claim.LANES_FRESH * 0.9
    assert ledger.spent["head"] >= 10.0 / (claim.LOWS_FRESH + claim.LANES_FRESH) * 0.9


@pytest.mark.parametrize("ledger", [60.0], indirect=True)
async def test_a_walk_of_a_minute_does_not_put_off_the_next_for_twenty(ledger: Cluttered) -> None:
    await work(ledger, 600.0)
    assert ledger.spent["look"] >= 4
