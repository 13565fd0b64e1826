"""The command, as operators run it: a real process, its exit code, and what it says.

Exit codes: 0 done; 1 the work could not be done; 2 called wrongly; 3 a worker stopped with code still running
or entries unwritten.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.postgres import Server
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.store.migrate import migrations

COMMAND = [sys.executable, "-m", "simpleworkflow"]
MODULE = """
import os, time
import simpleworkflow as swf

app = swf.App()
second = swf.App("second.db")

@app.workflow("cli.double.v1")
async def double(ctx: swf.Context, n: int) -> int:
    return 2 * n

@app.workflow("cli.pid.v1")
def pid(ctx: swf.SyncContext) -> int:
    return os.getpid()

@app.workflow("other.stubborn.v1")
def stubborn(ctx: swf.SyncContext) -> None:
    ctx.log.info("the stubborn one runs")
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the operator stands: a module with an App, and some that are wrong."""
    here = tmp_path / "project"
    here.mkdir()
    (here / "shop").mkdir()
    (here / "shop" / "__init__.py").write_text("")
    (here / "shop" / "work.py").write_text(MODULE)
    (here / "empty.py").write_text("x = 1\n")
    (here / "wrong.py").write_text("import simpleworkflow as swf\napp = swf.App()\napp.workflow('a b')(print)\n")
    (here / "broken.py").write_text("import no_such_package\n")
    return here


def environment(url: str | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "SIMPLEWORKFLOW_URL"}
    return kept if url is None else {**kept, "SIMPLEWORKFLOW_URL": url}


def run(*arguments: str, cwd: Path, url: str | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(url),
        input=stdin,
        timeout=60,
        check=False,
    )


class Process:
    """A worker command whose log we read."""

    def __init__(self, folder: Path, *arguments: str, url: str | None) -> None:
        self._log = folder / "worker.log"
        with self._log.open("wb") as log:
            command = [*COMMAND, "worker", *arguments]
            self._process = subprocess.Popen(command, cwd=folder, env=environment(url), stdout=log, stderr=log)
        self.pid = self._process.pid

    def ready(self) -> Process:
        until(lambda: "is ready" in self.log or self._process.poll() is not None, "the worker is ready", 30)
        assert self._process.poll() is None, self.log
        return self

    @property
    def log(self) -> str:
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        return self._process.wait(30)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


# worker.


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_worker_executes_runs_and_stops_when_told_to(
    app: swf.App, url: str, folder: Path, stop: signal.Signals
) -> None:
    worker = Process(folder, "shop.work:app", "--name", "ops", url=url).ready()
    try:
        assert app.sync.run("cli.double.v1", 21, timeout=20) == 42
        assert app.sync.run("cli.pid.v1", timeout=20) == worker.pid
        worker.signal(stop)
        assert worker.ended() == 0
    finally:
        worker.close()
    assert "Traceback" not in worker.log
    assert "worker ops@" in worker.log
    assert app.sync.workers.alive() == []


def test_a_worker_serves_only_its_prefixes_from_the_database_it_is_told(app: swf.App, url: str, folder: Path) -> None:
    """--url wins over the App's own; --prefix repeats; --fail-unknown fails what has no handler here."""
    options = ["--url", url, "--prefix", "cli.*", "--prefix", "media.", "--fail-unknown", "--concurrency", "3"]
    waiting = app.sync.trigger("other.stubborn.v1")
    unknown = app.sync.trigger("media.unknown.v1")
    worker = Process(folder, "shop.work", *options, "--lease", "5s", url="elsewhere.db").ready()
    try:
        assert app.sync.run("cli.double.v1", 2, timeout=20) == 4
        with pytest.raises(swf.RunFailed, match="no_handler_registered"):
            unknown.result(20)
        assert waiting.get().status == "pending"
    finally:
        worker.close()
    assert not (folder / "elsewhere.db").exists()


def test_the_environment_does_not_override_the_database_an_app_names(folder: Path, tmp_path: Path) -> None:
    worker = Process(folder, "shop.work:second", url=str(tmp_path / "environment.db")).ready()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert (folder / "second.db").exists()
    assert not (tmp_path / "environment.db").exists()


def test_a_worker_with_code_that_does_not_stop_hands_it_back_and_exits_with_3(
    app: swf.App, url: str, folder: Path
) -> None:
    worker = Process(folder, "shop.work:app", "--drain", "0s", url=url).ready()
    try:
        handle = app.sync.trigger("other.stubborn.v1")
        until(lambda: "the stubborn one runs" in worker.log, "it is running")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 3
    finally:
        worker.close()
    run = handle.get()
    assert (run.status, run.attempt, run.crashes) == ("pending", 0, 0)


def test_a_second_signal_does_not_wait_for_running_code(app: swf.App, url: str, folder: Path) -> None:
    worker = Process(folder, "shop.work:app", "--drain", "10m", url=url).ready()
    try:
        handle = app.sync.trigger("other.stubborn.v1")
        until(lambda: "the stubborn one runs" in worker.log, "it is running")
        worker.signal(signal.SIGTERM)
        until(lambda: "stops; 1 run under way" in worker.log, "the first signal arrived")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 3
    finally:
        worker.close()
    assert handle.get().status == "pending"


@pytest.mark.parametrize(
    ("target", "code", "sentence"),
    [
        ("nowhere:app", 2, "there is no module 'nowhere'"),
        ("shop.nowhere:app", 2, "there is no module 'shop.nowhere'"),
        ("shop/work.py", 2, "'shop/work.py' is not a module; name it as in `import orders.work`: shop.work:app"),
        ("shop/work.py:second", 2, "name it as in `import orders.work`: shop.work:second"),
        ("empty.py:app", 2, "; did you mean empty:app?"),
        ("shop.work.second", 2, "; did you mean shop.work:second?"),
        (":app", 2, "'' is not a module"),
        (".work:app", 2, "'.work' is not a module"),
        ("shop.work:application", 2, "shop.work has no App called 'application'; it has app, second"),
        ("empty", 2, "empty has no App called 'app'; it has no simpleworkflow App at all"),
        ("wrong:app", 1, "workflow type 'a b' contains ' ' at position 1"),
    ],
)
def test_a_wrong_target_is_one_sentence(folder: Path, target: str, code: int, sentence: str) -> None:
    done = run("worker", target, cwd=folder)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_error_inside_the_operators_own_module_keeps_its_traceback(folder: Path) -> None:
    done = run("worker", "broken:app", cwd=folder)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "No module named 'no_such_package'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["worker", "shop.work:app", "--lease", "soon"], "'soon' is not understood"),
        (["worker", "shop.work:app", "--drain", "-1s"], "'-1s' is not understood"),
        (["worker", "shop.work:app", "--prefix", "a b."], "type prefix"),
        (["worker", "shop.work:app", "--url", "mysql://h/d"], "mysql:// is not a database that simpleworkflow knows"),
        (["worker", "shop.work:app", "--concurrency", "0"], "0 is not in the range"),
        (["worker"], "Missing argument 'MODULE:APP'"),
        (["migrate", "status", "--url", "redis://h"], "redis:// is not a database that simpleworkflow knows"),
        (["migrate", "down", "--count", "0"], "0 is not in the range"),
        (["dance"], "there is no command 'dance'"),
    ],
)
def test_a_command_called_wrongly_exits_with_2(folder: Path, arguments: list[str], sentence: str) -> None:
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_an_unmigrated_database_names_the_command_that_mends_it(postgres: Server, folder: Path) -> None:
    done = run("worker", "shop.work:app", "--url", postgres.url("postgres"), cwd=folder)
    assert done.returncode == 1
    assert "simpleworkflow migrate up --url postgresql://" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_unreachable_database_is_one_sentence_in_time(folder: Path) -> None:
    url = "postgresql://u:c4n4ry@127.0.0.1:1/db"
    commands = (["migrate", "up"], ["migrate", "status"])
    with ThreadPoolExecutor(len(commands)) as together:
        started = time.monotonic()
        ended = list(together.map(lambda arguments: run(*arguments, "--url", url, cwd=folder), commands))
        assert time.monotonic() - started < 20
    for done in ended:
        assert done.returncode == 1
        assert "postgresql://u:***@127.0.0.1:1/db" in done.stderr
        assert "c4n4ry" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_worker_waits_for_a_database_that_is_not_there_yet_and_still_stops(folder: Path) -> None:
    url = "postgresql://u:c4n4ry@127.0.0.1:1/db"
    command = [sys.executable, "-m", "simpleworkflow", "worker", "shop.work:app", "--url", url]
    worker = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert worker.stderr is not None
    line = worker.stderr.readline()
    assert "the database postgresql://u:***@127.0.0.1:1/db is away: " in line
    assert "nothing is claimed until it is back" in line or "it is tried again until it is back" in line
    worker.terminate()
    _, rest = worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert "is away" not in rest
    assert "c4n4ry" not in line + rest
    assert "Traceback" not in rest


# migrate.


@pytest.fixture
def bare_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind that nobody has migrated."""
    if backend == "sqlite":
        yield str(tmp_path / "bare.db")
        return
    server: Server = request.getfixturevalue("postgres")
    server.create_database("swf_bare")
    yield server.url("swf_bare")
    server.drop_database("swf_bare")


def test_migrations_go_up_and_down_and_say_where_they_are(bare_url: str, tmp_path: Path) -> None:
    def migrate(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return run("migrate", *arguments, cwd=tmp_path, url=bare_url, stdin=stdin)

    before = migrate("status", "--json")
    assert before.returncode == 1, "something is missing"
    assert {one["applied"] for one in json.loads(before.stdout)} == {None}
    assert "0001_runs  not applied" in migrate("status").stdout

    known = [f"{one.version}_{one.name}" for one in migrations("sqlite", "workflow")]
    assert known[:2] == ["0001_runs", "0002_steps"]
    assert migrate("up").stdout == "".join(f"applied {name}\n" for name in known)
    assert migrate("up").stdout == "nothing to apply; the database is up to date\n"
    after = migrate("status", "--json")
    assert after.returncode == 0
    listed = json.loads(after.stdout)
    assert [f"{one['version']}_{one['name']}" for one in listed] == known
    assert listed[0]["applied"].startswith("20")

    refused = migrate("down", stdin="n\n")
    assert refused.returncode == 1
    assert "This drops tables together with their data" in refused.stdout
    assert migrate("status").returncode == 0
    for name in reversed(known):
        assert migrate("down", "--yes").stdout == f"took back {name}\n"
    assert migrate("down", "--yes").stdout == "nothing to take back\n"
    assert migrate("status").returncode == 1
    assert migrate("up").returncode == 0


# The rest.


def test_the_command_has_three_spellings(tmp_path: Path) -> None:
    bin_dir = Path(sys.executable).parent
    spoken = [COMMAND, [str(bin_dir / "simpleworkflow")], [str(bin_dir / "swf")]]
    helps = set()
    for command in spoken:
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=tmp_path, check=True)
        helps.add(done.stdout.replace("python -m simpleworkflow", "simpleworkflow").replace("swf", "simpleworkflow"))
    assert len(helps) == 1
    assert "worker" in helps.pop()
    version = run("--version", cwd=tmp_path)
    assert swf.__version__ in version.stdout


def test_asking_for_help_loads_no_database_driver(tmp_path: Path) -> None:
    code = """
import sys
sys.argv = ["simpleworkflow", "--help"]
from simpleworkflow.cli import main
from simpleworkflow.store.migrate import migrations
try:
    main()
except SystemExit:
    print(sorted({"asyncpg", "rich", "sqlalchemy", "psycopg", "pydantic"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
