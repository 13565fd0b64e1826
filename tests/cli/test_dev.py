"""`simpleworkflow dev`, as its user sees it: real processes, real changes of files, with and without a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import COMMAND, environment
from support.postgres import Server
from support.processes import is_alive
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.cli.dev.file_watcher import Watcher

MODULE = """
import asyncio, time
import simpleworkflow as swf
from helper import word

app = swf.App()

@swf.step()
async def first() -> None:
    print("first was here", flush=True)

@swf.step()
async def second() -> None:
    print("second begins", flush=True)
    await asyncio.sleep(SECONDS)

@app.workflow("dev.steps.v1")
async def steps(ctx: swf.Context) -> str:
    await ctx.step(first)
    await ctx.step(second)
    return word

@app.workflow("dev.word.v1")
async def say(ctx: swf.Context) -> str:
    return word

@app.workflow("dev.rude.v1", retry=swf.Retry(max_attempts=1))
async def rude(ctx: swf.Context) -> None:
    raise ValueError("\\x1b]0;stolen\\x07 [red]markup[/red]")

@app.workflow("dev.block.v1")
def block(ctx: swf.SyncContext) -> None:
    print("blocking", flush=True)
    time.sleep(600)
"""
PID = re.compile(r"worker dev@[0-9a-f]+\.(\d+)\.\S+ is ready")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "project"
    here.mkdir()
    write(here / "flows.py", MODULE.replace("SECONDS", "600"))
    write(here / "helper.py", "word = 'old'\n")
    return here


def write(path: Path, text: str) -> None:
    """As editors do: another file takes the place of the old one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@pytest.fixture
def bare_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind that nobody has migrated."""
    if backend == "sqlite":
        yield str(tmp_path / "bare.db")
        return
    server: Server = request.getfixturevalue("postgres")
    server.create_database("swf_dev")
    yield server.url("swf_dev")
    server.drop_database("swf_dev")


class Dev:
    """The command, and what it says."""

    def __init__(self, folder: Path, url: str, *options: str, target: str = "flows:app") -> None:
        self._out, self._err = folder.parent / "out", folder.parent / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [*COMMAND, "dev", target, *options]
            self.process = subprocess.Popen(command, cwd=folder, env=environment(url), stdout=out, stderr=err)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def workers(self) -> list[int]:
        """The pids of the workers so far, in order."""
        return [int(pid) for pid in PID.findall(self.err)]

    def until(self, met: Callable[[], object], what: str) -> None:
        def met_or_ended() -> bool:
            return bool(met()) or self.process.poll() is not None

        until(met_or_ended, what)
        assert met(), f"dev ended: {self.out}{self.err}"

    def ready(self, number: int = 1) -> Dev:
        self.until(lambda: len(self.workers) >= number, f"worker {number} is ready")
        return self

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def begin(url: str, *options: str, **more: str) -> Dev:
        started.append(Dev(folder, url, *options, **more))
        return started[-1]

    yield begin
    for dev in started:
        if dev.process.poll() is None:
            dev.process.kill()
        dev.process.wait()
        until(lambda dev=dev: not any(is_alive(pid) for pid in dev.workers), "the workers are gone")


@pytest.fixture
def app(bare_url: str) -> Iterator[swf.App]:
    opened = swf.App(bare_url)
    yield opened
    opened.sync.close()


def test_dev_migrates_works_and_tells_every_change_of_a_run(
    start: Callable[..., Dev], app: swf.App, bare_url: str
) -> None:
    dev = start(bare_url).ready()
    assert "applied 0001_runs" in dev.out
    handle = app.sync.trigger("dev.word.v1")
    assert handle.result(timeout="20s") == "old"
    dev.until(lambda: f"run {handle.id} (dev.word.v1) succeeded" in dev.out, "the end is told")
    stuck = app.sync.trigger("dev.steps.v1")
    dev.until(lambda: f"run {stuck.id} (dev.steps.v1) is running on dev@" in dev.out, "the explanation is told")
    assert dev.stop() == 0
    assert dev.out.count(f"run {handle.id}") == dev.out.count(f"run {handle.id} (dev.word.v1)") <= 3
    assert "Traceback" not in dev.out + dev.err
    assert not any(is_alive(pid) for pid in dev.workers)
    run = stuck.get()
    assert (run.status, run.attempt, run.crashes) == (swf.Status.PENDING, 0, 0), "handed back, nothing burned"


def test_a_change_hands_a_running_workflow_to_the_new_code(
    start: Callable[..., Dev], app: swf.App, bare_url: str, folder: Path
) -> None:
    dev = start(bare_url, "--drain", "100ms").ready()
    handle = app.sync.trigger("dev.steps.v1")
    dev.until(lambda: "second begins" in dev.err, "it is in the middle of its second step")
    write(folder / "helper.py", "word = 'new'\n")
    write(folder / "flows.py", MODULE.replace("SECONDS", "0"))
    assert handle.result(timeout="30s") == "new"
    run = handle.get()
    assert (run.attempt, run.crashes) == (0, 0)
    assert dev.err.count("first was here") == 1, "a finished step does not run again"
    assert "dev: changed: " in dev.out
    assert len(dev.workers) == 2, "several files saved together are one change"
    assert dev.stop() == 0


def test_code_that_cannot_be_loaded_is_shown_and_the_next_change_waited_for(
    start: Callable[..., Dev], app: swf.App, bare_url: str, folder: Path
) -> None:
    dev = start(bare_url).ready()
    write(folder / "helper.py", "word = (\n")
    dev.until(lambda: "dev waits for a change" in dev.out, "the mistake is told")
    assert re.search(r'File ".*helper.py", line 1\n.*\n.*\nSyntaxError: ', dev.err)
    assert "dev_child" not in dev.err
    assert "importlib" not in dev.err
    handle = app.sync.trigger("dev.word.v1")
    dev.until(lambda: f"run {handle.id}" in dev.out, "what waits for a worker is shown all the same")
    write(folder / "helper.py", "word = 1 / 0\n")
    dev.until(lambda: "ZeroDivisionError" in dev.err, "the next mistake is told")
    write(folder / "helper.py", "word = 'mended'\n")
    assert handle.result(timeout="30s") == "mended"
    assert dev.stop() == 0


def test_dev_that_begins_with_broken_code_waits_for_it_to_be_mended(
    start: Callable[..., Dev], tmp_path: Path, folder: Path
) -> None:
    write(folder / "helper.py", "word = (\n")
    dev = start(str(tmp_path / "dev.db"))
    dev.until(lambda: "dev waits for a change" in dev.out, "the mistake is told")
    write(folder / "helper.py", "word = 'mended'\n")
    dev.ready()
    assert dev.stop() == 0


def test_a_module_outside_the_folder_is_watched_too(
    start: Callable[..., Dev], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (folder / "helper.py").rename(library / "helper.py")
    monkeypatch.setenv("PYTHONPATH", str(library))
    dev = start(str(tmp_path / "dev.db")).ready()
    write(library / "helper.py", "word = 'another'\n")
    dev.ready(2)
    assert dev.stop() == 0


def test_the_worker_does_not_outlive_a_parent_that_was_killed(
    start: Callable[..., Dev], app: swf.App, bare_url: str
) -> None:
    dev = start(bare_url, "--drain", "100ms").ready()
    handle = app.sync.trigger("dev.steps.v1")
    dev.until(lambda: "second begins" in dev.err, "it is running")
    dev.process.kill()
    dev.process.wait()
    until(lambda: not any(is_alive(pid) for pid in dev.workers), "the worker is gone")
    run = handle.get()
    assert (run.status, run.crashes) == (swf.Status.PENDING, 0), "handed back"


def test_a_worker_that_was_killed_is_started_again(start: Callable[..., Dev], tmp_path: Path) -> None:
    dev = start(str(tmp_path / "dev.db")).ready()
    os.kill(dev.workers[0], signal.SIGKILL)
    dev.until(lambda: "the worker ended (killed by SIGKILL); the next one starts in 1 s" in dev.out, "it is told")
    dev.ready(2)
    assert dev.stop() == 0


def test_a_second_ctrl_c_does_not_wait_for_running_code(start: Callable[..., Dev], tmp_path: Path) -> None:
    url = str(tmp_path / "dev.db")
    dev = start(url, "--drain", "10m").ready()
    app = swf.App(url)
    handle = app.sync.trigger("dev.block.v1")
    dev.until(lambda: "blocking" in dev.err, "it is running")
    dev.process.send_signal(signal.SIGINT)
    dev.until(lambda: "stops; 1 run under way" in dev.err, "the first one arrived")
    assert dev.stop() == 0
    assert handle.get().status is swf.Status.PENDING
    app.sync.close()


def test_json_has_a_value_per_change_and_nothing_else(start: Callable[..., Dev], tmp_path: Path) -> None:
    url = str(tmp_path / "dev.db")
    dev = start(url, "--json").ready()
    app = swf.App(url)
    handle = app.sync.trigger("dev.rude.v1")
    dev.until(lambda: '"failed"' in dev.out, "the end is told")
    assert dev.stop() == 0
    told = [json.loads(line) for line in dev.out.splitlines()]
    assert {one["run"] for one in told} == {str(handle.id)}
    assert told[-1]["status"] == "failed"
    assert told[-1]["explain"].startswith(f"run {handle.id} (dev.rude.v1) failed")
    app.sync.close()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere:app", "there is no module 'nowhere'"),
        ("flows:nothing", "flows has no App called 'nothing'; it has app"),
        ("flows.py", "there is no module 'flows.py'"),
    ],
)
def test_a_wrong_target_ends_dev_with_2(start: Callable[..., Dev], tmp_path: Path, target: str, sentence: str) -> None:
    dev = start(str(tmp_path / "dev.db"), target=target)
    assert dev.process.wait(30) == 2
    assert sentence in dev.err
    assert "Traceback" not in dev.err


def test_a_database_in_memory_cannot_be_watched(start: Callable[..., Dev]) -> None:
    dev = start(":memory:")
    assert dev.process.wait(30) == 2
    assert "cannot look into its memory" in dev.err


def test_a_database_that_cannot_be_reached_is_told_and_waited_for(start: Callable[..., Dev]) -> None:
    dev = start("postgresql://u:c4n4ry@127.0.0.1:1/db")
    dev.until(lambda: "cannot be reached" in dev.out, "the trouble is told")
    assert dev.process.poll() is None
    assert dev.stop() == 0
    assert "c4n4ry" not in dev.out + dev.err
    assert "Traceback" not in dev.out + dev.err


# On a terminal.


class Terminal:
    """A terminal of 100 columns and what was written on it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.written = b""
        self._master, slave = pty.openpty()
        env = environment(url, TERM="xterm-256color", COLUMNS="100", LINES="30")
        self.process = subprocess.Popen(
            [*COMMAND, "dev", "flows:app"], cwd=folder, env=env, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 65536)
            except OSError:  # the other side is closed
                return
            if not chunk:
                return
            self.written += chunk

    @property
    def plain(self) -> str:
        """Without colours and movements, in one line."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.written.decode(errors="replace"))
        return " ".join(text.split())

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        os.close(self._master)


def test_on_a_terminal_every_run_has_a_line_that_lives(folder: Path, app: swf.App, bare_url: str) -> None:
    terminal = Terminal(folder, bare_url)
    try:
        until(lambda: "is ready" in terminal.plain, "the worker is ready")
        until(lambda: "no open runs; Ctrl-C ends this" in terminal.plain, "the table is there")
        handle = app.sync.trigger("dev.steps.v1")
        until(lambda: f"leased run {handle.id} (dev.steps.v1) is running" in terminal.plain, "the run has a line")
        rude = app.sync.trigger("dev.rude.v1")
        until(lambda: f"failed run {rude.id} (dev.rude.v1) failed" in terminal.plain, "so has its end")
        until(lambda: "[red]markup[/red]" in terminal.plain, "text from the database is not markup")
        until(lambda: "Traceback" in terminal.plain, "the error is shown as its author knows it")
        shown = terminal.plain.count("Traceback")
        terminal.press_ctrl_c()
        assert terminal.process.wait(30) == 0
    finally:
        terminal.close()
    assert b"\x1b]0;" not in terminal.written, "text from the database is no command to the terminal"
    assert b"\x1b[?25h" in terminal.written, "the cursor is given back"
    assert terminal.plain.count("Traceback") == shown, "Ctrl-C leaves none"
    assert handle.get().status is swf.Status.PENDING


# The watcher.


async def changed(watcher: Watcher) -> list[str]:
    return [Path(file).name for file in await asyncio.wait_for(watcher.changed(), 10)]


async def test_files_that_change_come_or_go_are_one_change(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name in ("a.py", "b.py", "package/c.py", "notes.txt"):
        (tmp_path / name).write_text("x = 1\n")
    watcher = Watcher(tmp_path)
    (tmp_path / "a.py").write_text("x = 22\n")
    (tmp_path / "b.py").unlink()
    (tmp_path / "package" / "d.py").write_text("")
    (tmp_path / "notes.txt").write_text("something else")
    assert await changed(watcher) == ["a.py", "b.py", "d.py"]
    (tmp_path / "package" / "c.py").write_text("x = 3\n")
    os.utime(tmp_path / "package" / "c.py", ns=(1, 1))
    assert await changed(watcher) == ["c.py"]


async def test_hidden_folders_and_virtual_environments_are_not_code(tmp_path: Path) -> None:
    for name in (".hidden", "node_modules", "__pycache__", "env", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    watcher = Watcher(tmp_path)
    for name in (".hidden", "node_modules", "__pycache__", "env", "code"):
        (tmp_path / name / "new.py").write_text("")
    assert await changed(watcher) == ["new.py"]
    assert watcher._before.keys() == {str(tmp_path / "code" / "new.py")}


async def test_imported_files_count_from_when_they_are_told_but_not_those_of_python(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere.py"
    folder.mkdir()
    elsewhere.write_text("")
    watcher = Watcher(folder)
    watcher.seen([str(elsewhere), os.path.realpath(asyncio.__file__), os.path.realpath(pytest.__file__)])
    assert watcher._before.keys() == {str(elsewhere)}
    elsewhere.write_text("x = 1\n")
    assert await changed(watcher) == ["elsewhere.py"]


async def test_a_watch_that_was_given_up_forgets_no_change(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    (tmp_path / "a.py").write_text("")
    waiting = asyncio.create_task(watcher.changed())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert await changed(watcher) == ["a.py"]
