"""A restart of everything in the middle of each of sched's scenarios: the run goes on, and its history reads as one.

sched keeps its timers in a table and their wake-ups in memory: after a restart of the engine a sleeping workflow, a
pending retry or a deadline is told as fired and never dispatched again. Here every scenario is brought to its middle,
then every process that knows of it goes away: the worker (stopped, or killed), the App of this test, and in one case
the database server. Nobody recovers anything: a new worker and a new App go on from what is written.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.postgres import LaunchedServer, find_system, find_wheel
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.model.states import Status

from .room import told
from .workplace import Site

YIELDED = "WorkflowTaskYielded"

SCENARIOS: dict[str, Any] = {
    "sched.activity.v1": {"id": 7, "items": ["book"]},
    "sched.retry.v1": None,
    "sched.sleep.v1": None,
    "sched.signal.v1": None,
    "sched.unheard.v1": None,
    "sched.limit.v1": None,
    "sched.cancel.v1": None,
    "sched.parent.v1": None,
}

MIDDLE = {
    "sched.activity.v1": [
        "ActivityScheduled(reserve)",
        "ActivityCompleted(reserve)",
        "ActivityScheduled(ship)",
        "ActivityRetryScheduled(ship)",
    ],
    "sched.retry.v1": ["ActivityScheduled(charge)", "ActivityRetryScheduled(charge)", YIELDED],
    "sched.sleep.v1": [
        "ActivityScheduled(before)",
        "ActivityCompleted(before)",
        "TimerScheduled(@sleep#0)",
        YIELDED,
    ],
    "sched.signal.v1": [YIELDED],
    "sched.unheard.v1": ["TimerScheduled(go#0)", YIELDED],
    "sched.limit.v1": [YIELDED],
    "sched.cancel.v1": [YIELDED],
    "sched.parent.v1": ["ActivityScheduled(sched.child.v1)", YIELDED],
}

REST = {
    "sched.activity.v1": ["ActivityRetryScheduled(ship)", "ActivityCompleted(ship)", "WorkflowCompleted"],
    "sched.retry.v1": ["ActivityCompleted(charge)", "WorkflowCompleted"],
    "sched.sleep.v1": [
        "TimerFired(@sleep#0)",
        "ActivityScheduled(after)",
        "ActivityCompleted(after)",
        "WorkflowCompleted",
    ],
    "sched.signal.v1": ["SignalReceived(first)", "SignalReceived(second)", "WorkflowCompleted"],
    "sched.unheard.v1": ["TimerFired(go#0)", "WorkflowCompleted"],
    "sched.limit.v1": ["WorkflowTimedOut"],
    "sched.cancel.v1": ["WorkflowCancelRequested", "WorkflowCanceled"],
    "sched.parent.v1": ["ActivityCompleted(sched.child.v1)", "WorkflowCompleted"],
}

RESULTS = {
    "sched.activity.v1": [{"id": 7, "items": ["book"]}, 2],
    "sched.retry.v1": "paid",
    "sched.sleep.v1": "slept",
    "sched.signal.v1": [1, 2],
    "sched.unheard.v1": "nobody came",
    "sched.limit.v1": None,
    "sched.cancel.v1": None,
    "sched.parent.v1": 42,
}

EFFECTS = {
    **dict.fromkeys(["reserve", "ship 0", "ship 2", "charge 0", "charge 1", "before", "after"], 1),
    "ship 1": 2,  # it was interrupted, and it alone is done again
}


def histories(app: swf.App, runs: dict[str, UUID]) -> dict[str, list[str]]:
    return {type: told(app.sync.handle(run_id).history())[1:] for type, run_id in runs.items()}


def bring_to_their_middle(site: Site) -> dict[str, UUID]:
    with site.app() as app:
        app.sync.migrate()
        runs = {type: app.sync.trigger(type, input).id for type, input in SCENARIOS.items()}
        site.start_worker()
        until(lambda: histories(app, runs) == MIDDLE, "every scenario is in its middle", 20)
        until(lambda: site.effects()["ship 1"] == 1, "an activity is under way", 20)
    return runs


def go_on_while_nobody_works(site: Site, runs: dict[str, UUID]) -> None:
    """The doors are open although no worker is there: what is accepted now must be there later."""
    with site.app() as app:
        app.sync.signal(runs["sched.signal.v1"], "first", 1)
        app.sync.signal(runs["sched.signal.v1"], "second", 2)
        (child,) = [run.id for run in app.sync.runs(type="sched.child.v1")]
        app.sync.signal(child, "answer")
        app.sync.cancel(runs["sched.cancel.v1"])


def come_to_an_end(site: Site, runs: dict[str, UUID]) -> None:
    site.gate.touch()
    site.start_worker()
    with site.app() as app:
        until(lambda: all(app.sync.get(run_id).is_finished for run_id in runs.values()), "every run has ended", 20)
        ended = {type: app.sync.get(run_id) for type, run_id in runs.items()}
        assert histories(app, runs) == {type: MIDDLE[type] + REST[type] for type in SCENARIOS}
    assert {type: run.result for type, run in ended.items()} == RESULTS
    assert {type: run.status for type, run in ended.items()} == {
        **dict.fromkeys(SCENARIOS, Status.SUCCEEDED),
        "sched.limit.v1": Status.TIMED_OUT,
        "sched.cancel.v1": Status.CANCELLED,
    }
    assert site.effects() == EFFECTS


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_every_scenario_goes_on_after_a_restart_of_everything(site: Site, how: signal.Signals) -> None:
    runs = bring_to_their_middle(site)
    site.workers[0].send_signal(how)
    assert site.workers[0].wait(20) == (0 if how is signal.SIGTERM else -how)
    go_on_while_nobody_works(site, runs)
    come_to_an_end(site, runs)


def test_every_scenario_goes_on_after_the_database_was_killed_as_well(tmp_path: Path) -> None:
    with LaunchedServer(find_system() or find_wheel(), durable=True) as server:
        server.create_database("restart")
        site = Site(server.url("restart"), tmp_path)
        try:
            runs = bring_to_their_middle(site)
            server.stop("immediate")
            site.workers[0].kill()
            site.workers[0].wait()
            server.start()
            go_on_while_nobody_works(site, runs)
            come_to_an_end(site, runs)
        finally:
            site.close()
