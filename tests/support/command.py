"""The command as operators run it: a real process, its exit code, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "simpleworkflow"]


def environment(url: str | None = None, **more: str) -> dict[str, str]:
    """Ours, without what the developer's shell says about databases and screens."""
    dropped = {"SIMPLEWORKFLOW_URL", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | ({} if url is None else {"SIMPLEWORKFLOW_URL": url}) | more


def run(
    *arguments: str, cwd: Path | None = None, url: str | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, its output in pipes."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(url),
        input=stdin,
        timeout=60,
        check=False,
    )
