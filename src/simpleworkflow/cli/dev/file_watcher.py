"""Notices changes of Python files by their time and size.

It watches every `*.py` below the working folder, except in hidden folders and virtual environments, and the files
that the worker has imported, except those of Python, of installed packages and of simpleworkflow.

A change counts when two looks in a row agree: editors save in several steps, and tools save many files. The pause
between looks grows with their cost, so that a huge folder delays the reload but does not load the machine.
"""

from __future__ import annotations

import asyncio
import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...clock import monotonic

LOOK_EVERY = 0.25
SETTLE = 0.15
"""Between two looks that must agree."""
SHARE = 0.1
"""The share of the time that looking may take."""
NOT_CODE = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})

Snapshot = dict[str, tuple[int, int]]


class Watcher:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._imported: set[str] = set()
        self._before = self._look()
        self._pause = LOOK_EVERY

    def seen(self, files: Iterable[str]) -> None:
        """Watch these files, which the worker has imported."""
        new = {file for file in files if is_ours(file)} - self._imported
        self._imported |= new
        for file in new:
            if (state := _state(file)) is not None:
                self._before.setdefault(file, state)

    async def changed(self) -> list[str]:
        """Wait for a change; the files that were changed, made or removed. Cancelling loses no change."""
        while True:
            await asyncio.sleep(self._pause)
            now = await asyncio.to_thread(self._timed_look)
            if now == self._before:
                continue
            while True:
                await asyncio.sleep(SETTLE)
                again = await asyncio.to_thread(self._timed_look)
                if again == now:
                    break
                now = again
            before, self._before = self._before, now
            different = [file for file in before.keys() | now.keys() if before.get(file) != now.get(file)]
            if different:
                return sorted(different)

    def _timed_look(self) -> Snapshot:
        started = monotonic()
        snapshot = self._look()
        self._pause = max(LOOK_EVERY, (monotonic() - started) / SHARE)
        return snapshot

    def _look(self) -> Snapshot:
        files = [*self._imported, *_python_files(str(self._folder))]
        return {file: state for file in files if (state := _state(file)) is not None}


def is_ours(file: str) -> bool:
    """Whether the file is user code: it belongs neither to Python nor to an installed package.

    Nor to a checkout of simpleworkflow: this process runs that code and would not reload it.
    """
    return not file.startswith(_NOT_OURS)


_NOT_OURS = tuple(
    f"{os.path.realpath(folder)}{os.sep}"
    for folder in (
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[2]),
    )
)


def _state(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None  # removed, or about to be replaced; see the next look
    return found.st_mtime_ns, found.st_size


def _python_files(folder: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in NOT_CODE:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _python_files(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path
