"""Latency in short turns: everybody's processes are up at the same time, and all but one of them are frozen.

Two runs of the latency one after the other are some ten seconds apart, and a machine at rest has moods of some seconds:
the same code gave medians of 2.7 and of 3.8 ms within five minutes. So here the turns are short. Everybody has a
database and processes of their own and has warmed up; then they take turns, a block of a few samples each, forth and
back. Whoever waits has its worker stopped by a signal, so nobody's polling keeps the machine awake for somebody else.
The first samples of a block are not counted: a worker that has just been woken has timers to catch up with.

What is luck of a process (where its memory lies, which core it likes) stays for as long as the process lives. So a
sitting gives one value, however many turns it had, and there are several, each with new processes.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from ground import Ground
from judging import Bar, Finding, ratios

from peers.driving import NotDone, command_of, database_of, drive, forth_and_back

BLOCK = 12
WAKING = 2
"""Of those: samples at the start of a block that are not counted."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """The samples that count, in milliseconds: by name, block by block. And what being there cost each worker."""

    blocks: dict[str, list[list[float]]]
    worker_cpu_seconds: dict[str, float]

    def samples(self, who: str) -> list[float]:
        return [sample for block in self.blocks[who] for sample in block]

    def ratio(self, mine: str, theirs: str) -> float:
        """The median, over the turns, of the ratio of two medians that were taken right after each other."""
        medians = ([statistics.median(block) for block in self.blocks[who]] for who in (mine, theirs))
        return statistics.median(ratios(*medians))


def sit(ground: Ground, everyone: Sequence[str], turns: int) -> Sitting:
    with contextlib.ExitStack() as house:
        players = {who: house.enter_context(_seated(ground, who, turns)) for who in everyone}
        ground.checkpoint()
        for order in forth_and_back(dict.fromkeys(everyone, turns)):
            for who in order:
                players[who].take_turn()
        stories = {who: player.story() for who, player in players.items()}
    return Sitting(
        {who: blocks_of(story["start_ms"]) for who, story in stories.items()},
        {who: story["worker_cpu_seconds"] for who, story in stories.items()},
    )


def blocks_of(samples: Sequence[float]) -> list[list[float]]:
    """Cut into turns, without those that do not count."""
    return [list(samples[first + WAKING : first + BLOCK]) for first in range(0, len(samples), BLOCK)]


def sitting_finding(
    sittings: Sequence[Sitting], mine: str, theirs: str, *, key: str, title: str, bar: Bar | None = None
) -> Finding:
    """The median latency of one against another's, a value per sitting."""
    medians = {who: [statistics.median(one.samples(who)) for one in sittings] for who in (mine, theirs)}
    detail = {
        "peer": theirs,
        "turns": sum(len(one.blocks[mine]) for one in sittings),
        "samples": {who: sum(len(one.samples(who)) for one in sittings) for who in (mine, theirs)},
        "p50_ms": medians,
        "worker_cpu_seconds": {who: [one.worker_cpu_seconds[who] for one in sittings] for who in (mine, theirs)},
    }
    values = tuple(one.ratio(mine, theirs) for one in sittings)
    ours, other = (statistics.median(medians[who]) for who in (mine, theirs))
    return Finding(key, title, "ms", ours, other, values, bar, detail)


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
        for line in self._process.stdout:
            if line == "resting\n":
                return
            if line.startswith("{"):
                self._story = json.loads(line)
                return
        self._complaints.seek(0)
        said = self._complaints.read().strip()[-2000:]
        raise NotDone(f"{self._who} latency ended with {self._process.wait()}: {said}")


@contextlib.contextmanager
def _seated(ground: Ground, who: str, turns: int) -> Iterator[_Player]:
    with database_of(ground, who) as url, tempfile.TemporaryFile("w+") as complaints:
        drive(who, "prepare", url)
        command, environment = command_of(who, "latency", url, str(turns * BLOCK), "--block", str(BLOCK))
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment
        )
        try:
            yield _Player(who, process, complaints)
        finally:
            process.communicate()  # closes its input: whoever rests goes home
