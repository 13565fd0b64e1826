"""What the tests of the seeds' spellings stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from support.ledger import Raw

from simpleworkflow.compat.pgqrs import Store, open_store

from .pgqrs_room import QUICK


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, settings=QUICK) as opened:
        yield opened


@pytest.fixture
def raw_beside(store: Store, url: str) -> Iterator[Raw]:
    """A stranger's own connection to the store's database."""
    connection = Raw(url)
    yield connection
    connection.close()
