"""A worker dies before and after every round trip to its database; and every round trip fails, in every way it can.

Whatever happens, the run ends exactly once with the right result, by another worker if the first one is dead, and no
step whose checkpoint was committed is started again. `make test` tries a few points, `make crash` all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from .faults import AFTER, BEFORE, DEATHS, ERRORS, LOST, Fault
from .lane import Lanes

Figure = Callable[[str, float], None]


def deaths(trips: Sequence[dict[str, Any]]) -> list[Fault]:
    return [Fault(trip["number"], kind) for trip in trips for kind in DEATHS]


def errors(trips: Sequence[dict[str, Any]], backend: str) -> list[Fault]:
    """An error after the fact is possible only where SQLite is told to commit: nothing else is decided there."""
    return [
        Fault(trip["number"], kind)
        for trip in trips
        for kind in ERRORS[backend]
        if kind != LOST or trip["text"] == "COMMIT"
    ]


def told(broken: dict[Fault, list[str]], trips: Sequence[dict[str, Any]]) -> str:
    where = {trip["number"]: f"{trip['operation']}: {trip['text']}" for trip in trips}
    return "\n\n".join(f"{fault} at {where[fault.number]}\n" + "\n".join(found) for fault, found in broken.items())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_death_at_any_round_trip_loses_nothing_and_repeats_nothing(lanes: Lanes, figure: Figure) -> None:
    began, trips = time.monotonic(), lanes.clean_run()
    points = deaths(trips)
    broken = lanes.try_all(points)
    assert not broken, told(broken, trips)
    figure("round trips of the workflow without faults", len(trips))
    figure("deaths survived, before and after each round trip", len(points))
    figure("seconds for all deaths", time.monotonic() - began)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_error_at_any_round_trip_loses_nothing_and_repeats_nothing(
    lanes: Lanes, backend: str, figure: Figure
) -> None:
    began, trips = time.monotonic(), lanes.clean_run()
    points = errors(trips, backend)
    broken = lanes.try_all(points)
    assert not broken, told(broken, trips)
    figure(f"errors survived ({', '.join(ERRORS[backend])} at each round trip)", len(points))
    figure("seconds for all errors", time.monotonic() - began)


def test_a_few_deaths_and_errors_lose_nothing_and_repeat_nothing(lanes: Lanes, backend: str) -> None:
    trips = lanes.clean_run()
    commits = [trip["number"] for trip in trips if trip["text"] == "COMMIT"]
    some = [trip["number"] for trip in trips][:: max(len(trips) // 5, 1)]
    points = [Fault(number, (BEFORE, AFTER)[at % 2]) for at, number in enumerate(some)]
    points += [Fault(commits[0], AFTER), Fault(commits[-1], BEFORE)]
    points += [Fault(commits[at], kind) for at, kind in enumerate(ERRORS[backend])]
    claimed = max(trip["number"] for trip in trips[: commits[0]] if trip["operation"] == "claim")
    points.append(Fault(claimed, ERRORS[backend][-1]))  # leased, and not told so
    broken = lanes.try_all(points)
    assert not broken, told(broken, trips)


def test_a_fault_that_never_fires_is_told(lanes: Lanes) -> None:
    broken = lanes.try_all([Fault(10_000, BEFORE)], tries=1)
    assert [found for verdict in broken.values() for found in verdict] == [
        "the fault [(10000, 'before')] was planned, [] fired"
    ]
