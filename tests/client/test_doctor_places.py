"""The doctor on servers and files that are made sick for real, one illness at a time.

Where the fix is a statement it is taken at its word: executed as it stands, after which the finding must be gone.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from support.clinic import examined, limit, named, only, said, sick, statement
from support.ledger import Raw
from support.proxy import Proxy
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.client.doctor import file as doctor_file
from simpleworkflow.client.doctor import findings
from simpleworkflow.client.doctor import server as doctor_server
from simpleworkflow.client.doctor.findings import LIMITS, Finding, Level
from simpleworkflow.clock import SystemClock
from simpleworkflow.store.drivers import sqlite as sqlite_driver
from simpleworkflow.store.operations.health import ServerFacts

# Durability.


def test_a_server_without_fsync_is_a_problem_with_the_flag_that_made_it_so(postgres_url: str) -> None:
    told = {one.subject: one for one in named(examined(postgres_url), "durability")}
    assert set(told) == {"fsync", "synchronous_commit", "full_page_writes"}
    assert all(one.level is Level.PROBLEM for one in told.values())
    assert said(told["fsync"]).startswith("start the server without -c fsync=off")


@pytest.mark.parametrize(
    "scope", ["DATABASE {database}", 'ROLE "postgres"', 'ROLE "postgres" IN DATABASE {database}'], ids=str.split
)
def test_a_setting_of_a_database_or_role_is_found_where_it_was_set_and_its_fix_works(
    sound_url: str, raw_sound: Raw, scope: str
) -> None:
    scope = scope.format(database=urlsplit(sound_url).path[1:])
    raw_sound.sql(f"ALTER {scope} SET synchronous_commit = off")
    (told,) = named(examined(sound_url), "durability")
    assert told.level is Level.PROBLEM
    assert "synchronous_commit is off" in told.seen
    assert statement(told) == f"ALTER {scope} RESET synchronous_commit".replace('"', "")
    raw_sound.sql(statement(told))
    assert named(examined(sound_url), "durability")[0].level is Level.OK


def test_a_sqlite_connection_that_does_not_wait_for_the_disk_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite_driver._connect

    def careless(path: str, read_only: bool) -> Any:
        connection = real(path, read_only)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    monkeypatch.setattr(sqlite_driver, "_connect", careless)
    app = swf.App(str(tmp_path / "careless.db"))
    app.sync.doctor.check()
    told = only(app, "durability")
    app.sync.close()
    assert told.level is Level.PROBLEM
    assert "synchronous is normal" in told.seen


# Clock.


class Skewed(SystemClock):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def wall(self) -> int:
        return super().wall() + round(self._seconds * 1e6)


@pytest.mark.parametrize(
    ("skew", "level", "word"), [(60, "problem", "behind"), (-60, "problem", "ahead of"), (-3, "warning", "ahead of")]
)
def test_a_clock_that_differs_from_the_servers_is_told_with_its_direction(
    sound_url: str, skew: float, level: str, word: str
) -> None:
    app = swf.App(sound_url, clock=Skewed(skew))
    told = only(app, "clock")
    app.sync.close()
    assert told.level == level
    assert word in told.seen
    assert f"{'1m' if abs(skew) == 60 else '3s'} {word}" in told.seen
    assert "chronyc tracking" in said(told)


def test_a_slow_road_to_the_server_is_no_skew() -> None:
    assert doctor_server.judge_clock(2.0, 2.0, LIMITS).level is Level.OK
    assert doctor_server.judge_clock(8.0, 2.0, LIMITS).level is Level.PROBLEM


# Vacuum and what holds it back.


def test_autovacuum_that_was_turned_off_for_a_table_is_a_problem_and_its_fix_works(
    sound_url: str, raw_sound: Raw
) -> None:
    raw_sound.sql("ALTER TABLE workflow.workflow_run SET (autovacuum_enabled = false)")
    (told,) = named(examined(sound_url), "vacuum")
    assert (told.level, told.subject) == (Level.PROBLEM, "workflow_run")
    raw_sound.sql(statement(told))
    assert named(examined(sound_url), "vacuum")[0].level is Level.OK


def test_autovacuum_that_is_off_for_the_whole_server_is_a_problem(sound_url: str, raw_sound: Raw) -> None:
    raw_sound.sql("CREATE ROLE owner_1 LOGIN SUPERUSER")
    raw_sound.sql("ALTER ROLE owner_1 SET track_counts = off")  # the flag that a session may turn, for the same effect
    try:
        (told,) = named(examined(sound_url.replace("postgres@", "owner_1@")), "vacuum")
    finally:
        raw_sound.sql("DROP ROLE owner_1")
    assert told.level is Level.PROBLEM
    assert "autovacuum is off for the whole server" in told.seen
    assert "ALTER SYSTEM SET autovacuum = on" in said(told)


def test_dead_rows_that_nobody_clears_are_a_warning_and_vacuum_clears_them(
    sound_url: str, raw_sound: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, dead_rows=500, dead_factor=2)
    raw_sound.sql(
        "INSERT INTO workflow.workflow_registry (workflow_name) SELECT 'dead.' || n FROM generate_series(1, 2000) n"
    )
    raw_sound.sql("DELETE FROM workflow.workflow_registry")
    raw_sound.sql("SELECT pg_stat_force_next_flush()")

    def warned() -> list[Finding]:
        return [one for one in named(examined(sound_url), "vacuum") if one.level is Level.WARNING]

    (told,) = until(warned, "the statistics are there")
    assert told.subject == "workflow_registry"
    assert "2,000 dead rows beside 0 live ones" in told.seen
    assert "the last vacuum was never" in told.seen
    raw_sound.sql(statement(told))
    until(lambda: not warned(), "the statistics are there")


def test_a_forgotten_transaction_is_named_with_its_pid_and_its_fix_ends_it(
    sound_url: str, raw_sound: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, idle_transaction=0.0)
    forgotten = psycopg.connect(sound_url, application_name="prompt of a friend")
    forgotten.execute("SELECT count(*) FROM workflow.workflow_run")
    pid = forgotten.info.backend_pid
    (told,) = named(examined(sound_url), "snapshots")
    assert (told.level, told.subject) == (Level.WARNING, str(pid))
    assert f"prompt of a friend of postgres (pid {pid}) is idle in a transaction since" in told.seen
    raw_sound.sql(statement(told, "end it: "))
    until(lambda: named(examined(sound_url), "snapshots")[0].level is Level.OK, "the session ends")
    forgotten.close()


def test_a_transaction_of_an_hour_is_a_problem(monkeypatch: pytest.MonkeyPatch, sound_url: str) -> None:
    limit(monkeypatch, idle_transaction=0.0, old_transaction=0.0)
    with psycopg.connect(sound_url) as forgotten:
        forgotten.execute("SELECT count(*) FROM workflow.workflow_run")
        assert sick(examined(sound_url)) == ["snapshots"]


def test_a_prepared_transaction_is_named_and_its_fix_rolls_it_back(
    sound_url: str, raw_sound: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, idle_transaction=0.0)
    with psycopg.connect(sound_url, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO workflow.workflow_registry (workflow_name) VALUES ('in.doubt')")
        connection.execute("PREPARE TRANSACTION 'it''s in doubt'")
    (told,) = named(examined(sound_url), "snapshots")
    assert "prepared transaction it's in doubt of postgres waits since" in told.seen
    raw_sound.sql(statement(told, "end it: "))
    assert named(examined(sound_url), "snapshots")[0].level is Level.OK


def test_a_replication_slot_without_a_reader_is_a_warning_once_it_keeps_much(
    sound_url: str, raw_sound: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_sound.sql("SELECT pg_create_physical_replication_slot('lost_standby', true)")
    try:
        assert named(examined(sound_url), "snapshots")[0].level is Level.OK
        limit(monkeypatch, slot_bytes=0)
        (told,) = named(examined(sound_url), "snapshots")
        assert (told.level, told.subject) == (Level.WARNING, "lost_standby")
        raw_sound.sql(statement(told, "end it: "))
        assert named(examined(sound_url), "snapshots")[0].level is Level.OK
    finally:
        raw_sound.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def test_an_age_near_the_wraparound_is_a_warning_and_then_a_problem() -> None:
    facts = ServerFacts("15.1", 150001, "orders", "me", False, False, True, 1_000, 2_000)
    judged = [doctor_server.judge_age(facts._replace(xids=age), LIMITS) for age in (1_000, 600_000_000, 1_600_000_000)]
    assert [one.level for one in judged] == [Level.OK, Level.WARNING, Level.PROBLEM]
    assert "1,600,000,000 transactions old" in judged[2].seen
    assert "vacuumdb --freeze orders" in said(judged[2])


def test_few_connections_that_are_left_are_a_warning(sound_url: str, raw_sound: Raw) -> None:
    raw_sound.sql(f"ALTER DATABASE {urlsplit(sound_url).path[1:]} CONNECTION LIMIT 7")
    (told,) = named(examined(sound_url), "connections")
    assert (told.level, told.subject) == (Level.WARNING, "database")
    assert "of 7 connections of the database are taken" in told.seen


@pytest.mark.parametrize(("number", "level"), [(140005, "problem"), (180001, "ok"), (190000, "note")])
async def test_versions_of_the_server_are_judged_by_what_is_supported(
    number: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def facts(_: object) -> ServerFacts:
        return ServerFacts(f"{number // 10_000}.1", number, "d", "me", False, False, True, 1, 1)

    monkeypatch.setattr(doctor_server, "_facts", facts)
    (told,) = await doctor_server.version(None)  # type: ignore[arg-type]
    assert told.level == level


def test_standbys_that_no_commit_waits_for_are_told() -> None:
    facts = ServerFacts("15.1", 150001, "orders", "me", False, False, True, 1_000, 2_000)
    assert doctor_server.judge_standbys(facts) == []
    (told,) = doctor_server.judge_standbys(facts._replace(lagging=2))
    assert told.level is Level.NOTE
    assert "acknowledged runs may be lost in a failover" in told.seen


# Hints.


class Deafness(Proxy):
    """Passes everything on but notifications, as a pooler between transactions does."""

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        try:
            await asyncio.gather(self._pump(reader, there[1]), self._without_notifications(there[0], writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _without_notifications(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await source.readexactly(5)
                body = await source.readexactly(int.from_bytes(head[1:]) - 4)
                if head[:1] != b"A":
                    sink.write(head + body)
        except asyncio.IncompleteReadError:
            pass
        finally:
            sink.close()


async def test_hints_that_do_not_arrive_are_a_warning_and_polling_goes_on(
    sound_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, hint=0.5)
    async with Deafness(sound_url) as proxy:
        app = swf.App(proxy.url + "?sslmode=disable")
        found = await app.doctor.examine()
        await app.close()
    (told,) = named(found, "hints")
    assert told.level is Level.WARNING
    assert "no hint arrived within" in told.seen
    assert "polling every 1s" in told.seen
    assert "?pgbouncer=true" in said(told)
    assert sick(found) == []


def test_behind_a_named_pooler_the_lack_of_hints_is_a_note(sound_url: str) -> None:
    (told,) = named(examined(sound_url + "?pgbouncer=true"), "hints")
    assert told.level is Level.NOTE
    assert "polling every 1s" in told.seen


# The file.


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("3.40.1", "warning"),
        ("3.44.5", "warning"),
        ("3.44.6", "ok"),
        ("3.50.6", "warning"),
        ("3.50.7", "ok"),
        ("3.51.2", "warning"),
        ("3.51.3", "ok"),
        ("3.53.0", "ok"),
    ],
)
def test_versions_of_sqlite_with_the_wal_reset_bug_are_a_warning(version: str, level: str) -> None:
    told = doctor_file.judge_version(version)
    assert told.level == level
    assert level == "ok" or ("WAL-reset" in told.seen and "3.51.3" in said(told))


MOUNTS = """22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:35 / /srv/shared\\040files rw shared:1 - nfs4 server:/export rw
41 22 0:36 / /srv/share rw - tmpfs tmpfs rw
"""


def test_a_file_on_a_network_file_system_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_file.kind_of_mount("/srv/shared files/orders.db", MOUNTS) == "nfs4"
    assert doctor_file.kind_of_mount("/srv/share/orders.db", MOUNTS) == "tmpfs"
    assert doctor_file.kind_of_mount("/srv/shared/orders.db", MOUNTS) == "ext4"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"40 22 0:35 / {tmp_path} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(doctor_file, "MOUNTS", mounts)
    app = swf.App(str(tmp_path / "far.db"))
    app.sync.doctor.check()
    told = only(app, "file-system")
    app.sync.close()
    assert told.level is Level.PROBLEM
    assert "network file system (nfs4)" in told.seen


def test_little_room_on_the_disk_is_a_warning_and_none_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path).free
    app = swf.App(str(tmp_path / "full.db"))
    app.sync.doctor.check()
    limit(monkeypatch, space_warning=2 * free, space_problem=0)
    assert only(app, "disk-space").level is Level.WARNING
    limit(monkeypatch, space_warning=2 * free, space_problem=2 * free)
    told = only(app, "disk-space")
    app.sync.close()
    assert told.level is Level.PROBLEM
    assert findings.size(5 << 30) == "5.0 GiB"


def test_a_log_that_a_reader_keeps_from_being_emptied_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "log.db")
    app = swf.App(url)
    app.sync.doctor.check()
    reader = Raw(url)
    reader.sql("BEGIN")
    reader.sql("SELECT count(*) FROM workflow_run")
    app.sync.trigger_many("log.fill.v1", ["x" * 1000] * 100)
    limit(monkeypatch, log_bytes=10_000)
    told = only(app, "log")
    reader.close()
    app.sync.close()
    assert told.level is Level.WARNING
    assert "keeps a read transaction open" in told.seen
    assert f"fuser -v {url}" in said(told)


def test_a_file_that_somebody_keeps_locked_ends_the_examination_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "locked.db")
    app = swf.App(url)
    app.sync.doctor.check()
    monkeypatch.setattr(sqlite_driver, "_BUSY_WAIT", 0.1)
    limit(monkeypatch, answer=0.3)
    holder = Raw(url)
    holder.sql("BEGIN IMMEDIATE")
    found = app.sync.doctor.examine()
    holder.close()
    app.sync.close()
    assert (found[-1].check, found[-1].level) == ("database", Level.PROBLEM)
    assert "locked by another process" in found[-1].seen
