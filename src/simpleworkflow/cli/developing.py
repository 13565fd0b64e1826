"""How `simpleworkflow dev` works: one worker process after another, and a look at the database meanwhile.

This process never loads the code that is being written. A worker process does (dev_child.py), and is replaced when a
file changes (reloading.py): it hands back what it has under way, and the next one goes on from the records with the
new code. Code that cannot be loaded is shown with its error, and the next change is waited for; a worker that dies is
started again, more and more slowly. Meanwhile the runs are looked at in the database itself (live.py), so that what is
shown is true while there is no worker at all.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from ..app import App
from ..model.errors import MissingMigration, SimpleWorkflowError
from ..store.url import parse_url
from .common.exit_codes import CALLED_WRONGLY
from .dev_process import WorkerProcess
from .live import Runs, Screen, make_screen
from .reloading import Watcher

LOOK_EVERY = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
"""Before a worker that died is started again."""
LIVED = 10.0
"""A worker that lived so long starts the pauses anew."""


def develop(orders: dict[str, Any], *, as_json: bool) -> int:
    """Until Ctrl-C; returns the exit code."""
    return asyncio.run(Dev(orders, make_screen(as_json=as_json)).run())


class Dev:
    def __init__(self, orders: dict[str, Any], show: Screen) -> None:
        self._orders = orders
        self._screen = show
        self._watcher = Watcher(Path.cwd())
        self._worker: WorkerProcess | None = None
        self._apps: list[App] = []
        self._address: tuple[str, str | None] | None = None
        self._runs: Runs | None = None
        self._stopping = asyncio.Event()
        self._one_look = asyncio.Lock()
        self._beginning: asyncio.Task[None] | None = None
        self._trouble = ""
        self._was_loaded = False
        self._has_changed = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop)
        with self._screen.shown():
            looking = asyncio.create_task(self._keep_looking())
            try:
                code = await self._keep_working()
            finally:
                looking.cancel()
                await asyncio.wait([looking])
            if not self._trouble:
                await self._look()  # the last word: what was handed back
            for app in self._apps:
                await app.close()
        return code

    def _stop(self) -> None:
        if self._stopping.is_set() and self._worker is not None:
            self._worker.ask_to_stop()  # the second time it does not wait for running code
        self._stopping.set()

    async def _keep_working(self) -> int:
        """One worker after another, until we are told to stop."""
        pause = FIRST_PAUSE
        while True:
            worker = self._worker = WorkerProcess(self._orders, self._screen.printed, self._hear)
            started = asyncio.get_running_loop().time()
            try:
                await worker.start()
                ending = asyncio.create_task(worker.ended())
                await self._until(ending)
                if not ending.done():
                    self._screen.say("stopping" if self._stopping.is_set() else "reloading")
                    await worker.stop()
                code = await ending
            finally:
                worker.close()
                self._worker = None
            if self._stopping.is_set():
                return 0
            if worker.is_hopeless and not self._was_loaded:
                return CALLED_WRONGLY
            self._was_loaded = self._was_loaded or worker.is_loaded
            if self._has_changed:
                continue
            if not worker.is_loaded:
                self._screen.say("the worker cannot start; dev waits for a change", "bold red")
                await self._until()
            else:
                lived = asyncio.get_running_loop().time() - started
                pause = FIRST_PAUSE if lived > LIVED else pause
                self._screen.say(f"the worker ended ({_told(code)}); the next one starts in {pause:g} s", "bold red")
                await self._until(asyncio.create_task(asyncio.sleep(pause)))
                pause = min(2 * pause, LONGEST_PAUSE)
            if self._stopping.is_set():
                return 0

    async def _until(self, other: asyncio.Task[Any] | None = None) -> None:
        """Wait for a change, a stop, or something else; `_has_changed` tells of the first."""
        change = asyncio.create_task(self._watcher.changed())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            waiting = {change, stop} if other is None else {change, stop, other}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            self._has_changed = change.done()
            if change.done():
                self._screen.say(f"changed: {_names(change.result())}")
        finally:
            change.cancel()
            stop.cancel()
            await asyncio.wait({change, stop})

    def _hear(self, report: dict[str, Any]) -> None:
        """What the worker tells."""
        if "files" in report:
            self._watcher.seen(report["files"])
        if "url" in report:
            self._use(report["url"], report["schema"])
        if "applied" in report:
            for name in report["applied"]:
                self._screen.say(f"applied {name}")
            self._beginning = asyncio.create_task(self._begin())
        if "trouble" in report:
            self._say_trouble(report["trouble"])

    async def _begin(self) -> None:
        """Look first, then let the worker work: what ends from now on is news, however quickly it ends."""
        await self._look()
        if self._worker is not None:
            self._worker.let_begin()

    def _use(self, url: str, schema: str | None) -> None:
        """Look at the database of the App as it is now; a change of the code may have moved it."""
        if self._address != (url, schema):
            self._address = url, schema
            self._apps.append(App(url, schema=schema))
            self._runs = Runs(self._apps[-1])
            self._screen.say(f"watching {parse_url(url, schema=schema)}")

    async def _keep_looking(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_EVERY)

    async def _look(self) -> None:
        if self._runs is None:
            return
        try:
            async with self._one_look:
                self._screen.show(*await self._runs.look())
            self._trouble = ""
        except MissingMigration:
            pass  # the worker is about to migrate
        except SimpleWorkflowError as error:
            self._say_trouble(str(error))
        except Exception as error:  # the screen must not stand still without a word
            self._say_trouble(f"the runs could not be looked at: {error!r}")

    def _say_trouble(self, text: str) -> None:
        """Once, and not at every look."""
        if text != self._trouble:
            self._trouble = text
            self._screen.say(text, "bold red")


def _names(files: list[str]) -> str:
    shown = [os.path.relpath(file) for file in files[:3]]
    return ", ".join(shown) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


def _told(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
