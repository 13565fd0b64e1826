"""Fragments: the text that several statements have in common, written once and named where it stands.

A mistake in one is told with the statement that cannot be made because of it, and with the fragment.
"""

from __future__ import annotations

import re

import pytest

from simpleworkflow.store import catalog
from simpleworkflow.store.fragments import Fragments
from simpleworkflow.store.notation import Block, CatalogError, parse


def filled(text: str, statement: str = "a") -> str:
    found: tuple[dict[str, Block], dict[str, Block]] = {}, {}
    for block in parse(text, "test.sql"):
        found[block.is_fragment][block.name] = block
    return Fragments(found[True], "jobs").fill(found[False][statement])


def test_a_fragment_stands_where_it_is_named() -> None:
    assert filled("-- fragment: open\nr.x IS NULL\n-- name: a\nSELECT 1 WHERE {open} AND NOT ({open})") == (
        "SELECT 1 WHERE r.x IS NULL AND NOT (r.x IS NULL)"
    )


def test_a_fragment_may_be_written_below_its_use_and_name_others() -> None:
    text = "-- name: a\nSELECT {two}\n-- fragment: two\n{one} + {one}\n-- fragment: one\n(1)"
    assert filled(text) == "SELECT (1) + (1)"


def test_the_schema_is_named_like_a_fragment() -> None:
    assert filled("-- fragment: f\n'of_{schema}'\n-- name: a\nSELECT {f}, '{schema}'") == "SELECT 'of_jobs', 'jobs'"


def test_a_fragment_is_given_a_text() -> None:
    text = (
        "-- fragment: f(crashes)\nr.y AND {crashes} OR {crashes}\n-- name: a\nSELECT {f(max(r.crashes, 0) > (1 + 1))}"
    )
    assert filled(text) == "SELECT r.y AND max(r.crashes, 0) > (1 + 1) OR max(r.crashes, 0) > (1 + 1)"


def test_a_text_is_seen_by_the_fragment_that_it_is_given_to_and_by_no_other() -> None:
    text = "-- fragment: f(x)\n{x} + {g(2)}\n-- fragment: g(x)\n{x} * {h}\n-- fragment: h\n3\n-- name: a\nSELECT {f(1)}"
    assert filled(text) == "SELECT 1 + 2 * 3"
    with pytest.raises(CatalogError, match=r"a: in the fragment h \(test\.sql\): there is no fragment x"):
        filled(text.replace("\n3\n", "\n{x}\n"))


def test_a_long_fragment_is_indented_like_its_place() -> None:
    text = "-- fragment: f\none\n  AND two\n-- name: a\nSELECT (\n  {f})\nWHERE {f}\n"
    assert filled(text) == "SELECT (\n  one\n    AND two)\nWHERE one\n    AND two"


def test_parameters_and_batches_of_a_fragment_are_those_of_the_statement() -> None:
    text = "-- fragment: f(x)\n{x} FROM :b LIMIT :n\n"
    text += "-- name: a\n-- batch: b(y integer)\n-- param: n integer\nSELECT {f(:n)}"
    found = {block.name: block for block in parse(text, "test.sql")}
    made = catalog._compiled({"a": found["a"]}, Fragments({"f": found["f"]}, "jobs"), "sqlite")["a"]
    assert made.text == "SELECT :n FROM (SELECT json_extract(value, '$[0]') AS y FROM json_each(:b)) AS b LIMIT :n"
    with pytest.raises(CatalogError, match=r"test\.sql: a: uses :n without `-- param: n TYPE`"):
        found["a"].types.clear()
        catalog._compiled({"a": found["a"]}, Fragments({"f": found["f"]}, "jobs"), "sqlite")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-- name: a\nSELECT {f}", "a: there is no fragment f"),
        ("-- name: a\nSELECT { f }", "a: cannot read { f }"),
        ("-- name: a\nSELECT '{}'", "a: cannot read {}"),
        ("-- name: a\nSELECT {f", "a: a brace does not belong to a {fragment}"),
        ("-- name: a\nSELECT {f({g})}\n-- fragment: f(x)\n{x}\n-- fragment: g\n1", "a: a brace does not belong to"),
        ("-- name: a\nSELECT {f(1)}\n-- fragment: f\n1", "a: the fragment f takes no text: write {f}"),
        ("-- name: a\nSELECT {f}\n-- fragment: f(x)\n{x}", "a: the fragment f needs its x: write {f(…)}"),
        ("-- name: a\nSELECT {f()}\n-- fragment: f(x)\n{x}", "a: the fragment f needs its x: write {f(…)}"),
        (
            "-- name: a\nSELECT {f}\n-- fragment: f\n1 + {f}",
            "a: in the fragment f (test.sql): the fragment f is part of",
        ),
        (
            "-- name: a\nSELECT {f}\n-- fragment: f\n{g}\n-- fragment: g\n{f}",
            "a: in the fragment g (test.sql): the fragment f",
        ),
        ("-- name: a\nSELECT {x}", "a: there is no fragment x"),
        ("-- fragment: f(x)\n1", "fragment f: never uses its {x}"),
        ("-- fragment: f", "fragment f: has no text"),
        ("-- fragment: f\n-- param: limit integer\n:limit", "fragment f: a fragment declares nothing"),
        ("-- fragment: schema\n1\n-- name: a\nSELECT 1", "fragment schema: {schema} means something else already"),
        (
            "-- fragment: f(g)\n{g}\n-- fragment: g\n1\n-- name: a\nSELECT 1",
            "fragment f: {g} means something else already",
        ),
    ],
)
def test_a_mistake_is_told_with_file_and_statement(text: str, says: str) -> None:
    with pytest.raises(CatalogError, match=re.escape(f"test.sql: {says}")):
        filled(text)


def test_every_fragment_is_used_somewhere() -> None:
    loaded = [catalog._load(dialect) for dialect in catalog.DIALECTS]
    written = "\n".join(block.body for found in loaded for blocks in found for block in blocks.values())
    names = {name for _, fragments in loaded for name in fragments}
    assert [name for name in sorted(names) if not re.search(rf"\{{{name}[(}}]", written)] == []
