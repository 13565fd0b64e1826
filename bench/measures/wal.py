"""What a run costs the disk: bytes of WAL, commits, and row versions that vacuum must clear away.

A no-op run with a payload of about a hundred bytes and all of its events, from the trigger to its end, in two
stretches: triggering, then claim and finish by one worker process. The bar is on runs triggered in bulk, without
full-page images. Single triggers, one after the other, are reported beside it: each is a commit of its own. Runs of ten
steps tell what a step adds.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import our_worker
from ground import Ground
from hot import TYPE
from judging import Bar, Finding
from ledger import Stretch, Written
from pgbench import finished

import simpleworkflow as swf

ROUNDS = 3
RUNS, QUICK_RUNS = 10_000, 3_000
SINGLES, QUICK_SINGLES = 1_000, 300
STEPS = 10
BAR = Bar(at_most=2457.0)
"""2.4 KiB."""


def measure(ground: Ground) -> list[Finding]:
    runs = QUICK_RUNS if ground.quick else RUNS
    triggers, drains, tens = [], [], []
    for _ in range(ROUNDS):
        trigger, drain = noop(ground, runs)
        triggers.append(trigger)
        drains.append(drain)
        tens.append(ten_steps(ground, runs // STEPS))
    alone = QUICK_SINGLES if ground.quick else SINGLES
    single = singles(ground, alone)
    whole = [trigger + drain for trigger, drain in zip(plain(triggers, runs), plain(drains, runs), strict=True)]
    with_images = [
        (trigger.records + trigger.images + drain.records + drain.images) / runs
        for trigger, drain in zip(triggers, drains, strict=True)
    ]
    steps = [(ten - one) / STEPS for ten, one in zip(plain(tens, runs // STEPS), whole, strict=True)]
    return [
        bytes_per_run("wal.run", "WAL of a no-op run without page images, trigger to end", whole, runs, BAR),
        bytes_per_run(
            "wal.run_with_images",
            "WAL of a no-op run with page images, each half after a checkpoint",
            with_images,
            runs,
        ),
        bytes_per_run(
            "wal.trigger", "WAL of a trigger in bulk, without page images", plain(triggers, runs), runs, None, triggers
        ),
        bytes_per_run(
            "wal.drain", "WAL of claim and finish, without page images", plain(drains, runs), runs, None, drains
        ),
        bytes_per_run(
            "wal.trigger_single", "WAL of a single trigger, without page images", plain([single], alone), alone
        ),
        Finding("wal.step", "WAL of one step in a run of ten", "bytes/step", median(steps), None, tuple(steps)),
        *others("", "no-op run, claim and finish", drains, runs),
        *others("_ten_steps", "run of ten steps, trigger included", tens, runs // STEPS),
    ]


def plain(written: list[Written], runs: int) -> list[float]:
    return [one.records / runs for one in written]


def bytes_per_run(
    key: str, title: str, values: list[float], runs: int, bar: Bar | None = None, written: list[Written] | None = None
) -> Finding:
    detail: dict[str, Any] = {"runs": runs}
    if written:
        detail["kinds"] = {kind: round(size / runs, 1) for kind, size in written[-1].kinds.items()}
    return Finding(key, title, "bytes/run", median(values), None, tuple(values), bar, detail)


def others(suffix: str, what: str, written: list[Written], runs: int) -> list[Finding]:
    """Commits and dead row versions."""
    commits = tuple(one.commits / runs for one in written)
    dead = tuple(one.updates / runs for one in written)
    left = {"heap_only": written[-1].hot_updates / runs, "still_counted": written[-1].dead / runs}
    return [
        Finding(f"wal.commits{suffix}", f"commits per {what}", "commits/run", median(commits), None, commits),
        Finding(f"wal.dead{suffix}", f"dead row versions per {what}", "rows/run", median(dead), None, dead, None, left),
    ]


def noop(ground: Ground, runs: int) -> tuple[Written, Written]:
    with ground.database() as url:
        our_worker.prepare(url)
        stretch = Stretch(ground, url)
        our_worker.prepare(url, runs)
        trigger = stretch.end()
        stretch = Stretch(ground, url)
        our_worker.drain(ground, url, runs)
        drain = stretch.end()
        finished(url, runs)
    return trigger, drain


def ten_steps(ground: Ground, runs: int) -> Written:
    """Trigger to end in one stretch: the driver triggers its runs itself."""
    with ground.database() as url:
        our_worker.prepare(url)
        stretch = Stretch(ground, url)
        our_worker.steps(ground, url, runs)
        written = stretch.end()
        recorded = ground.ask("SELECT count(*) FROM workflow.workflow_step WHERE status = 'succeeded'", url)
        if recorded != STEPS * runs:
            raise our_worker.DriverFailed(f"{runs} runs of {STEPS} steps left {recorded} steps")
    return written


def singles(ground: Ground, runs: int) -> Written:
    """One trigger after the other, each returning when its run is durable."""
    with ground.database() as url:
        our_worker.prepare(url)
        stretch = Stretch(ground, url)
        app = swf.App(url)
        for number in range(runs):
            app.sync.trigger(TYPE, {"order": number, "note": "x" * 80})
        app.sync.close()
        written = stretch.end()
        if ground.ask("SELECT count(*) FROM workflow.workflow_run", url) != runs:
            raise our_worker.DriverFailed(f"{runs} single triggers left another number of runs")
    return written
