"""The command line that every driver shares.

    prepare URL [N]              make the tables, and N jobs if asked
    drain URL N [--workers K]    work them off, in this process or in K of them
    steps URL N                  make and execute N workflows of ten steps
    trigger-single | trigger-concurrent | trigger-bulk  URL N
    latency URL N [--block K]    from the trigger to the start in an idle worker process, in turns with others if asked

The last line that a driver prints is its story, as JSON. A run that did not do its work ends with an error and prints
none. `serve`, `--board` and `--member` are how a driver starts its own worker processes (crew.py).
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

import doors
from clock import Clock
from crew import MemberClock, drain_together
from doors import payloads

__all__ = ["STEPS", "Clock", "make_clock", "payloads", "play"]

STEPS = 10
Work = Callable[[str, int], dict[str, Any]]
_member_of: tuple[str, int] | None = None


def make_clock(jobs: int) -> Clock:
    """The clock of this process. Make it when everything is ready and the worker is about to start."""
    return Clock(jobs) if _member_of is None else MemberClock(jobs, *_member_of)


def play(
    *,
    prepare: Callable[[str], None],
    door: doors.OpenDoor | doors.OpenAsyncDoor,
    drain: Work,
    steps: Work | None = None,
    serve: Work | None = None,
) -> None:
    """Be the driver that these functions make. `serve` is a drain at the settings that begin soonest."""
    commands: dict[str, Work] = {"drain": drain, "serve": serve or drain}
    commands["latency"] = lambda url, jobs: _latency(door, url, jobs, options.block)
    for how in doors.HOW:
        commands[f"trigger-{how}"] = lambda url, jobs, how=how: _trigger(door, url, jobs, how)  # type: ignore[misc]
    if steps is not None:
        commands["steps"] = steps
    options = _options(["prepare", *commands])
    if options.command == "prepare":
        prepare(options.url)
        if options.jobs:
            _fill(door, options.url, options.jobs)
        return
    work = commands[options.command]
    if options.workers > 1:
        work = lambda url, jobs: drain_together(url, jobs, options.workers)  # noqa: E731
    print(json.dumps(work(options.url, options.jobs)), flush=True)


def _options(commands: list[str]) -> argparse.Namespace:
    global _member_of
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=commands)
    parser.add_argument("url")
    parser.add_argument("jobs", type=int, nargs="?", default=0)
    parser.add_argument("--workers", type=int, default=1, help="worker processes that drain together")
    parser.add_argument("--block", type=int, default=0, help="samples of a turn; `go` on standard input begins each")
    parser.add_argument("--board", help=argparse.SUPPRESS)
    parser.add_argument("--member", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.jobs < 1 and options.command != "prepare":
        parser.error(f"{options.command} needs a number of jobs")
    if options.workers > 1 and options.command != "drain":
        parser.error("only a drain can be shared by several workers")
    if options.block and (options.command != "latency" or options.jobs % options.block):
        parser.error("only the latency is taken in blocks, and all of them are of one length")
    if options.board:
        _member_of = (options.board, options.member)
    return options


def _is_async(door: Any) -> bool:
    """asynccontextmanager wraps an async generator function, contextmanager a plain one."""
    return inspect.isasyncgenfunction(inspect.unwrap(door))


def _fill(door: Any, url: str, jobs: int) -> None:
    if _is_async(door):
        asyncio.run(doors.fill_async(door, url, jobs))
    else:
        doors.fill(door, url, jobs)


def _trigger(door: Any, url: str, jobs: int, how: str) -> dict[str, Any]:
    if _is_async(door):
        return asyncio.run(doors.trigger_async(door, url, jobs, how))
    return doors.trigger(door, url, jobs, how)


def _latency(door: Any, url: str, jobs: int, block: int) -> dict[str, Any]:
    if _is_async(door):
        return asyncio.run(doors.latency_async(door, url, jobs, block))
    return doors.latency(door, url, jobs, block)


if __name__ == "__main__":
    sys.exit("this is the part that the drivers share; run one of them")
