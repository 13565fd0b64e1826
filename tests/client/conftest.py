"""What the door's tests share: an App on a fresh database of either kind, closed at the end."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import simpleworkflow as swf


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    yield opened
    opened.sync.close()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A loopback port that nobody answers: bound, never listening."""
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        yield placeholder.getsockname()[1]
