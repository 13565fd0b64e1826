"""`simpleworkflow bench` on an operator's own database: true figures, real runs untouched, nothing left behind.

The sizes are tiny; whether a figure is high is the benchmark's business, whether it is one is ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from support.ledger import Raw
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.benchmark import measures as bench_measures
from simpleworkflow.benchmark import place as bench_place
from simpleworkflow.benchmark.figures import percentile
from simpleworkflow.benchmark.plan import Plan
from simpleworkflow.cli.bench import run as bench_command
from simpleworkflow.cli.common.interrupts import run_in_a_loop, stopped_by_sigterm
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations.benchmark import drop_schema

COMMAND = [sys.executable, "-m", "simpleworkflow", "bench"]
SMALL = ["--runs", "60", "--steps", "3"]
RATES = {"trigger_single", "trigger_concurrent", "trigger_bulk", "drain", "steps"}
LATENCIES = {"latency_start", "latency_result"}
_STALLED_SET_UP = """
CREATE FUNCTION stall() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(20); END';
CREATE EVENT TRIGGER stall ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION stall();
"""
_ASLEEP = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"


def environment(url: str | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "SIMPLEWORKFLOW_URL"}
    # A prefix that an operator has set for real workers must not keep the benchmark's own from its runs.
    kept["WORKER_TYPE_PREFIXES"] = "billing."
    return kept if url is None else {**kept, "SIMPLEWORKFLOW_URL": url}


def bench(*arguments: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env=environment(url), timeout=90, check=False
    )


@pytest.fixture
def leftovers(backend: str, url: str, tmp_path: Path) -> Callable[[], list[str]]:
    """What the benchmark has made and not removed."""

    def look() -> list[str]:
        if backend == "sqlite":
            return sorted(path.name for path in tmp_path.iterdir() if ".bench-" in path.name)
        raw = Raw(url)
        rows = raw.sql("SELECT nspname AS name FROM pg_namespace WHERE nspname LIKE 'simpleworkflow_bench_%'")
        raw.close()
        return [str(row["name"]) for row in rows]

    return look


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    """The operator's own runs."""
    opened = swf.App(url)
    opened.sync.trigger("billing.charge.v1", {"order": 1})
    yield opened
    opened.sync.close()


def test_every_measure_has_a_figure_and_the_operators_runs_are_left_alone(
    app: swf.App, url: str, backend: str, leftovers: Callable[[], list[str]]
) -> None:
    done = bench(*SMALL, "--json", url=url)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    figures = report["figures"]
    assert set(figures) == RATES | LATENCIES | ({"wal"} if backend == "postgres" else set())
    for key in RATES:
        assert figures[key]["value"] == pytest.approx(figures[key]["count"] / figures[key]["seconds"], rel=0.01)
    for key in LATENCIES:
        assert 0 < figures[key]["p50"] <= figures[key]["p99"]
    assert figures["latency_start"]["p50"] < figures["latency_result"]["p50"]
    assert (figures["drain"]["count"], figures["steps"]["count"]) == (60, 6 * 3)
    if backend == "postgres":
        assert figures["wal"]["value"] > 100
    assert leftovers() == []
    assert [(one.type, one.runs) for one in app.sync.activity.counts()] == [("billing.charge.v1", 1)]
    assert app.sync.workers.alive() == []


def test_the_figures_are_told_with_the_durability_they_were_bought_with(url: str, backend: str) -> None:
    report = json.loads(bench(*SMALL, "--json", "--url", url).stdout)
    names = {"PostgreSQL", "fsync", "synchronous_commit", "full_page_writes"}
    assert set(report["settings"]) == (names if backend == "postgres" else {"SQLite", "journal_mode", "synchronous"})
    assert set(report["unsafe"]) == {name for name, value in report["settings"].items() if value == "off"}


def test_the_table_names_every_measure_and_the_settings(url: str) -> None:
    done = bench(*SMALL, "--url", url)
    assert done.returncode == 0, done.stderr
    for part in ("trigger, one by one", "in bulk", "drain of no-op runs", "workflows of 3 steps", "p50", "steps/s"):
        assert part in done.stdout
    assert "bought with " in done.stdout


def test_what_is_kept_is_named_and_can_be_looked_at(url: str, backend: str, leftovers: Callable[[], list[str]]) -> None:
    done = bench(*SMALL, "--url", url, "--json", "--keep")
    assert done.returncode == 0, done.stderr
    place = json.loads(done.stdout)["place"]
    assert place["kept"] is True
    assert [Path(place["name"]).name] == leftovers()
    app = swf.App(url, schema=place["name"]) if backend == "postgres" else swf.App(place["name"])
    assert {one.type: one.runs for one in app.sync.activity.counts() if one.status == "succeeded"}[
        "bench.noop.v1"
    ] == 60
    app.sync.close()


@pytest.mark.parametrize(
    ("stop", "before"),
    [(signal.SIGTERM, ""), (signal.SIGINT, ""), (signal.SIGTERM, "trap '' INT; ")],
    ids=["SIGTERM", "Ctrl-C", "SIGTERM in the background"],
)
def test_an_interrupted_benchmark_leaves_nothing_behind(
    url: str, stop: signal.Signals, before: str, leftovers: Callable[[], list[str]]
) -> None:
    command = ["sh", "-c", before + 'exec "$@"', "sh", *COMMAND, "--url", url, "--runs", "200000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        until(lambda: leftovers() or process.poll() is not None, "the benchmark has its place", 30)
        process.send_signal(stop)
        said, complained = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert complained == "error: interrupted; nothing is left behind\n"
    assert said == ""
    assert leftovers() == []


def test_an_interruption_before_there_are_tables_leaves_nothing_and_says_so(postgres_url: str) -> None:
    """Somebody else holds up the set-up, so that the signal comes in the middle of it."""
    command = [*COMMAND, "--url", postgres_url, "--runs", "50"]
    with psycopg.connect(postgres_url, autocommit=True) as stranger:
        stranger.execute(_STALLED_SET_UP)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        try:
            until(lambda: stranger.execute(_ASLEEP).fetchall() or process.poll() is not None, "the set-up", 30)
            process.send_signal(signal.SIGTERM)
            said, complained = process.communicate(timeout=60)
        finally:
            process.kill()
        assert (process.returncode, said) == (1, "")
        assert complained == "error: interrupted; nothing is left behind\n"
        assert not stranger.execute("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'simpleworkflow%'").fetchall()


def test_the_place_is_removed_and_the_tables_beside_it_are_not(postgres_url: str) -> None:
    app = swf.App(postgres_url)
    app.sync.trigger("t.mine.v1")
    with bench_place.place_at(postgres_url, keep=False) as place:
        assert place.app.sync.activity.counts() == []
    assert [one.type for one in app.sync.activity.counts()] == ["t.mine.v1"]
    app.sync.close()
    with psycopg.connect(postgres_url) as connection:
        assert not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'simpleworkflow%'").fetchall()


def test_a_database_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    for url, says in (
        ("postgresql://u:c4n4ry@127.0.0.1:1/db", "postgresql://u:***@127.0.0.1:1/db"),
        (str(tmp_path / "nowhere" / "x.db"), "the folder"),
    ):
        done = bench(*SMALL, "--url", url)
        assert done.returncode == 1
        assert says in done.stderr
        assert "c4n4ry" not in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_role_that_may_not_create_a_schema_is_told_what_it_lacks(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE ROLE bench_guest LOGIN PASSWORD 'guest'")
        try:
            parts = urlsplit(postgres_url)
            host = parts.netloc.rpartition("@")[2]
            done = bench(*SMALL, "--url", parts._replace(netloc=f"bench_guest:guest@{host}").geturl())
        finally:
            admin.execute("DROP ROLE bench_guest")
    assert done.returncode == 1
    assert "permission denied" in done.stderr
    assert "the right to create a schema" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--runs", "0"], ["--steps", "0"], ["--url", "mysql://h/d"], ["--dance"]], ids=lambda a: a[0]
)
def test_a_benchmark_called_wrongly_exits_with_2(arguments: list[str]) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


async def test_no_schema_but_the_benchmarks_own_can_be_dropped(ledger: Ledger) -> None:
    with pytest.raises(swf.StoreError, match="was not made by the benchmark"):
        await ledger.run(drop_schema("workflow"))


def test_the_smallest_plan_still_does_something_everywhere() -> None:
    plan = Plan(runs=1, steps=1)
    assert min(plan.single, plan.together, plan.stepped, plan.samples) >= 1
    assert plan.together % 50 == 0


def test_a_percentile_is_a_sample_that_was_seen() -> None:
    samples = [float(n) for n in range(100, 0, -1)]
    assert (percentile(samples, 50), percentile(samples, 99), percentile([7.0], 99)) == (50.0, 99.0, 7.0)


async def test_a_drain_ends_soon_when_its_database_has_gone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker would wait for it for ever, as it should; a benchmark should not."""
    app = swf.App(url)
    measures = bench_measures.Measures(app, Plan(), lambda *_: None)

    async def gone() -> None:
        raise swf.StoreUnavailable("it cannot be reached")

    monkeypatch.setattr(bench_measures, "QUIET", 0.05)
    monkeypatch.setattr(app.doctor, "check", gone)
    async with asyncio.timeout(30):
        with pytest.raises(swf.StoreUnavailable, match="cannot be reached"):
            await measures._drained(measures._noop, 5, "drain of runs that nobody has triggered")
    await app.close()


@pytest.mark.parametrize(
    ("trouble", "told"),
    [(swf.StoreError("the disk is full"), "the disk is full"), (KeyboardInterrupt(), "interrupted")],
)
def test_what_went_wrong_first_is_not_forgotten_over_what_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException, told: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(Path, "unlink", refuse)
    with (
        pytest.raises(bench_place.Leftover, match=rf"^{told}; and the file .* could not be removed.*read-only"),
        bench_place.place_at(str(tmp_path / "x.db"), keep=False),
    ):
        raise trouble


def test_a_polite_stop_cancels_a_running_loop_also_where_nobody_hears_ctrl_c() -> None:
    """To raise in the signal's handler breaks into whatever is running: a driver's C code, at worst."""
    heard: list[type[BaseException]] = []

    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        except BaseException as error:
            heard.append(type(error))
            raise

    handlers = [signal.signal(signal.SIGINT, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)]
    try:
        with pytest.raises(KeyboardInterrupt), stopped_by_sigterm():
            run_in_a_loop(work)
        assert signal.getsignal(signal.SIGTERM) == handlers[1]
    finally:
        signal.signal(signal.SIGINT, handlers[0])
    assert heard == [asyncio.CancelledError]


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    done = bench(*SMALL, "--url", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} is a folder" in done.stderr
    assert list(tmp_path.parent.glob(f"{tmp_path.name}.bench*")) == []


def test_a_file_that_never_came_to_be_is_nothing_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("read-only")

    def unable(_: object) -> None:
        raise swf.StoreError("unable to open database file")

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(bench_place.Place, "create", unable)
    with (
        pytest.raises(swf.StoreError, match=r"^unable to open database file$"),
        bench_place.place_at(str(tmp_path / "x.db"), keep=False),
    ):
        pass


def test_what_is_kept_is_named_also_when_the_measures_fail(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object) -> None:
        raise swf.StoreError("the disk is full")

    monkeypatch.setattr(bench_command, "take", fails)
    with pytest.raises(SystemExit):
        bench_command.run_bench(url, runs=50, steps=1, as_json=True, keep=True)
    assert re.search(r"the disk is full; (schema|file) \S+ is kept", capsys.readouterr().err)


def test_trouble_on_the_way_is_told_with_the_figures(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take = bench_command.take

    async def troubled(*args: Any) -> Any:
        for _ in range(9):
            logging.getLogger("simpleworkflow.worker").warning("nothing can be claimed: [away] %s", "for a while")
        return await take(*args)

    monkeypatch.setattr(bench_command, "take", troubled)
    bench_command.run_bench(url, runs=50, steps=1, as_json=True, keep=False)
    assert json.loads(capsys.readouterr().out)["troubles"] == ["nothing can be claimed: [away] for a while"] * 3
    bench_command.run_bench(url, runs=50, steps=1, as_json=False, keep=False)
    assert "nothing can be claimed: [away] for a while" in " ".join(capsys.readouterr().out.split())


def test_a_loop_that_does_not_listen_is_stopped_by_the_second_polite_stop() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it went on")

    with pytest.raises(KeyboardInterrupt), stopped_by_sigterm():
        run_in_a_loop(work)


def test_what_was_not_ready_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = bench_place.Place.create

    def interrupted(place: bench_place.Place) -> None:
        create(place)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_place.Place, "create", interrupted)
    with pytest.raises(KeyboardInterrupt), bench_place.place_at(str(tmp_path / "x.db"), keep=True):
        pass
    assert list(tmp_path.iterdir()) == []


def test_trouble_is_told_also_when_there_is_nothing_to_report(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object) -> None:
        logging.getLogger("simpleworkflow.worker").warning("nothing can be claimed")
        raise swf.StoreError("no figure is worth reporting")

    monkeypatch.setattr(bench_command, "take", fails)
    with pytest.raises(swf.StoreError):
        bench_command.run_bench(url, runs=50, steps=1, as_json=True, keep=False)
    assert capsys.readouterr().err == "nothing can be claimed\n"
