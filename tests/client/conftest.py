"""What the door's tests share: an App on a fresh database of either kind, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import simpleworkflow as swf


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    yield opened
    opened.sync.close()
