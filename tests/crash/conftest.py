"""Fixtures of the crash tests; what they hold is in support/crew.py."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.crew import Crew, Watched


@pytest.fixture
def figure(request: pytest.FixtureRequest, backend: str) -> Callable[[str, float], None]:
    """Write down what was measured, where `make crash` wants it: one JSON line per figure."""

    def write(what: str, value: float) -> None:
        target = os.environ.get("CRASH_FIGURES")
        if target:
            line = json.dumps(
                {"figure": what, "value": round(value, 2), "backend": backend, "test": request.node.originalname}
            )
            with open(target, "a") as lines:
                lines.write(line + "\n")

    return write


@pytest.fixture
def crew(url: str, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(url, tmp_path)
    yield crew
    crew.close()


@pytest.fixture
def watched(crew: Crew) -> Iterator[Watched]:
    watched = Watched(crew)
    yield watched
    watched.app.sync.close()
