"""Steps per second: workflows of ten no-op steps, a hundred at a time, one worker process, on both databases.

Runs are triggered first, then one real worker process executes them; the clock runs from the first lease to the last
finish as the database dated them. PostgreSQL runs with default durability. Writes bench/results/steps.json.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from drain import drained, report  # noqa: E402
from noop import STEPS, ten_steps  # noqa: E402
from support.postgres import LaunchedServer, find_system, find_wheel  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, list[dict[str, float]]] = {"sqlite": [], "postgres": []}
    with tempfile.TemporaryDirectory() as folder, LaunchedServer(find_system() or find_wheel(), durable=True) as server:
        for nth in range(options.rounds):
            server.create_database(f"steps_{nth}")
            for name, url in (("sqlite", str(Path(folder) / f"{nth}.db")), ("postgres", server.url(f"steps_{nth}"))):
                rates = asyncio.run(drained(url, ten_steps, options.runs))
                figures[name].append({"runs_per_s": rates["drain_per_s"], "steps_per_s": rates["drain_per_s"] * STEPS})
    report("steps", {"runs": options.runs, "rounds": options.rounds, "steps_in_a_run": STEPS}, figures)


if __name__ == "__main__":
    main()
