"""`simpleworkflow migrate`: as JSON, made anew, as files, and as SQL that a person applies by hand."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.command import run
from support.postgres import Server

import simpleworkflow as swf
from simpleworkflow.store import migrate as store_migrate

NAMES = [f"{one.version}_{one.name}" for one in store_migrate.migrations("sqlite", "workflow")]
NEWEST = NAMES[-1]


@pytest.fixture
def bare_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind that nobody has migrated."""
    if backend == "sqlite":
        yield str(tmp_path / "bare.db")
        return
    server: Server = request.getfixturevalue("postgres")
    server.create_database("swf_by_hand")
    yield server.url("swf_by_hand")
    server.drop_database("swf_by_hand")


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


def apply(url: str, text: str) -> None:
    """As a database administrator does, with other tools than ours."""
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(text)
    else:
        with closing(sqlite3.connect(url)) as connection:
            connection.executescript(text)


def migrate(*arguments: str, url: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    done = run("migrate", *arguments, url=url, cwd=cwd, stdin=stdin)
    assert "Traceback" not in done.stderr
    return done


def told(done: subprocess.CompletedProcess[str]) -> Any:
    (line,) = done.stdout.splitlines()
    return json.loads(line)


# up, down, status


def test_every_command_speaks_json(bare_url: str, tmp_path: Path) -> None:
    assert told(migrate("up", "--json", url=bare_url, cwd=tmp_path)) == {"applied": NAMES}
    assert told(migrate("up", "--json", url=bare_url, cwd=tmp_path)) == {"applied": []}
    assert [one["is_changed"] for one in told(migrate("status", "--json", url=bare_url, cwd=tmp_path))] == [
        False
    ] * len(NAMES)
    refused = migrate("down", "--json", url=bare_url, cwd=tmp_path, stdin="n\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    down = migrate("down", "--json", "--yes", "--count", "99", url=bare_url, cwd=tmp_path)
    assert told(down) == {"taken_back": NAMES[::-1]}


def test_a_migration_that_was_applied_with_another_text_shows_in_the_status(bare_url: str, tmp_path: Path) -> None:
    migrate("up", url=bare_url, cwd=tmp_path)
    book = "workflow.schema_migrations" if bare_url.startswith("postgresql") else "schema_migrations"
    apply(bare_url, f"UPDATE {book} SET checksum = 'other' WHERE version = '{NEWEST[:4]}'")
    status = migrate("status", url=bare_url, cwd=tmp_path)
    assert status.returncode == 1
    assert status.stdout.splitlines()[-1].endswith(", with another text: by a different build")
    for refused in (migrate("up", url=bare_url, cwd=tmp_path), migrate("sql", url=bare_url, cwd=tmp_path)):
        assert refused.returncode == 1
        assert f"{NEWEST} was applied with another text" in refused.stderr


def test_migrations_of_a_newer_version_are_not_pulled_away_from_under_it(bare_url: str, tmp_path: Path) -> None:
    migrate("up", url=bare_url, cwd=tmp_path)
    book = "workflow.schema_migrations" if bare_url.startswith("postgresql") else "schema_migrations"
    apply(bare_url, f"INSERT INTO {book} VALUES ('9999', 'x', 'today')")
    for command in ("down", "reset"):
        refused = migrate(command, "--yes", url=bare_url, cwd=tmp_path)
        assert refused.returncode == 1
        assert "migrations that this version of simpleworkflow does not know (9999)" in refused.stderr
    assert migrate("status", url=bare_url, cwd=tmp_path).returncode == 0


# reset


def test_reset_makes_an_empty_database_and_says_what_is_lost(app: swf.App, url: str, tmp_path: Path) -> None:
    for _ in range(2):
        app.sync.cancel(app.sync.trigger("orders.ship.v1").id)
    asked = migrate("reset", url=url, cwd=tmp_path, stdin="n\n")
    assert asked.returncode == 1
    assert "This deletes 2 runs with their records" in asked.stdout
    assert len(list(app.sync.runs())) == 2

    done = migrate("reset", url=url, cwd=tmp_path, stdin="y\n")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.partition("[y/N]: ")[2].splitlines()
    assert lines == [
        *(f"took back {name}" for name in NAMES[::-1]),
        *(f"applied {name}" for name in NAMES),
        "gone: 2 runs with their records",
    ]
    assert list(app.sync.runs()) == []
    assert migrate("status", url=url, cwd=tmp_path).returncode == 0
    assert told(migrate("reset", "--yes", "--json", url=url, cwd=tmp_path))["lost_runs"] == 0


def test_reset_refuses_while_a_run_is_open_or_a_worker_alive(app: swf.App, url: str, tmp_path: Path) -> None:
    handle = app.sync.trigger("orders.ship.v1")
    refused = migrate("reset", "--yes", url=url, cwd=tmp_path)
    assert refused.returncode == 1
    assert "runs are open (1 pending); nothing was changed" in refused.stderr
    app.sync.cancel(handle.id)
    with app.sync.worker(name="busy"):
        refused = migrate("reset", "--yes", url=url, cwd=tmp_path)
        assert "workers are alive (busy)" in refused.stderr
    assert handle.get().status is swf.Status.CANCELLED

    app.sync.trigger("orders.ship.v1")
    forced = migrate("reset", "--yes", "--force", "--json", url=url, cwd=tmp_path)
    assert told(forced) == {"lost_runs": 2, "taken_back": NAMES[::-1], "applied": NAMES}


def test_reset_of_an_incomplete_database_completes_it(bare_url: str, tmp_path: Path) -> None:
    migrate("up", url=bare_url, cwd=tmp_path)
    migrate("down", "--yes", url=bare_url, cwd=tmp_path)
    assert migrate("reset", "--yes", url=bare_url, cwd=tmp_path).returncode == 0
    assert migrate("status", url=bare_url, cwd=tmp_path).returncode == 0


def test_reset_of_a_file_that_does_not_exist_makes_none(tmp_path: Path) -> None:
    refused = migrate("reset", "--yes", url="nothing.db", cwd=tmp_path)
    assert refused.returncode == 1
    assert "there is no database at nothing.db" in refused.stderr
    assert list(tmp_path.iterdir()) == []


# sql


def test_the_printed_sql_applied_by_hand_leaves_a_clean_status(bare_url: str, tmp_path: Path) -> None:
    printed = migrate("sql", url=bare_url, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("-- simpleworkflow migrate up")
    assert not Path(bare_url).exists(), "asking must not make the file"
    apply(bare_url, printed.stdout)

    status = migrate("status", "--json", url=bare_url, cwd=tmp_path)
    assert status.returncode == 0
    assert all(one["applied"].endswith("+00:00") for one in told(status))
    assert migrate("up", url=bare_url, cwd=tmp_path).stdout == "nothing to apply; the database is up to date\n"
    assert migrate("sql", url=bare_url, cwd=tmp_path).stdout == "-- nothing to apply\n"
    with_worker(bare_url)


def with_worker(url: str) -> None:
    """Tables that a run can live in."""
    app = swf.App(url)

    @app.workflow("hand.made.v1")
    async def made(ctx: swf.Context) -> int:
        return await ctx.step(len, "four")

    with app.sync.worker():
        assert app.sync.run(made, timeout="20s") == 4
    app.sync.close()


def test_only_what_is_missing_is_printed_and_can_be_taken_back_by_hand(bare_url: str, tmp_path: Path) -> None:
    migrate("up", url=bare_url, cwd=tmp_path)
    down = told(migrate("sql", "--down", "--json", url=bare_url, cwd=tmp_path))
    assert (down["migrations"], down["down"]) == ([NEWEST], True)
    apply(bare_url, down["sql"])
    status = told(migrate("status", "--json", url=bare_url, cwd=tmp_path))
    assert [one["applied"] is None for one in status][-2:] == [False, True]
    up = told(migrate("sql", "--json", url=bare_url, cwd=tmp_path))
    assert up["migrations"] == [NEWEST]
    assert "CREATE TABLE workflow_run" not in up["sql"].replace("workflow.", "")
    apply(bare_url, up["sql"])
    assert migrate("status", url=bare_url, cwd=tmp_path).returncode == 0
    apply(bare_url, migrate("sql", "--down", "--count", "9", url=bare_url, cwd=tmp_path).stdout)
    assert migrate("sql", "--down", url=bare_url, cwd=tmp_path).stdout == "-- nothing to take back\n"


def test_a_script_that_fails_half_way_leaves_nothing(bare_url: str, tmp_path: Path) -> None:
    text = migrate("sql", url=bare_url, cwd=tmp_path).stdout
    broken = text.replace("COMMIT;", "SELECT * FROM nowhere;\nCOMMIT;")
    with pytest.raises((psycopg.Error, sqlite3.Error), match="nowhere"):
        apply(bare_url, broken)
    assert {one["applied"] for one in told(migrate("status", "--json", url=bare_url, cwd=tmp_path))} == {None}


def test_sql_of_a_dialect_asks_no_database(postgres: Server, tmp_path: Path) -> None:
    unreachable = "postgresql://u@127.0.0.1:1/db"
    for spelled in ("postgres", "postgresql"):
        text = migrate("sql", "--dialect", spelled, "--schema", "jobs", url=unreachable, cwd=tmp_path).stdout
        assert "CREATE TABLE jobs.workflow_run" in text
        assert "workflow.workflow_run" not in text
    postgres.create_database("swf_jobs")
    apply(postgres.url("swf_jobs"), text)
    assert migrate("status", url=postgres.url("swf_jobs") + "?schema=jobs", cwd=tmp_path).returncode == 0
    postgres.drop_database("swf_jobs")
    assert told(migrate("sql", "--dialect", "sqlite", "--down", "--json", url=unreachable, cwd=tmp_path))[
        "migrations"
    ] == [NEWEST]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--dialect", "sqlite", "--url", "a.db"], 2, "--url asks a database, --dialect asks none"),
        (["--schema", "jobs"], 2, "--schema goes with --dialect"),
        (["--dialect", "postgres", "--schema", "a b"], 2, "schema 'a b' must be lower-case"),
        (["--dialect", "oracle"], 2, "'oracle' is not one of"),
    ],
)
def test_sql_called_wrongly_is_one_sentence(tmp_path: Path, arguments: list[str], code: int, sentence: str) -> None:
    done = run("migrate", "sql", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert sentence in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


# create


def test_create_writes_a_pair_with_the_next_number(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    (folder / "postgres").mkdir(parents=True)
    (folder / "postgres" / "0041_alone.sql").write_text("")
    done = run("migrate", "create", "add_due_index", "--dir", "migrations", cwd=tmp_path)
    names = [f"migrations/{dialect}/0042_add_due_index.sql" for dialect in ("postgres", "sqlite")]
    assert done.stdout.splitlines() == [f"wrote {name}" for name in names]
    for name in names:
        up, down = store_migrate._sections((tmp_path / name).read_text(), name)
        assert up == down == ""
    told_next = told(run("migrate", "create", "more", "--dir", "migrations", "--json", cwd=tmp_path))
    assert told_next["files"] == ["migrations/postgres/0043_more.sql", "migrations/sqlite/0043_more.sql"]


@pytest.mark.parametrize("name", ["", "Add_Index", "add index", "../escape", "1st", "a-b", "x" * 61, "naïve"])
def test_create_refuses_names_that_make_bad_files(tmp_path: Path, name: str) -> None:
    done = run("migrate", "create", "--dir", "here", "--", name, cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be the name of a migration" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_create_refuses_a_name_that_exists_and_a_folder_that_cannot_be(tmp_path: Path) -> None:
    run("migrate", "create", "steps", "--dir", "here", cwd=tmp_path)
    again = run("migrate", "create", "steps", "--dir", "here", cwd=tmp_path)
    assert (again.returncode, "0001_steps.sql" in again.stderr) == (1, True)
    (tmp_path / "file").write_text("")
    blocked = run("migrate", "create", "more", "--dir", "file/below", cwd=tmp_path)
    assert blocked.returncode == 1
    assert "could not be written" in blocked.stderr
