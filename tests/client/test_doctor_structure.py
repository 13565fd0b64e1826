"""The doctor on databases whose book of migrations says one thing and whose tables say another, on roles that may not
do what an App does, and on workers that look alive and are not. Fixes that are statements are executed as they stand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clinic import examined, limit, named, only, said, sick
from support.ledger import Raw

import simpleworkflow as swf
from simpleworkflow.client.doctor import examine as doctor
from simpleworkflow.client.doctor.findings import Level

ROLE = "small"


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


# What the migrations should have left.


@pytest.mark.parametrize("table", ["workflow_run", "workflow_worker", "outbox_event", "workflow_schedule"])
def test_a_missing_table_is_a_problem_and_what_needs_it_says_so(app: swf.App, raw: Raw, table: str) -> None:
    raw.sql(f"DROP TABLE workflow.{table}" + ("" if raw.is_sqlite else " CASCADE"))
    found = app.sync.doctor.examine()
    (told,) = named(found, "tables")
    assert told.level is Level.PROBLEM
    assert f"1 table is missing: {table}" in told.seen
    assert "backup" in said(told)
    unmade = [one for one in found if one.seen.startswith("could not be checked")]
    assert unmade
    assert {one.seen for one in unmade} == {f"could not be checked: {table} is missing"}
    assert not any("migrate up" in f"{one.seen} {one.fix}" for one in found)
    assert [one.check for one in found][-1] == "size"
    assert {one.check for one in found} == {"database", "migrations", *checks(raw), *doctor.TABLES}


def checks(raw: Raw) -> dict[str, doctor.Check]:
    return doctor.FILE if raw.is_sqlite else doctor.SERVER


def test_all_tables_missing_is_one_finding_that_names_them(app: swf.App, raw: Raw) -> None:
    for table in ("workflow_run", "workflow_event", "workflow_step", "workflow_signal"):
        raw.sql(f"DROP TABLE workflow.{table}" + ("" if raw.is_sqlite else " CASCADE"))
    told = only(app, "tables")
    assert told.seen == "4 tables are missing: workflow_run, workflow_event, workflow_step, workflow_signal"


def test_a_missing_index_trigger_or_view_is_a_problem_whose_statement_mends_it(app: swf.App, raw: Raw) -> None:
    raw.sql("DROP INDEX workflow.workflow_run_ready")
    raw.sql("DROP TRIGGER run_created" + ("" if raw.is_sqlite else " ON workflow.workflow_run"))
    raw.sql("DROP VIEW workflow.workflow_history")
    found = named(app.sync.doctor.examine(), "tables")
    assert [(one.level, one.subject) for one in found] == [
        (Level.PROBLEM, "workflow_run_ready"),
        (Level.PROBLEM, "run_created"),
        (Level.PROBLEM, "workflow_history"),
    ]
    assert [one.seen.partition(":")[0] for one in found] == [
        "index workflow_run_ready of workflow_run is missing",
        "trigger run_created of workflow_run is missing",
        "view workflow_history is missing",
    ]
    for one in found:
        raw.connection.execute(said(one))
    assert only(app, "tables").level is Level.OK


def test_a_book_that_was_lost_is_not_answered_with_a_command_that_would_fail(app: swf.App, raw: Raw) -> None:
    raw.sql("DROP TABLE workflow.schema_migrations")
    told = only(app, "migrations")
    assert told.level is Level.PROBLEM
    assert "schema_migrations" in told.seen
    assert "backup" in said(told)
    assert "migrate up" not in said(told)


def test_the_book_of_another_program_is_told_as_such(app: swf.App, raw: Raw) -> None:
    raw.sql("ALTER TABLE workflow.schema_migrations RENAME COLUMN checksum TO other")
    found = app.sync.doctor.examine()
    (told,) = named(found, "migrations")
    assert told.level is Level.PROBLEM
    assert "another program keeps" in told.seen
    assert not any("migrate up" in str(one.fix) for one in found)


def test_an_index_that_a_failed_build_left_invalid_is_a_problem_and_its_fix_works(
    sound_url: str, raw_sound: Raw
) -> None:
    raw_sound.sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'workflow.workflow_run_ready'::regclass")
    (told,) = named(examined(sound_url), "tables")
    assert (told.level, told.subject) == (Level.PROBLEM, "workflow_run_ready")
    assert "is invalid" in told.seen
    raw_sound.sql(said(told))
    assert named(examined(sound_url), "tables")[0].level is Level.OK


def test_what_is_left_of_a_broken_rebuild_of_an_index_is_dropped(sound_url: str, raw_sound: Raw) -> None:
    raw_sound.sql("CREATE INDEX workflow_run_ready_ccnew ON workflow.workflow_run (type)")
    raw_sound.sql(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'workflow.workflow_run_ready_ccnew'::regclass"
    )
    (told,) = named(examined(sound_url), "tables")
    assert said(told) == "DROP INDEX workflow.workflow_run_ready_ccnew"


def test_a_disabled_trigger_is_a_problem_and_its_fix_works(sound_url: str, raw_sound: Raw) -> None:
    raw_sound.sql("ALTER TABLE workflow.workflow_run DISABLE TRIGGER run_ended")
    (told,) = named(examined(sound_url), "tables")
    assert (told.level, told.subject) == (Level.PROBLEM, "run_ended")
    assert "is disabled" in told.seen
    raw_sound.sql(said(told))
    assert named(examined(sound_url), "tables")[0].level is Level.OK


def test_the_trigger_of_the_outbox_may_sleep_until_there_is_a_rule(sound_url: str, raw_sound: Raw) -> None:
    assert named(examined(sound_url), "tables")[0].level is Level.OK
    raw_sound.sql("INSERT INTO workflow.outbox_rule (event_type, low, high) VALUES ('failed', 'a', 'b')")
    assert named(examined(sound_url), "tables")[0].level is Level.OK
    raw_sound.sql("ALTER TABLE workflow.workflow_event DISABLE TRIGGER event_to_outbox")
    (told,) = named(examined(sound_url), "tables")
    assert (told.level, told.subject) == (Level.PROBLEM, "event_to_outbox")
    raw_sound.sql(said(told))
    assert named(examined(sound_url), "tables")[0].level is Level.OK


def test_tables_of_a_newer_version_are_not_judged_by_an_older_one(app: swf.App, raw: Raw) -> None:
    raw.sql("INSERT INTO workflow.schema_migrations (version, checksum, applied_at) VALUES ('9999', 'x', 'then')")
    raw.sql("DROP INDEX workflow.workflow_run_parent")
    assert only(app, "tables").level is Level.NOTE


# What the role may do.


@pytest.fixture
def small(raw_sound: Raw) -> Iterator[Raw]:
    raw_sound.sql(f"CREATE ROLE {ROLE} LOGIN")
    yield raw_sound
    raw_sound.sql(f"DROP OWNED BY {ROLE}")
    raw_sound.sql(f"DROP ROLE {ROLE}")


def obey(raw: Raw, fix: str) -> None:
    for one in fix.partition(": ")[2].split("; "):
        raw.sql(one)


def test_a_role_without_any_right_gets_statements_that_are_enough_to_work(sound_url: str, small: Raw) -> None:
    url = sound_url.replace("postgres@", f"{ROLE}@")
    found = examined(url)
    assert sick(found) == ["migrations", "privileges"]
    (told,) = named(found, "privileges")
    assert f"role {ROLE} lacks" in told.seen
    assert f"GRANT USAGE ON SCHEMA workflow TO {ROLE}" in said(told)
    obey(small, said(told))
    found = examined(url)
    assert sick(found) == []
    assert named(found, "privileges")[0].level is Level.OK
    app = swf.App(url)
    app.sync.trigger("small.work.v1")
    app.sync.close()


def test_a_role_that_may_only_read_has_a_problem_with_the_rest_named(sound_url: str, small: Raw) -> None:
    small.sql(f"GRANT USAGE ON SCHEMA workflow TO {ROLE}")
    small.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA workflow TO {ROLE}")
    small.sql(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA workflow TO {ROLE}")
    (told,) = named(examined(sound_url.replace("postgres@", f"{ROLE}@")), "privileges")
    assert told.level is Level.PROBLEM
    assert "lacks INSERT, UPDATE, DELETE on outbox_dispatcher, " in told.seen
    assert "SELECT" not in said(told)
    assert "schema_migrations" not in said(told)
    assert "SEQUENCE" not in said(told)


def test_one_missing_right_is_named_and_the_check_that_needs_it_names_the_same_grant(
    sound_url: str, small: Raw
) -> None:
    url = sound_url.replace("postgres@", f"{ROLE}@")
    obey(small, said(named(examined(url), "privileges")[0]))
    small.sql(f"REVOKE SELECT ON workflow.workflow_schedule FROM {ROLE}")
    found = examined(url)
    (unmade,) = named(found, "schedules")
    assert unmade.seen.startswith("could not be checked: ")
    assert unmade.fix == (f"as the owner of the tables: GRANT SELECT ON TABLE workflow.workflow_schedule TO {ROLE}")
    assert named(found, "privileges")[0].fix == unmade.fix
    obey(small, said(unmade))
    assert named(examined(url), "schedules")[0].level is Level.OK


def test_a_name_that_needs_quotes_gets_them_in_the_fix(sound_url: str, raw_sound: Raw) -> None:
    raw_sound.sql('CREATE ROLE "Big-One" LOGIN')
    try:
        (told,) = named(examined(sound_url.replace("postgres@", "Big-One@")), "privileges")
        obey(raw_sound, said(told))
        assert sick(examined(sound_url.replace("postgres@", "Big-One@"))) == []
    finally:
        raw_sound.sql('DROP OWNED BY "Big-One"')
        raw_sound.sql('DROP ROLE "Big-One"')


# Workers that look alive and are not.


def announce(raw: Raw, name: str, seen_ago: float = 0.0) -> None:
    raw.sql(
        "INSERT INTO workflow.workflow_worker (id, name, host, pid, spans, started_at, seen_at) "
        f"VALUES (?, ?, 'host-1', 7, '[[\"served.\", \"served/\"]]', {raw.now}, {raw.now} {raw.back(seen_ago)})",
        f"{name}@0", name,
    )  # fmt: skip


def lose(raw: Raw, app: swf.App, holder: str, expired: float) -> None:
    handle = app.sync.trigger("served.lost.v1")
    raw.sql(
        "UPDATE workflow.workflow_run SET status = 'leased', version = version + 1, lease_epoch = 1, "
        f"leased_by = ?, lease_until = {raw.now} {raw.back(expired)} WHERE id = ?",
        f"{holder}@0", handle.id,
    )  # fmt: skip


def test_a_worker_that_missed_its_beat_is_shown_with_when_it_was_last_seen(app: swf.App, raw: Raw) -> None:
    announce(raw, "ada")
    announce(raw, "bob", seen_ago=30)
    told = only(app, "workers")
    assert told.level is Level.OK
    assert "2 workers alive: " in told.seen
    assert "ada on host-1" in told.seen
    assert "ada on host-1 (" not in told.seen
    assert "bob on host-1 (last seen 30s ago)" in told.seen or "bob on host-1 (last seen 31s ago)" in told.seen


def test_a_worker_whose_leases_ran_out_is_not_called_alive(app: swf.App, raw: Raw) -> None:
    announce(raw, "bob", seen_ago=40)
    lose(raw, app, "bob", expired=60)
    found = app.sync.doctor.examine()
    (told,) = named(found, "workers")
    assert told.level is Level.WARNING
    assert told.seen.startswith("no worker is surely alive: bob on host-1 (last seen 4")
    assert "1 lease ran out" in told.seen
    (lease,) = named(found, "expired-leases")
    assert lease.level is Level.PROBLEM, "nobody is there to sweep"
    assert "1 lease of bob (last seen 4" in lease.seen
    assert "start a worker" in said(lease)


def test_beside_a_live_worker_the_doubtful_one_is_told_apart(app: swf.App, raw: Raw) -> None:
    announce(raw, "ada")
    announce(raw, "bob", seen_ago=40)
    lose(raw, app, "bob", expired=2)
    (told,) = named(app.sync.doctor.examine(), "workers")
    assert told.level is Level.WARNING
    assert told.seen.startswith("1 worker alive: ada on host-1; not surely: bob on host-1 (last seen 4")


def test_nobody_is_said_to_have_taken_back_runs_when_nobody_lives(app: swf.App, raw: Raw) -> None:
    announce(raw, "carol", seen_ago=100)
    told = only(app, "silent-workers")
    assert "nobody is alive to take back its runs" in said(told)
    assert "simpleworkflow worker MODULE:APP --url " in said(told)
    announce(raw, "ada")
    told = only(app, "silent-workers")
    assert "nobody" not in said(told)
    assert "take back its runs" in said(told)


# The log of a SQLite file.

KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("CREATE TABLE fill (x)")
for _ in range(1500):
    connection.execute("INSERT INTO fill VALUES (?)", ["x" * 4000])
os._exit(9)
"""


def test_a_log_is_measured_before_it_is_touched_and_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "log.db")
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    assert subprocess.run([sys.executable, "-c", KILLED, url], check=False).returncode == 9
    before = os.stat(url + "-wal").st_size
    assert before > 5_000_000, "larger than what a writer empties"
    limit(monkeypatch, log_bytes=1_000_000)
    for _ in range(2):
        (told,) = named(examined(url), "log")
        assert told.level is Level.WARNING
        assert os.stat(url + "-wal").st_size == before
    app = swf.App(url)
    app.sync.trigger("log.empty.v1")
    app.sync.close()
    assert not os.path.exists(url + "-wal"), "who writes empties it on the way out, as ever"


def test_looking_at_a_quiet_file_leaves_no_files_beside_it(tmp_path: Path) -> None:
    url = str(tmp_path / "quiet.db")
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    examined(url)
    assert [one.name for one in tmp_path.iterdir()] == ["quiet.db"]


def test_a_log_beside_a_program_that_writes_is_left_alone_too(tmp_path: Path) -> None:
    url = str(tmp_path / "busy.db")
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    other = Raw(url)
    other.sql("PRAGMA wal_autocheckpoint = 0")
    other.sql("CREATE TABLE fill (x)")
    before = os.stat(url + "-wal").st_size
    assert before > 0
    examined(url)
    assert os.stat(url + "-wal").st_size == before
    other.close()
