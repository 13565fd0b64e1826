"""In every state that clients, workers, sweepers and operators can bring about, every run has one true explanation.

The truth comes from the tables (oracle.py), never from the code that explains. The full count runs in `make crash`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from machine.explained import ExplainedMachine, ExplainedWorld
from simpleworkflow.model.explanation import Facts, Picture
from simpleworkflow.model.records import Step
from simpleworkflow.model.states import Reason
from simpleworkflow.store.protocol import Operation

QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
SAMPLE = settings(QUIET, max_examples=12, stateful_step_count=30, derandomize=True)
FULL = settings(QUIET, max_examples=200, stateful_step_count=60, print_blob=True)
ELSEWHERE = Reason.CLAIM_FAILS
"""No claim of this machine fails; tests/worker/test_failing_lanes.py shows this reason."""
FIRST_FAILURE = settings(QUIET, max_examples=60, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.fixture
def world(url: str) -> Iterator[ExplainedWorld]:
    world = ExplainedWorld(url)
    yield world
    world.close()


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(SAMPLE, id="sample"),
        pytest.param(FULL, id="full", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_every_reachable_state_has_one_true_explanation(
    world: ExplainedWorld, profile: settings, request: pytest.FixtureRequest
) -> None:
    run_state_machine_as_test(lambda: ExplainedMachine(world), settings=profile)
    explained = {reason for reason in Reason if world.seen[f"reason {reason}"]}
    if request.node.get_closest_marker("slow"):
        assert explained == set(Reason) - {ELSEWHERE}, "each reason was reached, and found to be true"
    else:
        assert len(explained) >= 12, sorted(explained)


def _every(picture: Picture, change: Callable[[Facts], Facts]) -> Picture:
    return replace(picture, runs={run_id: change(run) for run_id, run in picture.runs.items()})


def _rename(picture: Picture) -> Picture:
    def other(step: Step) -> Step:
        return replace(step, step_id=step.step_id.replace("go", "come"))

    return replace(picture, waits={run_id: list(map(other, waits)) for run_id, waits in picture.waits.items()})


MISTAKES: dict[str, Callable[[Picture], Picture]] = {
    "waits are overlooked": lambda picture: replace(picture, waits={}),
    "a signal gets another name": _rename,
    "how full they are is overlooked": lambda picture: replace(
        picture, workers=[replace(worker, load_json=None) for worker in picture.workers]
    ),
    "nobody is alive": lambda picture: replace(picture, workers=[]),
    "more urgent work is overlooked": lambda picture: replace(picture, lanes={}),
    "a clock of one's own": lambda picture: replace(picture, at=picture.at + timedelta(seconds=600)),
    "another worker is named": lambda picture: _every(
        picture, lambda run: replace(run, leased_by=run.leased_by and "somebody")
    ),
    "a hold is overlooked": lambda picture: _every(picture, lambda run: replace(run, held_at=None)),
    "disabled types are overlooked": lambda picture: _every(picture, lambda run: replace(run, is_enabled=True)),
    "crashes are overlooked": lambda picture: _every(picture, lambda run: replace(run, crashes=0)),
    "a queue is overlooked": lambda picture: _every(picture, lambda run: replace(run, before=0)),
    "children are overlooked": lambda picture: replace(picture, children={}),
}


class Mistaken(ExplainedWorld):
    """A world in which whoever explains sees something that is not so."""

    mistake: Callable[[Picture], Picture]

    def run(self, operation: Operation[Any]) -> Any:
        answer = super().run(operation)
        return self.mistake(answer) if isinstance(answer, Picture) else answer


RARE = {
    "children are overlooked",
    "crashes are overlooked",
    "disabled types are overlooked",
    "how full they are is overlooked",
    "a signal gets another name",
}
"""Found too, but not within seconds."""


@pytest.mark.parametrize(
    "mistake", [pytest.param(one, marks=[pytest.mark.slow] if one in RARE else []) for one in MISTAKES]
)
def test_an_explanation_that_is_not_true_is_found_out(tmp_path: Any, mistake: str) -> None:
    world = Mistaken(str(tmp_path / "test.db"))
    world.mistake = MISTAKES[mistake]
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: ExplainedMachine(world), settings=FIRST_FAILURE)
    world.close()


@pytest.mark.slow
def test_a_wait_that_was_given_up_and_is_told_all_the_same_is_found_out(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a pause had not said what it waits for: everything that is on record as open would count."""
    monkeypatch.setattr(Facts, "awaited", property(lambda run: None))
    world = ExplainedWorld(str(tmp_path / "test.db"))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: ExplainedMachine(world), settings=FIRST_FAILURE)
    world.close()
