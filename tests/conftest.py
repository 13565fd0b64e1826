"""One PostgreSQL server per test process, one template database, for each test a copy that looks fresh.

If no server can be started the suite fails with the launcher's message: a backend is never skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from support.ledger import Raw
from support.postgres import Server, launch
from support.recycled import Recycled
from support.sound import migrate, raw_sound, sound, sound_url, well  # noqa: F401 - fixtures for everybody

from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.testing import plugin

plugin.HIDDEN = ()  # what goes wrong here may be our own fault: tracebacks keep our lines

BACKENDS = ("sqlite", "postgres")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts in the background deaf to Ctrl-C, and so are the processes that our tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with launch() as server:
        server.create_database("template_swf")
        asyncio.run(migrate(server.url("template_swf")))
        yield server


@pytest.fixture(scope="session")
def databases(postgres: Server) -> Recycled:
    return Recycled(postgres, "template_swf")


@pytest.fixture
def postgres_url(postgres: Server, databases: Recycled) -> Iterator[str]:
    name = databases.take()
    yield postgres.url(name)
    databases.give_back(name)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "template.db"
    asyncio.run(migrate(str(file)))
    return file


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, migrated database of each kind."""
    if backend == "sqlite":
        return str(shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "test.db"))
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def ledger(url: str) -> AsyncIterator[Ledger]:
    opened = open_ledger(url)
    await opened.check()
    yield opened
    await opened.close()


@pytest.fixture
def raw(ledger: Ledger, url: str) -> Iterator[Raw]:
    """A stranger's own connection to the same database."""
    connection = Raw(url)
    yield connection
    connection.close()


@pytest.fixture
def figure(request: pytest.FixtureRequest, backend: str) -> Callable[[str, float], None]:
    """Write down what was measured, where `make crash` wants it: one JSON line per figure, of slow tests only."""

    def write(what: str, value: float) -> None:
        target = os.environ.get("CRASH_FIGURES")
        if target and request.node.get_closest_marker("slow"):
            line = {"figure": what, "value": round(value, 2), "backend": backend, "test": request.node.originalname}
            with open(target, "a") as lines:
                lines.write(json.dumps(line) + "\n")

    return write
