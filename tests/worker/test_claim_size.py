"""How many runs a claim asks for: what there is room for, what is worth a claim, and what one answer can carry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from simpleworkflow.runtime.batch import MAX_WEIGHT
from simpleworkflow.worker.claim_size import AHEAD, MOST, MOST_AHEAD, WORTH, ClaimSize

PLENTY = 5000
TYPE = "t.quick.v1"


def leases(count: int, characters: int = 1) -> Any:
    return [SimpleNamespace(payload="x" * characters)] * count


def size_after(seconds: float, concurrency: int = 100) -> ClaimSize:
    """Runs of a type have been started, each so long and without a slot."""
    size = ClaimSize(concurrency)
    size.started(TYPE, seconds)
    return size


def test_a_worker_asks_for_no_more_than_it_has_slots() -> None:
    size = ClaimSize(100)
    assert size.next(100, 0, PLENTY, TYPE) == 100
    assert size.next(30, 0, PLENTY, None) == 30
    assert size.next(0, 0, PLENTY, None) == 0
    assert not size.lacks_room


def test_a_full_journal_leaves_less_room_and_says_so() -> None:
    size = ClaimSize(100)
    assert size.next(100, 0, 20, TYPE) == 20
    assert size.lacks_room


def test_while_runs_wait_for_their_turn_only_half_of_the_room_is_worth_a_claim() -> None:
    size = ClaimSize(100)
    assert size.next(100, 51, PLENTY, TYPE) == 0
    assert size.next(100, 50, PLENTY, TYPE) == 50
    assert ClaimSize(10_000).next(10_000, 10_000 - WORTH, PLENTY * 4, TYPE) == WORTH


def test_runs_that_take_no_slot_are_claimed_ahead_of_the_slots() -> None:
    size = size_after(AHEAD / 200)
    assert size.next(100, 0, PLENTY, TYPE) == 300
    assert size.next(100, 0, PLENTY, "t.other.v1") == 100, "another lane takes its turn"
    assert size.next(100, 0, PLENTY, None) == 100
    assert size_after(0.0, concurrency=10).next(10, 0, PLENTY * 4, TYPE) == min(MOST_AHEAD + 10, MOST)
    size.took_slots()
    assert size.next(100, 0, PLENTY, TYPE) == 100


def test_a_claim_that_failed_is_halved_and_one_that_worked_doubles_the_next() -> None:
    size = ClaimSize(PLENTY)
    size.failed()
    assert size.next(PLENTY, 0, PLENTY, TYPE) == MOST // 2
    for _ in range(20):
        size.failed()
    assert size.next(PLENTY, 0, PLENTY, TYPE) == 1
    size.claimed(leases(1))
    assert size.next(PLENTY, 0, PLENTY, TYPE) == 2
    size.claimed([])
    assert size.next(PLENTY, 0, PLENTY, TYPE) == 2, "an empty answer says nothing about size"


def test_a_claim_is_no_larger_than_one_answer_can_carry() -> None:
    size = ClaimSize(100)
    size.claimed(leases(3, MAX_WEIGHT // 4))
    assert size.next(100, 0, PLENTY, TYPE) == 4
    size.claimed(leases(3, MAX_WEIGHT * 2))
    assert size.next(100, 0, PLENTY, TYPE) == 1
