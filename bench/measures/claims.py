"""Does a claim stay cheap as the tables grow, with runs that wait and with runs that are over?

The pages that one claim of a hundred touches, and its time, at growing backlogs and beside many finished runs
(`plans.py`); pages are the firm figure, because they do not depend on what else the machine is doing. Then the drain
itself, with a past and without one, in pairs. The same database with a past serves all pairs, so each time its past is
longer by one drain, never shorter; it is vacuumed before each. Rates are read from the database's own dates.
"""

from __future__ import annotations

import contextlib
from statistics import median
from typing import Any

import filling
import our_worker
from ground import Ground
from judging import OURS, Bar, Finding, paired, turns
from plans import Look, look

LOOKS = 5
FEW, SOME, MANY = 1_000, 100_000, 1_000_000
PAST, QUICK_PAST = 500_000, 100_000
PAIRS, QUICK_PAIRS = 15, 3
RUNS, QUICK_RUNS = 60_000, 6_000
EMPTY = "without a past"
FLAT = Bar(at_most=1.3)
UNSLOWED = Bar(at_least=0.9)


def measure(ground: Ground) -> list[Finding]:
    past = QUICK_PAST if ground.quick else PAST
    looks = backlogs(ground, sorted({FEW, SOME, QUICK_PAST if ground.quick else MANY}))
    with ground.database() as url:
        our_worker.prepare(url)
        filling.past(ground, url, past)
        filling.backlog(ground, url, SOME)
        beside = look(url, LOOKS)
        our_worker.drain(ground, url, SOME)
        drained = beside_a_past(ground, url, past)
    described = {f"{size:,}": found for size, found in looks.items()} | {
        f"{SOME:,} beside {past:,} finished runs": beside
    }
    return [flat(looks), *(line for words, found in described.items() for line in costs(words, found)), drained]


def backlogs(ground: Ground, sizes: list[int]) -> dict[int, list[Look]]:
    """The claim at each size of one growing backlog."""
    looks = {}
    with ground.database() as url:
        our_worker.prepare(url)
        for size in sizes:
            filling.backlog(ground, url, size)
            looks[size] = look(url, LOOKS)
    return looks


def flat(looks: dict[int, list[Look]]) -> Finding:
    few, many = min(looks), max(looks)
    return paired(
        "claims.buffers",
        f"pages touched by a claim of 100 at a backlog of {many:,}, against {few:,}",
        "pages",
        [one.buffers for one in looks[many]],
        [one.buffers for one in looks[few]],
        bar=FLAT,
        detail={str(size): figures(found) for size, found in looks.items()},
    )


def costs(backlog: str, looks: list[Look]) -> list[Finding]:
    key, title = backlog.replace(",", "").replace(" ", "_"), f"a claim of 100 at a backlog of {backlog}"
    pages, times = tuple(float(one.buffers) for one in looks), tuple(one.milliseconds for one in looks)
    return [
        Finding(f"claims.pages_{key}", f"pages touched by {title}", "pages", median(pages), None, pages),
        Finding(f"claims.time_{key}", f"time of {title}", "ms", median(times), None, times),
    ]


def figures(looks: list[Look]) -> dict[str, Any]:
    return {"buffers": [one.buffers for one in looks], "milliseconds": [one.milliseconds for one in looks]}


def beside_a_past(ground: Ground, url: str, past: int) -> Finding:
    """Drains in the database with a past and in fresh ones, taking turns."""
    runs = QUICK_RUNS if ground.quick else RUNS
    rates: dict[str, list[float]] = {OURS: [], EMPTY: []}
    used: dict[str, list[dict[str, float]]] = {OURS: [], EMPTY: []}
    for everyone in turns(QUICK_PAIRS if ground.quick else PAIRS, EMPTY):
        for who in everyone:
            with contextlib.nullcontext(url) if who == OURS else ground.database() as where:
                if who == EMPTY:
                    our_worker.prepare(where)
                rate, cost = drain(ground, where, runs)
            rates[who].append(rate)
            used[who].append(cost)
    title = f"drain of no-op runs beside {past:,} finished ones and more, against none"
    detail = {"runs": runs, "with": rates[OURS], "without": rates[EMPTY]}
    detail |= {"cpu_with": used[OURS], "cpu_without": used[EMPTY]}
    return paired("claims.past", title, "runs/s", rates[OURS], rates[EMPTY], bar=UNSLOWED, detail=detail)


def drain(ground: Ground, url: str, runs: int) -> tuple[float, dict[str, float]]:
    """Runs per second, and the processor time of each."""
    since = str(ground.ask("SELECT now()"))
    our_worker.prepared(ground, url, runs)
    used = our_worker.drain(ground, url, runs).detail
    return our_worker.rate_by_dates(url, since, runs), used
