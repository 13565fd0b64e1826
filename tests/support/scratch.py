"""A copy of the source tree that a test may change, and programs that run in it: on its package, not on ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("src", "tests", "tools", "docs", "pyproject.toml", "ARCHITECTURE.md", "CONTRIBUTING.md")


class Scratch:
    """A copy of the repository, as far as its tests and tools need it. What was compiled is copied too, which saves
    seconds; Python compiles anew what a test changes."""

    def __init__(self, folder: Path, *parts: str) -> None:
        self.root = folder / "tree"
        self.package = self.root / "src" / "simpleworkflow"
        for part in parts or PARTS:
            source, target = ROOT / part, self.root / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.egg-info"))
            else:
                shutil.copy(source, target)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def append(self, path: str, text: str) -> None:
        file = self.root / path
        file.write_text(file.read_text() + text)

    def insert(self, path: str, before: str, text: str) -> None:
        """Put the text before the one place where `before` stands."""
        file = self.root / path
        old = file.read_text()
        assert old.count(before) == 1, f"{path} has {old.count(before)} places with {before!r}"
        file.write_text(old.replace(before, text + before))

    def python(self, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
        """Run Python in the copy."""
        environment = os.environ | {"PYTHONPATH": str(self.root / "src"), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=110)

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
