"""mypy and pyright see the types: good.py is clean, and every planted mistake in bad.py is found, and nothing else.

The samples are read, never run. pyright comes with its own node (the `nodejs` extra), so that this needs no network.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAMPLES = ("good.py", "bad.py")
PATHS = [str(HERE / name) for name in SAMPLES]
OFFLINE = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # no look for a newer version

Found = dict[str, dict[int, str]]


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, env={**os.environ, **OFFLINE}
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr  # 0 clean, 1 errors found; anything else broke
    return done.stdout


def with_mypy() -> Found:
    out = run("mypy", "--strict", "--no-error-summary", "--output=json", *PATHS)
    found: Found = {name: {} for name in SAMPLES}
    for line in out.splitlines():
        report = json.loads(line)
        if report["severity"] == "error":
            found[Path(report["file"]).name][report["line"]] = report["message"]
    return found


def with_pyright() -> Found:
    """Strict by the `# pyright: strict` that the samples carry."""
    out = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, *PATHS))
    assert out["summary"]["filesAnalyzed"] == len(SAMPLES)
    found: Found = {name: {} for name in SAMPLES}
    for report in out["generalDiagnostics"]:
        if report["severity"] == "error":
            found[Path(report["file"]).name][report["range"]["start"]["line"] + 1] = report["message"]
    return found


@pytest.fixture(scope="module", params=[with_mypy, with_pyright], ids=["mypy", "pyright"])
def found(request: pytest.FixtureRequest) -> Found:
    checked: Found = request.param()
    return checked


def planted() -> set[int]:
    lines = (HERE / "bad.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if re.search(r"# error: ", line)}


def test_what_is_right_is_accepted_with_the_right_types(found: Found) -> None:
    assert found["good.py"] == {}


def test_every_planted_mistake_is_found_and_nothing_else(found: Found) -> None:
    mistakes = planted()
    assert len(mistakes) > 30
    assert {line: found["bad.py"][line] for line in found["bad.py"].keys() - mistakes} == {}, "found too much"
    assert mistakes - found["bad.py"].keys() == set(), "not found"
