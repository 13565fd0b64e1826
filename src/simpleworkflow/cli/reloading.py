"""When does the code of a worker change? Files are looked at by time and size; no service of the system is needed.

Watched are the files that the worker has imported (it tells us, `seen`), except those of Python itself, of installed
packages and of this one, and every `*.py` below the working folder. Hidden folders, virtual environments and the like
are left out.

Editors save in several steps, and tools save many files: a change counts when two looks in a row saw the same. What a
look costs decides how often there is one, so a huge folder makes reloading slower and not the machine.
"""

from __future__ import annotations

import asyncio
import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..clock import monotonic

LOOK_EVERY = 0.25
SETTLE = 0.15
"""Between two looks that must agree."""
SHARE = 0.1
"""At most so much of the time is spent with looking."""
NOT_CODE = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})

Snapshot = dict[str, tuple[int, int]]


class Watcher:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._imported: set[str] = set()
        self._before = self._look()
        self._pause = LOOK_EVERY

    def seen(self, files: Iterable[str]) -> None:
        """The worker has imported these; from now on a change of one of them counts."""
        new = {file for file in files if is_ours(file)} - self._imported
        self._imported |= new
        for file in new:
            if (state := _state(file)) is not None:
                self._before.setdefault(file, state)

    async def changed(self) -> list[str]:
        """Wait for a change that has settled; the files that changed, came or went. Cancelling forgets nothing."""
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
    """Whether somebody may be working on this file: it belongs neither to Python nor to an installed package.

    Nor to simpleworkflow itself, where that is checked out: a reload would not reach the process that asks this.
    """
    return not file.startswith(_NOT_OURS)


_NOT_OURS = tuple(
    f"{os.path.realpath(folder)}{os.sep}"
    for folder in (
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[1]),
    )
)


def _state(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None  # gone, or about to be replaced: the next look tells
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
