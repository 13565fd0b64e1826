"""The table in model/moves.py is what the code performs: no row is idle, and nothing else moves a run.

The statements are read from the SQL, the operations and the files that ask for them from the syntax trees. What each
statement does to a row is tried in tests/store/test_matrix.py, with what plain SQL may do.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from support.askers import Store
from support.law_in_sql import Write, performed, writes, writes_of

from simpleworkflow.model import moves
from simpleworkflow.model.moves import MOVES, PLAIN_SQL, PLAIN_SQL_ON_POSTGRES, TRIGGERS, Move, Needs
from simpleworkflow.model.states import EventType, Status
from simpleworkflow.store.catalog import DIALECTS

PACKAGE = Path(moves.__file__).resolve().parents[1]
SCHEMAS = PACKAGE / "store" / "sql" / "schema"
OTHERS = {PLAIN_SQL, PLAIN_SQL_ON_POSTGRES, TRIGGERS}
STATEMENTS = [pytest.param(one, id=f"{dialect}-{one.statement}") for dialect in DIALECTS for one in writes(dialect)]


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(PACKAGE)


@pytest.fixture(scope="module")
def askers(store: Store) -> dict[str, set[str]]:
    return files_by_move(store)


def files_by_move(store: Store) -> dict[str, set[str]]:
    """The files that ask for an operation which leads to a statement that makes the move."""
    moves_of, found = performed(), defaultdict(set)
    for file, functions in store.asked().items():
        for function in functions:
            made = {move for statement in store.statements_of(function) for move in moves_of.get(statement, ())}
            for move in made:
                if not store.functions[function].takes_entries or can_give(store.entries_of(file), move):
                    found[move].add(file)
    return found


def can_give(names: set[str], move: str) -> bool:
    """Whether a file that knows these names of model/moves.py can ask for a move by an entry."""
    if hasattr(moves, move):
        return "Ending" in names or any(_makes_ending(name) for name in names)
    return ("Pause" if move == "pause" else "Record") in names


def _makes_ending(name: str) -> bool:
    found = getattr(moves, name, None)
    return inspect.isfunction(found) and found.__annotations__.get("return") == "Ending"


@pytest.mark.parametrize("write", [one for one in STATEMENTS if one.values[0].moves_a_run])
def test_a_statement_makes_a_move_of_the_table(write: Write) -> None:
    made = [move.name for move in MOVES.values() if write.makes(move)]
    assert made, f"{write}: no row of MOVES in model/moves.py says so; add the move there, or mend the statement"
    assert len(made) == 1 or write.takes_entries, f"{write}: it could be any of {made}"


@pytest.mark.parametrize("write", STATEMENTS)
def test_a_statement_that_changes_a_run_bumps_its_version(write: Write) -> None:
    """The triggers would take it for plain SQL, and refuse it or tell of it twice."""
    assert write.is_insert or write.sets.get("version", "").endswith("version + 1"), f"{write.statement}: version + 1"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_move_has_a_statement(dialect: str) -> None:
    made = {move.name for write in writes(dialect) if write.moves_a_run for move in MOVES.values() if write.makes(move)}
    idle = MOVES.keys() - made
    assert not idle, f"no statement in store/sql/queries makes {', '.join(sorted(idle))}"


@pytest.mark.parametrize("name", MOVES)
def test_a_move_is_made_by_the_files_that_the_table_names(name: str, askers: dict[str, set[str]]) -> None:
    asking = askers.get(name, set())
    told = set(MOVES[name].performers) - OTHERS
    assert asking, f"nothing asks the store for {name}"
    assert told == asking, f"the performers of {name} in model/moves.py should be {', '.join(sorted(asking))}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_triggers_make_the_moves_that_the_table_says(dialect: str) -> None:
    made = {"create" if one.is_insert else _ending_in(one) for one in _of_triggers(dialect)}
    assert made == {move.name for move in MOVES.values() if TRIGGERS in move.performers}


def _of_triggers(dialect: str) -> list[Write]:
    text = (SCHEMAS / f"{dialect}.sql").read_text()
    return [one for one in writes_of("a trigger", text) if one.moves_a_run]


def _ending_in(write: Write) -> str:
    """The move that leads to the state which a trigger sets, whatever its lease."""
    (name,) = {
        move.name
        for move in MOVES.values()
        if {write.sets["status"].strip("'")} == move.targets and move.needs is Needs.NOTHING
    }
    return name


def test_what_the_code_asks_of_the_store_can_be_run(store: Store) -> None:
    """A function without a decorator returns a generator, which no driver takes."""
    for file, functions in store.asked().items():
        for module, name in sorted(functions):
            body = store.functions[module, name]
            assert body.is_operation or not body.statements, (
                f"{file} asks for {module}.{name} of store/operations: decorate it with @reading, @statements or "
                "@transaction"
            )


@pytest.mark.parametrize("constraint", ["workflow_event_type", "outbox_rule_event"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_event_is_allowed_by_the_database(dialect: str, constraint: str) -> None:
    schema = (SCHEMAS / f"{dialect}.sql").read_text()
    allowed = schema.partition(f"CONSTRAINT {constraint} CHECK")[2].partition("))")[0]
    missing = [event.value for event in EventType if f"'{event.value}'" not in allowed]
    assert not missing, f"{dialect}: a new migration must allow {missing} in {constraint}; then: make gen"


def test_the_contract_tells_of_every_event() -> None:
    page = (PACKAGE.parents[1] / "docs" / "sql-contract.md").read_text()
    table = page.partition("| event | when |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= {event.value for event in EventType}


# That the checks can fail


def test_a_statement_that_no_row_describes_is_noticed() -> None:
    text = "UPDATE workflow.workflow_run AS r SET {} FROM :b WHERE r.id = b.run_id AND r.status = 'failed' RETURNING id"
    (unlawful,) = writes_of("rerun", text.format("status = 'paused', version = r.version + 1"))
    assert [move.name for move in MOVES.values() if unlawful.makes(move)] == []
    assert str(unlawful) == "rerun goes from failed to 'paused', proves nothing"
    row = Move("rerun", frozenset({Status.FAILED}), frozenset({Status.PAUSED}), Needs.NOTHING, EventType.PAUSED, ())
    assert unlawful.makes(row)
    assert not unlawful.makes(replace(row, needs=Needs.LEASE)), "it proves no lease"
    assert not unlawful.makes(replace(row, holds=True)), "it holds nothing"
    (silent,) = writes_of("touch_runs", text.format("priority = 1"))
    assert not silent.moves_a_run


def test_a_file_that_asks_for_a_move_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "store" / "operations").mkdir(parents=True)
    (tmp_path / "store" / "operations" / "runs.py").write_text(
        "from .helpers import ended\n"
        "TABLE = ('hold_runs', 1)\n"
        "@transaction\ndef stop(ids):\n    return (yield from _stop(ids))\n"
        "def _stop(ids):\n    yield query('cancel_runs', b=ids)\n    yield TABLE\n    return ended(ids)\n"
    )
    (tmp_path / "store" / "operations" / "helpers.py").write_text(
        "def ended(ids):\n    yield query('get_runs', b=ids)\n"
    )
    (tmp_path / "one.py").write_text("from .store.operations import runs as r\nr.stop([])\n")
    (tmp_path / "two.py").write_text("from .store.operations.runs import stop as halt\nhalt([])\n")
    (tmp_path / "three.py").write_text("from .store import protocol\n")
    store = Store(tmp_path)
    assert store.asked() == {"one.py": {("runs", "stop")}, "two.py": {("runs", "stop")}}
    assert store.statements_of(("runs", "stop")) == {"cancel_runs", "hold_runs", "get_runs"}
    assert files_by_move(store) == {"cancel": {"one.py", "two.py"}, "hold": {"one.py", "two.py"}}
    assert store.functions["runs", "stop"].is_operation
    assert not store.functions["helpers", "ended"].is_operation
