"""What triggering costs, and how long an idle worker takes to begin: the same questions to every engine.

A driver brings a door: `one` accepts one job and returns when it is durable, `many` accepts a list in the fastest way
the engine documents. Doors of synchronous clients are called from threads, those of asynchronous ones from tasks. The
door is open and has let a few jobs through before the clock starts, so nobody pays for a first connection.

Latency is taken from before the call until the handler starts in a worker process that has nothing else to do. The next
job comes 25 to 60 ms later: regular steps could fall in with the rhythm of somebody's polling. Jobs start in the order
in which they were sent because each is sent after the one before has started, so the nth start belongs to the nth job.
In blocks, drivers that are up at the same time take turns (sitting.py), and whoever waits is frozen.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from clock import TooSlow
from crew import Board, Member, crew

CALLERS = 50
WARM = 25
"""Jobs that are not counted: they pay for caches and connections, and ours opens one more with the twentieth trigger of
a loop."""
SPACING_SECONDS = (0.025, 0.060)
START_SECONDS = 30.0

Payload = dict[str, Any]


def payloads(jobs: int) -> list[Payload]:
    """About 110 bytes of JSON each."""
    return [{"order": number, "note": "x" * 80} for number in range(jobs)]


class Door(Protocol):
    """A synchronous client. Called from CALLERS threads at once. `result`, where there is one, gets what `one` returned
    and waits for what the job returned."""

    def one(self, payload: Payload) -> Any: ...
    def many(self, everything: Sequence[Payload]) -> Any: ...


class AsyncDoor(Protocol):
    """An asynchronous client, with a `result` likewise."""

    async def one(self, payload: Payload) -> Any: ...
    async def many(self, everything: Sequence[Payload]) -> Any: ...


OpenDoor = Callable[[str], AbstractContextManager[Door]]
OpenAsyncDoor = Callable[[str], AbstractAsyncContextManager[AsyncDoor]]
HOW = ("single", "concurrent", "bulk")


def fill(opening: OpenDoor, url: str, jobs: int) -> None:
    with opening(url) as door:
        door.many(payloads(jobs))


async def fill_async(opening: OpenAsyncDoor, url: str, jobs: int) -> None:
    async with opening(url) as door:
        await door.many(payloads(jobs))


def trigger(opening: OpenDoor, url: str, jobs: int, how: str) -> dict[str, Any]:
    everything = payloads(jobs)
    with opening(url) as door, ThreadPoolExecutor(CALLERS) as threads:
        list(threads.map(door.one, payloads(CALLERS)))  # every caller once
        with Stopwatch(jobs, CALLERS) as watch:
            if how == "bulk":
                door.many(everything)
            elif how == "single":
                for payload in everything:
                    door.one(payload)
            else:
                waiting = iter(everything)  # next() on it is atomic

                def caller() -> None:
                    for payload in waiting:
                        door.one(payload)

                for ended in [threads.submit(caller) for _ in range(CALLERS)]:
                    ended.result()
    return watch.figures


async def trigger_async(opening: OpenAsyncDoor, url: str, jobs: int, how: str) -> dict[str, Any]:
    everything = payloads(jobs)
    async with opening(url) as door:
        await asyncio.gather(*map(door.one, payloads(CALLERS)))
        with Stopwatch(jobs, CALLERS) as watch:
            if how == "bulk":
                await door.many(everything)
            elif how == "single":
                for payload in everything:
                    await door.one(payload)
            else:
                waiting = iter(everything)

                async def caller() -> None:
                    for payload in waiting:
                        await door.one(payload)

                await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return watch.figures


class Stopwatch:
    """Times a block. `extra` are the jobs that went through before it, for whoever counts afterwards."""

    def __init__(self, jobs: int, extra: int) -> None:
        self.figures: dict[str, Any] = {"jobs": jobs, "before_the_clock": extra}

    def __enter__(self) -> Stopwatch:
        self._cpu, self._began = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.figures["seconds"] = time.perf_counter() - self._began
        self.figures["cpu_seconds"] = time.process_time() - self._cpu


class Spacing:
    """Pauses of random length; the same ones in every run."""

    def __init__(self) -> None:
        self._dice = random.Random(1)

    def seconds(self) -> float:
        return self._dice.uniform(*SPACING_SECONDS)


def latency(opening: OpenDoor, url: str, jobs: int, block: int = 0) -> dict[str, Any]:
    spacing, samples, results = Spacing(), [], []
    with crew("serve", url, jobs, 1) as (board, (worker,)), opening(url) as door:
        wait_for_result = None if block else getattr(door, "result", None)
        everything = payloads(WARM + jobs * (1 if wait_for_result is None else 2))
        for turn, payload in enumerate(everything, start=1):
            _await_turn(worker, turn, block)
            began = time.perf_counter()
            accepted = door.one(payload)
            if wait_for_result is not None and turn > WARM + jobs:  # after the others: waiting is work as well
                wait_for_result(accepted)
                results.append(time.perf_counter() - began)
            time.sleep(spacing.seconds())
            while not board.started(turn):
                _still_in_time(began, turn)
                time.sleep(spacing.seconds())
            samples.append(board.started(turn) - began)
        _nothing_more(board, len(everything))
        used = _cpu_of(worker, len(everything))
    return _story(jobs, used, samples, results)


async def latency_async(opening: OpenAsyncDoor, url: str, jobs: int, block: int = 0) -> dict[str, Any]:
    spacing, samples, results = Spacing(), [], []
    with crew("serve", url, jobs, 1) as (board, (worker,)):
        async with opening(url) as door:
            wait_for_result = None if block else getattr(door, "result", None)
            everything = payloads(WARM + jobs * (1 if wait_for_result is None else 2))
            for turn, payload in enumerate(everything, start=1):
                _await_turn(worker, turn, block)
                began = time.perf_counter()
                accepted = await door.one(payload)
                if wait_for_result is not None and turn > WARM + jobs:
                    await wait_for_result(accepted)
                    results.append(time.perf_counter() - began)
                await asyncio.sleep(spacing.seconds())
                while not board.started(turn):
                    _still_in_time(began, turn)
                    await asyncio.sleep(spacing.seconds())
                samples.append(board.started(turn) - began)
            _nothing_more(board, len(everything))
            used = _cpu_of(worker, len(everything))
    return _story(jobs, used, samples, results)


def _await_turn(worker: Member, turn: int, block: int) -> None:
    """Before each block: the worker is frozen, so that it disturbs nobody, until the one who has the list says go."""
    if block and turn > WARM and (turn - WARM - 1) % block == 0:
        with worker.frozen():
            print("resting", flush=True)
            if sys.stdin.readline() != "go\n":
                raise SystemExit("nobody is there who would give turns")


def _still_in_time(began: float, turn: int) -> None:
    if time.perf_counter() - began > START_SECONDS:
        raise TooSlow(f"job {turn} had not started {START_SECONDS:.0f} s after it was triggered")


def _nothing_more(board: Board, jobs: int) -> None:
    """A job that started twice would have passed for the next one."""
    if board.handlers() != jobs:
        raise RuntimeError(f"{board.handlers()} handlers started for {jobs} jobs")


def _cpu_of(worker: Member, jobs: int) -> dict[str, float]:
    """What a job and the rest before it cost the worker: who asks every millisecond is quick to notice, and never at
    rest."""
    worker.send_home()
    return {"worker_cpu_ms_per_job": round(worker.figures()["cpu_seconds"] / jobs * 1_000, 3)}


def _story(jobs: int, used: dict[str, float], samples: list[float], results: list[float]) -> dict[str, Any]:
    story = {"jobs": jobs, **used, **_summary("start", samples[WARM : WARM + jobs])}
    return story | (_summary("result", results) if results else {})


def _summary(name: str, samples: list[float]) -> dict[str, Any]:
    """Milliseconds: the middle, the 99th of a hundred, and all of them."""
    every = [round(sample * 1_000, 3) for sample in samples]
    return {
        f"{name}_p50_ms": statistics.median(every),
        f"{name}_p99_ms": statistics.quantiles(every, n=100, method="inclusive")[98],
        f"{name}_ms": every,
    }
