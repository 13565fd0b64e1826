"""Whatever clients, workers, sweepers and operators do in whatever order, the database does what the law says.

Hypothesis draws the operations and shrinks a failure to its shortest story. The full count runs in `make crash`; the
everyday suite plays a small, fixed sample of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from machine.machine import Machine
from machine.world import World
from simpleworkflow.model.states import EventType
from simpleworkflow.store.protocol import Operation

T = TypeVar("T")
QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
SAMPLE = settings(QUIET, max_examples=20, stateful_step_count=30, derandomize=True)
FULL = settings(QUIET, max_examples=500, stateful_step_count=60, print_blob=True)
FIRST_FAILURE = settings(QUIET, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
STEPS = 500 * 50  # some examples stop a little early

LEAST = 20
MUST_HAPPEN = [
    *(event.value for event in EventType),
    *(f"{entry} {outcome}" for entry in ("Record", "Pause", "Ending") for outcome in ("done", "lost")),
    "Pause woken",
    "signals consumed",
    "children",
]


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.close()


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(SAMPLE, id="sample"),
        pytest.param(FULL, id="full", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_the_database_does_what_the_law_says(
    world: World, backend: str, profile: settings, request: pytest.FixtureRequest
) -> None:
    run_state_machine_as_test(lambda: Machine(world), settings=profile)
    assert world.examples >= profile.max_examples
    if request.node.get_closest_marker("slow"):
        write_figures(world, backend, request.node.originalname)
        assert world.seen["steps"] >= STEPS
        missing = [what for what in MUST_HAPPEN if world.seen[what] < LEAST]
        assert not missing, f"hardly ever happened: {missing} in {dict(world.seen)}"


def write_figures(world: World, backend: str, test: str) -> None:
    """Where `make crash` wants them: one JSON line per figure."""
    if target := os.environ.get("CRASH_FIGURES"):
        with open(target, "a") as lines:
            for what, value in [("examples", world.examples), *sorted(world.seen.items())]:
                line = {"figure": f"state machine: {what}", "value": value, "backend": backend, "test": test}
                lines.write(json.dumps(line) + "\n")


class Forgetful(World):
    """A database that forgets, now and then, that a run was woken."""

    def run(self, operation: Operation[T]) -> T:
        answer = super().run(operation)
        if operation.name == "send":
            self.raw.sql("UPDATE workflow.workflow_run SET wakes = 0, version = version + 1 WHERE wakes = 2")
        return answer


def test_a_database_that_forgets_a_wake_is_found_out(url: str) -> None:
    world = Forgetful(url)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: Machine(world), settings=FIRST_FAILURE)
    world.close()
