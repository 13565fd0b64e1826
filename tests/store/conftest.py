"""Two sessions on one PostgreSQL: for laws about statements that are already under way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from support.ledger import Raw

from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.drivers import postgres as postgres_driver


@pytest.fixture
async def pg(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Ledger, Raw]]:
    """Sessions that wait as long as it takes, so that it is the waiting statement itself which must look again."""
    monkeypatch.setitem(postgres_driver._SESSION, "lock_timeout", "60s")
    ledger, raw = open_ledger(postgres_url), Raw(postgres_url)
    yield ledger, raw
    raw.close()
    await ledger.close()


@pytest.fixture
def other(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another session, with a transaction of its own that tests commit or take back."""
    with psycopg.connect(postgres_url) as connection:
        yield connection
        connection.rollback()
