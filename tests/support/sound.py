"""A PostgreSQL server that is well: durable, with room for prepared transactions. What is to be sick is made so.

The server of the other tests buys speed with durability, so a doctor rightly calls it ill.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from simpleworkflow.store import open_ledger

from .ledger import Raw
from .postgres import Server, launch

_serial = itertools.count()


@pytest.fixture(scope="session")
def sound() -> Iterator[Server]:
    with launch(durable=True, settings={"max_prepared_transactions": "4", "max_wal_senders": "4"}) as server:
        server.create_database("template_sound")
        asyncio.run(migrate(server.url("template_sound")))
        yield server


async def migrate(url: str) -> None:
    ledger = open_ledger(url)
    await ledger.migrate_up()
    await ledger.close()


@pytest.fixture
def sound_url(sound: Server) -> Iterator[str]:
    name = f"sound_{next(_serial)}"
    sound.create_database(name, template="template_sound")
    yield sound.url(name)
    sound.drop_database(name)


@pytest.fixture
def raw_sound(sound_url: str) -> Iterator[Raw]:
    """A stranger's own connection to that server."""
    connection = Raw(sound_url)
    yield connection
    connection.close()


@pytest.fixture
def well(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database of each kind with nothing wrong."""
    if backend == "postgres":
        return str(request.getfixturevalue("sound_url"))
    url = str(tmp_path / "well.db")
    asyncio.run(migrate(url))
    return url
