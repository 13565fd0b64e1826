"""The doctor on healthy databases, on databases that cannot be used, and on work that does not move: one illness at a
time, each made for real. The illnesses of servers and files are in test_doctor_places.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from support.clinic import examined, limit, named, only, said, sick
from support.ledger import Raw
from support.old_runs import DAY, ended
from support.postgres import Server
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.client.doctor import examine as doctor
from simpleworkflow.client.doctor import file as doctor_file
from simpleworkflow.client.doctor.findings import Finding, Level
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.store.drivers import sqlite as sqlite_driver


@pytest.fixture
def app(well: str) -> Iterator[swf.App]:
    opened = swf.App(well)
    yield opened
    opened.sync.close()


@pytest.fixture
def raw(well: str) -> Iterator[Raw]:
    connection = Raw(well)
    yield connection
    connection.close()


# Healthy.


async def test_a_healthy_database_with_a_worker_has_no_problem(app: swf.App, backend: str) -> None:
    @app.workflow("well.work.v1")
    async def work(ctx: swf.Context) -> int:
        return 42

    async with app.worker(name="ada"):
        assert await app.run(work, timeout=20) == 42
        found = await app.doctor.examine()
    warned = ["version"] if backend == "sqlite" and doctor_file.judge_version(_sqlite()).level != "ok" else []
    assert [one.check for one in found if one.level in {Level.PROBLEM, Level.WARNING}] == warned
    (workers,) = named(found, "workers")
    assert "1 worker alive: ada on " in workers.seen
    checks = doctor.SERVER if backend == "postgres" else doctor.FILE
    assert [one.check for one in found] == ["database", "migrations", *checks, *doctor.TABLES]
    assert all(one.fix is None for one in found if one.level is Level.OK)


def _sqlite() -> str:
    return str(sqlite_driver.sqlite3.sqlite_version)


def test_an_examination_changes_nothing(app: swf.App, raw: Raw) -> None:
    app.sync.trigger("nobody.serves.v1")
    before = raw.everything()
    app.sync.doctor.examine()
    assert raw.everything() == before


def test_the_page_shows_the_numbers_of_this_version(app: swf.App, backend: str) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "doctor.md").read_text()
    found = app.sync.doctor.examine()
    assert f"✓ migrations          {named(found, 'migrations')[0].seen}\n" in page
    if backend == "postgres":
        assert f"✓ tables              {named(found, 'tables')[0].seen}\n" in page


# Not to be reached.


def test_a_missing_file_is_told_and_not_made(tmp_path: Path) -> None:
    app = swf.App(str(tmp_path / "no such.db"))
    (found,) = app.sync.doctor.examine()
    app.sync.close()
    assert (found.check, found.level) == ("database", Level.PROBLEM)
    assert "there is no file" in found.seen
    assert said(found).endswith(f"simpleworkflow migrate up --url '{tmp_path / 'no such.db'}'")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "poem.db").write_text("a rose is a rose is a rose " * 100)
    app = swf.App(str(tmp_path / "poem.db"))
    (found,) = app.sync.doctor.examine()
    app.sync.close()
    assert found.level is Level.PROBLEM
    assert "file is not a database" in found.seen


def test_a_server_that_is_not_there_is_told_with_the_way_to_look(
    sound_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, answer=0.5)
    (found,) = examined(sound_url.replace(str(urlsplit(sound_url).port), "1"))
    assert found.level is Level.PROBLEM
    assert "cannot be reached" in found.seen
    assert "pg_isready -h 127.0.0.1 -p 1" in said(found)


def test_a_missing_database_is_told_with_the_command_that_makes_it(sound: Server) -> None:
    (found,) = examined(sound.url("nowhere"))
    assert 'database "nowhere" does not exist' in found.seen
    assert said(found).endswith(f"createdb -h 127.0.0.1 -p {sound.port} -U postgres nowhere")


def test_a_wrong_password_is_told_without_showing_it(sound: Server, sound_url: str) -> None:
    hba = sound.data_dir / "pg_hba.conf"
    before = hba.read_text()
    with psycopg.connect(sound_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        hba.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + before)
        connection.execute("SELECT pg_reload_conf()")
        try:
            wrong = sound_url.replace("postgres@", "locked:s3cret@")
            (found,) = until(lambda: [f for f in examined(wrong) if f.level is Level.PROBLEM], "the rules are read")
        finally:
            hba.write_text(before)
            connection.execute("DROP ROLE locked")
            connection.execute("SELECT pg_reload_conf()")
    assert "password authentication failed" in found.seen
    assert "pg_hba.conf" in said(found)
    assert "s3cret" not in repr(found)


async def test_a_missing_driver_is_a_finding_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from simpleworkflow.store.drivers import postgres

    monkeypatch.setattr(postgres, "asyncpg", None)
    (found,) = await swf.App("postgresql://u@h/d").doctor.examine()
    assert found.level is Level.PROBLEM
    assert found.fix == "pip install '/path/to/simpleworkflow[postgres]'"


def test_a_database_that_takes_no_writes_is_a_problem(sound_url: str, raw_sound: Raw) -> None:
    name = urlsplit(sound_url).path[1:]
    raw_sound.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    (found,) = examined(sound_url)
    assert (found.check, found.level) == ("database", Level.PROBLEM)
    raw_sound.sql("SET default_transaction_read_only = off")
    raw_sound.sql(said(found).partition(", or")[0])
    assert examined(sound_url)[0].level is Level.OK


# Migrations.


def test_a_missing_migration_is_told_with_its_command_and_is_not_applied(app: swf.App, raw: Raw, well: str) -> None:
    (newest,) = app.sync.migrations.down(1)
    for _ in range(2):
        found = app.sync.doctor.examine()
        (told,) = named(found, "migrations")
        assert told.level is (Level.WARNING if raw.is_sqlite else Level.PROBLEM)
        assert re.search(rf"1 of \d+ are not applied \({newest}\)", told.seen)
        assert told.fix == f"simpleworkflow migrate up --url {well}"
        assert not named(found, "overdue-runs"), "runs are not judged on tables that may not be there"


def test_migrations_of_a_newer_version_are_a_warning(app: swf.App, raw: Raw) -> None:
    raw.sql("INSERT INTO workflow.schema_migrations (version, checksum, applied_at) VALUES ('9999', 'x', 'then')")
    told = only(app, "migrations")
    assert told.level is Level.WARNING
    assert "9999" in told.seen
    assert said(told) == "pip install --upgrade /path/to/simpleworkflow, a checkout of the newer version"


def test_a_migration_with_another_text_is_a_problem(app: swf.App, raw: Raw) -> None:
    raw.sql("UPDATE workflow.schema_migrations SET checksum = 'other' WHERE version = '0001'")
    told = only(app, "migrations")
    assert told.level is Level.PROBLEM
    assert "0001_runs was applied with another text" in told.seen


# The work.


def announce(raw: Raw, name: str, seen_ago: float = 0.0) -> None:
    raw.sql(
        "INSERT INTO workflow.workflow_worker (id, name, host, pid, spans, started_at, seen_at) "
        f"VALUES (?, ?, 'host-1', 7, '[[\"served.\", \"served/\"]]', {raw.now}, {raw.now} {raw.back(seen_ago)})",
        f"{name}@0", name,
    )  # fmt: skip


def test_due_runs_that_no_live_worker_serves_are_a_problem_that_names_who_lives(app: swf.App, raw: Raw) -> None:
    announce(raw, "ada")
    app.sync.trigger_many("orders.ship.v1", [1, 2, 3])
    app.sync.trigger("served.well.v1")
    found = app.sync.doctor.examine()
    (told,) = named(found, "unserved-types")
    assert sick(found) == ["unserved-types"]
    assert told.subject == "orders.ship.v1"
    assert "no live worker serves orders.ship.v1: 3 runs due for up to" in told.seen
    assert told.seen.endswith("(alive: ada)")
    assert "simpleworkflow worker MODULE:APP --url " in said(told)


def test_many_due_runs_are_counted_no_further_than_needed(
    app: swf.App, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, counted=5)
    app.sync.trigger_many("orders.ship.v1", range(20))
    assert "5 or more runs due" in only(app, "unserved-types").seen


def test_many_types_without_a_worker_share_one_last_finding(app: swf.App, raw: Raw) -> None:
    for number in range(30):
        app.sync.trigger(f"orders.t{number:02}.v1")
    found = named(app.sync.doctor.examine(), "unserved-types")
    assert [one.subject for one in found] == [f"orders.t{number:02}.v1" for number in range(10)] + [None]
    assert found[-1].level is Level.PROBLEM
    assert found[-1].seen.startswith("the same for orders.t10.v1, ")
    assert found[-1].seen.endswith("orders.t19.v1 and 10 more")


def test_due_runs_of_a_disabled_type_are_a_note(app: swf.App, raw: Raw) -> None:
    app.sync.trigger("orders.ship.v1")
    app.sync.definitions.disable("orders.ship.v1")
    told = only(app, "unserved-types")
    assert told.level is Level.NOTE
    assert "orders.ship.v1 is disabled: 1 run due" in told.seen


def test_runs_that_are_due_for_long_though_a_worker_serves_them_are_a_warning(app: swf.App, raw: Raw) -> None:
    announce(raw, "ada")
    handle = app.sync.trigger("served.late.v1")
    raw.age(handle.id, 20, "run_at")
    assert only(app, "overdue-runs").level is Level.OK
    raw.age(handle.id, 300, "run_at")
    told = only(app, "overdue-runs")
    assert (told.level, told.subject) == (Level.WARNING, "served.late.v1")
    assert "1 run of served.late.v1 due for up to 5m" in told.seen
    assert "although ada serves it" in told.seen
    assert f"simpleworkflow explain {handle.id} --url " in said(told)


async def lease_one(raw: Raw, app: swf.App) -> None:
    handle = await app.trigger("served.lost.v1")
    raw.sql(
        "UPDATE workflow.workflow_run SET status = 'leased', version = version + 1, lease_epoch = 1, "
        f"leased_by = 'bob@1.2.3', lease_until = {raw.now} {raw.back(100)}, "
        f"deadline_at = {raw.now} {raw.back(200)} WHERE id = ?",
        handle.id,
    )


@pytest.mark.parametrize(("is_somebody_there", "level"), [(False, Level.PROBLEM), (True, Level.WARNING)])
async def test_leases_and_deadlines_that_no_sweep_has_seen_are_told(
    app: swf.App, raw: Raw, is_somebody_there: bool, level: Level
) -> None:
    await lease_one(raw, app)
    if is_somebody_there:
        announce(raw, "ada")
    found = await app.doctor.examine()
    (lease,), (deadline,) = named(found, "expired-leases"), named(found, "deadlines")
    assert (lease.level, deadline.level) == (level, level)
    assert "1 lease of bob ran out, the oldest 1m 4" in lease.seen
    assert "1 open run should have timed out, the oldest 3m 2" in deadline.seen
    assert ("start a worker" in said(lease)) is not is_somebody_there


def test_held_and_crashed_runs_are_notes_with_their_numbers(app: swf.App, raw: Raw) -> None:
    held, crashed = app.sync.trigger("a.held.v1"), app.sync.trigger("a.crashed.v1")
    app.sync.hold(held.id, reason="look first")
    raw.put(crashed.id, crashes=2)
    told = only(app, "held-runs")
    assert told.level is Level.NOTE
    assert told.seen.startswith("1 run held by an operator")
    told = only(app, "crashed-runs")
    assert told.level is Level.NOTE
    assert "a.crashed.v1 (1)" in told.seen


@pytest.mark.parametrize(("seconds", "level"), [(100, Level.WARNING), (7300, Level.NOTE)])
def test_workers_that_went_without_a_goodbye_are_named(app: swf.App, raw: Raw, seconds: float, level: Level) -> None:
    announce(raw, "carol", seen_ago=seconds)
    told = only(app, "silent-workers")
    assert told.level is level
    assert "1 worker stopped being seen without a goodbye: carol on host-1 (pid 7, " in told.seen


def test_the_size_is_told_with_the_number_of_runs(app: swf.App, raw: Raw, backend: str) -> None:
    app.sync.trigger_many("a.b.v1", range(30))
    if backend == "postgres":
        raw.sql("ANALYZE workflow.workflow_run")
    told = only(app, "size")
    assert told.level is Level.NOTE
    assert ("about 30 runs, about 0 of them finished" if backend == "postgres" else "up to 30 rows in") in told.seen


# Checks that cannot be made.


def test_a_role_that_may_not_look_gets_notes_and_the_grant_that_helps(sound_url: str, raw_sound: Raw) -> None:
    raw_sound.sql("CREATE ROLE small LOGIN")
    raw_sound.sql("GRANT USAGE ON SCHEMA workflow TO small")
    raw_sound.sql("GRANT SELECT ON ALL TABLES IN SCHEMA workflow TO small")
    raw_sound.sql("REVOKE SELECT ON workflow.workflow_worker FROM small")
    try:
        found = examined(sound_url.replace("postgres@", "small@"))
    finally:
        raw_sound.sql("DROP OWNED BY small")
        raw_sound.sql("DROP ROLE small")
    assert sick(found) == ["privileges"]
    (workers,) = named(found, "workers")
    assert workers.level is Level.NOTE
    assert workers.seen.startswith("could not be checked: ")
    assert "permission denied for table workflow_worker" in workers.seen
    assert "workflow.workflow_worker TO small" in said(workers)
    assert "pg_monitor" not in said(workers)
    hidden = named(found, "snapshots")[0]
    assert "of other roles cannot be looked at" in hidden.seen
    assert hidden.fix == "as a superuser: GRANT pg_monitor TO small"
    assert named(found, "expired-leases")[0].level is Level.OK


def test_a_role_that_may_not_read_our_tables_has_a_problem(sound_url: str, raw_sound: Raw) -> None:
    raw_sound.sql("CREATE ROLE stranger LOGIN")
    try:
        found = examined(sound_url.replace("postgres@", "stranger@"))
    finally:
        raw_sound.sql("DROP ROLE stranger")
    (told,) = named(found, "migrations")
    assert told.level is Level.PROBLEM
    assert "permission denied" in told.seen
    assert "privileges" in said(told)
    assert "GRANT USAGE ON SCHEMA workflow TO stranger; " in said(named(found, "privileges")[0])


def test_a_check_that_fails_is_a_note_and_the_others_are_made(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: object) -> list[Finding]:
        raise RuntimeError("oh no, postgresql://me:s3cret@host/db")

    monkeypatch.setitem(doctor.TABLES, "held-runs", broken)
    found = app.sync.doctor.examine()
    (told,) = named(found, "held-runs")
    assert told.level is Level.NOTE
    assert told.seen == "could not be checked: RuntimeError: oh no, postgresql://me:***@host/db"
    assert found[-1].check == "size"


def test_a_database_that_goes_away_meanwhile_ends_the_examination(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: object) -> list[Finding]:
        raise StoreUnavailable("the wire was cut")

    monkeypatch.setitem(doctor.TABLES, "held-runs", gone)
    found = app.sync.doctor.examine()
    assert (found[-1].check, found[-1].level) == ("database", Level.PROBLEM)
    assert "it stopped answering: the wire was cut" in found[-1].seen


# Retention.


def finished(raw: Raw, count: int) -> None:
    for n in range(count):
        ended(raw, 40 * DAY + n)
    if not raw.is_sqlite:
        raw.sql("ANALYZE workflow.workflow_run")


def test_many_finished_runs_without_pruning_get_the_command_that_helps(
    app: swf.App, raw: Raw, well: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(raw, 20)
    assert only(app, "size").fix is None
    limit(monkeypatch, finished_runs=20)
    told = only(app, "size")
    assert "pruning is off" in told.seen
    assert told.level is Level.NOTE
    assert f"simpleworkflow prune --older-than '30 days' --dry-run --url {well}" in said(told)


def test_workers_that_prune_are_told_of_with_their_last_pass(
    app: swf.App, raw: Raw, well: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, finished_runs=5)
    finished(raw, 20)
    app.sync.trigger("test.last.v1")  # heard of last: on SQLite its number is needed
    keeping = swf.App(well, keep=[swf.Retention("*", "30 days")])
    with keeping.sync.worker():
        until(lambda: "removed 20 runs" in only(app, "size").seen, "the first pass is over")
    told = only(app, "size")
    assert "workers prune: the last pass ended" in told.seen
    assert told.fix is None
    keeping.sync.close()


def test_pruning_that_nobody_goes_on_with_is_told_to_have_stopped(app: swf.App, raw: Raw, well: str) -> None:
    """Its row stays when the last worker with a policy is gone, and the tables grow from then on."""
    raw.sql(
        "INSERT INTO workflow.workflow_pruning (policy, held_until, started_at, finished_at, last_removed) "
        f"VALUES ('p', {raw.now} {raw.back(3500)}, {raw.now} {raw.back(3900)}, {raw.now} {raw.back(3800)}, 7)"
    )
    assert "workers prune: the last pass ended" in only(app, "size").seen
    raw.sql(f"UPDATE workflow.workflow_pruning SET held_until = held_until {raw.back(20 * DAY)}")
    told = only(app, "size")
    assert "pruning has stopped: the last pass ended" in told.seen
    assert "no worker has gone on for 20d" in told.seen
    assert "keep=" in (told.fix or "")
    raw.sql("UPDATE workflow.workflow_pruning SET finished_at = NULL")
    assert "the first pass was never finished" in only(app, "size").seen
