"""The pytest fixture `workflow_env`: blocking environments that are closed when the test ends.

    def test_an_order_is_fulfilled(workflow_env):
        env = workflow_env(app)
        assert env.run(fulfil, order) == ["label-1"]

Loaded by pytest through an entry point; everything else is imported only when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..app import App
    from .env import SyncEnv


@pytest.fixture
def workflow_env() -> Iterator[Callable[..., SyncEnv]]:
    """Give it an App and get an environment in memory with a clock that the test owns."""
    with ExitStack() as opened:

        def opening(app: App, **options: Any) -> SyncEnv:
            from .env import env

            return opened.enter_context(env(app, **options))

        yield opening
