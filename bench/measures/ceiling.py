"""How close our worker comes to what PostgreSQL can do with the same SQL.

The ceiling is pgbench with the catalogue's own claim and settle in batches of a hundred, events included
(`pgbench.py`). Between the two lies the bare loop (`bare.py`): the same statements through asyncpg, without an engine.
Each round runs all of them back to back on databases of their own, with the same number of runs, and takes turns at who
goes first. Two pgbench clients and the bare loop are reported without a bar.

It is a ceiling for one connection: our worker overlaps its claims and its settles, pgbench's client does not.
"""

from __future__ import annotations

from statistics import median

import our_worker
import pgbench
from ground import Ground
from judging import OURS, Bar, Finding, paired, turns

PAIRS, QUICK_PAIRS = 7, 3
RUNS, QUICK_RUNS = 20_000, 4_000
BAR = Bar(at_least=0.45)
PGBENCH, TWO, BARE = "pgbench", "pgbench with 2 clients", "bare asyncpg loop"


def measure(ground: Ground) -> list[Finding]:
    pairs, runs = (QUICK_PAIRS, QUICK_RUNS) if ground.quick else (PAIRS, RUNS)
    rates: dict[str, list[float]] = {OURS: [], PGBENCH: [], TWO: [], BARE: []}
    used: list[dict[str, float]] = []
    for everyone in turns(pairs, PGBENCH, TWO, BARE):
        for who in everyone:
            rates[who].append(rate(ground, who, runs, used))
    return [
        against(
            PGBENCH, "ceiling.pgbench", "drain of no-op runs, 1 worker, against pgbench with our SQL", rates, runs, used
        ),
        against(
            TWO,
            "ceiling.pgbench_2",
            "drain, 1 worker, against 2 pgbench clients with our SQL",
            rates,
            runs,
            used,
            judged=False,
        ),
        against(
            BARE,
            "ceiling.bare",
            "drain, 1 worker, against a bare asyncpg loop with our SQL",
            rates,
            runs,
            used,
            judged=False,
        ),
    ]


def rate(ground: Ground, who: str, runs: int, used: list[dict[str, float]]) -> float:
    """One drain on a fresh database, in runs per second."""
    with ground.database() as url:
        our_worker.prepared(ground, url, runs)
        if who in {PGBENCH, TWO}:
            return pgbench.rate(ground.server.bin_dir, url, runs, clients=1 if who == PGBENCH else 2)
        if who == BARE:
            drained = our_worker.timed(ground, "bare.py", url, runs)
        else:
            drained = our_worker.drain(ground, url, runs)
            used.append(drained.detail)
        pgbench.finished(url, runs)
        return drained.rate


def against(
    who: str,
    key: str,
    title: str,
    rates: dict[str, list[float]],
    runs: int,
    used: list[dict[str, float]],
    *,
    judged: bool = True,
) -> Finding:
    detail = {"runs": runs, "ours": rates[OURS], "theirs": rates[who], "batch": 100}
    detail |= {name: median(one[name] for one in used) for name in used[0]}
    return paired(key, title, "runs/s", rates[OURS], rates[who], bar=BAR if judged else None, detail=detail)
