"""Several worker processes of one driver, and one that sits idle while its latency is measured.

A member of the crew is the same driver doing the same `drain`, only with another clock: it writes its handler starts
into a small piece of shared memory, and it listens to the foreman, the process that started it, on its standard input.
It says `ready` and begins when it hears `go`, so that nobody's start-up is measured. The foreman looks at the shared
memory, tells the first member to `look` at the database when all handlers have started, and closes the pipes when it is
over. So no member spends time on watching, and a member whose foreman has died sees its pipe close and goes home; one
that was frozen just then sees nothing, and is ended with its group by whoever gave the turns (sitting.py).

Times are compared between processes: on Linux `perf_counter` is the machine's monotonic clock, the same for all.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clock import DEADLINE_SECONDS, Clock, TooSlow

LOOK_SECONDS = 0.002
STARTS_KEPT = 4_096


class Board:
    """Shared memory: for each member its handler starts, and when the first few thousand of them were."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._cells = memoryview(self._map).cast("d")

    @staticmethod
    def create(path: str, members: int) -> Board:
        Path(path).write_bytes(bytes(8 * members * (1 + STARTS_KEPT)))
        return Board(path)

    def write(self, member: int, turn: int, moment: float) -> None:
        cell = member * (1 + STARTS_KEPT)
        if turn <= STARTS_KEPT:
            self._cells[cell + turn] = moment
        self._cells[cell] = turn

    def handlers(self) -> int:
        return int(sum(self._cells[:: 1 + STARTS_KEPT]))

    def started(self, turn: int, member: int = 0) -> float:
        """When this member's nth handler started, 0 if it has not yet."""
        if not 1 <= turn <= STARTS_KEPT:
            raise ValueError(f"the board keeps the first {STARTS_KEPT} starts only")
        return float(self._cells[member * (1 + STARTS_KEPT) + turn])


class MemberClock(Clock):
    """The clock of a crew member; the foreman does the counting."""

    def __init__(self, jobs: int, board: str, member: int) -> None:
        self._board = Board(board)
        self._member = member
        self.asks_the_database = False
        print("ready", flush=True)
        if sys.stdin.readline() != "go\n":
            raise SystemExit("the foreman has gone")
        super().__init__(jobs)

    def tick(self) -> None:
        turn = next(self._turns)
        moment = time.perf_counter()
        if turn == 1:
            self._began, self._cpu_began = moment, time.process_time()
        self._handlers = turn
        self._board.write(self._member, turn, moment)

    def await_starts(self) -> None:
        self.asks_the_database = sys.stdin.readline() == "look\n"


class Member:
    """A crew member as its foreman sees it."""

    def __init__(self, command: str, url: str, jobs: int, board: str, number: int) -> None:
        words = [command, url, str(jobs), "--board", board, "--member", str(number)]
        self._process = subprocess.Popen(
            [sys.executable, sys.argv[0], *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                return
        raise RuntimeError(f"a worker process ended with {self._process.wait()} before it was ready")

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def check(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"a worker process ended early with {self._process.returncode}")

    def figures(self) -> dict[str, Any]:
        """What it prints last. It must have been told to look, or its pipe closed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"a worker process ended with {self._process.wait()} and no figures")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stopped where it stands, and going on afterwards."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def send_home(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def end(self) -> None:
        self.send_home()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def crew(command: str, url: str, jobs: int, members: int) -> Iterator[tuple[Board, list[Member]]]:
    """Worker processes that have begun. They end with the block."""
    with tempfile.TemporaryDirectory(prefix="simpleworkflow-crew-") as folder, contextlib.ExitStack() as everyone:
        path = str(Path(folder) / "board")
        board = Board.create(path, members)
        found = []
        for number in range(members):
            found.append(Member(command, url, jobs, path, number))
            everyone.callback(found[-1].end)
        for member in found:
            member.await_ready()
        for member in found:
            member.tell("go")
        yield board, found


def drain_together(url: str, jobs: int, members: int) -> dict[str, Any]:
    """From the first handler start in any process until the database says that all jobs are complete."""
    deadline = time.perf_counter() + DEADLINE_SECONDS
    with crew("drain", url, jobs, members) as (board, found):
        while (started := board.handlers()) < jobs:
            for member in found:
                member.check()
            if time.perf_counter() > deadline:
                raise TooSlow(f"{started} of {jobs} handlers started in {DEADLINE_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)
        found[0].tell("look")
        stories = [found[0].figures()]
        for member in found[1:]:
            member.send_home()
            stories.append(member.figures())
        began = min(first for number in range(members) if (first := board.started(1, number)))
        return {
            "jobs": jobs,
            "seconds": stories[0]["ended"] - began,
            "cpu_seconds": sum(story["cpu_seconds"] for story in stories),
            "handlers": board.handlers(),
            "handlers_of_each": [story["handlers"] for story in stories],
        }
