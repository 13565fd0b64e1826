"""The table of moves agrees with itself: what it says of states, events and endings leaves no gap and no surprise."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from uuid import UUID

import pytest

from simpleworkflow.model import moves
from simpleworkflow.model.moves import MOVES, Ending, Needs, Record, Result
from simpleworkflow.model.states import CLAIMABLE, OPEN, TERMINAL, Status, StepKind, StepStatus


def lease(parent: UUID | None = None, deadline_in: float | None = None, crashes: int = 0) -> SimpleNamespace:
    return SimpleNamespace(id=UUID(int=1), epoch=7, parent_id=parent, deadline_in=deadline_in, crashes=crashes)


ENDINGS = {
    "succeed": moves.succeed(lease(), "1", elapsed=1.5),
    "fail": moves.fail(lease(), "{}", "boom", elapsed=1.5),
    "retry": moves.retry(lease(), "{}", "boom", delay=3, elapsed=1.5),
    "exhaust": moves.exhaust(lease(), "{}", "boom", elapsed=1.5),
    "set_aside": moves.set_aside(lease(), "{}", "boom", elapsed=1.5),
    "release": moves.release(lease(), elapsed=1.5),
    "overrun": moves.overrun(lease(), "{}", "late", elapsed=1.5),
}


def test_open_and_terminal_states_divide_all_states() -> None:
    assert set(Status) == OPEN | TERMINAL
    assert not OPEN & TERMINAL
    assert OPEN - {Status.LEASED} == CLAIMABLE
    assert {status for status in Status if status.is_terminal} == TERMINAL


def test_every_state_is_reachable() -> None:
    seen: set[Status | None] = {None}
    for _ in MOVES:
        for move in MOVES.values():
            if not move.sources or move.sources & seen:
                seen |= {None} if move.targets == OPEN else move.targets
    assert seen - {None} == set(Status)


def test_every_open_state_can_end_without_a_worker() -> None:
    for name in ("cancel", "expire"):
        assert MOVES[name].sources == OPEN
        assert MOVES[name].needs is Needs.NOTHING


@pytest.mark.parametrize("move", MOVES.values(), ids=lambda move: move.name)
def test_a_move_is_named_by_its_key_and_leads_somewhere(move: moves.Move) -> None:
    assert MOVES[move.name] is move
    assert move.targets
    assert move.performers


@pytest.mark.parametrize("move", MOVES.values(), ids=lambda move: move.name)
def test_only_leased_runs_are_moved_by_a_lease(move: moves.Move) -> None:
    if move.needs is not Needs.NOTHING:
        assert move.sources == {Status.LEASED}


@pytest.mark.parametrize("move", MOVES.values(), ids=lambda move: move.name)
def test_an_end_is_told_by_the_event_of_its_name(move: moves.Move) -> None:
    if move.targets <= TERMINAL:
        (target,) = move.targets
        assert move.event.value == target.value


def test_only_a_revival_leaves_a_terminal_state() -> None:
    assert [move.name for move in MOVES.values() if move.sources & TERMINAL] == ["revive"]


def test_every_move_of_the_journal_has_a_constructor() -> None:
    """A pause is no ending: its entry is built by the execution, which knows what it waits for."""
    assert set(ENDINGS) | {"pause"} == {move.name for move in MOVES.values() if move.needs is Needs.LEASE}


@pytest.mark.parametrize(("name", "ending"), ENDINGS.items(), ids=lambda value: str(value)[:8])
def test_an_ending_has_exactly_the_laws_status_and_event(name: str, ending: Ending) -> None:
    law = MOVES[name]
    assert {ending.status} == law.targets
    assert ending.event is law.event
    assert (ending.move, ending.run_id, ending.epoch) == (name, UUID(int=1), 7)
    assert (ending.elapsed, ending.started) == (1.5, True)


def test_a_pause_gives_up_the_lease_and_can_be_claimed() -> None:
    law = MOVES["pause"]
    assert (law.sources, law.needs, law.event.value) == ({Status.LEASED}, Needs.LEASE, "paused")
    assert law.targets <= MOVES["claim"].sources


def test_only_failures_burn_an_attempt() -> None:
    assert {name for name, ending in ENDINGS.items() if ending.burns} == {"exhaust", "fail", "retry"}


def test_an_ending_remembers_that_a_parent_must_be_woken() -> None:
    assert moves.succeed(lease(UUID(int=2)), "1", elapsed=0).has_parent
    assert not ENDINGS["succeed"].has_parent


def test_a_run_that_never_started_says_so() -> None:
    assert moves.release(lease(), elapsed=0.0).started
    assert not moves.hand_back(lease(), None).started


@pytest.mark.parametrize("timeout", [0.001, 60.0, 30 * 86_400.0])
def test_a_claim_that_comes_to_nothing_takes_its_own_deadline_with_it_and_no_other(timeout: float) -> None:
    as_told = round(timeout * 1_000_000) / 1_000_000
    assert moves.hand_back(lease(deadline_in=as_told), timeout).anew
    assert not moves.hand_back(lease(deadline_in=as_told), None).anew, "whoever made the row has set it"
    assert not moves.hand_back(lease(deadline_in=as_told + 0.001), timeout).anew, "an earlier claim has set it"
    assert not moves.hand_back(lease(), timeout).anew
    assert not moves.hand_back(lease(deadline_in=as_told), timeout, delay=1.0).anew, "nothing else would end it"
    assert not moves.release(lease(deadline_in=as_told), elapsed=timeout).anew
    assert not moves.release_stranger(UUID(int=1), 7).anew


RESULT = moves.remember(lease(), "charge#0", 0, 1.5, "[1]", "2")


def test_the_usual_record_is_a_record_of_which_only_its_own_part_is_stored() -> None:
    whole = Record(
        UUID(int=1), 7, "charge#0", StepKind.STEP, StepStatus.SUCCEEDED, elapsed=1.5, input="[1]", output="2"
    )
    assert type(RESULT) is Result
    assert [getattr(RESULT, one.name) for one in fields(Record)] == [getattr(whole, one.name) for one in fields(Record)]
    assert RESULT.is_plain
    assert RESULT.is_first_success
    for one in fields(Record):
        if one.name not in {"run_id", "epoch", "step_id", "elapsed", "input", "output"}:
            with pytest.raises(AttributeError):
                setattr(RESULT, one.name, "what a usual record cannot have")


def test_a_record_that_takes_others_along_is_not_the_usual_one() -> None:
    first = moves.taking_along(RESULT, (RESULT,))
    both = moves.taking_along(first, (first,))
    assert (type(both), both.also, both.is_plain) == (Record, (RESULT, first), False)
    others = [one.name for one in fields(Record) if one.name != "also"]
    assert [getattr(both, name) for name in others] == [getattr(RESULT, name) for name in others]


def test_a_later_attempt_and_a_run_that_crashed_before_leave_more_than_the_usual_record() -> None:
    later = moves.remember(lease(), "charge#0", 2, 1.5, None, "2")
    suspect = moves.remember(lease(crashes=1), "charge#0", 0, 1.5, None, "2")
    assert (type(later), later.attempt, later.is_first_success) == (Record, 2, False)
    assert (type(suspect), suspect.clears_suspicion, suspect.is_plain) == (Record, True, False)
