"""The parent's side of the worker process of `simpleworkflow dev`: start it, read what it prints and reports, stop it.

The worker has a session of its own, so that Ctrl-C reaches only the parent, which then stops it. It ends when the
parent ends: see `child.py`.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from .child import GRACE

CHUNK = 65_536
LONGEST_REPORT = 64 * 1024 * 1024


class WorkerProcess:
    """One worker, from its start to its end."""

    def __init__(
        self, options: dict[str, Any], on_line: Callable[[str], None], on_report: Callable[[dict[str, Any]], None]
    ):
        self._options = options
        self._on_line = on_line
        self._on_report = on_report
        self._lifeline = -1
        self._process: asyncio.subprocess.Process
        self._reading: list[asyncio.Task[None]] = []
        self.is_loaded = True
        """False after a report that its code could not be loaded."""
        self.is_hopeless = False
        """Whether no change of the code can help, because dev was called wrongly."""

    async def start(self) -> None:
        its_lifeline, self._lifeline = os.pipe()
        reports, its_reports = os.pipe()
        # Compiled files are dated by the second: they would hide the second of two quick changes.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "simpleworkflow.cli.dev.child", str(its_lifeline), str(its_reports)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(its_lifeline, its_reports),
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(its_lifeline)
            os.close(its_reports)
        try:
            os.write(self._lifeline, json.dumps(self._options).encode() + b"\n")
        except BrokenPipeError:
            pass
        self._reading = [asyncio.create_task(self._read_output()), asyncio.create_task(self._read_reports(reports))]

    def let_begin(self) -> None:
        if self._lifeline >= 0:
            try:
                os.write(self._lifeline, b"begin\n")
            except BrokenPipeError:
                pass  # the worker has ended; see `ended`

    async def _read_output(self) -> None:
        assert self._process.stdout is not None
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        rest = ""
        while chunk := await self._process.stdout.read(CHUNK):
            *lines, rest = (rest + decode(chunk)).split("\n")
            for line in lines:
                self._on_line(line)
        if rest:
            self._on_line(rest)

    async def _read_reports(self, end: int) -> None:
        reader = asyncio.StreamReader(limit=LONGEST_REPORT)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb"))
        try:
            while line := await reader.readline():
                report = json.loads(line)
                self.is_loaded = self.is_loaded and "unloaded" not in report
                self.is_hopeless = self.is_hopeless or bool(report.get("hopeless"))
                self._on_report(report)
        finally:
            transport.close()

    async def ended(self) -> int:
        """Wait until it has ended and all its output was read; its exit code."""
        code = await self._process.wait()
        # At most a second: a program that user code started may keep the pipes open.
        await asyncio.wait(self._reading, timeout=1.0)
        return code

    def ask_to_stop(self) -> None:
        """Send SIGTERM; after a second one the worker does not wait for running code."""
        self._signal(signal.SIGTERM)

    async def stop(self) -> int:
        """Let it hand its runs back; kill it when its code does not stop in time."""
        self.ask_to_stop()
        try:
            async with asyncio.timeout(self._options["drain"] + GRACE):
                return await self.ended()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            return await self.ended()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        """Close the lifeline, which ends the worker."""
        for task in self._reading:
            task.cancel()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
