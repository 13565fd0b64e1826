"""The command on a terminal of its own, or in a pipe, and outputs that are compared with files."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any, NamedTuple

from support.command import COMMAND, environment, run

PATIENCE = 60.0
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>])")
GOLDEN = Path(__file__).resolve().parents[1] / "cli" / "golden"


def command(*arguments: Any, url: str | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run it to its end, its output in pipes. No mistake of an operator ends in a traceback."""
    done = run(*map(str, arguments), url=url, stdin=stdin)
    assert "Traceback" not in done.stderr, done.stderr
    return done


class Shown(NamedTuple):
    code: int
    raw: str

    @property
    def text(self) -> str:
        """What a person reads: without colours and cursor movements."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")


class Terminal:
    """A process on a pseudo-terminal."""

    def __init__(
        self, *arguments: Any, url: str, width: int = 120, height: int = 40, term: str = "xterm-256color"
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(url, TERM=term),
            start_new_session=True,
        )
        os.close(slave)
        self._read = ""

    def until(self, text: str) -> Terminal:
        """Read on until that text has been shown."""
        deadline = time.monotonic() + PATIENCE
        while text not in ESCAPES.sub("", self._read):
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{self._read}"
            assert self._more() or text in ESCAPES.sub("", self._read), f"ended without {text!r}:\n{self._read}"
        return self

    def type(self, keys: str) -> Terminal:
        os.write(self._master, keys.encode())
        return self

    def interrupt(self) -> Terminal:
        self._process.send_signal(signal.SIGINT)
        return self

    def end(self) -> Shown:
        while self._more():
            pass
        code = self._process.wait(PATIENCE)
        os.close(self._master)
        assert "Traceback" not in self._read, self._read
        return Shown(code, self._read)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], PATIENCE)
        assert ready, f"nothing was shown for {PATIENCE:g} s:\n{self._read}"
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self._read += chunk.decode(errors="replace")
        return bool(chunk)


def assert_golden(name: str, text: str) -> None:
    """The text is what the file says; UPDATE_GOLDEN=1 writes the file instead, for a person to read the difference."""
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), (
        f"{name} differs; if that is meant, run again with UPDATE_GOLDEN=1 and read the diff"
    )
