"""What tests of the door, the seeds' spelling and the command line share: polling, and programs run for real."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def start_python(
    code: str, *arguments: str, cwd: Path | None = None, stdin: bool = False, **environment: str
) -> subprocess.Popen[str]:
    """A Python program in a process of its own, its output in pipes; with stdin it may wait until we close that."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "PYTHONUNBUFFERED": "1",
            **environment,
        },
    )


def run_python(code: str, *arguments: str, cwd: Path | None = None, **environment: str) -> str:
    """Run a program to its end; what it printed, or an AssertionError with what it complained of."""
    process = start_python(code, *arguments, cwd=cwd, **environment)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{err}"
    return out
