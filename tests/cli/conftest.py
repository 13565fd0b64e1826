"""Some files here start hundreds of processes, a third of a second of processor time each.

They are a battery of their own (`make commands`, and part of `make crash`), so that everybody's `make test` stays below
ten minutes on two cores.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
BATTERIES = {
    "test_bench.py",
    "test_dev.py",
    "test_makefile.py",
    "test_migrate.py",
    "test_mistakes.py",
    "test_outbox.py",
    "test_prune.py",
    "test_schedule.py",
    "test_top.py",
    "test_untouched.py",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name in BATTERIES:
            item.add_marker(pytest.mark.slow)
