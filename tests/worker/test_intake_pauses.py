"""How long an intake rests between two looks, and that a stop is heard wherever it stands. The crew around it is made
up: what counts here are the pauses that it asks for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.worker import intake
from simpleworkflow.worker.held_leases import HeldLeases
from simpleworkflow.worker.intake import Intake

RESTFUL = swf.Settings(poll_every=30.0, concurrency=100)


class MadeUp:
    """A claimer that finds nothing, each time in `takes` seconds, or fails."""

    only_type = None

    def __init__(self, *, takes: float = 0.0, next_due: float = float("inf"), fails: bool = False) -> None:
        self.next_due, self.asked = next_due, 0
        self._takes, self._fails = takes, fails

    def routed(self) -> list[Any]:
        return []

    async def claim_crashed(self, *_: object, **__: object) -> list[Any]:
        self.asked += 1
        if self._fails:
            raise StoreUnavailable("away")
        return []

    async def claim(self, *_: object) -> list[Any]:
        self.asked += 1
        await asyncio.sleep(self._takes)
        return []

    claim_where_work_was = claim


class Room:
    suspect = None

    def __init__(self, free: int) -> None:
        self.free = free

    def make_room(self) -> None: ...

    def room_by_type(self, *_: object) -> dict[str, int]:
        return {}

    def __len__(self) -> int:
        return 100 - self.free


def intake_of(claimer: MadeUp, free: int) -> Intake:
    rest: dict[str, Any] = {"journal": SimpleNamespace(room=5_000), "held_leases": HeldLeases()}
    return Intake(None, claimer, RESTFUL, slots=Room(free), start=None, give_back=None, lose=None, **rest)  # type: ignore[arg-type]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was asked for; each of them is over at once, as if its time had passed."""
    asked: list[float] = []

    async def pause(event: asyncio.Event, seconds: float) -> bool:
        asked.append(seconds)
        await asyncio.sleep(0)
        return False

    monkeypatch.setattr(intake, "pause_unless", pause)
    return asked


async def pauses_of(under_test: Intake, pauses: list[float], number: int = 3) -> list[float]:
    running = asyncio.create_task(under_test.run())
    await eventually(lambda: len(pauses) >= number, "some turns")
    under_test.stop()
    await running
    return pauses[:number]


async def test_a_stop_while_an_intake_gathers_sends_no_claim() -> None:
    claimer = MadeUp()
    under_test = intake_of(claimer, free=5)
    running = asyncio.create_task(under_test.run())
    await asyncio.sleep(0)  # one turn: it gathers
    under_test.stop()
    await asyncio.wait_for(running, 30)
    assert claimer.asked == 0


async def test_looks_that_take_long_are_made_less_often(pauses: list[float]) -> None:
    under_test = intake_of(MadeUp(takes=0.05), free=100)
    under_test.look(after_work=True)
    assert min(await pauses_of(under_test, pauses)) >= 0.2


async def test_right_after_work_looks_that_cost_nothing_are_made_often(pauses: list[float]) -> None:
    under_test = intake_of(MadeUp(), free=100)
    under_test.look(after_work=True)
    assert min(await pauses_of(under_test, pauses, 10)) < 0.1


async def test_an_intake_without_room_does_not_turn_for_runs_that_are_due_soon(pauses: list[float]) -> None:
    assert await pauses_of(intake_of(MadeUp(next_due=0.02), free=0), pauses) == [RESTFUL.poll_every] * 3


async def test_one_with_room_looks_when_they_are_due(pauses: list[float]) -> None:
    assert max(await pauses_of(intake_of(MadeUp(next_due=0.02), free=100), pauses)) < 0.03


async def test_after_a_look_that_failed_what_was_due_soon_is_no_reason_to_hurry(pauses: list[float]) -> None:
    claimer = MadeUp(next_due=0.02, fails=True)
    assert await pauses_of(intake_of(claimer, free=100), pauses) == [RESTFUL.poll_every] * 3
