"""Fixtures of the crash tests; what they hold is in support/crew.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crew import Crew, Watched


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
