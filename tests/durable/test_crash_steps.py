"""Workers are killed at random moments; a step whose checkpoint was committed never starts again."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from uuid import UUID

import pytest
from support.crew import Crew, Watched

from simpleworkflow.model.states import Status, StepKind, StepStatus
from simpleworkflow.store import open_ledger
from simpleworkflow.store.operations import steps

KILLS = 10
EARLIER = 4
"""Runs that are there before the first worker starts; one more comes with each worker."""

BODIES = ["charge", "reserve", "pack", "label", "send", "notify"]
BEFORE_THE_SLEEP = BODIES[:4]


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


def has_started(crew: Crew, body: str, run_id: UUID) -> bool:
    return any(effect.run_id == str(run_id) for effect in crew.effects(body))


@pytest.mark.timeout(300)
def test_no_committed_step_starts_again_however_often_workers_are_killed(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    chance = random.Random(11)
    handles = app.sync.trigger_many("crash.order.v1", [None] * EARLIER, max_attempts=100)
    for handle in handles[::2]:
        handle.signal("approved", str(handle.id))
    known: list[tuple[int, set[tuple[str, str]]]] = []
    for number in range(KILLS):
        # A worker is killed only after it has shown that it works, and a new run always has something for it to do.
        fresh, body = app.sync.trigger("crash.order.v1", None, max_attempts=100), chance.choice(BEFORE_THE_SLEEP)
        handles.append(fresh)
        if number % 2 == 0:
            fresh.signal("approved", str(fresh.id))
        worker = crew.start()
        crew.until(partial(has_started, crew, body, fresh.id), f"{body} of the new run", 60)
        time.sleep(chance.random() * 0.3)  # the moment of death is the point
        worker.kill()
        worker.wait()
        known.append((len(crew.effects()), committed(crew.url, [handle.id for handle in handles])))
    assert known[-1][1], "no step was on record when a worker was killed"
    for handle in handles[1::2]:
        handle.signal("approved", str(handle.id))
    ids = [handle.id for handle in handles]
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
