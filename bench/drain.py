"""First throughput figures: no-op runs per second through one worker process, on both databases.

Runs are triggered first, then one real worker process (`simpleworkflow worker`) drains them; the clock runs from the
first lease to the last finish as the database dated them. PostgreSQL runs with default durability (fsync and
synchronous_commit on). Writes bench/results/drain.json; the numbers in documents and comments come from there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from noop import noop  # noqa: E402
from support.postgres import LaunchedServer, find_system, find_wheel  # noqa: E402

import simpleworkflow as swf  # noqa: E402


async def drained(url: str, workflow: swf.Workflow[Any, Any], runs: int) -> dict[str, float]:
    app = swf.App(url)
    await app.migrate()
    started = time.perf_counter()
    await app.trigger_many(workflow, [{"order": n, "note": "x" * 80} for n in range(runs)])
    triggered = time.perf_counter() - started
    worker = subprocess.Popen(
        [sys.executable, "-m", "simpleworkflow", "worker", "noop:app", "--url", url, "--log-level", "WARNING"],
        cwd=ROOT / "bench",
    )
    try:
        while sum(c.runs for c in await app.counts() if c.status == "succeeded") < runs:
            await asyncio.sleep(1.0)  # counting is work for the database, too
    finally:
        worker.terminate()
        worker.wait()
    first, last = await span(app, workflow)
    await app.close()
    return {"bulk_trigger_per_s": runs / triggered, "drain_per_s": runs / (last - first)}


async def span(app: swf.App, workflow: swf.Workflow[Any, Any]) -> tuple[float, float]:
    first, last = float("inf"), 0.0
    async for run in app.runs(type=workflow.name):
        assert run.started_at is not None
        assert run.finished_at is not None
        first, last = min(first, run.started_at.timestamp()), max(last, run.finished_at.timestamp())
    return first, last


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, list[dict[str, float]]] = {"sqlite": [], "postgres": []}
    with tempfile.TemporaryDirectory() as folder, LaunchedServer(find_system() or find_wheel(), durable=True) as server:
        for nth in range(options.rounds):
            figures["sqlite"].append(asyncio.run(drained(str(Path(folder) / f"{nth}.db"), noop, options.runs)))
            server.create_database(f"bench_{nth}")
            figures["postgres"].append(asyncio.run(drained(server.url(f"bench_{nth}"), noop, options.runs)))
    report("drain", {"runs": options.runs, "rounds": options.rounds}, figures)


def report(name: str, about: dict[str, Any], figures: dict[str, list[dict[str, float]]]) -> None:
    """The medians and all rounds, to bench/results and to the screen."""
    story = {
        **about,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "median": {
            backend: {key: round(statistics.median(r[key] for r in rounds)) for key in rounds[0]}
            for backend, rounds in figures.items()
        },
        "all": {b: [{k: round(v) for k, v in r.items()} for r in rounds] for b, rounds in figures.items()},
    }
    target = ROOT / "bench" / "results" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(story, indent=2) + "\n")
    print(json.dumps(story, indent=2))


if __name__ == "__main__":
    main()
