"""Every measure that needs no peer, at its smallest: it runs, does its work, and tells all that it has to tell."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ground import Ground, ground
from measures import before
from peers import driving

SMALLEST: dict[str, dict[str, Any]] = {
    "claims": {"FEW": 200, "SOME": 300, "MANY": 400, "PAST": 300, "LOOKS": 2, "PAIRS": 1, "RUNS": 100},
    "ceiling": {"PAIRS": 1, "RUNS": 400},
    "endurance": {"LONG": 15_000, "DRAINS": 2, "PAIRS": 1},
    "wal": {"ROUNDS": 1, "RUNS": 200, "SINGLES": 20},
    "memory": {"ROUNDS": 1, "ASLEEP": 50},
}
TOLD = {
    "claims": [
        "claims.buffers",
        "claims.pages_200",
        "claims.time_200",
        "claims.pages_300",
        "claims.time_300",
        "claims.pages_400",
        "claims.time_400",
        "claims.pages_300_beside_300_finished_runs",
        "claims.time_300_beside_300_finished_runs",
        "claims.past",
    ],
    "ceiling": ["ceiling.pgbench", "ceiling.pgbench_2", "ceiling.bare"],
    "endurance": ["endurance.long", "endurance.long.best", "endurance.snapshot"],
    "wal": ["wal.run"],
    "memory": ["memory.asleep"],
}


@pytest.fixture(scope="module")
def durable() -> Iterator[Ground]:
    with ground() as server:
        yield server


LONG = {"ceiling", "claims", "endurance", "memory", "wal"}
"""Even at their smallest these take ten seconds each: `make crash` runs them."""


@pytest.mark.xdist_group("measures")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in SMALLEST]
)
def test_a_measure_runs_and_tells_all_its_lines(durable: Ground, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = importlib.import_module(f"measures.{name}")
    for constant, value in SMALLEST[name].items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    found = {finding.key: finding for finding in module.measure(durable)}
    assert [key for key in TOLD[name] if key not in found] == []
    assert all(finding.values for finding in found.values())


@pytest.mark.slow
@pytest.mark.xdist_group("measures")
@pytest.mark.parametrize("name", ["drain", "sqlite"])
def test_a_pair_of_now_and_before_runs_and_has_a_value(
    durable: Ground, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """This working tree is the older commit as well."""
    monkeypatch.setattr(driving, "older_command", [sys.executable, str(driving.HERE / "drive_ours.py")])
    small = {which: replace(pair, jobs=50) for which, pair in before.RATES.items()}
    monkeypatch.setattr(before, "RATES", small)
    (found,) = before.finder(1)(name)(durable)
    assert (found.key, len(found.values), found.verdict) == (f"before.{name}", 1, "inconclusive")
