"""How close our worker comes to what PostgreSQL can do with the same SQL.

The ceiling is pgbench with the catalogue's own claim and settle in batches of a hundred, events included
(`pgbench.py`). Between the two lies the bare loop (`bare.py`): the same statements through asyncpg, without an engine.
Each round runs all of them one after the other on databases of their own, with the same number of runs, and takes turns
at who goes first. Two pgbench clients and the bare loop are reported without a bar.

It is a ceiling for one connection: our worker overlaps its claims and its settles, pgbench's client does not.
"""

from __future__ import annotations

import our_worker
import pgbench
from ground import Ground
from hot import BATCH
from judging import OURS, Bar, Finding, paired, turns
from our_worker import Drained, stories

PAIRS, QUICK_PAIRS = 7, 3
RUNS, QUICK_RUNS = 20_000, 4_000
BAR = Bar(at_least=0.45)
PGBENCH, TWO, BARE = "pgbench", "pgbench with 2 clients", "bare asyncpg loop"
TITLES = {
    PGBENCH: ("pgbench", "drain of no-op runs, 1 worker, against pgbench with our SQL"),
    TWO: ("pgbench_2", "drain, 1 worker, against 2 pgbench clients with our SQL"),
    BARE: ("bare", "drain, 1 worker, against a bare asyncpg loop with our SQL"),
}


def measure(ground: Ground) -> list[Finding]:
    pairs, runs = (QUICK_PAIRS, QUICK_RUNS) if ground.quick else (PAIRS, RUNS)
    drains: dict[str, list[Drained]] = {OURS: [], **{who: [] for who in TITLES}}
    for everyone in turns(pairs, *TITLES):
        for who in everyone:
            drains[who].append(drain(ground, who, runs))
    return [against(who, drains[OURS], drains[who], runs) for who in TITLES]


def drain(ground: Ground, who: str, runs: int) -> Drained:
    """One drain on a fresh database."""
    with ground.database() as url:
        our_worker.prepared(ground, url, runs)
        if who == OURS:
            drained = our_worker.drain(ground, url, runs)
        elif who == BARE:
            drained = our_worker.timed(ground, "bare.py", url, runs)
        else:
            before = ground.processor_seconds()
            seconds, used = pgbench.drain(ground.server.bin_dir, url, runs, clients=1 if who == PGBENCH else 2)
            return Drained(runs, seconds, used, ground.processor_seconds() - before)
        pgbench.finished(url, runs)
        return drained


def against(who: str, ours: list[Drained], theirs: list[Drained], runs: int) -> Finding:
    rates = [one.rate for one in ours], [one.rate for one in theirs]
    detail = {"runs": runs, "batch": BATCH, "ours": stories(ours), "theirs": stories(theirs)}
    key, title = TITLES[who]
    return paired(f"ceiling.{key}", title, "runs/s", *rates, bar=BAR if who == PGBENCH else None, detail=detail)
