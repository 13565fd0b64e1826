"""Workers are killed at random moments; a step whose checkpoint was committed never starts again."""

from __future__ import annotations

import asyncio
import random
import time
from uuid import UUID

import pytest
from support.crew import Watched

from simpleworkflow.model.states import Status, StepKind, StepStatus
from simpleworkflow.store import open_ledger
from simpleworkflow.store.operations import steps

KILLS = 10
RUNS = 8
BODIES = ["charge", "reserve", "pack", "label", "send", "notify"]


@pytest.fixture(autouse=True)
def quick(watched: Watched) -> None:
    watched.crew.settings.update({"CRASH_LEASE": "2", "CRASH_SWEEP": "0.3", "CRASH_POLL": "0.1"})


def committed(url: str, run_ids: list[UUID]) -> set[tuple[str, str]]:
    """(run, step) of every step that is on record as done."""

    async def load() -> set[tuple[str, str]]:
        ledger = open_ledger(url)
        histories = await ledger.run(steps.load(run_ids))
        await ledger.close()
        return {
            (str(run_id), step.step_id.rpartition("/")[2].partition("#")[0])
            for run_id, history in histories.items()
            for step in history.steps.values()
            if step.kind is StepKind.STEP and step.status is StepStatus.SUCCEEDED
        }

    return asyncio.run(load())


def test_no_committed_step_starts_again_however_often_workers_are_killed(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    chance = random.Random(11)
    handles = app.sync.trigger_many("crash.order.v1", [None] * RUNS, max_attempts=100)
    ids = [handle.id for handle in handles]
    for handle in handles[::2]:
        handle.signal("approved", str(handle.id))
    known: list[tuple[int, set[tuple[str, str]]]] = []
    for _ in range(KILLS):
        worker, before = crew.start(), len(crew.effects())
        limit = time.monotonic() + 3.0
        while len(crew.effects()) == before and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)  # the moment of death is the point
        worker.kill()
        worker.wait()
        known.append((len(crew.effects()), committed(crew.url, ids)))
    for handle in handles[1::2]:
        handle.signal("approved", str(handle.id))
    crew.start()
    crew.until(watched.all_ended, "all runs ended", 60)
    effects = crew.effects()
    for index, done in known:
        again = [effect for effect in effects[index:] if (effect.run_id, effect.what) in done]
        assert not again, "a step on record was started again"
    for handle in handles:
        run = handle.get()
        assert run.status is Status.SUCCEEDED, run.last_error
        named = [f"{name} {run.id}" for name in BODIES]
        assert run.result == [*named[:5], str(run.id), named[5]]
    assert committed(crew.url, ids) == {(str(run_id), name) for run_id in ids for name in BODIES}
    assert len({effect.pid for effect in effects}) >= KILLS // 2, "hardly any worker got to work before it was killed"
