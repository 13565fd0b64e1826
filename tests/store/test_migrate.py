"""Migrations: up, down, status; any number of processes at once; and a schema dump that review can read.

SQLite migrates itself when opened. PostgreSQL is migrated only when asked, and until then every call names the
command.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from support.ledger import Raw, claim, create
from support.postgres import Server

from simpleworkflow.model.errors import MissingMigration, StoreError
from simpleworkflow.store import Ledger, migrate, open_ledger
from simpleworkflow.store.operations import runs

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 16


@pytest.fixture
def empty_url(backend: str, postgres: Server, tmp_path: Path) -> Iterator[str]:
    """A database in which nothing has been made yet."""
    if backend == "sqlite":
        yield str(tmp_path / "empty.db")
        return
    postgres.create_database("swf_empty")
    yield postgres.url("swf_empty")
    postgres.drop_database("swf_empty")


async def versions(ledger: Ledger) -> list[bool]:
    return [one.applied is not None for one in await ledger.migration_status()]


async def test_up_and_down_and_up_again(empty_url: str) -> None:
    ledger = open_ledger(empty_url)
    known = ledger._known()
    assert await versions(ledger) == [False] * len(known)
    assert await ledger.migrate_up() == list(known)
    assert await versions(ledger) == [True] * len(known)
    assert await ledger.migrate_up() == []
    assert await ledger.migrate_down(len(known)) == list(reversed(known))
    assert await versions(ledger) == [False] * len(known)
    await ledger.migrate_up()
    await create(ledger)
    assert len(await claim(ledger)) == 1
    await ledger.close()


async def test_down_leaves_nothing_behind(empty_url: str, backend: str) -> None:
    ledger = open_ledger(empty_url)
    await ledger.migrate_up()
    await ledger.migrate_down(len(ledger._known()))
    await ledger.close()
    raw = Raw(empty_url)
    if backend == "sqlite":
        left = raw.sql("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        assert [row["name"] for row in left] == ["schema_migrations"]
    else:
        left = raw.sql("SELECT relname AS name FROM pg_class WHERE relnamespace = 'workflow'::regnamespace")
        assert {row["name"] for row in left} == {"schema_migrations", "schema_migrations_pkey"}
        assert raw.sql("SELECT proname FROM pg_proc WHERE pronamespace = 'workflow'::regnamespace") == []
    raw.close()


async def test_an_unmigrated_database_migrates_itself_or_names_the_command(empty_url: str, backend: str) -> None:
    ledger = open_ledger(empty_url)
    if backend == "sqlite":
        assert len(await create(ledger)) == 1
    else:
        for _ in range(2):
            with pytest.raises(MissingMigration, match="simpleworkflow migrate up --url postgresql://"):
                await ledger.run(runs.count())
    await ledger.close()


async def test_a_changed_migration_is_refused(empty_url: str) -> None:
    ledger = open_ledger(empty_url)
    await ledger.migrate_up()
    raw = Raw(empty_url)
    raw.sql("UPDATE workflow.schema_migrations SET checksum = 'something else'")
    with pytest.raises(StoreError, match="applied with another text"):
        await ledger.migrate_up()
    raw.close()
    await ledger.close()


async def test_a_failed_migration_leaves_nothing(empty_url: str) -> None:
    ledger = open_ledger(empty_url)
    good = ledger._known()
    bad = migrate.Migration("9999", "breaks", "CREATE TABLE half_done (id integer); SELECT nonsense;", "")
    with pytest.raises(StoreError):
        await ledger._driver.run(migrate.up((*good, bad)))
    assert await versions(ledger) == [False] * len(good)
    await ledger.migrate_up()
    await ledger.close()


async def test_two_schemas_live_side_by_side(postgres_url: str) -> None:
    first, second = open_ledger(postgres_url), open_ledger(postgres_url, schema="jobs")
    await second.migrate_up()
    (run_id,) = await create(second)
    assert await first.run(runs.get([run_id])) == [None]
    assert [lease.id for lease in await claim(second)] == [run_id]
    await second.migrate_down(len(second._known()))
    assert await versions(first) == [True] * len(first._known())
    await first.close()
    await second.close()


async def test_the_owner_of_a_database_who_is_no_superuser_migrates_it(postgres: Server) -> None:
    admin = Raw(postgres.url())
    admin.sql("CREATE ROLE swf_owner LOGIN PASSWORD 'secret' NOSUPERUSER")
    postgres.create_database("swf_owned")
    try:
        admin.sql("ALTER DATABASE swf_owned OWNER TO swf_owner")
        parts = urlsplit(postgres.url("swf_owned"))
        url = urlunsplit(parts._replace(netloc=f"swf_owner:secret@{parts.hostname}:{parts.port}"))
        ledger, raw = open_ledger(url), Raw(url)
        assert raw.sql("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [{"rolsuper": False}]
        known = list(ledger._known())
        assert await ledger.migrate_up() == known
        assert await ledger.migrate_down(len(known)) == list(reversed(known))
        assert await ledger.migrate_up() == known
        (run_id,) = await create(ledger)
        assert raw.events(run_id) == ["created"]
        assert [lease.id for lease in await claim(ledger)] == [run_id]
        raw.sql("DELETE FROM workflow.workflow_run WHERE id = ?", run_id)
        assert raw.events(run_id) == []
        raw.close()
        await ledger.close()
    finally:
        postgres.drop_database("swf_owned")
        admin.sql("DROP ROLE swf_owner")
        admin.close()


def migrate_in_a_process(
    url: str, barrier: multiprocessing.synchronize.Barrier, answers: multiprocessing.Queue
) -> None:  # type: ignore[type-arg]
    async def main() -> int:
        ledger = open_ledger(url)
        done = await ledger.migrate_up()
        await create(ledger)
        await ledger.close()
        return len(done)

    barrier.wait(60)
    try:
        answers.put(asyncio.run(main()))
    except BaseException as error:
        answers.put(repr(error))


def test_sixteen_processes_migrate_at_once(empty_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(PROCESSES), spawn.Queue()
    processes = [
        spawn.Process(target=migrate_in_a_process, args=(empty_url, barrier, answers)) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    given = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(30)
    one_applied_it = [0] * (PROCESSES - 1) + [len(migrate.migrations("sqlite", "workflow"))]
    assert sorted(given, key=str) == one_applied_it
    raw = Raw(empty_url)
    assert len(raw.rows("1 = 1")) == PROCESSES
    raw.close()


def test_both_databases_have_the_same_migrations() -> None:
    names = [[(m.version, m.name) for m in migrate.migrations(d, "workflow")] for d in ("sqlite", "postgres")]
    assert names[0] == names[1]


def test_a_migration_needs_both_directions() -> None:
    with pytest.raises(StoreError, match="migrate:down"):
        migrate._sections("-- migrate:up\nSELECT 1;", "0009_x.sql")


def test_the_schema_dumps_are_current(postgres: Server) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import dump_schema
    finally:
        sys.path.remove(str(ROOT / "tools"))
    postgres.create_database("swf_dump")
    try:
        fresh = {"sqlite": dump_schema.dump_sqlite(), "postgres": dump_schema.dump_postgres(postgres.url("swf_dump"))}
    finally:
        postgres.drop_database("swf_dump")
    for name, text in fresh.items():
        assert (dump_schema.SCHEMA / f"{name}.sql").read_text() == text, "run: make gen"


@pytest.mark.parametrize("table", ["workflow_run", "workflow_event", "outbox_event"])
async def test_the_tables_of_simple_workflow_are_named_as_what_is_in_the_way(
    empty_url: str, backend: str, table: str
) -> None:
    """Their schema as their migrations leave it, as far as it matters; nothing of it is touched."""
    raw, ledger = Raw(empty_url), open_ledger(empty_url)
    if backend == "postgres":
        raw.sql("CREATE SCHEMA workflow")
    raw.sql(f"CREATE TABLE workflow.{table} (id text PRIMARY KEY, type text NOT NULL, idempotency_key text UNIQUE)")
    raw.sql(f"INSERT INTO workflow.{table} (id, type) VALUES ('1', 'theirs.v1')")
    way_out = "a file of its own" if backend == "sqlite" else r"another schema \(\?schema=jobs\)"
    with pytest.raises(StoreError, match=f"a table {table} that .* Nothing was changed.* use {way_out}"):
        await ledger.migrate_up()
    assert raw.sql(f"SELECT type FROM workflow.{table}") == [{"type": "theirs.v1"}]
    assert {one.applied for one in await ledger.migration_status()} == {None}
    raw.close()
    await ledger.close()
