"""A database that was used before must not be told from a fresh one."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from .postgres import Server
from .recycled import Recycled

SCARS = {
    "a missing table": "DROP TABLE workflow.outbox_lane",
    "a column": "ALTER TABLE workflow.workflow_run ADD extra integer",
    "a missing index": "DROP INDEX workflow.{index}",
    "an option of a table": "ALTER TABLE workflow.workflow_run SET (fillfactor = 50)",
    "a trigger that sleeps": "ALTER TABLE workflow.workflow_run DISABLE TRIGGER USER",
    "a function": "CREATE FUNCTION workflow.spy() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "a setting": "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 128', current_database()); END $$",
    "a row of a migration": "UPDATE workflow.schema_migrations SET applied_at = now()",
}


@pytest.fixture
def used(postgres: Server, databases: Recycled) -> str:
    """A name that somebody may write to."""
    return databases.take()


def connect(postgres: Server, name: str) -> psycopg.Connection[Any]:
    return psycopg.connect(postgres.url(name), autocommit=True)


def test_rows_numbers_and_statistics_are_gone_and_the_database_is_the_same(
    postgres: Server, databases: Recycled, used: str
) -> None:
    with connect(postgres, used) as connection:
        was = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
        for _ in range(3):
            connection.execute("INSERT INTO workflow.workflow_run (type, payload) VALUES ('a.b.v1', '1')")
        connection.execute("ANALYZE")
    databases.give_back(used)
    again = databases.take()
    with connect(postgres, again) as connection:
        assert connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone() == was
        assert connection.execute("SELECT count(*) FROM workflow.workflow_run").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM workflow.schema_migrations").fetchone() != (0,)
        tables = "SELECT count(*) FROM pg_stats WHERE schemaname = 'workflow' AND tablename <> 'outbox_lane'"
        assert connection.execute(tables).fetchone() == (0,)
        connection.execute("INSERT INTO workflow.workflow_run (type, payload) VALUES ('a.b.v1', '1')")
        assert connection.execute("SELECT min(id) FROM workflow.workflow_event").fetchone() == (1,)
    databases.give_back(again)


@pytest.mark.parametrize("scar", SCARS.values(), ids=SCARS.keys())
def test_a_database_with_a_scar_is_not_handed_out_again(
    postgres: Server, databases: Recycled, used: str, scar: str
) -> None:
    with connect(postgres, used) as connection:
        was = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
        index = connection.execute(
            "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class c ON c.oid = indrelid"
            " WHERE c.relname = 'workflow_run' AND NOT indisprimary AND NOT indisunique LIMIT 1"
        ).fetchone()
        assert index is not None
        connection.execute(scar.format(index=index[0].removeprefix("workflow.")))
    databases.give_back(used)
    with connect(postgres, "postgres") as connection:
        assert connection.execute("SELECT 1 FROM pg_database WHERE oid = %s", was).fetchone() is None


def test_whoever_forgot_to_leave_is_cut_off_and_finds_nothing(postgres: Server, databases: Recycled, used: str) -> None:
    forgotten = connect(postgres, used)
    databases.give_back(used)
    with pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connect(postgres, used)


def test_a_database_that_its_test_dropped_is_no_error(postgres: Server, databases: Recycled, used: str) -> None:
    postgres.drop_database(used)
    databases.give_back(used)
    again = databases.take()
    with connect(postgres, again) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    databases.give_back(again)
