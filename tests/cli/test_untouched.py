"""Commands of `migrate` that only look, or have nothing to take back, leave a database as they found it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from support.command import run
from support.postgres import Server

LOOKS = (["status"], ["status", "--json"], ["sql"], ["sql", "--down"], ["down", "--yes"])


def foreign_file(path: Path, journal: str = "delete") -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE letters (text)")
        connection.commit()
    return path.read_bytes()


@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, arguments: list[str]) -> None:
    done = run("migrate", *arguments, "--url", "none.db", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    if arguments == ["status"]:
        assert done.returncode == 1
        assert done.stdout.startswith("0001_runs  not applied\n")
    if arguments[0] == "down":
        assert (done.returncode, done.stdout) == (0, "nothing to take back\n")


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_the_file_of_another_program_stays_as_it_was(tmp_path: Path, arguments: list[str], journal: str) -> None:
    before = foreign_file(tmp_path / "letters.db", journal)
    done = run("migrate", *arguments, "--url", "letters.db", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "letters.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["letters.db"]


@pytest.fixture
def empty(postgres: Server) -> Iterator[str]:
    postgres.create_database("swf_untouched")
    yield postgres.url("swf_untouched")
    postgres.drop_database("swf_untouched")


def tables_of(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information)' AND nspname <> 'public'"
        tables = "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'workflow'"
        return [str(row[0]) for query in (schemas, tables) for row in connection.execute(query)]


@pytest.mark.parametrize("arguments", LOOKS, ids=" ".join)
def test_an_empty_postgresql_database_stays_empty(empty: str, tmp_path: Path, arguments: list[str]) -> None:
    done = run("migrate", *arguments, url=empty, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert tables_of(empty) == []
    if arguments[0] == "down":
        assert (done.returncode, done.stdout) == (0, "nothing to take back\n")


def test_reset_of_an_unmigrated_database_claims_nothing(empty: str, tmp_path: Path) -> None:
    done = run("migrate", "reset", "--yes", url=empty, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "took back" not in done.stdout
    assert "gone" not in done.stdout
    assert "applied 0001_runs" in done.stdout


def test_reset_of_an_incomplete_database_names_what_was_there(empty: str, tmp_path: Path) -> None:
    run("migrate", "up", url=empty, cwd=tmp_path)
    newest = run("migrate", "down", "--yes", url=empty, cwd=tmp_path).stdout.split()[-1]
    told = json.loads(run("migrate", "reset", "--yes", "--json", url=empty, cwd=tmp_path).stdout)
    assert newest not in told["taken_back"]
    assert newest in told["applied"]
    assert told["taken_back"][-1] == "0001_runs"


# A book of migrations that another program keeps under the same name.

OTHERS = {
    "dbmate": "CREATE TABLE {book} (version varchar(128) PRIMARY KEY)",
    "golang-migrate": "CREATE TABLE {book} (version bigint PRIMARY KEY, dirty boolean NOT NULL)",
}


@pytest.mark.parametrize("program", OTHERS)
def test_a_foreign_book_of_migrations_is_named_and_left_alone(
    backend: str, program: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if backend == "sqlite":
        url = str(tmp_path / "other.db")
        with closing(sqlite3.connect(url)) as connection:
            connection.execute(OTHERS[program].format(book="schema_migrations"))
        way_out = "use a file of its own"
    else:
        url = request.getfixturevalue("empty")
        with psycopg.connect(url) as postgres:
            postgres.execute("CREATE SCHEMA workflow")
            postgres.execute(OTHERS[program].format(book="workflow.schema_migrations"))  # type: ignore[arg-type]
        way_out = "use another schema (?schema=jobs) or another database"
    for command in (["up"], ["down", "--yes"]):
        done = run("migrate", *command, url=url, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        if backend == "sqlite" and command[0] == "down":
            assert (done.returncode, done.stdout) == (0, "nothing to take back\n")
            continue
        assert done.returncode == 1
        assert "a table schema_migrations that another program keeps" in done.stderr
        assert way_out in done.stderr
        assert "run: simpleworkflow migrate up" not in done.stderr
    if backend == "postgres":
        assert tables_of(url) == ["workflow", "schema_migrations", "schema_migrations_pkey"]
