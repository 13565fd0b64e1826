"""The catalogue: SQL is source, and these are the rules that keep one text fit for two databases.

An override says why, binds the same parameters and returns the same columns; every statement is used; a file that
breaks the notation of sql/README.md is refused when it is read, not when it is run.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from simpleworkflow.store import catalog, migrate
from simpleworkflow.store.catalog import CatalogError, Statement, statements
from simpleworkflow.store.drivers.sqlite import split_statements
from simpleworkflow.store.fragments import Fragments
from simpleworkflow.store.notation import Block

ROOT = Path(catalog.__file__).parents[1]
QUERIES = Path(catalog.__file__).parent / "sql" / "queries"
PORTABLE, OVERRIDES = statements("sqlite"), statements("postgres")
SHARED = sorted(name for name in OVERRIDES if name in PORTABLE and OVERRIDES[name].text and PORTABLE[name].text)


def overridden(file: Path) -> list[str]:
    return re.findall(r"^-- name: (\w+)", file.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("file", sorted(QUERIES.glob("*.*.sql")), ids=lambda file: file.name)
def test_every_override_says_why(file: Path) -> None:
    blocks = catalog.parse(file.read_text(), file.name)
    assert blocks
    assert all(block.differs for block in blocks if not block.is_fragment)


@pytest.mark.parametrize("name", sorted(set(PORTABLE) & set(OVERRIDES)))
def test_both_databases_bind_the_same_parameters(name: str) -> None:
    a, b = PORTABLE[name], OVERRIDES[name]
    assert a.batches == b.batches
    assert a.types == b.types
    if a.text and b.text:
        assert set(a.order) - {"now"} == set(b.order)


def test_no_statement_exists_on_one_database_alone_but_hints_and_the_fence_that_saves_round_trips() -> None:
    assert set(OVERRIDES) ^ set(PORTABLE) == {
        "finish_counted",
        "notify",
        "record_fenced",
        "record_results",
        "timeline",
    }


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_every_statement_is_used(name: str) -> None:
    code = "\n".join(path.read_text() for path in ROOT.rglob("*.py"))
    assert f'"{name}"' in code, f"nothing asks for {name}"


def test_every_statement_that_an_operation_asks_for_exists() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "query" and node.args:
                asked = {one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)}
                missing = {name for name in asked if isinstance(name, str)} - PORTABLE.keys() - OVERRIDES.keys()
                assert not missing, f"{path.name} asks for {missing}: no `-- name:` in store/sql/queries says it"


def test_sql_stands_nowhere_else() -> None:
    """Drivers may speak of transactions and pragmas; tables are named in .sql files only."""
    tables = re.compile(r"\b(FROM|INTO|UPDATE|TABLE)\s+(workflow\.)?(workflow_|outbox_|schema_mig)")
    assert [str(path) for path in ROOT.rglob("*.py") if tables.search(path.read_text())] == []


def sample(kind: str) -> Any:
    values = {"uuid": "00000000-0000-7000-8000-000000000000", "integer": 1, "bigint": 1, "text": "x", "json": "{}"}
    return values.get(kind, "2030-01-01T00:00:00Z" if kind == "timestamptz" else True)


A_RUN = "INSERT INTO {schema}workflow_run (id, type, payload) VALUES ('00000000-0000-7000-8000-000000000000', 'x', '1')"
"""The one that the samples mean: a signal to no run is refused."""


def sqlite_columns(statement: Statement) -> list[str]:
    connection = sqlite3.connect(":memory:")
    for migration in migrate.migrations("sqlite", "workflow"):
        for one in split_statements(migration.up):
            connection.execute(one)
    connection.execute("CREATE TABLE IF NOT EXISTS schema_migrations (version, checksum, applied_at)")
    connection.execute(A_RUN.format(schema=""))
    bound = {name: 1 if name == "now" else sample(statement.types.get(name, "text")) for name in statement.order}
    bound |= dict.fromkeys(statement.batches, "[]")
    cursor = connection.execute(statement.text, bound)
    columns = [column[0] for column in cursor.description or ()]
    connection.close()
    return columns


def postgres_columns(connection: psycopg.Connection[Any], statement: Statement) -> list[str]:
    """The columns by a real execution with empty batches, taken back at once."""
    values: list[Any] = []
    for name in statement.order:
        columns = statement.batches.get(name)
        values += [[] for _ in columns] if columns is not None else [sample(statement.types[name])]
    text = re.sub(r"\$\d+", "%s", statement.text.replace("%", "%%"))
    placed = [values[int(number) - 1] for number in re.findall(r"\$(\d+)", statement.text)]
    with connection.transaction(force_rollback=True):
        connection.execute(A_RUN.format(schema="workflow."))
        cursor = connection.execute(text, placed)
        return [column.name for column in cursor.description or ()]


def test_both_databases_return_the_same_columns(postgres_url: str) -> None:
    differ = {}
    with psycopg.connect(postgres_url) as connection:
        for name in SHARED:
            ours, theirs = sqlite_columns(PORTABLE[name]), postgres_columns(connection, OVERRIDES[name])
            if ours != theirs:
                differ[name] = (ours, theirs)
    assert differ == {}


# Files that break the rules


def compiled(text: str, dialect: str = "postgres") -> dict[str, Statement]:
    found: tuple[dict[str, Block], dict[str, Block]] = {}, {}
    for block in catalog.parse(text, "test.sql"):
        found[block.is_fragment][block.name] = block
    blocks, fragments = found
    return catalog._compiled(blocks, Fragments(fragments, "workflow"), dialect)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-- param: limit integer\n-- name: a\nSELECT 1", "test.sql: `-- param:` stands before the first"),
        ("SELECT 1\n-- name: a\nSELECT 2", "test.sql: there is SQL before the first `-- name:`: SELECT 1"),
        ("-- name: two words\nSELECT 1", "test.sql: cannot read `-- name: two words`"),
        ("-- name:\nSELECT 1", "test.sql: cannot read `-- name: `"),
        ("-- fragment: f(a, b)\n{a}{b}", "test.sql: cannot read `-- fragment: f(a, b)`"),
        ("-- name: a\n-- eech: b\nSELECT 1", "a: there is no `-- eech:`"),
        ("-- name: a\n-- batch: nonsense\nSELECT 1", "a: cannot read `-- batch: nonsense`"),
        ("-- name: a\n-- batch: b(x)\nSELECT 1 FROM :b", "a: cannot read `-- batch: b(x)`"),
        ("-- name: a\n-- batch: b(x double precision)\nSELECT 1 FROM :b", "a: cannot read `-- batch:"),
        ("-- name: a\n-- param: limit\nSELECT :limit", "a: cannot read `-- param: limit`"),
        ("-- name: a\n-- each:\nSELECT 1", "a: cannot read `-- each: `"),
        ("-- name: a\n-- each: b\nSELECT 1", "a: each 'b' is not one of its batches"),
        ("-- name: a\nSELECT :limit", "a: uses :limit without `-- param: limit TYPE`"),
        ("-- name: a\n-- param: limit integer\nSELECT 1", "a: declares :limit and does not use it"),
        ("-- name: a\n-- batch: b(x integer)\nSELECT 1", "a: declares :b and does not use it"),
        ("-- name: a\nSELECT us(us(1))", "a: us() cannot be nested"),
        ("-- name: a\nSELECT us(1", "a: a us( is never closed: us(1"),
        ("-- name: a\n-- like: nobody\n", "a: is like nobody, which is nowhere"),
        ("-- name: a\n-- like: b\nSELECT 1\n-- name: b\nSELECT 2", "a: has a text of its own and is like b"),
        ("-- name: a\n-- like: b\n-- name: b\n-- like: a", "b: is like a, which is like b"),
        ("-- name: a\nSELECT 1\n-- name: b\n-- like: a\n-- replacing: 1 -> 2", "b: there is no `-- replacing:`"),
    ],
)
def test_a_broken_file_is_refused_with_file_and_statement(text: str, says: str) -> None:
    with pytest.raises(CatalogError, match=re.escape(says)) as refused:
        compiled(text)
    assert str(refused.value).startswith("test.sql: ")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of our own instead of the catalogue's."""
    queries = tmp_path / "sql" / "queries"
    queries.mkdir(parents=True)
    monkeypatch.setattr(catalog, "files", lambda package: tmp_path)
    return queries


def test_an_override_without_a_reason_is_refused(folder: Path) -> None:
    (folder / "runs.sql").write_text("-- fragment: f\n1\n-- name: a\nSELECT {f}\n")
    (folder / "runs.postgres.sql").write_text("-- name: a\nSELECT 2\n")
    assert catalog._load("sqlite")[0]["a"].body == "SELECT {f}"
    with pytest.raises(CatalogError, match=r"runs\.postgres\.sql: a: .*differs"):
        catalog._load("postgres")
    (folder / "runs.postgres.sql").write_text("-- fragment: f\n2\n")
    with pytest.raises(CatalogError, match=r"runs\.postgres\.sql: fragment f: .*differs"):
        catalog._load("postgres")
    (folder / "runs.postgres.sql").write_text(
        "-- fragment: f\n-- differs: to be another number\n2\n-- fragment: g\n3\n"
    )
    assert catalog._load("postgres")[1]["f"].body == "2"
    (folder / "runs.sql").write_text("-- name: a\n-- differs: from nothing\nSELECT 1\n")
    with pytest.raises(CatalogError, match=r"runs\.sql: a: says why it differs, but it is the portable one"):
        catalog._load("sqlite")


@pytest.mark.parametrize("text", ["-- name: a\nSELECT 1\n", "-- fragment: a\n1\n"])
@pytest.mark.parametrize("second", ["twice.sql", "twice.postgres.sql"])
def test_what_is_defined_twice_is_refused(folder: Path, text: str, second: str) -> None:
    first = second.replace("twice", "once")
    (folder / first).write_text(text.replace("\n", "\n-- differs: x\n", 1) if "postgres" in first else text)
    (folder / second).write_text(text.replace("\n", "\n-- differs: x\n", 1) if "postgres" in second else text)
    with pytest.raises(CatalogError, match=rf"{second}: .*a: is defined twice, here and in {first}"):
        catalog._load("postgres")


def test_a_file_for_an_unknown_database_is_refused(folder: Path) -> None:
    (folder / "runs.postgre.sql").write_text("-- name: a\n-- differs: misspelt\nSELECT 1\n")
    with pytest.raises(CatalogError, match=r"runs\.postgre\.sql: a file is NOUN\.sql or NOUN\.DIALECT\.sql"):
        catalog._load("postgres")


def test_the_notation_becomes_each_databases_own() -> None:
    text = """-- name: a
-- batch: b(run_id uuid, n integer)
-- param: limit integer
SELECT :now + us(b.n * (2 + 1)), x::text, :limit, ':00' FROM :b JOIN workflow.workflow_run r ON true LIMIT :limit
"""
    assert compiled(text)["a"].text == (
        "SELECT now() + ((b.n * (2 + 1)) * interval '1 microsecond'), x::text, $1::integer, ':00' "
        "FROM unnest($2::uuid[], $3::integer[]) AS b(run_id, n) JOIN workflow.workflow_run r ON true LIMIT $1::integer"
    )
    assert compiled(text)["a"].for_one == (
        "SELECT now() + ((b.n * (2 + 1)) * interval '1 microsecond'), x::text, $1::integer, ':00' "
        "FROM (SELECT $2::uuid AS run_id, $3::integer AS n) AS b JOIN workflow.workflow_run r ON true LIMIT $1::integer"
    )
    assert compiled(text, "sqlite")["a"].text == (
        "SELECT :now + (b.n * (2 + 1)), x::text, :limit, ':00' FROM (SELECT json_extract(value, '$[0]') AS run_id, "
        "json_extract(value, '$[1]') AS n FROM json_each(:b)) AS b JOIN workflow_run r ON true LIMIT :limit"
    )
    assert compiled(text)["a"].order == ("limit", "b")


def test_json_travels_as_text_in_arrays_and_as_itself_alone() -> None:
    statement = compiled("-- name: a\n-- batch: b(run_id uuid, data json)\nSELECT b.data FROM :b")["a"]
    assert statement.text == (
        "SELECT b.data FROM (SELECT run_id, CAST(data AS json) AS data "
        "FROM unnest($1::uuid[], $2::text[]) AS b(run_id, data)) AS b"
    )
    assert statement.for_one == "SELECT b.data FROM (SELECT $1::uuid AS run_id, $2::json AS data) AS b"


def test_a_column_of_nothing_is_not_sent_but_every_row_is() -> None:
    assert catalog.adapt_batch([(1, None, "a"), (2, None, None)], 3) == [[1, 2], None, ["a", None]]
    assert catalog.adapt_batch([(None, None), (None, None)], 2) == [[None, None], None]
    assert catalog.adapt_batch([], 2) == [[], []]


def described(connection: psycopg.Connection[Any], text: str) -> list[tuple[bytes | None, int]]:
    """The columns that the server announces for a text, with their types."""
    prepared = connection.pgconn.prepare(b"", text.encode())
    assert not prepared.error_message, prepared.error_message.decode()
    answer = connection.pgconn.describe_prepared(b"")
    return [(answer.fname(column), answer.ftype(column)) for column in range(answer.nfields)]


def test_one_row_alone_brings_the_same_as_a_table_of_one(postgres_url: str) -> None:
    several = [statement for statement in OVERRIDES.values() if statement.batches and statement.text]
    assert len(several) > 50
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in several:
            alone, table = (described(connection, text) for text in (statement.for_one, statement.text))
            assert alone == table, statement.name


def test_tables_live_in_the_configured_schema() -> None:
    assert "jobs.workflow_run" in statements("postgres", "jobs")["get_runs"].text
    assert "workflow.workflow_run" not in statements("postgres", "jobs")["get_runs"].text
