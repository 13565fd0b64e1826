"""Another handler for a type, for a while: how a test deploys a second release while runs of the first one wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..app import App
from ..runtime.registry import Workflow


@contextmanager
def serving(app: App, workflow: Workflow[Any, Any]) -> Iterator[None]:
    """Inside, runs of this type are executed by this workflow's code: `with serving(app, second_release):`"""
    registry = app._client.registry
    before = registry.replace(workflow)
    try:
        yield
    finally:
        if before is not None:
            registry.replace(before)
