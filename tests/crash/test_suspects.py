"""After a process has ended what it had under way goes on at once, and who ended it is found without harm to others."""

from __future__ import annotations

import time

import pytest
from support.crew import Watched

from simpleworkflow.model.states import EventType, Status

pytestmark = pytest.mark.slow

SETTINGS = {"CRASH_LEASE": "5", "CRASH_SWEEP": "0.5", "CRASH_POLL": "0.2"}


def test_what_a_killed_worker_had_under_way_is_under_way_again_within_seconds(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    crew.settings.update(SETTINGS)
    handles = app.sync.trigger_many("crash.slow.v1", [10.0] * 100)
    victim = crew.start()
    crew.until(lambda: len(crew.effects("start")) == 100, "all of them run")
    crew.start()
    crew.until(lambda: len(app.sync.workers.alive()) == 2, "another worker has come, too late for any of them")
    victim.kill()
    crew.until(watched.all_ended, "every run has ended", 120)
    assert watched.statuses() == {"succeeded": 100}
    waits = []
    for handle in handles:
        events = {event.type: event.created_at for event in app.sync.handle(str(handle.id)).events()}
        if EventType.RETRIED in events:
            waits.append((events[EventType.LEASED] - events[EventType.RETRIED]).total_seconds())
    assert waits, "the victim had some"
    assert max(waits) < 5.0


def test_poison_among_innocents_that_take_their_time_costs_each_of_them_one_execution(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    crew.settings.update(SETTINGS)
    innocents = app.sync.trigger_many("crash.slow.v1", [3.0] * 30)
    poison = app.sync.trigger("crash.poison.v1")
    innocents += app.sync.trigger_many("crash.slow.v1", [3.0] * 30)
    keep_alive(watched, 2, "--concurrency", "40")
    assert poison.get().status is Status.FAILED
    for run in [handle.get() for handle in innocents]:
        assert run.status is Status.SUCCEEDED
        assert run.attempt + run.crashes - ((run.max_attempts or 3) - 3) <= 1, run


def test_poison_that_takes_its_time_fails_no_innocent(watched: Watched) -> None:
    """It lives longer than a suspect's first trial, so that another suspect is started after it and blamed."""
    crew, app = watched.crew, watched.app
    crew.settings.update(SETTINGS)
    poison = app.sync.trigger("crash.slow_poison.v1", 3.0)
    innocents = app.sync.trigger_many("crash.slow.v1", [8.0] * 5)
    keep_alive(watched, 1)
    assert poison.get().status is Status.FAILED
    assert {handle.get().status for handle in innocents} == {Status.SUCCEEDED}


def keep_alive(watched: Watched, workers: int, *options: str) -> None:
    """Start so many workers, and another one for each that ends, until all runs have ended."""
    crew, deadline = watched.crew, time.monotonic() + 240
    crewing = [crew.start(*options) for _ in range(workers)]
    while not watched.all_ended():
        assert time.monotonic() < deadline, f"not all runs ended: {watched.statuses()}\n{crew.logs()}"
        crewing = [one if one.poll() is None else crew.start(*options) for one in crewing]
        time.sleep(0.05)
