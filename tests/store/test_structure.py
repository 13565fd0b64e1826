"""What the migrations should have left, read from their text, against what they do leave; and the statements taken at
their word.
"""

from __future__ import annotations

import pytest
from support.ledger import Raw

from simpleworkflow.store import Ledger
from simpleworkflow.store.migrate import migrations
from simpleworkflow.store.operations import health
from simpleworkflow.store.structure import Part, counters, created, expected

BOOK = ("table", "schema_migrations")


def parts(dialect: str, upto: int | None = None) -> tuple[Part, ...]:
    versions = [one.version for one in migrations(dialect, "workflow")][:upto]
    return expected(dialect, "workflow", frozenset(versions))


async def test_the_text_of_the_migrations_names_exactly_what_a_fresh_database_has(ledger: Ledger, backend: str) -> None:
    there = await ledger.look(health.structure())
    ours = {(part.kind, part.name, part.table) for part in parts(backend)}
    made_with_tables = {one.name for one in there if one.name.endswith(("_pkey", "_key"))}
    assert {(one.kind, one.name, one.table) for one in there if one.name not in made_with_tables} - ours == {
        (*BOOK, "schema_migrations")
    }
    assert ours <= {(one.kind, one.name, one.table) for one in there}
    asleep = {part.name for part in parts(backend) if part.may_sleep}
    assert {one.name for one in there if one.state != "well"} == asleep
    assert asleep == ({"event_to_outbox"} if backend == "postgres" else set())


@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_of_migrations_that_are_still_to_come_nothing_is_expected(
    ledger: Ledger, backend: str, count: int
) -> None:
    known = migrations(backend, "workflow")
    await ledger.migrate_down(len(known) - count)
    there = {(one.kind, one.name) for one in await ledger.look(health.structure())}
    ours = {(part.kind, part.name) for part in parts(backend, count)}
    assert ours <= there
    assert {key for key in there - ours if not key[1].endswith(("_pkey", "_key"))} == {BOOK}


async def test_every_part_but_a_table_is_made_anew_by_its_statement(ledger: Ledger, raw: Raw, backend: str) -> None:
    before = {(one.kind, one.name, one.table) for one in await ledger.look(health.structure())}
    made = [part for part in parts(backend) if part.kind != "table"]
    for part in made:
        if part.kind in {"index", "view"}:
            raw.sql(f"DROP {part.kind.upper()} workflow.{part.name}")
        elif part.kind == "trigger":
            raw.sql(f"DROP TRIGGER {part.name}" + ("" if raw.is_sqlite else f" ON workflow.{part.table}"))
    for part in made:
        if part.kind == "function" and part.name != "uuidv7":
            raw.sql(f"DROP FUNCTION workflow.{part.name}()")
    assert len(await ledger.look(health.structure())) < len(before)
    for part in made:
        if part.name != "uuidv7":
            raw.connection.execute(part.statement)
    assert {(one.kind, one.name, one.table) for one in await ledger.look(health.structure())} == before


def test_sequences_that_are_asked_by_name_are_known() -> None:
    assert counters("workflow") == ("workflow_event_id_seq",)
    assert ("table", "workflow_schedule") in created("postgres", "elsewhere", "0004")
