"""The show itself: `python -m simpleworkflow.cli.demo`, without a terminal, with one, and interrupted."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 60
COMMAND = [sys.executable, "-m", "simpleworkflow.cli.demo"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A plain environment, with settings of the developer's own that must not leak into the show."""
    plain = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"}}
    return {**plain, "TMPDIR": str(tmp_path), "SIMPLEWORKFLOW_URL": "elsewhere.db", "WORKER_TYPE_PREFIXES": "billing.*"}


def numbers(output: str) -> dict[str, int]:
    """The rows of the closing table."""
    return {label.strip(): int(count) for label, count in re.findall(r"│ ([a-z ,]+?) +│ +(\d+) │", output)}


def check_story(output: str) -> None:
    table = numbers(output)
    again = table.get("done again, killed just before the commit", 0)
    assert table["orders accepted"] == 40
    assert table["finished exactly once"] == 40
    assert table["lost"] == 0
    assert table["retried after an error"] >= 1
    assert 1 <= table["interrupted by the kill"] <= table["taken over by the second worker"] <= 4
    assert table["executions begun"] == 40 + table["interrupted by the kill"] + table["retried after an error"] + again
    assert "nothing was lost" in output


def test_without_a_terminal_it_tells_its_story_in_plain_lines(environment: dict[str, str], tmp_path: Path) -> None:
    show = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert show.returncode == 0, show.stdout + show.stderr
    assert show.stderr == ""
    assert "\x1b" not in show.stdout
    assert re.search(r"kill -9 \d+: the first worker is gone", show.stdout)
    check_story(show.stdout)
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_it_shows_a_live_board(environment: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    terminal = {**environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    show = subprocess.Popen(COMMAND, env=terminal, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    output = read_all(ours)
    assert show.wait(LIMIT) == 0, output
    assert "\x1b[2K" in output, "nothing was redrawn"
    assert " 39   40 " in ESCAPES.sub("", output)
    check_story(ESCAPES.sub("", output))
    assert list(tmp_path.iterdir()) == []


def read_all(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side of a terminal is closed
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(
    number: signal.Signals, environment: dict[str, str], tmp_path: Path
) -> None:
    unbuffered = {**environment, "PYTHONUNBUFFERED": "1"}
    show = subprocess.Popen(COMMAND, env=unbuffered, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert show.stdout is not None
    worker = 0
    for line in show.stdout:
        started = re.search(r"the first worker starts, process (\d+)", line)
        worker = int(started[1]) if started else worker
        if " leased " in line:
            break
    show.send_signal(number)
    assert show.wait(LIMIT) == 128 + number
    show.stdout.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert list(tmp_path.iterdir()) == []
