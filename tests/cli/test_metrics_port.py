"""Metrics of a real worker process: scraped over HTTP, parsed by Prometheus's client, compared with the seed's list.

The list is a copy of simple-workflow's documentation, so that a renamed metric or a forgotten label fails here.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from support.ledger import Raw
from support.proxy import Proxy
from support.scraping import Scraped, get, scrape
from support.waiting import until

import simpleworkflow as swf

SEED = """
- `workflow_run_claimed_total{workflow_type, worker_id}` - Total runs claimed
- `workflow_run_completed_total{workflow_type, worker_id, status}` - Total runs completed
- `workflow_run_failed_total{workflow_type, worker_id}` - Total runs permanently failed
- `workflow_run_failed_attempts_total{workflow_type, worker_id, attempt}` - Failed attempts
- `workflow_run_execution_duration_seconds{workflow_type, worker_id, status}` - Execution duration histogram
- `workflow_worker_poll_cycle_total{worker_id}` - Total poll cycles
- `workflow_worker_poll_errors_total{worker_id, error_type}` - Poll errors
- `workflow_run_queue_depth{workflow_type, status}` - Queue depth gauge
- `workflow_worker_uptime_seconds{worker_id}` - Worker uptime
- `workflow_worker_last_poll_timestamp{worker_id}` - Last poll timestamp
"""
WANTED = {name: set(labels.split(", ")) for name, labels in re.findall(r"`(\w+)\{(.*?)\}`", SEED)}

MODULE = """
import time
import simpleworkflow as swf

app = swf.App()

@swf.step(retry=swf.Retry(max_attempts=2, initial=0.01))
async def shaky(n: int) -> int:
    if swf.step_info().attempt == 0:
        raise ValueError("the first time")
    return n

async def double(n: int) -> int:
    return 2 * n

@app.workflow("shop.double.v1")
async def doubled(ctx: swf.Context, n: int) -> int:
    return await ctx.step(double, n)

@app.workflow("shop.shaky.v1")
async def shaken(ctx: swf.Context, n: int) -> int:
    return await ctx.step(shaky, n)

@app.workflow("shop.bad.v1", retry=swf.Retry(max_attempts=3, initial=0.01))
async def bad(ctx: swf.Context) -> None:
    raise ValueError("no")

@app.workflow("shop.nap.v1")
async def nap(ctx: swf.Context) -> str:
    await ctx.sleep("1.1s")
    return "rested"

@app.workflow("shop.late.v1", timeout="1s")
async def late(ctx: swf.Context) -> None:
    await ctx.wait_for_signal("never")

@app.workflow("shop.stubborn.v1")
def stubborn(ctx: swf.SyncContext) -> None:
    time.sleep(600)
"""


class Worker:
    def __init__(self, folder: Path, url: str, *options: str, **environment: str) -> None:
        self._log = folder / f"worker-{len(list(folder.glob('*.log')))}.log"
        command = [sys.executable, "-m", "simpleworkflow", "worker", "shop:app", "--url", url, "--name", "w1", *options]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def port(self) -> int:
        """As an operator learns it with --metrics-port 0: from the log."""
        until(lambda: "is ready" in self.log or self.process.poll() is not None, "the worker is ready")
        found = re.search(r"metrics of worker w1 are at http://127\.0\.0\.1:(\d+)/metrics", self.log)
        assert found is not None, self.log
        return int(found[1])

    def ended(self) -> int:
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


Start = Callable[..., Worker]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "project"
    here.mkdir()
    (here / "shop.py").write_text(MODULE)
    return here


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    started: list[Worker] = []

    def begin(url: str, *options: str, **environment: str) -> Worker:
        started.append(Worker(folder, url, *(options or ("--metrics-port", "0")), **environment))
        return started[-1]

    yield begin
    for worker in started:
        worker.close()


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


def has_ended(app: swf.App, *but_for: str) -> bool:
    return all(count.status.is_terminal for count in app.sync.activity.counts() if count.type not in but_for)


def work_through(app: swf.App) -> None:
    """Runs that succeed, fail, are retried inside and outside, pause, wait for ever and pass their deadline."""
    trigger = app.sync.trigger
    for n in range(5):
        trigger("shop.double.v1", n)
    for name in ("shop.shaky.v1", "shop.shaky.v1"):
        trigger(name, 1)
    for name in ("shop.bad.v1", "shop.bad.v1", "shop.nap.v1", "shop.late.v1"):
        trigger(name)
    trigger("shop.double.v1", 1, delay="1h")
    until(lambda: has_ended(app, "shop.double.v1"), "all but the future one have ended")
    until(
        lambda: sum(c.runs for c in app.sync.activity.counts() if c.status.is_terminal) == 11, "the doubles have ended"
    )


def hide_runs(raw: Raw) -> None:
    raw.sql("ALTER TABLE workflow.workflow_run RENAME TO hidden_run")


def labels_by_name(scraped: Scraped) -> dict[str, set[str]]:
    """Histograms by their own name, `le` not counted."""
    found: dict[str, set[str]] = {}
    for sample in scraped.samples:
        name = re.sub(r"_(bucket|sum|count)$", "", sample.name)
        found.setdefault(name, set()).update(sample.labels.keys() - {"le"})
    return found


def test_a_live_worker_exports_the_seeds_metrics_name_by_name_and_label_by_label(
    app: swf.App, url: str, start: Start
) -> None:
    assert len(WANTED) == 10
    worker = start(url)
    work_through(app)
    before = labels_by_name(scrape(worker.port))
    raw = Raw(url)
    hide_runs(raw)  # from now on every poll goes wrong
    until(lambda: scrape(worker.port).all("workflow_worker_poll_errors_total"), "a poll has gone wrong")
    exported = before | labels_by_name(scrape(worker.port))
    assert {name: exported.get(name) for name in WANTED} == WANTED
    assert not [name for name in exported if name.endswith("_created")]
    raw.close()


def test_the_numbers_are_those_of_the_runs(app: swf.App, url: str, start: Start) -> None:
    worker = start(url)
    work_through(app)
    until(lambda: scrape(worker.port).value("workflow_worker_leases") == 0, "every ending is durable and heard of")
    seen = scrape(worker.port)

    def completed(type: str, status: str) -> float:
        return seen.value("workflow_run_completed_total", workflow_type=type, worker_id="w1", status=status)

    assert completed("shop.double.v1", "succeeded") == 5
    assert completed("shop.shaky.v1", "succeeded") == 2
    assert completed("shop.nap.v1", "succeeded") == 1
    assert completed("shop.late.v1", "timed_out") == 1
    assert completed("shop.bad.v1", "failed") == 2
    assert seen.value("workflow_run_failed_total") == 2
    assert seen.value("workflow_run_failed_total", workflow_type="shop.bad.v1") == 2
    for attempt in ("1", "2", "3"):
        assert seen.value("workflow_run_failed_attempts_total", attempt=attempt) == 2
    assert seen.value("workflow_run_yielded_total", workflow_type="shop.bad.v1", reason="retried") == 4
    assert seen.value("workflow_run_yielded_total", workflow_type="shop.nap.v1", reason="paused") == 1
    assert seen.value("workflow_run_swept_total", workflow_type="shop.late.v1", status="timed_out") == 1
    assert seen.value("workflow_step_total", workflow_type="shop.double.v1", status="succeeded") == 5
    assert seen.value("workflow_step_total", workflow_type="shop.shaky.v1", status="retrying") == 2
    assert seen.value("workflow_step_total", workflow_type="shop.shaky.v1", status="succeeded") == 2

    for type in ("shop.double.v1", "shop.shaky.v1", "shop.bad.v1", "shop.nap.v1", "shop.late.v1"):
        ended = seen.value("workflow_run_completed_total", workflow_type=type)
        ended -= seen.value("workflow_run_swept_total", workflow_type=type, status="timed_out")
        left = seen.value("workflow_run_yielded_total", workflow_type=type)
        assert seen.value("workflow_run_claimed_total", workflow_type=type) == ended + left
        assert seen.value("workflow_run_wakeup_latency_seconds_count", workflow_type=type) == ended + left

    assert seen.value("workflow_run_queue_depth", workflow_type="shop.double.v1", status="pending") == 1
    assert seen.value("workflow_run_late") == 0
    assert seen.value("workflow_database_up") == 1
    assert seen.value("workflow_worker_slots") == 100
    assert 0 < seen.value("workflow_worker_uptime_seconds") < 120
    assert seen.value("workflow_worker_poll_cycle_total") >= 1


def test_histograms_agree_with_themselves_and_with_the_counters(app: swf.App, url: str, start: Start) -> None:
    worker = start(url)
    work_through(app)
    until(lambda: scrape(worker.port).value("workflow_worker_leases") == 0, "every ending is durable and heard of")
    seen = scrape(worker.port)
    series: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[float, float]]] = {}
    for one in seen.samples:
        if one.name.endswith("_bucket"):
            key = frozenset((name, value) for name, value in one.labels.items() if name != "le")
            series.setdefault((one.name.removesuffix("_bucket"), key), []).append((float(one.labels["le"]), one.value))
    assert {name for name, _ in series} == {
        "workflow_run_execution_duration_seconds",
        "workflow_run_wakeup_latency_seconds",
        "workflow_step_duration_seconds",
        "workflow_worker_claim_duration_seconds",
        "workflow_worker_loop_lag_seconds",
        "workflow_journal_flush_duration_seconds",
        "workflow_journal_flush_entries",
    }
    for (name, key), buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(bounds)
        assert bounds[-1] == float("inf")
        assert list(counts) == sorted(counts), f"{name} {key}"
        assert counts[-1] == seen.value(f"{name}_count", **dict(key))
        assert seen.value(f"{name}_sum", **dict(key)) >= 0
    for status in ("succeeded", "failed"):
        executed = seen.value("workflow_run_execution_duration_seconds_count", status=status)
        assert executed == seen.value("workflow_run_completed_total", status=status) > 0
    naps = seen.value("workflow_run_execution_duration_seconds_sum", workflow_type="shop.nap.v1")
    assert naps < 1.0, "a run that sleeps does not execute meanwhile"


def test_openmetrics_is_spoken_to_those_who_ask_for_it(app: swf.App, url: str, start: Start) -> None:
    worker = start(url)
    app.sync.trigger("shop.double.v1", 1)
    until(lambda: has_ended(app), "it has ended")
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    status, kind, text = get(worker.port, "/metrics", **accept)
    assert status == 200
    assert kind.startswith("application/openmetrics-text")
    families = {family.name for family in parse_openmetrics(text)}
    assert {"workflow_run_claimed", "workflow_worker_poll_cycle", "workflow_run_queue_depth"} <= families
    assert get(worker.port, "/metrics")[1].startswith("text/plain")


def test_a_scrape_answers_when_the_database_is_gone(app: swf.App, url: str, start: Start) -> None:
    worker = start(url)
    port = worker.port
    app.sync.trigger("shop.double.v1", 1)
    until(lambda: has_ended(app), "it has ended")
    raw = Raw(url)
    hide_runs(raw)
    seen = scrape(port)
    assert seen.value("workflow_database_up") == 0
    assert len(seen.all("workflow_database_up")) == 1
    assert seen.value("workflow_run_claimed_total", workflow_type="shop.double.v1") == 1
    assert not seen.all("workflow_run_queue_depth"), "an old number would look like a queue that does not move"
    raw.close()


@pytest.mark.parametrize("how", ["freeze", "refuse"])
async def test_a_scrape_answers_while_the_network_to_the_database_is_broken(
    postgres_url: str, start: Start, how: str
) -> None:
    async with Proxy(postgres_url) as proxy:
        worker = start(proxy.url)
        port = await asyncio.to_thread(lambda: worker.port)
        if how == "freeze":
            proxy.freeze()
        else:
            await proxy.refuse()
        seen = await asyncio.to_thread(scrape, port)
        assert len(seen.all("workflow_database_up")) == 1
        assert seen.value("workflow_database_up") == 0
        assert seen.value("workflow_worker_uptime_seconds") > 0
        proxy.thaw()
        if how == "refuse":
            await proxy.accept()


def test_many_scrapes_share_one_look_at_the_database(app: swf.App, url: str, start: Start) -> None:
    worker = start(url)
    port = worker.port
    with ThreadPoolExecutor(8) as pool:
        taken = {seen.value("workflow_database_read_seconds") for seen in pool.map(scrape, [port] * 40)}
    assert len(taken) == 1, "each look takes its own time"
    assert taken.pop() > 0


def test_the_health_check_is_for_supervisors(app: swf.App, url: str, start: Start) -> None:
    worker = start(url, "--metrics-port", "0", "--drain", "20s")
    port = worker.port
    until(lambda: get(port, "/healthz")[0] == 200, "it has looked for work")
    assert get(port, "/healthz")[2] == "ok\n"
    app.sync.trigger("shop.stubborn.v1")
    until(lambda: scrape(port).value("workflow_worker_slots_used") == 1, "the stubborn one runs")
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: get(port, "/healthz")[0] == 503, "it says that it stops")
    assert get(port, "/healthz")[2] == "stopping\n"
    assert scrape(port).value("workflow_worker_slots_used") == 1
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() == 3


def test_only_two_pages_are_served_and_nothing_is_written(app: swf.App, url: str, start: Start) -> None:
    port = start(url).port
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics", method="POST")[0] == 405
    assert get(port, "/metrics", method="HEAD")[::2] == (200, "")
    assert get(port, "/metrics?x=1")[0] == 200
    assert get(port, "/healthz", Cookie="x" * 20_000)[0] == 400
    assert get(port, "/metrics")[0] == 200, "and it goes on"


def test_a_port_that_is_taken_ends_the_worker_with_a_sentence(app: swf.App, url: str, start: Start) -> None:
    port = start(url).port
    second = start(url, "--metrics-port", str(port))
    assert second.ended() == 1
    assert f"error: metrics cannot be served on 127.0.0.1 port {port}: Address already in use" in second.log
    assert "Traceback" not in second.log
    assert "is ready" not in second.log
    assert get(port, "/healthz")[0] in {200, 503}, "the first one goes on"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--metrics-port", "70000"], 2, "not in the range"),
        (["--metrics-port", "nine"], 2, "not a valid integer"),
        (["--metrics-host", "0.0.0.0"], 2, "say --metrics-port too"),
        (
            ["--metrics-port", "0", "--metrics-host", "no such host"],
            1,
            "metrics cannot be served on no such host port 0",
        ),
        (["--metrics-port", "0", "--metrics-host", "203.0.113.7"], 1, "metrics cannot be served on 203.0.113.7"),
    ],
)
def test_a_wrong_address_is_told_in_one_sentence(
    tmp_path: Path, start: Start, options: list[str], code: int, says: str
) -> None:
    worker = start(str(tmp_path / "a.db"), *options)
    assert worker.ended() == code, worker.log
    assert says in worker.log
    assert "Traceback" not in worker.log


def test_without_the_extra_the_message_says_what_to_install(tmp_path: Path, start: Start) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('not installed')\n")
    worker = start(str(tmp_path / "a.db"), "--metrics-port", "0", PYTHONPATH=str(tmp_path))
    assert worker.ended() == 1
    assert "pip install '/path/to/simpleworkflow[metrics]'" in worker.log
    assert "Traceback" not in worker.log


def test_without_a_metrics_port_nothing_is_served_or_imported(tmp_path: Path, start: Start) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('not installed')\n")
    worker = start(str(tmp_path / "a.db"), "--drain", "1s", PYTHONPATH=str(tmp_path))
    until(lambda: "is ready" in worker.log or worker.process.poll() is not None, "the worker is ready")
    assert "metrics of worker" not in worker.log
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() == 0
