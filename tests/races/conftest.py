"""Fixtures of the races: a ring on each database, and where figures go."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from support.ledger import Raw

from races.arena import Ring
from simpleworkflow.store import Ledger


@pytest.fixture
async def ring(ledger: Ledger, raw: Raw) -> AsyncIterator[Ring]:
    other = ledger.twin()
    yield Ring(ledger, other, raw, random.Random(4))
    await other.close()
