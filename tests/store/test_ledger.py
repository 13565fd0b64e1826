"""What the store promises whoever asks it first."""

from __future__ import annotations

from typing import Any

import pytest

from simpleworkflow.store import ledger as ledger_module
from simpleworkflow.store import open_ledger
from simpleworkflow.store.operations import runs


async def test_what_the_look_at_the_tables_took_is_missing_from_the_time_of_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float | None] = []

    async def check(*, timeout: float | None = None) -> None:
        asked.append(timeout)

    async def run(operation: Any, *, timeout: float | None = None) -> None:
        asked.append(timeout)

    ledger = open_ledger("sqlite://:memory:")
    monkeypatch.setattr(ledger, "check", check)
    monkeypatch.setattr(ledger._driver, "run", run)
    monkeypatch.setattr(ledger_module, "monotonic", iter([10.0, 13.0]).__next__)
    await ledger.run(runs.create([]), timeout=8.0)
    assert asked == [8.0, 5.0]
