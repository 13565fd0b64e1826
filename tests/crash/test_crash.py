"""What happens to runs when processes die, freeze and stop, with short leases (default ones elsewhere)."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.crew import Watched, freeze

from simpleworkflow.model.states import Status

LEASE = 2.0
SHORT = {"CRASH_LEASE": str(LEASE), "CRASH_SWEEP": "0.5", "CRASH_POLL": "0.2"}


@pytest.fixture(autouse=True)
def short_leases(watched: Watched) -> None:
    watched.crew.settings.update(SHORT)


def started(watched: Watched, count: int) -> None:
    watched.crew.until(lambda: len(watched.crew.effects("start")) >= count, f"{count} runs started")


def retried_at(watched: Watched, run_id: str) -> float:
    (event,) = [e for e in watched.app.sync.handle(run_id).events() if e.type == "retried"]
    assert event.data["reason"] == "crash"
    return event.created_at.timestamp()


def test_a_killed_workers_runs_are_taken_over_at_once_on_the_same_host(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    crew.settings["CRASH_LEASE"] = "60"  # so that only the look at the process can explain a quick take-over
    handles = app.sync.trigger_many("crash.slow.v1", [1.0] * 10)
    victim = crew.start()
    started(watched, 10)
    victim.kill()
    heir = crew.start()
    crew.until(lambda: "ready" in (crew.folder / "worker-1.log").read_text(), "the heir is up")
    ready = time.time()
    for handle in handles:
        handle.result("30s")
        run = handle.get()
        assert (run.crashes, run.attempt, run.status) == (1, 0, Status.SUCCEEDED)
        assert retried_at(watched, str(run.id)) - ready < 2.5
    ends = crew.effects("end")
    assert len(ends) == 10
    assert {effect.pid for effect in ends} == {heir.pid}


def test_a_killed_workers_runs_come_back_after_the_lease_from_another_host(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    handles = app.sync.trigger_many("crash.slow.v1", [1.0] * 5)
    victim = crew.start(host="aaaaaaaaaa")
    started(watched, 5)
    crew.start(host="bbbbbbbbbb")
    killed = time.time()
    victim.kill()
    crew.until(lambda: "ready" in (crew.folder / "worker-1.log").read_text(), "the heir is up")
    due = max(killed + LEASE, time.time())  # on a busy machine the heir is up when the leases have ended
    for handle in handles:
        handle.result("30s")
        assert retried_at(watched, str(handle.id)) < due + 2.0
        assert handle.get().crashes == 1


def test_a_frozen_worker_cannot_write_and_its_code_is_stopped(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    handle = app.sync.trigger("crash.slow.v1", 4.0)
    frozen = crew.start(host="aaaaaaaaaa")
    started(watched, 1)
    freeze(frozen, crew.url)
    crew.start(host="bbbbbbbbbb")
    started(watched, 2)
    os.kill(frozen.pid, signal.SIGCONT)
    assert handle.result("30s") == "2"
    crew.until(lambda: [e for e in crew.effects("stopped") if e.epoch == 1], "the frozen worker's code was stopped")
    assert [e.epoch for e in crew.effects("end")] == [2]
    epochs = [e.epoch for e in app.sync.handle(handle.id).events() if e.type in {"succeeded", "started"}]
    assert epochs == [2, 2], "the frozen worker left a line in the audit trail"


def test_a_stopped_worker_hands_its_runs_back_unburned(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    crew.settings["CRASH_LEASE"] = "60"
    handles = app.sync.trigger_many("crash.slow.v1", [60.0] * 5)
    leaving = crew.start("--drain", "300ms")
    started(watched, 5)
    heir = crew.start("--drain", "300ms")
    crew.until(lambda: "ready" in (crew.folder / "worker-1.log").read_text(), "the heir is up")
    leaving.send_signal(signal.SIGTERM)
    assert leaving.wait(15) == 0
    stopped = max(effect.at for effect in crew.effects("stopped"))
    crew.until(lambda: sum(e.pid == heir.pid for e in crew.effects("start")) == 5, "the heir has all five")
    last = max(e.at for e in crew.effects("start") if e.pid == heir.pid)
    assert last - stopped < 1.0
    for handle in handles:
        run = handle.get()
        assert (run.attempt, run.crashes, run.lease_epoch) == (0, 0, 2)
        assert "released" in [str(e.type) for e in handle.events()]


def test_a_stopped_worker_lets_running_code_finish_first(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    handles = app.sync.trigger_many("crash.slow.v1", [1.0] * 3)
    leaving = crew.start()
    started(watched, 3)
    waiting = app.sync.trigger("crash.quick.v1", 1, delay="300ms")
    leaving.send_signal(signal.SIGTERM)
    assert leaving.wait(15) == 0
    assert all(handle.get().status is Status.SUCCEEDED for handle in handles)
    assert waiting.get().status is Status.PENDING, "a stopping worker claims nothing"


def test_a_thread_that_will_not_stop_does_not_hold_up_the_exit_and_burns_nothing(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    handle = app.sync.trigger("crash.block.v1", 30.0)
    leaving = crew.start("--drain", "100ms")
    started(watched, 1)
    leaving.send_signal(signal.SIGTERM)
    leaving.send_signal(signal.SIGTERM)
    thread = app.sync.trigger("crash.thread.v1", 60.0)
    leaving.kill()  # a blocked event loop can only be killed; its lease is found by the look at the process
    heir = crew.start("--drain", "100ms", "--prefix", "crash.thread.*")
    crew.until(lambda: [e for e in crew.effects("start") if e.run_id == str(thread.id)], "the thread runs")
    heir.send_signal(signal.SIGTERM)
    assert heir.wait(10) == 0, "a thread that asks is_cancelled() lets the worker end cleanly"
    run = thread.get()
    assert (run.status, run.attempt, run.crashes) == (Status.PENDING, 0, 0)
    assert handle.get().status is not Status.SUCCEEDED


def test_poison_is_contained(watched: Watched) -> None:
    """200 innocents and one run that kills its process, three times or four: nobody else loses more than one."""
    crew, app = watched.crew, watched.app
    innocents = app.sync.trigger_many("crash.quick.v1", list(range(100)))
    poison = app.sync.trigger("crash.poison.v1")
    innocents += app.sync.trigger_many("crash.quick.v1", list(range(100, 200)))
    deaths = 0
    deadline = time.monotonic() + 60
    worker = crew.start()
    while not watched.all_ended():
        assert time.monotonic() < deadline, f"not all runs ended: {watched.statuses()}\n{crew.logs()}"
        if worker.poll() is not None:
            deaths += 1
            assert worker.returncode == 13
            worker = crew.start()
        time.sleep(0.02)
    run = poison.get()
    executions = [e for e in crew.effects("start") if e.run_id == str(poison.id)]
    assert (run.status, len(executions)) == (Status.FAILED, deaths)
    assert deaths in {3, 4}, "one crash is excused when others with crashes were there"
    for handle in innocents:
        innocent = handle.get()
        assert innocent.status is Status.SUCCEEDED
        assert innocent.attempt + innocent.crashes - ((innocent.max_attempts or 3) - 3) <= 1


def test_code_that_blocks_the_event_loop_keeps_its_lease(watched: Watched) -> None:
    crew, app = watched.crew, watched.app
    handle = app.sync.trigger("crash.block.v1", 3 * LEASE)
    crew.start(host="aaaaaaaaaa")
    started(watched, 1)
    crew.start(host="bbbbbbbbbb")
    assert handle.result("30s") == "kept"
    assert handle.get().lease_epoch == 1
    assert [str(e.type) for e in handle.events()] == ["created", "leased", "started", "succeeded"]
