"""The recipe "Add an event" of CONTRIBUTING.md, followed in a copy of the tree.

Its migration is the only one that makes a table of SQLite anew, with triggers of other tables that name it. No released
migration has done that yet, so this is where the way is shown to work.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.recipes import EVERYWHERE, SRC, Recipe, assert_recipe_works, assert_step_is_missed, recipe_text
from support.scratch import Scratch

from simpleworkflow.model.states import EventType

FILES = ("tests/tidy/test_law.py", "tests/store/test_outbox.py")
CHECKS = "allowed_by_the_database or contract_tells or can_be_chosen"
EVENT = "unpaused"
WORDS = [event.value for event in EventType]
CONSTRAINTS = {"outbox_rule": "outbox_rule_event", "workflow_event": "workflow_event_type"}
LEGACY = "PRAGMA legacy_alter_table = ON;\n"


def add_word(scratch: Scratch) -> None:
    scratch.insert(f"{SRC}/model/states.py", '    DELETED = "deleted"', f'    UNPAUSED = "{EVENT}"\n')


def add_line(scratch: Scratch) -> None:
    scratch.insert("docs/sql-contract.md", "| `deleted` | soft", f"| `{EVENT}` | waits no longer |\n")


def add_migration(scratch: Scratch, legacy: str = LEGACY) -> None:
    made = scratch.python("-m", "simpleworkflow", "migrate", "create", "allow_unpaused")
    assert made.returncode == 0, made.stderr
    schema = (scratch.package / "store/sql/schema/sqlite.sql").read_text()
    for dialect in ("sqlite", "postgres"):
        (file,) = (scratch.package / "store/sql/migrations" / dialect).glob("*_allow_unpaused.sql")
        up, down = (
            remade(schema, words).replace(LEGACY, legacy) if dialect == "sqlite" else changed(words)
            for words in ([*WORDS, EVENT], WORDS)
        )
        file.write_text(f"-- migrate:up\n{up}\n-- migrate:down\n{down}")


def remade(schema: str, words: list[str]) -> str:
    """SQLite: the tables with other CHECKs, their rows, their indexes and their triggers."""
    parts = re.findall(r"^CREATE (?:TABLE|INDEX|TRIGGER) .*?;\n(?=\n|\Z)", schema, re.DOTALL | re.MULTILINE)
    text = ""
    for table in CONSTRAINTS:
        (old,) = [part for part in parts if part.startswith(f"CREATE TABLE {table} (")]
        check = f"CHECK (event_type IN ({quoted(words)}))"
        new = re.sub(r"CHECK \(event_type IN.*?\)\)", check, old, flags=re.DOTALL).replace(table, f"{table}_new", 1)
        text += (
            f"{new}INSERT INTO {table}_new SELECT * FROM {table} WHERE event_type IN ({quoted(words)});\n"
            f"DROP TABLE {table};\nALTER TABLE {table}_new RENAME TO {table};\n"
        )
    others = [
        part for part in parts if re.match(rf"CREATE (?:INDEX|TRIGGER) [^;]*? ON ({'|'.join(CONSTRAINTS)})\b", part)
    ]
    return f"{LEGACY}{text}PRAGMA legacy_alter_table = OFF;\n{''.join(others)}"


def changed(words: list[str]) -> str:
    """PostgreSQL: the constraints anew."""
    return "".join(
        f"DELETE FROM workflow.{table} WHERE event_type NOT IN ({quoted(words)});\n"
        f"ALTER TABLE workflow.{table} DROP CONSTRAINT {constraint};\n"
        f"ALTER TABLE workflow.{table} ADD CONSTRAINT {constraint} CHECK (event_type IN ({quoted(words)}));\n"
        for table, constraint in CONSTRAINTS.items()
    )


def quoted(words: list[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def dump_sqlite(scratch: Scratch) -> None:
    """What `make gen` does, but without PostgreSQL: the dump of that one is changed by hand."""
    lines = "import dump_schema as d; (d.SCHEMA / 'sqlite.sql').write_text(d.dump_sqlite())"
    done = scratch.python("-c", f"import sys; sys.path.insert(0, 'tools'); {lines}")
    assert done.returncode == 0, done.stderr
    dump = scratch.package / "store/sql/schema/postgres.sql"
    dump.write_text(dump.read_text().replace("'deleted'::text])))", f"'deleted'::text, '{EVENT}'::text])))"))


def dump_both(scratch: Scratch) -> None:
    done = scratch.python("tools/dump_schema.py")
    assert done.returncode == 0, done.stderr


RECIPE: Recipe = {"word": add_word, "line": add_line, "migration": add_migration, "dump": dump_sqlite}
MISSED = {
    "line": "test_the_contract_tells_of_every_event",
    "migration": f"sqlite: a new migration must allow ['{EVENT}'] in outbox_rule_event; then: make gen",
    "dump": f"sqlite: a new migration must allow ['{EVENT}'] in outbox_rule_event; then: make gen",
}


@pytest.mark.slow
def test_an_event_is_added_as_the_recipe_says(tmp_path: Path) -> None:
    assert_recipe_works(tmp_path, RECIPE, FILES, CHECKS)
    text = recipe_text("Add an event")
    for named in ("model/states.py", "docs/sql-contract.md", LEGACY.rstrip(";\n"), *CONSTRAINTS.values(), *FILES):
        assert f"`{named}`" in text


@pytest.mark.slow
@pytest.mark.parametrize("step", MISSED)
def test_an_event_that_lacks_a_step_is_missed(tmp_path: Path, step: str) -> None:
    recipe = RECIPE if step == "line" else RECIPE | {"dump": lambda scratch: None}
    assert_step_is_missed(tmp_path, recipe, step, MISSED[step], FILES, CHECKS)


@pytest.mark.slow
def test_without_the_pragma_the_table_cannot_be_renamed(tmp_path: Path) -> None:
    """Why the recipe names it."""
    recipe = RECIPE | {"migration": lambda scratch: add_migration(scratch, ""), "dump": lambda scratch: None}
    assert_step_is_missed(tmp_path, recipe, "", "no such table: main.outbox_rule", FILES, CHECKS)


@pytest.mark.slow
def test_an_event_is_added_on_both_databases(tmp_path: Path) -> None:
    files = (*FILES, "tests/store/test_migrate.py", "tests/store/test_structure.py")
    checks = f"({CHECKS} or test_migrate or test_structure)"
    assert_recipe_works(tmp_path, RECIPE | {"dump": dump_both}, files, checks, EVERYWHERE)
