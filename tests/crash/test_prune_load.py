"""Pruning 100,000 runs while a worker works: claims take at most twice as long as they do without.

Five rounds, each a while of work without pruning and a while of the same work with it, in alternating order, so that
whatever else the machine does weighs on both alike. The work is paced, as real work is: a claim every few milliseconds,
runs triggered and finished in between. The pruner is the command in a process of its own, as a cron job would call it;
on SQLite that is the harder case, because two processes share one lock. What is judged is the median of the five
quotients of 99th percentiles.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from uuid import UUID

import pytest
from support.command import COMMAND, environment
from support.ledger import Raw, new, offer, succeeded
from support.old_runs import DAY, orphans

from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs, writing

Figure = Callable[[str, float], None]
ROUNDS = 5
OLD_RUNS = 100_000
PER_ROUND = OLD_RUNS // ROUNDS
WORKERS = 3
EVERY = 0.03
"""Seconds between two claims of a worker."""
AT_ONCE = 10
SHORTEST = 6.0
"""Seconds of work without pruning per round."""
MOST = 2.0
TYPE = "load.work.v1"

FILL_POSTGRES = """
WITH made AS (
  INSERT INTO workflow.workflow_run
    (id, type, status, created_at, started_at, finished_at, lease_epoch, result, payload)
  SELECT encode(substring(int8send((extract(epoch FROM now() - interval '40 days') * 1000)::bigint + n / 100) FROM 3)
           || decode('7000', 'hex') || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid,
         'load.old.v1', 'succeeded', now() - interval '40 days', now() - interval '40 days',
         now() - interval '40 days', 1, '42', json_build_object('n', n, 'text', repeat('x', 200))
  FROM generate_series(1, {count}) n RETURNING id),
told AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch)
  SELECT id, e, 1 FROM made, unnest(ARRAY['leased', 'started', 'succeeded']) e)
INSERT INTO workflow.workflow_step (run_id, lease_epoch, kind, status, step_id, completed_at, output)
SELECT id, 1, 'step', 'succeeded', 'charge#' || n, now(), '{{"ok": true}}' FROM made, generate_series(1, 2) n"""


def fill(raw: Raw, count: int) -> None:
    """Runs that ended 40 days ago, each with two steps and four events."""
    if not raw.is_sqlite:
        raw.sql(FILL_POSTGRES.format(count=count))
        raw.sql("ANALYZE workflow.workflow_run")
        return
    then = time.time_ns() // 1000 - round(40 * DAY * 1e6)
    ids = [str(UUID(int=((then // 1000 + n // 100) << 80) | (7 << 76) | (2 << 62) | n)) for n in range(count)]
    payload = json.dumps({"text": "x" * 200})
    connection = raw.connection
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO workflow_run "
        "(id, type, status, created_at, started_at, finished_at, lease_epoch, result, payload) "
        f"VALUES (?, 'load.old.v1', 'succeeded', {then}, {then}, {then}, 1, '42', ?)",
        [(run_id, payload) for run_id in ids],
    )
    for event in ("leased", "started", "succeeded"):
        connection.executemany(
            f"INSERT INTO workflow_event (workflow_id, event_type, lease_epoch) VALUES (?, '{event}', 1)",
            [(run_id,) for run_id in ids],
        )
    for step in ("charge#1", "charge#2"):
        connection.executemany(
            "INSERT INTO workflow_step (run_id, seq, lease_epoch, kind, status, step_id, completed_at, output) "
            f"VALUES (?, 1, 1, 'step', 'succeeded', '{step}', {then}, '{{}}')",
            [(run_id,) for run_id in ids],
        )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def remaining(raw: Raw) -> int:
    return int(raw.sql("SELECT count(*) AS n FROM workflow.workflow_run WHERE type = 'load.old.v1'")[0]["n"])


class Load:
    """Paced work on one ledger; how long each claim took."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def work(self, going: Callable[[], bool]) -> list[float]:
        taken: list[float] = []
        await asyncio.gather(*(self._worker(going, taken) for _ in range(WORKERS)))
        return taken

    async def _worker(self, going: Callable[[], bool], taken: list[float]) -> None:
        while going():
            began = time.monotonic()
            await self._turn(taken)
            await asyncio.sleep(max(began + EVERY - time.monotonic(), 0))

    async def _turn(self, taken: list[float]) -> None:
        """Trigger a few, claim a few, finish those."""
        await self._ledger.run(runs.create([new(TYPE, '{"n": 1}') for _ in range(AT_ONCE)]))
        began = time.monotonic()
        claimed = await self._ledger.run(
            leases.claim([offer(TYPE)], AT_ONCE, "w1", lane_by_lane=not self._ledger.can.walks_lanes)
        )
        taken.append(time.monotonic() - began)
        if claimed:
            endings = [succeeded(lease) for lease in claimed]
            await self._ledger.run(writing.write(endings, "w1", fused=self._ledger.can.fuses_writes))


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(600)
async def test_claims_hardly_notice_that_a_hundred_thousand_runs_are_pruned(
    ledger: Ledger, raw: Raw, url: str, figure: Figure
) -> None:
    load = Load(ledger)
    await load.work(until_after(2.0))
    normal: list[float] = []
    pruning: list[float] = []
    seconds = 0.0
    for number in range(ROUNDS):
        await asyncio.to_thread(fill, raw, PER_ROUND)
        await load.work(until_after(1.0))  # caches and checkpoints settle
        for pruned in (False, True) if number % 2 else (True, False):
            if not pruned:
                normal.append(p99(await load.work(until_after(SHORTEST))))
                continue
            began = time.monotonic()
            process = subprocess.Popen(
                [*COMMAND, "prune", "--older-than", "30 days", "--yes"], env=environment(url), stdout=subprocess.DEVNULL
            )
            pruning.append(p99(await load.work(lambda process=process: process.poll() is None)))  # type: ignore[misc]
            seconds += time.monotonic() - began
            assert process.returncode == 0
            assert remaining(raw) == 0
    assert orphans(raw) == {}
    quotients = [b / a for a, b in zip(normal, pruning, strict=True)]
    for number, (a, b) in enumerate(zip(normal, pruning, strict=True), 1):
        print(f"round {number}: claim p99 {a * 1000:.1f} ms, while pruning {b * 1000:.1f} ms, x {b / a:.2f}")
    print(f"{OLD_RUNS / seconds:.0f} runs pruned a second")
    figure("ms, claim p99 without pruning, median of 5 rounds", statistics.median(normal) * 1000)
    figure("ms, claim p99 while 100,000 runs are pruned, median of 5 rounds", statistics.median(pruning) * 1000)
    figure("claim p99 while pruning / without, median of 5 paired rounds", statistics.median(quotients))
    figure("runs pruned a second under load", OLD_RUNS / seconds)
    assert statistics.median(quotients) <= MOST


def until_after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end
