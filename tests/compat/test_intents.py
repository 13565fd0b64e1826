"""simple-workflow's spelling: the seed's README runs unchanged, on SQLite and on PostgreSQL."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.ledger import Raw
from support.scraping import free_port, scrape
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.compat import intents

# The Python worker of the seed's README, character for character.
README = """\
#!/usr/bin/env python3
from simpleworkflow import IntentPoller, WorkflowExecutor, WorkflowRun

class ThumbnailExecutor(WorkflowExecutor):
    def execute(self, run: WorkflowRun):
        payload = run.payload  # Access as attribute
        content_id = payload['content_id']
        width = payload['width']
        height = payload['height']

        # Execute workflow logic
        print(f"Generating thumbnail for {content_id} ({width}x{height})")

        # For long-running jobs, extend the lease
        # run.heartbeat(30)  # Extend by 30 seconds

        # Check for cancellation
        # if run.is_cancelled():
        #     raise Exception("Workflow cancelled")

        return {"status": "completed"}

# Database URL (must include search_path=workflow)
db_url = "postgres://user:pass@localhost/db?search_path=workflow"

# Create and configure poller
poller = IntentPoller(
    db_url=db_url,
    type_prefixes=["content.%"],  # Type-prefix routing
    worker_id="thumbnail-worker-python",
    lease_duration=30,  # Lease duration in seconds
    poll_interval=2     # Poll interval in seconds
)

# Register executor
poller.register_executor("content.thumbnail.v1", ThumbnailExecutor())

# Start polling
poller.start()
"""
SEED_URL = "postgres://user:pass@localhost/db?search_path=workflow"
PAYLOAD = {"content_id": "c_123", "width": 300, "height": 200}


@pytest.fixture
def seed_url(url: str) -> str:
    """As the seed writes it: postgres://…?search_path=workflow."""
    return url if "://" not in url else url.replace("postgresql://", "postgres://") + "?search_path=workflow"


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


@pytest.fixture
def raw(app: swf.App, url: str) -> Iterator[Raw]:
    connection = Raw(url)
    yield connection
    connection.close()


def insert(raw: Raw, type: str, payload: str) -> Any:
    """A bare INSERT, as psql or any other language would write it; the defaults fill in the rest."""
    raw.sql("INSERT INTO workflow.workflow_run (type, payload) VALUES (?, ?)", type, payload)
    (row,) = raw.sql("SELECT id FROM workflow.workflow_run WHERE type = ? ORDER BY id DESC LIMIT 1", type)
    return row["id"]


@pytest.fixture
def readme_worker(seed_url: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path / "worker.py"
    program.write_text(README.replace(SEED_URL, seed_url))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-u", str(program)], **pipes)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_the_worker_of_the_seeds_readme_runs_unchanged(
    app: swf.App, raw: Raw, seed_url: str, readme_worker: subprocess.Popen[str]
) -> None:
    with swf.Client(seed_url) as client:
        created = client.create(swf.Intent(type="content.thumbnail.v1", payload=PAYLOAD))
    bare = insert(raw, "content.thumbnail.v1", '{"content_id": "c_sql", "width": 1, "height": 2}')
    stranger = insert(raw, "content.unheard.v1", "{}")
    elsewhere = insert(raw, "contents.other.v1", "{}")
    for run_id in (created, bare):
        assert app.sync.handle(run_id).result(30) == {"status": "completed"}
    with pytest.raises(swf.RunFailed):
        app.sync.handle(stranger).result(30)
    failed = app.sync.get(stranger)
    assert (failed.status, failed.last_error) == ("failed", "no_handler_registered")
    assert app.sync.get(elsewhere).status == "pending", "another prefix is another worker's"
    readme_worker.send_signal(signal.SIGTERM)
    out, err = readme_worker.communicate(timeout=30)
    assert readme_worker.returncode == 0, err
    assert sorted(out.splitlines()) == [
        "Generating thumbnail for c_123 (300x200)",
        "Generating thumbnail for c_sql (1x2)",
    ]
    leased = [event for event in app.sync.handle(created).events() if event.type == "leased"]
    assert leased[0].data["worker"].startswith("thumbnail-worker-python@")


class Polling:
    """A poller in a thread of this process."""

    def __init__(self, url: str, **executors: swf.WorkflowExecutor) -> None:
        self.poller = swf.IntentPoller(url, type_prefixes=["content."], poll_interval=0.2)
        for name, executor in executors.items():
            self.poller.register_executor(f"content.{name}.v1", executor)

    def __enter__(self) -> Polling:
        self._thread = threading.Thread(target=self.poller.start)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.poller.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


class Long(swf.WorkflowExecutor):
    """Works until told to stop, and says what it saw."""

    def __init__(self, heartbeat: float | None = None) -> None:
        self.heartbeat = heartbeat
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.finish = threading.Event()

    def execute(self, run: swf.WorkflowRun) -> Any:
        if self.heartbeat is not None:
            run.heartbeat(self.heartbeat)
        self.started.set()
        while not self.finish.wait(0.01):
            if run.is_cancelled():
                self.cancelled.set()
                raise Exception("Workflow cancelled")
        return {"id": run.id, "type": run.type, "attempt": run.attempt, "of": run.max_attempts}


def test_an_executor_sees_its_run_and_its_heartbeat_prolongs_the_lease(app: swf.App, seed_url: str) -> None:
    long = Long(heartbeat=600)
    with Polling(seed_url, long=long), swf.Client(seed_url) as client:
        run_id = client.create(swf.Intent("content.long.v1", {"a": 1}, max_attempts=5))
        assert long.started.wait(20)
        run = app.sync.get(run_id)
        assert run.lease_until is not None
        assert run.lease_until - run.updated_at > timedelta(minutes=9)
        assert "heartbeat" in [event.type for event in app.sync.handle(run_id).events()]
        long.finish.set()
        assert app.sync.handle(run_id).result(20) == {"id": run_id, "type": "content.long.v1", "attempt": 0, "of": 5}


def test_a_cancel_reaches_a_running_executor(app: swf.App, seed_url: str) -> None:
    long = Long()
    with Polling(seed_url, long=long), swf.Client(seed_url) as client:
        run_id = client.create(swf.Intent("content.long.v1"))
        assert long.started.wait(20)
        client.cancel(run_id)
        assert long.cancelled.wait(20)
        with pytest.raises(swf.RunNotFound):
            client.cancel("00000000-0000-7000-8000-000000000000")
    assert app.sync.get(run_id).status == "cancelled"


def test_a_bare_update_to_cancelled_is_honoured_by_a_running_executor(app: swf.App, raw: Raw, seed_url: str) -> None:
    long = Long()
    with Polling(seed_url, long=long):
        run_id = insert(raw, "content.long.v1", "{}")
        assert long.started.wait(20)
        raw.sql("UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = ?", run_id)
        assert long.cancelled.wait(5), "seen within seconds, not at the end of the lease"
    run = app.sync.get(run_id)
    assert (run.status, run.leased_by, run.lease_until) == ("cancelled", None, None)
    assert run.finished_at is not None
    assert [event.type for event in app.sync.handle(run_id).events()] == ["created", "leased", "cancelled"]


def test_a_bare_update_is_seen_by_is_cancelled_even_where_no_hint_arrives(postgres_url: str) -> None:
    """Behind a transaction pooler nobody can listen; the executor that asks is still told the truth."""
    long, app, raw = Long(), swf.App(postgres_url), Raw(postgres_url)
    with Polling(f"{postgres_url}?search_path=workflow&pgbouncer=true", long=long):
        run_id = insert(raw, "content.long.v1", "{}")
        assert long.started.wait(20)
        raw.sql("UPDATE workflow.workflow_run SET status = 'cancelled' WHERE id = ?", run_id)
        assert long.cancelled.wait(5), "seen within seconds, not at the end of the lease"
    assert app.sync.get(run_id).status == "cancelled"
    app.sync.close()
    raw.close()


def test_an_executor_that_raises_is_retried_until_its_attempts_are_spent(app: swf.App, seed_url: str) -> None:
    class Broken(swf.WorkflowExecutor):
        def execute(self, run: swf.WorkflowRun) -> Any:
            raise ValueError(f"attempt {run.attempt}")

    with Polling(seed_url, broken=Broken()), swf.Client(seed_url) as client:
        run_id = client.create(swf.Intent("content.broken.v1", max_attempts=1))
        with pytest.raises(swf.RunFailed, match="ValueError: attempt 0"):
            app.sync.handle(run_id).result(20)


def test_an_intent_is_recorded_with_all_it_says(app: swf.App, seed_url: str) -> None:
    with swf.Client(seed_url) as client:
        local = datetime.now() + timedelta(hours=1)
        intent = swf.Intent("content.x.v1", {"a": 1}, priority=5, run_after=local, idempotency_key="k", max_attempts=7)
        run_id = client.create(intent)
        assert client.create(intent) == run_id
        with pytest.raises(swf.IdempotencyConflict):
            client.create(swf.Intent("content.x.v1", {"a": 2}, idempotency_key="k"))
        plain = app.sync.get(client.create(swf.Intent("content.x.v1")))
    run = app.sync.get(run_id)
    assert (run.payload, run.priority, run.idempotency_key, run.max_attempts) == ({"a": 1}, 5, "k", 7)
    assert run.run_at == local.astimezone(UTC), "the seed's naive times are local times"
    assert (plain.priority, plain.max_attempts, plain.payload) == (100, 3, None)


def test_a_poller_without_executors_does_not_start(seed_url: str) -> None:
    with pytest.raises(swf.InvalidPolicy, match="register at least one executor"):
        swf.IntentPoller(seed_url).start()


def test_a_poller_takes_its_prefixes_from_the_environment_or_its_executors(
    app: swf.App, seed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Done(swf.WorkflowExecutor):
        def execute(self, run: swf.WorkflowRun) -> Any:
            return "done"

    for variable, foreign in (("content.,media.", "failed"), ("", "pending")):
        monkeypatch.setenv("WORKER_TYPE_PREFIXES", variable)
        poller = swf.IntentPoller(seed_url, poll_interval=0.2)
        poller.register_executor("content.done.v1", Done())
        thread = threading.Thread(target=poller.start)
        thread.start()
        other = app.sync.trigger("media.other.v1")
        assert app.sync.run("content.done.v1", timeout=20) == "done"
        if foreign == "failed":
            until(lambda other=other: other.get().status == "failed", "no handler for it")
        else:
            assert other.get().status == foreign
        poller.stop()
        thread.join(30)


def test_a_stopped_poller_can_start_again(app: swf.App, seed_url: str) -> None:
    long = Long()
    long.finish.set()
    polling = Polling(seed_url, long=long)
    for _ in range(2):
        with polling:
            assert app.sync.run("content.long.v1", timeout=20)["type"] == "content.long.v1"


def test_the_seeds_names_are_at_the_top_level() -> None:
    names = {"Client", "Intent", "IntentPoller", "WorkflowExecutor", "WorkflowRun"}
    for name in names:
        assert getattr(swf, name) is getattr(intents, name)
    assert names <= set(swf.__all__)
    assert names == set(intents.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Intents'"):
        _ = swf.Intents  # type: ignore[attr-defined]


def test_a_poller_serves_the_metrics_of_a_worker(app: swf.App, seed_url: str) -> None:
    class Quick(swf.WorkflowExecutor):
        def execute(self, run: swf.WorkflowRun) -> Any:
            return "done"

    port = free_port()
    poller = swf.IntentPoller(seed_url, type_prefixes=["content."], poll_interval=0.2, metrics_port=port)
    poller.register_executor("content.quick.v1", Quick())
    thread = threading.Thread(target=poller.start)
    thread.start()
    try:
        run_id = app.sync.trigger("content.quick.v1").id
        app.sync.handle(run_id).result(20)
        until(lambda: scrape(port).value("workflow_run_completed_total", status="succeeded") == 1, "its end is counted")
        names = {name for name in scrape(port).names() if name.startswith("workflow_")}
    finally:
        poller.stop()
        thread.join(30)
    assert {"workflow_run_claimed_total", "workflow_worker_uptime_seconds", "workflow_worker_poll_cycle_total"} <= names
