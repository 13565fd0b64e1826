"""The same faults with the leases that users get: 30 s, swept every 5 s. Minutes long: `make crash`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from support.crew import Watched, freeze

Figure = Callable[[str, float], None]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def started(watched: Watched, count: int) -> None:
    watched.crew.until(lambda: len(watched.crew.effects("start")) >= count, f"{count} runs started")


def crashed_after(watched: Watched, run_id: str, killed: float) -> float:
    (event,) = [e for e in watched.app.sync.handle(run_id).events() if e.type == "retried"]
    return event.created_at.timestamp() - killed


def test_a_killed_workers_runs_are_claimable_within_45_seconds_from_another_host(
    watched: Watched, figure: Figure
) -> None:
    handles = watched.app.sync.trigger_many("crash.slow.v1", [0.5] * 5)
    victim = watched.crew.start(host="aaaaaaaaaa")
    started(watched, 5)
    killed = time.time()
    victim.kill()
    watched.crew.start(host="bbbbbbbbbb")
    for handle in handles:
        handle.result("90s")
        assert crashed_after(watched, str(handle.id), killed) <= 45
    slowest = max(crashed_after(watched, str(handle.id), killed) for handle in handles)
    figure("seconds from SIGKILL to claimable, other host", slowest)


def test_a_killed_workers_runs_are_claimable_at_once_on_the_same_host(watched: Watched, figure: Figure) -> None:
    handles = watched.app.sync.trigger_many("crash.slow.v1", [4.0] * 5)
    victim = watched.crew.start()
    started(watched, 5)
    watched.crew.start()
    watched.crew.until(lambda: "ready" in (watched.crew.folder / "worker-1.log").read_text(), "the heir is up")
    killed = time.time()
    victim.kill()
    for handle in handles:
        handle.result("60s")
    slowest = max(crashed_after(watched, str(handle.id), killed) for handle in handles)
    assert slowest < 2.5
    figure("seconds from SIGKILL to claimable, same host", slowest)


def test_a_frozen_worker_is_fenced(watched: Watched) -> None:
    handle = watched.app.sync.trigger("crash.slow.v1", 50.0)
    frozen = watched.crew.start(host="aaaaaaaaaa")
    started(watched, 1)
    freeze(frozen, watched.crew.url)
    watched.crew.start(host="bbbbbbbbbb")
    watched.crew.until(lambda: len(watched.crew.effects("start")) == 2, "taken over", 60)
    frozen.send_signal(signal.SIGCONT)
    watched.crew.until(lambda: [e for e in watched.crew.effects("stopped") if e.epoch == 1], "its code is stopped", 30)
    assert handle.result("90s") == "2"
    assert [e.epoch for e in watched.crew.effects("end")] == [2]


def test_code_that_blocks_the_event_loop_for_three_leases_keeps_its_lease(watched: Watched) -> None:
    handle = watched.app.sync.trigger("crash.block.v1", 90.0)
    watched.crew.start(host="aaaaaaaaaa")
    started(watched, 1)
    watched.crew.start(host="bbbbbbbbbb")
    assert handle.result("150s") == "kept"
    assert handle.get().lease_epoch == 1


def test_a_stopped_workers_runs_are_taken_over_within_a_second(watched: Watched, figure: Figure) -> None:
    handles = watched.app.sync.trigger_many("crash.slow.v1", [60.0] * 5)
    leaving = watched.crew.start("--drain", "300ms")
    started(watched, 5)
    heir = watched.crew.start()
    watched.crew.until(lambda: "ready" in (watched.crew.folder / "worker-1.log").read_text(), "the heir is up")
    leaving.send_signal(signal.SIGTERM)
    assert leaving.wait(20) == 0
    stopped = max(effect.at for effect in watched.crew.effects("stopped"))
    watched.crew.until(lambda: sum(e.pid == heir.pid for e in watched.crew.effects("start")) == 5, "taken over")
    taken = max(e.at for e in watched.crew.effects("start") if e.pid == heir.pid) - stopped
    assert taken < 1.0
    assert {handle.get().attempt + handle.get().crashes for handle in handles} == {0}
    figure("seconds from the end of user code to its start elsewhere, SIGTERM", taken)
