"""The examples run as their readers will run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(program: str, *arguments: str, url: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "SIMPLEWORKFLOW_URL": url},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_greeting_is_said_once_per_name(url: str, tmp_path: Path) -> None:
    first = run("greet.py", "Ada", url=url, cwd=tmp_path)
    assert first.startswith("Hello, Ada! (said at ")
    assert run("greet.py", "Ada", url=url, cwd=tmp_path) == first
    assert run("greet.py", "Bob", url=url, cwd=tmp_path).startswith("Hello, Bob!")


def test_without_a_url_the_file_is_beside_the_program(tmp_path: Path) -> None:
    assert run("greet.py", url="", cwd=tmp_path).startswith("Hello, Ada!")
    assert (tmp_path / "simpleworkflow.db").exists()
