"""An App with an embedded worker on each database; quick settings, no sleeping."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import simpleworkflow as swf

QUICK = swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.2, drain=2.0)


@pytest.fixture
async def app(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url, settings=QUICK)
    yield app
    await app.close()
