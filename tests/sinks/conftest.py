"""Real servers for sinks: HTTP, HTTPS with a certificate of our own, and Redis."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator

import pytest
import trustme

from .receiver import Receiver
from .redis_server import RedisServer


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as opened:
        yield opened


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """A client's context that believes our own authority and nobody else."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def secure_receiver(authority: trustme.CA) -> AsyncIterator[Receiver]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hooks.example").configure_cert(context)
    async with Receiver(tls=context) as opened:
        yield opened


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as opened:
        yield opened
