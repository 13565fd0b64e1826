"""An App on each database whose workers stop at once, and crews of real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.crew import Crew, Watched

import simpleworkflow as swf

QUICK = swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.2, drain=0.0)


@pytest.fixture
async def app(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url, settings=QUICK)
    yield app
    await app.close()


@pytest.fixture
def watched(url: str, tmp_path: Path) -> Iterator[Watched]:
    """Real worker processes on the database, as the crash tests have them."""
    crew = Crew(url, tmp_path)
    watched = Watched(crew)
    yield watched
    crew.close()
    watched.app.sync.close()
