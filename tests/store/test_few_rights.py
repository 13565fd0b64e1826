"""Programs that were granted little: what guards a table asks for no more than the statement. PostgreSQL only."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.ledger import Raw, flush, leased, record, settle, succeeded
from support.outbox import put, rows

from simpleworkflow.store import Ledger

ROLE = "swf_janitor"


@pytest.fixture
def janitor(pg: tuple[Ledger, Raw], postgres_url: str) -> Iterator[Raw]:
    """A session that may read and delete old rows, and nothing else."""
    _, raw = pg
    raw.sql(f"CREATE ROLE {ROLE} NOSUPERUSER")
    raw.sql(f"GRANT USAGE ON SCHEMA workflow TO {ROLE}")
    raw.sql(f"GRANT SELECT, DELETE ON workflow.workflow_step, workflow.outbox_event TO {ROLE}")
    session = Raw(postgres_url)
    session.sql(f"SET ROLE {ROLE}")
    yield session
    session.close()
    raw.sql(f"DROP OWNED BY {ROLE}")
    raw.sql(f"DROP ROLE {ROLE}")


async def test_who_may_delete_steps_needs_no_right_on_runs(pg: tuple[Ledger, Raw], janitor: Raw) -> None:
    ledger, raw = pg
    lease, other = await leased(ledger), await leased(ledger)
    await flush(ledger, record(lease, output="1"), record(other, output="2"))
    await settle(ledger, succeeded(other))
    with pytest.raises(psycopg.errors.CheckViolation, match="keeps its steps"):
        janitor.sql("DELETE FROM workflow.workflow_step")
    janitor.sql("DELETE FROM workflow.workflow_step WHERE run_id = ?", other.id)
    assert [len(raw.steps(one.id)) for one in (lease, other)] == [1, 0]


async def test_who_may_delete_events_needs_no_right_to_insert_them(pg: tuple[Ledger, Raw], janitor: Raw) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    put(raw, lease.id, 3)
    janitor.sql("DELETE FROM workflow.outbox_event")
    assert [row["sequence"] for row in rows(raw, lease.id)] == [3]


async def test_nobody_borrows_the_rights_of_the_guards(pg: tuple[Ledger, Raw], janitor: Raw) -> None:
    janitor.sql("CREATE TEMP TABLE mine (LIKE workflow.outbox_event)")
    for name in ("outbox_number_stays", "steps_stay"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            janitor.sql(
                "CREATE TRIGGER borrowed AFTER DELETE ON mine REFERENCING OLD TABLE AS removed FOR EACH STATEMENT"
                f" EXECUTE FUNCTION workflow.{name}()"
            )
