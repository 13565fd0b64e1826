"""The benchmark's own reading of our SQL: it must follow the catalogue, and stop where it cannot."""

from __future__ import annotations

import re

import hot
import pgbench
import plans
import psycopg
import pytest

import simpleworkflow as swf


def test_the_ceiling_binds_every_parameter_of_the_catalogue() -> None:
    script = pgbench.drain_script()
    used = set(re.findall(r"(?<!:):(\w+)", script))
    assert used == pgbench.variables().keys() | {"ids", "epochs"}
    assert "$" not in script


def test_a_wrapped_claim_keeps_the_text_and_adds_one_answer() -> None:
    wrapped = pgbench.wrapped(
        "WITH a AS (SELECT ')', 1 AS id), b AS (UPDATE t SET x = 1 RETURNING id)\nSELECT id FROM b"
    )
    assert wrapped.startswith("WITH a AS (SELECT ')', 1 AS id), b AS (UPDATE t SET x = 1 RETURNING id),\nanswer AS (")
    assert wrapped.endswith("FROM answer")
    assert pgbench.wrapped("UPDATE t SET x = 1 RETURNING id").startswith("WITH answer AS (\nUPDATE t")


def test_a_text_without_a_main_part_is_refused() -> None:
    with pytest.raises(hot.Moved):
        pgbench.wrapped("WITH a AS (SELECT 1")


def test_an_unknown_column_stops_the_benchmark_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(hot._SETTLE, "elapsed")
    with pytest.raises(hot.Moved, match="elapsed"):
        hot.settle_arrays(["id"], [1])


def test_an_array_in_text_form_quotes_what_needs_it() -> None:
    assert hot.literal(["a", None, 1, 'x"\\']) == '{"a",NULL,"1","x\\"\\\\"}'


def test_with_queries_that_nobody_reads_are_counted_beside_the_top() -> None:
    def node(pages: int, **more: object) -> dict[str, object]:
        return {"Shared Hit Blocks": pages, "Shared Read Blocks": 0, **more}

    reader = node(1, **{"CTE Name": "claimed"})
    logged = node(10, **{"Subplan Name": "CTE logged", "Plans": [reader]})
    claimed = node(100, **{"Subplan Name": "CTE claimed"})
    top = node(105, **{"CTE Name": "claimed", "Plans": [claimed, logged]})
    assert plans.total_buffers(top) == 115


def test_the_claim_that_is_looked_at_runs_with_its_values(postgres_url: str) -> None:
    app = swf.App(postgres_url)
    app.sync.trigger_many(hot.TYPE, [{}] * (hot.BATCH + 1))
    app.sync.close()
    (seen,) = plans.look(postgres_url, 1)
    assert seen.buffers > hot.BATCH


def test_the_ceilings_script_is_sql_that_the_server_takes(postgres_url: str) -> None:
    """As pgbench sends it: each statement prepared, its variables as parameters."""
    claiming, settling = re.split(r"\n\\gset\n", pgbench.drain_script().rstrip(";\n"))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        known = pgbench.variables() | {"ids": "{}", "epochs": "{}"}
        for text in (claiming, settling):
            values = [known[name] for name in re.findall(r"(?<!:):(\w+)", text)]
            connection.execute(re.sub(r"(?<!:):(\w+)", "%s", text.replace("%", "%%")), values)
