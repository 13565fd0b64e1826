"""What the doctor's tests share: examinations, and findings taken at their word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.client.doctor import examine as doctor
from simpleworkflow.client.doctor.findings import LIMITS, Finding, Level


def examined(url: str) -> list[Finding]:
    app = swf.App(url)
    try:
        return app.sync.doctor.examine()
    finally:
        app.sync.close()


def named(found: list[Finding], check: str) -> list[Finding]:
    return [one for one in found if one.check == check]


def only(app: swf.App, check: str) -> Finding:
    (found,) = named(app.sync.doctor.examine(), check)
    return found


def sick(found: list[Finding]) -> list[str]:
    return [one.check for one in found if one.level is Level.PROBLEM]


def limit(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Smaller numbers, so that an illness need not be a large one."""
    monkeypatch.setattr(doctor, "LIMITS", replace(LIMITS, **changes))


def said(finding: Finding) -> str:
    assert finding.fix is not None
    return finding.fix


def statement(finding: Finding, after: str = "") -> str:
    """The SQL in a fix, to be executed as it stands."""
    fix = said(finding)
    return (fix.partition(after)[2] if after else fix).partition(";")[0].strip()
