"""Fixtures of the races: a ring on each database, and where figures go."""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator, Callable

import pytest
from support.ledger import Raw

from races.arena import Ring
from simpleworkflow.store import Ledger


@pytest.fixture
async def ring(ledger: Ledger, raw: Raw) -> AsyncIterator[Ring]:
    other = ledger.twin()
    yield Ring(ledger, other, raw, random.Random(4))
    await other.close()


@pytest.fixture
def figure(request: pytest.FixtureRequest, backend: str) -> Callable[[str, float], None]:
    """Write down what was counted, where `make crash` wants it: one JSON line per figure, of the full counts only."""

    def write(what: str, value: float) -> None:
        target = os.environ.get("CRASH_FIGURES")
        if target and request.node.get_closest_marker("slow"):
            line = {"figure": what, "value": round(value, 2), "backend": backend, "test": request.node.originalname}
            with open(target, "a") as lines:
                lines.write(json.dumps(line) + "\n")

    return write
