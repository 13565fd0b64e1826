"""PostgreSQL is killed (stop -m immediate) and comes back while 500 runs are in flight: nobody restarts anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crew import Crew, Watched
from support.postgres import LaunchedServer, find_system, find_wheel


@pytest.fixture
def server() -> Iterator[LaunchedServer]:
    with LaunchedServer(find_system() or find_wheel(), durable=True) as server:
        yield server


@pytest.fixture
def restarted(server: LaunchedServer, tmp_path: Path) -> Iterator[Watched]:
    server.create_database("restart")
    crew = Crew(
        server.url("restart"), tmp_path, settings={"CRASH_LEASE": "4", "CRASH_SWEEP": "0.5", "CRASH_POLL": "0.2"}
    )
    watched = Watched(crew)
    watched.app.sync.migrate()
    yield watched
    watched.app.sync.close()
    crew.close()


def test_a_killed_database_loses_nothing_and_strands_nothing(server: LaunchedServer, restarted: Watched) -> None:
    crew, app = restarted.crew, restarted.app
    handles = app.sync.trigger_many("crash.slow.v1", [0.5] * 500)
    workers = [crew.start("--concurrency", "250") for _ in range(2)]
    crew.until(lambda: len(crew.effects("start")) >= 400, "most runs are in flight")
    for _ in range(2):
        server.stop("immediate")
        server.start()
        ends = len(crew.effects("end"))
        crew.until(lambda ends=ends: restarted.all_ended() or len(crew.effects("end")) > ends, "work goes on", 60)
    crew.until(restarted.all_ended, "every run has ended", 60)
    assert restarted.statuses() == {"succeeded": 500}
    assert {str(handle.id) for handle in handles} == {effect.run_id for effect in crew.effects("end")}
    assert all(worker.poll() is None for worker in workers), "a worker process did not survive the restart"


def test_a_worker_stops_in_time_although_its_database_is_dead(server: LaunchedServer, restarted: Watched) -> None:
    crew, app = restarted.crew, restarted.app
    app.sync.trigger_many("crash.slow.v1", [60.0] * 5)
    worker = crew.start("--drain", "500ms")
    crew.until(lambda: len(crew.effects("start")) == 5, "the runs are in flight")
    server.stop("immediate")
    worker.terminate()
    assert worker.wait(20) == 3, "exit code 3: entries were left unwritten"
    assert len(crew.effects("stopped")) == 5
    server.start()
    crew.start()
    crew.until(lambda: len(crew.effects("start")) > 5, "another worker takes over")
