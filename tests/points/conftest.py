"""Lanes on each database, and where figures go."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.postgres import Server

import simpleworkflow as swf

from .lane import Lanes, NewDatabase, copies_of

MEMORY = Path("/dev/shm")
_serial = itertools.count()


@pytest.fixture
def lanes(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Lanes:
    return Lanes(tmp_path, request.getfixturevalue(f"new_{backend}"))


@pytest.fixture
def new_sqlite(tmp_path: Path) -> Iterator[NewDatabase]:
    """In memory where the system offers that: the death of a process needs no disk, and syncing one takes its time."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=memory, prefix="simpleworkflow-points-") as folder:
        template = Path(folder) / "template.db"
        app = swf.App(str(template))
        app.sync.migrate()
        app.sync.close()
        yield copies_of(template)


@pytest.fixture
def new_postgres(postgres: Server) -> Iterator[NewDatabase]:
    names: list[str] = []

    def create() -> str:
        name = f"points_{next(_serial)}"
        names.append(name)
        postgres.create_database(name, template="template_swf")
        return postgres.url(name)

    yield create
    for name in names:
        postgres.drop_database(name)
