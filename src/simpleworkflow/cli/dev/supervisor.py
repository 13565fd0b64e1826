"""The main process of `simpleworkflow dev`: runs one worker process after another, and shows the runs meanwhile.

This process never imports user code. A worker process does (`child.py`). It is replaced when a file changes
(`file_watcher.py`): it hands its runs back, and the next one goes on from the records with the new code. When the code
cannot be imported, its error is shown until the next change. A worker that dies is started again, with growing pauses.
The runs are read from the database (`followed_runs.py`), so they are shown also while no worker runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from ...app import App
from ...model.errors import MissingMigration, SimpleWorkflowError
from ...store.url import parse_url
from ..common.exit_codes import CALLED_WRONGLY
from .file_watcher import Watcher
from .followed_runs import FollowedRuns
from .screens import Screen, make_screen
from .worker_process import WorkerProcess

LOOK_EVERY = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
"""Before a worker that died is started again."""
LIVED = 10.0
"""After a worker that lived so long, the pauses start again from the first."""


def develop(options: dict[str, Any], *, as_json: bool) -> int:
    """Until Ctrl-C; returns the exit code."""
    return asyncio.run(Supervisor(options, make_screen(as_json=as_json)).run())


class Supervisor:
    def __init__(self, options: dict[str, Any], show: Screen) -> None:
        self._options = options
        self._screen = show
        self._watcher = Watcher(Path.cwd())
        self._worker: WorkerProcess | None = None
        self._apps: list[App] = []
        self._address: tuple[str, str | None] | None = None
        self._runs: FollowedRuns | None = None
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
                await self._look()  # shows what was handed back
            for app in self._apps:
                await app.close()
        return code

    def _stop(self) -> None:
        if self._stopping.is_set() and self._worker is not None:
            self._worker.ask_to_stop()  # now the worker does not wait for running code
        self._stopping.set()

    async def _keep_working(self) -> int:
        """Run one worker after another until a stop; the exit code."""
        pause = FIRST_PAUSE
        while True:
            worker = self._worker = WorkerProcess(self._options, self._screen.printed, self._on_report)
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
                self._screen.say(f"the worker ended ({_ending(code)}); the next one starts in {pause:g} s", "bold red")
                await self._until(asyncio.create_task(asyncio.sleep(pause)))
                pause = min(2 * pause, LONGEST_PAUSE)
            if self._stopping.is_set():
                return 0

    async def _until(self, other: asyncio.Task[Any] | None = None) -> None:
        """Wait for a change, a stop, or the other task; `_has_changed` says whether it was a change."""
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

    def _on_report(self, report: dict[str, Any]) -> None:
        """Handle a report of the worker."""
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
        """Look first, then let the worker start, so that also runs that end quickly are shown."""
        await self._look()
        if self._worker is not None:
            self._worker.let_begin()

    def _use(self, url: str, schema: str | None) -> None:
        """Follow the database of the App; a change of the code may have chosen another one."""
        if self._address != (url, schema):
            self._address = url, schema
            self._apps.append(App(url, schema=schema))
            self._runs = FollowedRuns(self._apps[-1])
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
        except Exception as error:  # else the screen would stop without a message
            self._say_trouble(f"the runs could not be looked at: {error!r}")

    def _say_trouble(self, text: str) -> None:
        """Once, and not at every look."""
        if text != self._trouble:
            self._trouble = text
            self._screen.say(text, "bold red")


def _names(files: list[str]) -> str:
    shown = [os.path.relpath(file) for file in files[:3]]
    return ", ".join(shown) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
