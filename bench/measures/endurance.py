"""Does a drain keep its speed: over half a million runs in one go, and while somebody holds an old snapshot?

Every finished run leaves dead row versions behind, and claims must not slow down by walking over them. A long drain is
cut into fifths by the database's own dates of finishing, and the last one is held against the first; against the
quickest it is only reported, since the quickest of five is luck as well. A fifth lasts some three seconds, and one
second of autovacuum or of a neighbour's in it would pass for a decline: so there are several long drains, each in a
database of its own.

A snapshot that stays open (a report, a forgotten session) keeps vacuum from clearing anything away for as long as it
lasts. So some of the long drains have a partner of the same length, with a REPEATABLE READ transaction idle beside it
from before the first claim to after the last finish.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise

import our_worker
import psycopg
from ground import Ground
from judging import OURS, Bar, Finding, paired, turns
from our_worker import Drained, stories

LONG, QUICK_LONG = 500_000, 40_000
FIFTHS = 5
DRAINS = 4
QUICK_DRAINS = 3
PAIRS = 3
FREE = "without a snapshot"
STEADY = Bar(at_least=0.8)
HALF = Bar(at_least=0.5)
_BORDERS = """
SELECT extract(epoch FROM finished_at - (SELECT min(started_at) FROM workflow.workflow_run))
FROM (SELECT finished_at, row_number() OVER (ORDER BY finished_at) AS rank FROM workflow.workflow_run) AS r
WHERE rank %% %(fifth)s = 0 ORDER BY rank
"""


def measure(ground: Ground) -> list[Finding]:
    """Every drain without a snapshot is a long drain; the first of them have a partner with one."""
    runs = QUICK_LONG if ground.quick else LONG
    drains: dict[str, list[Drained]] = {OURS: [], FREE: []}
    fifths = []
    orders = [*turns(PAIRS, FREE), *[[FREE]] * ((QUICK_DRAINS if ground.quick else DRAINS) - PAIRS)]
    for who in (who for everyone in orders for who in everyone):
        with ground.database() as url:
            our_worker.prepared(ground, url, runs)
            with snapshot(url) if who == OURS else contextlib.nullcontext():
                drains[who].append(our_worker.drain(ground, url, runs))
            if who == FREE:
                fifths.append(rates_of_fifths(url, runs))
    return [*steady(runs, drains[FREE], fifths), held(runs, drains[OURS], drains[FREE][:PAIRS])]


def steady(runs: int, drained: list[Drained], fifths: list[list[float]]) -> list[Finding]:
    title = f"{runs:,} runs drained in one go: the last fifth of them, against"
    detail = {"runs": runs, "fifths": fifths, "drains": stories(drained)}
    last, first, quickest = [rates[-1] for rates in fifths], [rates[0] for rates in fifths], [*map(max, fifths)]
    return [
        paired("endurance.long", f"{title} the first", "runs/s", last, first, bar=STEADY, detail=detail),
        paired("endurance.long.best", f"{title} the quickest", "runs/s", last, quickest),
    ]


def held(runs: int, drained: list[Drained], free: list[Drained]) -> Finding:
    title = f"drain of {runs:,} runs beside a snapshot held open, against none"
    detail = {"runs": runs, "held": stories(drained), "free": stories(free)}
    rates = [one.rate for one in drained], [one.rate for one in free]
    return paired("endurance.snapshot", title, "runs/s", *rates, bar=HALF, detail=detail)


def rates_of_fifths(url: str, runs: int) -> list[float]:
    """Runs per second from border to border, in order of finishing."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(_BORDERS.encode(), {"fifth": runs // FIFTHS}).fetchall()
    borders = [0.0, *(float(row[0]) for row in rows if row[0] is not None)]
    if len(borders) != FIFTHS + 1:
        raise our_worker.DriverFailed(f"{runs} finished runs have {FIFTHS} borders, not {len(borders) - 1}")
    return [runs / FIFTHS / (end - begin) for begin, end in pairwise(borders)]


@contextlib.contextmanager
def snapshot(url: str) -> Iterator[None]:
    """A transaction that has seen all runs waiting and still sees them so at the end: then it was held throughout."""
    pending = "SELECT count(*) FROM workflow.workflow_run WHERE status = 'pending'"
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        before = connection.execute(pending).fetchone()
        yield
        after = connection.execute(pending).fetchone()
    if before is None or before != after or not before[0]:
        raise our_worker.DriverFailed(f"the snapshot was not held: {before} runs pending, then {after}")
