"""Everything at once: workers, sweepers, operators and strangers on the same families of runs, with ids in any order.

No single test can list the interleavings of four roles on rows that wake and cancel each other. So they are left to
chance, from a seed, and what is checked is what must hold in all of them: no call fails, every row keeps the
invariants, and the events of every run are a path through the law that ends in its state (P10).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import pytest
from support.ledger import (
    TYPE,
    Raw,
    check_invariants,
    check_path,
    claim,
    create,
    define,
    failed,
    new,
    overran,
    released,
    retried,
    settle,
    succeeded,
    sweep,
)

from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, runs

ENDINGS = [succeeded, failed, retried, released, overran]
ROUNDS = 40


async def families(ledger: Ledger, dice: random.Random) -> list[UUID]:
    """Forty runs, each but the first few below an earlier one; uuid4 ids put children before parents half the time."""
    made: list[UUID] = []
    for _ in range(40):
        parent = dice.choice(made) if len(made) > 5 else None
        made += await create(ledger, new(id=uuid4(), parent_id=parent, max_attempts=4))
    return made


async def worker(ledger: Ledger, name: str, dice: random.Random) -> None:
    kept = []
    for _ in range(ROUNDS):
        kept += await claim(ledger, limit=4, worker=name, suspects=dice.random() < 0.4)
        dice.shuffle(kept)
        now, kept = kept[:5], kept[5:]  # the rest is settled later, perhaps too late
        if now:
            await settle(ledger, *(dice.choice(ENDINGS)(lease) for lease in now))
        if kept:
            await ledger.run(leases.heartbeat(kept[0].id, kept[0].epoch, 30.0))


async def sweeper(ledger: Ledger, dice: random.Random) -> None:
    for _ in range(ROUNDS):
        await sweep(ledger, dice.choice(["w0", "w1", "w2"]), limit=3)
        await ledger.run(leases.expire(limit=2))


async def operator(ledger: Ledger, made: list[UUID], dice: random.Random) -> None:
    for _ in range(ROUNDS):
        some = dice.sample(made, 4)
        await ledger.run(dice.choice([runs.cancel, runs.hold, runs.resume, runs.resume, runs.revive])(some))
        await ledger.run(runs.revive(dice.sample(made, 6)))


async def stranger(raw: Raw, made: list[UUID], dice: random.Random) -> None:
    """Plain SQL from another connection. It may meet a deadlock, as documented, and tries again later."""
    for _ in range(ROUNDS // 4):
        run_id = dice.choice(made)
        for change in (
            f"deadline_at = {raw.now} WHERE id = ? AND finished_at IS NULL",
            "status = 'cancelled' WHERE id = ? AND finished_at IS NULL",
            f"run_at = {raw.now}, deadline_at = NULL WHERE id = ? AND run_at > {raw.now}",
        ):
            statement = f"UPDATE workflow.workflow_run SET {change}"
            await _retrying(lambda statement=statement, run_id=run_id: asyncio.to_thread(raw.sql, statement, run_id))


async def _retrying(call: Callable[[], Awaitable[object]]) -> None:
    for attempt in range(20):
        try:
            await call()
        except Exception as error:
            if getattr(error, "sqlstate", None) != "40P01" or attempt == 19:
                raise
            await asyncio.sleep(random.uniform(0.0, 0.05))  # as any retry of a deadlock should
        else:
            return


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_at_once_every_run_tells_a_lawful_story(ledger: Ledger, raw: Raw, seed: int) -> None:
    dice = random.Random(seed)
    await define(ledger, TYPE, on_cancel="test.undo.v1", dead_letter="test.dead.v1")
    made = await families(ledger, dice)
    await asyncio.gather(
        *(worker(ledger, f"w{n}", random.Random(seed * 10 + n)) for n in range(3)),
        *(sweeper(ledger, random.Random(seed * 10 + 5 + n)) for n in range(2)),
        operator(ledger, made, random.Random(seed * 10 + 8)),
        stranger(raw, made, random.Random(seed * 10 + 9)),
    )
    for row in raw.rows("1 = 1"):
        check_invariants(row)
        story = raw.events(row["id"])
        assert check_path(story) == row["status"], story
        assert story.count("leased") == row["lease_epoch"]
