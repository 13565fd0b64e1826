"""Latency in short turns: everybody's processes are up at the same time, and all but one of them are frozen.

Two runs of the latency one after the other are some ten seconds apart, and a machine at rest has moods of some seconds:
the same code gave medians of 2.7 and of 3.8 ms within five minutes. So here the turns are short. Everybody has a
database and processes of their own and has warmed up; then they take turns, a block of a few samples each, round and
round, so that everybody rests equally long and always comes after the same neighbour; the next sitting goes the other
way round. Whoever waits has its worker stopped by a signal, so nobody's polling keeps the machine awake for somebody
else. The first samples of a block are not counted: a worker that has just been woken has timers to catch up with.

What is luck of a process (where its memory lies, which core it likes) stays for as long as the process lives. So a
sitting gives one value, however many turns it had, and there are several, each with new processes.

Each driver has a group of processes of its own. Whatever happens, that group is gone afterwards: a stopped process
would stay for ever, and one that hangs would hold up the benchmark.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from ground import Ground
from judging import Bar, Finding, ratios

from peers.driving import NotDone, command_of, database_of, drive

BLOCK = 12
WAKING = 2
"""Of those: samples at the start of a block that are not counted."""
TURN_SECONDS = 120.0
"""Longer than any start and any block: then something hangs."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """The samples that count, in milliseconds: by name, block by block. And what the time cost, per job and in all."""

    blocks: dict[str, list[list[float]]]
    worker_cpu_ms_per_job: dict[str, float]
    server_cpu_seconds: dict[str, float]

    def samples(self, who: str) -> list[float]:
        return [sample for block in self.blocks[who] for sample in block]

    def medians(self, who: str) -> list[float]:
        """Turn by turn."""
        return [statistics.median(block) for block in self.blocks[who]]

    def ratio(self, mine: str, theirs: str) -> float:
        """The median, over the turns, of the ratio of two medians that were taken in one go round."""
        return statistics.median(ratios(self.medians(mine), self.medians(theirs)))


def sit(ground: Ground, everyone: Sequence[str], turns: int) -> Sitting:
    """Round and round, in the order given."""
    spent = dict.fromkeys(everyone, 0.0)
    with contextlib.ExitStack() as house:
        players = {who: house.enter_context(_seated(ground, who, turns)) for who in everyone}
        ground.checkpoint()
        for _ in range(turns):
            for who, player in players.items():
                before = ground.processor_seconds()
                player.take_turn()
                spent[who] += ground.processor_seconds() - before
        stories = {who: player.story() for who, player in players.items()}
    return Sitting(
        {who: blocks_of(story["start_ms"]) for who, story in stories.items()},
        {who: story["worker_cpu_ms_per_job"] for who, story in stories.items()},
        {who: round(seconds, 2) for who, seconds in spent.items()},
    )


def blocks_of(samples: Sequence[float]) -> list[list[float]]:
    """Cut into turns, without those that do not count."""
    return [list(samples[first + WAKING : first + BLOCK]) for first in range(0, len(samples), BLOCK)]


def sitting_finding(
    sittings: Sequence[Sitting], mine: str, theirs: str, *, key: str, title: str, bar: Bar, absent: tuple[str, ...] = ()
) -> Finding:
    """The median latency of one against another's, a value per sitting."""
    both = (mine, theirs)
    medians = {who: [statistics.median(one.samples(who)) for one in sittings] for who in both}
    detail = {
        "peer": theirs,
        "samples": {who: sum(len(one.samples(who)) for one in sittings) for who in both},
        "p50_ms": medians,
        "p50_ms_of_turns": {who: [one.medians(who) for one in sittings] for who in both},
        "worker_cpu_ms_per_job": {who: [one.worker_cpu_ms_per_job[who] for one in sittings] for who in both},
        "server_cpu_seconds": {who: [one.server_cpu_seconds[who] for one in sittings] for who in both},
    }
    values = tuple(one.ratio(mine, theirs) for one in sittings)
    ours, other = (statistics.median(medians[who]) for who in both)
    return Finding(key, title, "ms", ours, other, values, bar, detail, absent)


class _Player:
    """A driver that is up, has warmed up, and rests until it is told to go."""

    def __init__(self, who: str, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._who = who
        self._process = process
        self._complaints = complaints
        self._story: dict[str, Any] | None = None
        self._await_rest()

    def take_turn(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died; it is asked for its last words
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        self._await_rest()

    def story(self) -> dict[str, Any]:
        if self._story is None:
            raise NotDone(f"{self._who} rests, but nobody has a turn for it")
        return self._story

    def _await_rest(self) -> None:
        """Its block is over: it says so, or, after the last one, tells its story."""
        assert self._process.stdout is not None
        limit = threading.Timer(TURN_SECONDS, _end_group, [self._process])
        limit.start()
        try:
            for line in self._process.stdout:
                if line == "resting\n":
                    return
                if line.startswith("{"):
                    self._story = json.loads(line)
                    return
        finally:
            limit.cancel()
        self._complaints.seek(0)
        said = self._complaints.read().strip()[-2000:]
        raise NotDone(f"{self._who} latency ended with {self._process.wait()}: {said}")


@contextlib.contextmanager
def _seated(ground: Ground, who: str, turns: int) -> Iterator[_Player]:
    with database_of(ground, who) as url, tempfile.TemporaryFile("w+") as complaints:
        drive(who, "prepare", url)
        command, environment = command_of(who, "latency", url, str(turns * BLOCK), "--block", str(BLOCK))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": complaints}
        process = subprocess.Popen(command, text=True, env=environment, start_new_session=True, **pipes)
        try:
            yield _Player(who, process, complaints)
            process.communicate(timeout=TURN_SECONDS)
        finally:
            _end_group(process)
            process.communicate()


def _end_group(process: subprocess.Popen[str]) -> None:
    """The driver and its worker, running or stopped."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
