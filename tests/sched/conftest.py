"""An App on each database, and a stranger's connection beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.ledger import Raw

import simpleworkflow as swf

from .room import QUICK
from .workplace import Site


@pytest.fixture
async def app(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url, settings=QUICK)
    yield app
    await app.close()


@pytest.fixture
def still(tmp_path: Path) -> swf.App:
    """An App for the test kit: its database is in memory, and time passes when the test says so."""
    return swf.App(str(tmp_path / "untouched.db"))


@pytest.fixture
def stranger(url: str, app: swf.App) -> Iterator[Raw]:
    """Plain SQL, with no word of ours in between; the App has migrated the file before."""
    app.sync.migrate()
    connection = Raw(url)
    yield connection
    connection.close()


@pytest.fixture
def site(url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(url, tmp_path)
    yield site
    site.close()
