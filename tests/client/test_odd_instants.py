"""Instants that no calendar has are shown as its first or last day: one such row hides no other from anybody."""

from __future__ import annotations

import psycopg
from click.testing import CliRunner
from support.postgres import Server

import simpleworkflow as swf
from simpleworkflow.cli.main import main

ODD = [
    ("run_at", "12000-01-01"),
    ("run_at", "infinity"),
    ("created_at", "infinity"),
    ("created_at", "-infinity"),
    ("deadline_at", "infinity"),
    ("held_at", "12000-01-01"),
    ("start_by", "-infinity"),
    ("updated_at", "infinity"),
]
TABLES = ("workflow_run", "workflow_schedule")


def write_oddly(url: str, app: swf.App) -> list[str]:
    """As a stranger could before the tables refused it."""
    app.sync.put_schedule("nightly", "odd.a.v1", "0 3 * * *")
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            checks = connection.execute(
                "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass",
                [f"workflow.{table}"],
            )
            for (name,) in checks.fetchall():
                connection.execute(f"ALTER TABLE workflow.{table} DROP CONSTRAINT {name}")
        connection.execute("SET session_replication_role = replica")  # no triggers either
        made = [str(app.sync.trigger("odd.a.v1").id) for _ in (*ODD, "leased")]
        for (column, value), run_id in zip(ODD, made, strict=False):
            connection.execute(f"UPDATE workflow.workflow_run SET {column} = %s WHERE id = %s", [value, run_id])
        connection.execute(
            "UPDATE workflow.workflow_run SET status = 'leased', leased_by = 'w', lease_until = 'infinity' "
            "WHERE id = %s",
            [made[-1]],
        )
        connection.execute("UPDATE workflow.workflow_schedule SET next_at = '12000-01-01'")
    return made


def test_one_odd_instant_hides_nothing(postgres: Server) -> None:
    """SQLite's instants are integers, and clamped as well."""
    postgres.create_database(
        "odd_instants", template="template_swf"
    )  # its checks go, so that no other test may have it
    url = postgres.url("odd_instants")
    app = swf.App(url)
    made = write_oddly(url, app)
    assert {str(run.id) for run in app.sync.runs()} == set(made)
    for run_id in made:
        assert app.sync.explanation(run_id).sentence.startswith(f"run {run_id} (odd.a.v1)")
        assert app.sync.get(run_id).created_at.tzinfo is not None
    assert "9999-12-31" in app.sync.explain(made[0])
    assert app.sync.doctor()
    app.sync.close()
    for words in (
        ["runs", "list"],
        ["runs", "show", made[-1]],
        ["explain", made[2]],
        ["schedule", "list"],
        ["history", made[3]],
    ):
        done = CliRunner().invoke(main, [*words, "--url", url])
        assert (done.exit_code, done.exception) == (0, None), done.output
