"""The recipes of CONTRIBUTING.md are followed word by word in a copy of the tree: done as told, all checks pass; with a
step left out, a check fails and says what is missing.

Each recipe is a list of steps, and each step writes to files that the recipe names. The checks are the tests that the
recipe names; here they run on SQLite, and the slow test at the end runs them on PostgreSQL as well.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.recipes import EVERYWHERE, SRC, Recipe, assert_recipe_works, assert_step_is_missed, recipe_text
from support.scratch import Scratch

from simpleworkflow.model.moves import MOVES

OPERATORS = MOVES["revive"].performers[0]
"""The file that asks for what operators do."""


# Add a query

QUERY_FILES = ("tests/store/test_catalog.py", "tests/tidy/test_law.py", "tests/store/test_expanded_sql.py")
QUERY_CHECKS = "oldest_of_types or asks_for or asks_of_the_store or reviewer_sees"


def add_block(scratch: Scratch, *left_out: str) -> None:
    lines = [
        "",
        "-- name: oldest_of_types",
        "-- The oldest open run of each of these types.",
        "-- batch: t(type text)",
        "-- param: after timestamptz",
        "SELECT t.type, min(r.created_at) AS created_at FROM :t JOIN workflow.workflow_run r ON r.type = t.type",
        "WHERE r.finished_at IS NULL AND r.created_at > :after GROUP BY t.type ORDER BY t.type",
        "",
    ]
    scratch.append(f"{SRC}/store/sql/queries/runs.sql", "\n".join(one for one in lines if one not in left_out))


def add_generator(scratch: Scratch, decorator: str = "@reading\n") -> None:
    scratch.append(
        f"{SRC}/store/operations/runs.py",
        f"\n\n{decorator}def oldest(types: Sequence[str], after: datetime) -> Steps[dict[str, datetime]]:\n"
        '    rows = yield query("oldest_of_types", t=sorted({(type,) for type in types}), after=after)\n'
        '    return {row["type"]: row["created_at"] for row in rows}\n',
    )
    scratch.append(f"{SRC}/{OPERATORS}", "\n\nOLDEST = runs.oldest\n")


def expand(scratch: Scratch) -> None:
    """The part of `make gen` that shows what is sent; of SQL that is wrong it says so, as the checks do."""
    scratch.python("tools/expand_sql.py")


QUERY: Recipe = {"block": add_block, "generator": add_generator, "gen": expand}
BROKEN_QUERIES: dict[str, tuple[Recipe, str]] = {
    "no block": ({"generator": add_generator}, "asks for {'oldest_of_types'}: no `-- name:` in store/sql/queries"),
    "no generator": ({"block": add_block}, "nothing asks for oldest_of_types"),
    "no gen": ({"block": add_block, "generator": add_generator}, "run: make gen, and read the diff"),
    "no parameter": (
        {"block": lambda scratch: add_block(scratch, "-- param: after timestamptz"), "generator": add_generator},
        "runs.sql: oldest_of_types: uses :after without `-- param: after TYPE`",
    ),
    "no batch": (
        {"block": lambda scratch: add_block(scratch, "-- batch: t(type text)"), "generator": add_generator},
        "runs.sql: oldest_of_types: uses :t without `-- param: t TYPE`; or is it a `-- batch:`?",
    ),
    "no decorator": (
        {"block": add_block, "generator": lambda scratch: add_generator(scratch, "")},
        "asks for runs.oldest of store/operations: decorate it with @reading, @statements or @transaction",
    ),
}


def test_a_query_is_added_as_the_recipe_says(tmp_path: Path) -> None:
    assert_recipe_works(tmp_path, QUERY, QUERY_FILES, QUERY_CHECKS)
    text = recipe_text("Add a query")
    for named in (
        "store/sql/queries",
        "store/operations",
        *QUERY_FILES,
        "-- name:",
        "-- param:",
        "-- batch:",
        "@reading",
    ):
        assert f"`{named}`" in text


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN_QUERIES)
def test_a_query_that_lacks_a_step_is_missed_with_a_sentence(tmp_path: Path, what: str) -> None:
    recipe, message = BROKEN_QUERIES[what]
    assert_step_is_missed(tmp_path, recipe, "", message, QUERY_FILES, QUERY_CHECKS)


# Add a move of operators

MOVE_FILES = (
    "tests/model/test_moves.py",
    "tests/tidy/test_law.py",
    "tests/store/test_catalog.py",
    "tests/store/test_expanded_sql.py",
    "tests/store/test_matrix.py",
)
MOVE_CHECKS = "unpause or has_a_statement or asks_for or asks_of_the_store or knows_every or reviewer_sees"


def add_row(scratch: Scratch) -> None:
    row = 'Move("unpause", _to(Status.PAUSED), _PENDING, Needs.NOTHING, EventType.RELEASED, _OPERATORS)'
    scratch.insert(f"{SRC}/model/moves.py", '        Move("revive"', f"        {row},\n")


def add_statement(scratch: Scratch, version: str = "version = r.version + 1, ") -> None:
    scratch.append(
        f"{SRC}/store/sql/queries/runs.sql",
        "\n-- name: unpause_runs\n-- What they wait for is not waited for any longer.\n-- batch: b(run_id uuid)\n"
        f"UPDATE workflow.workflow_run AS r\nSET status = 'pending', {version}run_at = :now, updated_at = :now\n"
        "FROM :b\nWHERE r.id = b.run_id AND r.status = 'paused'\nRETURNING id, lease_epoch\n",
    )


def add_operation(scratch: Scratch) -> None:
    scratch.append(
        f"{SRC}/store/operations/runs.py",
        "\n\n@transaction\ndef unpause(run_ids: Sequence[UUID]) -> Steps[list[Controlled]]:\n"
        '    return (yield from _control("unpause_runs", EventType.RELEASED, run_ids, {}))\n',
    )


def add_call(scratch: Scratch) -> None:
    scratch.append(
        f"{SRC}/{OPERATORS}",
        "\n\nasync def unpause(client: Client, run_id: UUID) -> Run:\n"
        "    return await _control(client, runs.unpause([run_id]), run_id, Hint.READY)\n",
    )


def teach_matrix(scratch: Scratch) -> None:
    scratch.insert("tests/store/test_matrix.py", '"cancel": runs.cancel', '"unpause": runs.unpause, ')


MOVE: Recipe = {
    "row": add_row,
    "statement": add_statement,
    "gen": expand,
    "operation": add_operation,
    "call": add_call,
    "matrix": teach_matrix,
}
MISSED_MOVES = {
    "row": "unpause_runs goes from paused to 'pending', proves nothing: no row of MOVES in model/moves.py says so",
    "statement": "no statement in store/sql/queries makes unpause",
    "gen": "run: make gen, and read the diff",
    "operation": "operations.runs' has no attribute 'unpause'",
    "call": "nothing asks the store for unpause",
    "matrix": "a new move needs a line in BY_JOURNAL or BY_CONTROL, or one in perform()",
}


def test_a_move_is_added_as_the_recipe_says(tmp_path: Path) -> None:
    assert_recipe_works(tmp_path, MOVE, MOVE_FILES, MOVE_CHECKS)
    text = recipe_text("Add a move")
    for named in ("model/moves.py", "store/sql/queries/runs.sql", "store/operations/runs.py", OPERATORS, *MOVE_FILES):
        assert f"`{named}`" in text


@pytest.mark.slow
@pytest.mark.parametrize("step", MISSED_MOVES)
def test_a_move_that_lacks_a_step_is_missed_with_a_sentence(tmp_path: Path, step: str) -> None:
    assert_step_is_missed(tmp_path, MOVE, step, MISSED_MOVES[step], MOVE_FILES, MOVE_CHECKS)


@pytest.mark.slow
def test_a_move_that_forgets_the_version_is_missed_with_a_sentence(tmp_path: Path) -> None:
    recipe = MOVE | {"statement": lambda scratch: add_statement(scratch, "")}
    assert_step_is_missed(tmp_path, recipe, "", "unpause_runs: version + 1", MOVE_FILES, MOVE_CHECKS)


@pytest.mark.slow
def test_a_performer_that_the_table_does_not_name_is_missed_with_a_sentence(tmp_path: Path) -> None:
    def name_another(scratch: Scratch) -> None:
        add_row(scratch)
        file = scratch.package / "model" / "moves.py"
        file.write_text(re.sub(r'("unpause".*)_OPERATORS', r"\1_SWEEP", file.read_text()))

    message = f"the performers of unpause in model/moves.py should be {OPERATORS}"
    assert_step_is_missed(tmp_path, MOVE | {"row": name_another}, "", message, MOVE_FILES, MOVE_CHECKS)


# Add the end of an execution

ENDING_FILES = (*MOVE_FILES, "tests/worker/test_metrics.py")
ENDING_CHECKS = "postpone or has_a_statement or knows_every or every_move_of_the_journal or told_by_its_name"


def add_ending(scratch: Scratch) -> None:
    row = '_ends("postpone", _PENDING, EventType.RELEASED)'
    scratch.insert(f"{SRC}/model/moves.py", '        _ends("overrun"', f"        {row},\n")


def add_constructor(scratch: Scratch) -> None:
    text = (
        "def postpone(lease: Any, *, elapsed: float, delay: float) -> Ending:\n"
        '    return _ending("postpone", lease, elapsed, delay=delay)\n\n\n'
    )
    scratch.insert(f"{SRC}/model/moves.py", "def release(lease", text)


def add_reason(scratch: Scratch) -> None:
    scratch.insert(f"{SRC}/worker/metrics.py", '    "pause": EventType', '    "postpone": EventType.RELEASED,\n')


def teach_tests(scratch: Scratch) -> None:
    example = '"postpone": moves.postpone(lease(), elapsed=1.5, delay=3),\n    '
    scratch.insert("tests/model/test_moves.py", '"overrun": moves.overrun', example)
    reason = '("workflow_run_yielded_total", TYPE, "w1", "released")'
    example = f'"postpone": (moves.postpone(one, elapsed=1.0, delay=0.0), {reason}),\n        '
    scratch.insert("tests/worker/test_metrics.py", '"release": (moves.hand_back', example)
    counted = 'execution_duration_seconds", TYPE, "w1", "pending") == 3'
    file = scratch.root / "tests/worker/test_metrics.py"
    file.write_text(file.read_text().replace(counted, counted.replace("3", "4")))
    example = '"postpone": lambda lease: moves.postpone(lease, elapsed=0.01, delay=0.0),\n    '
    scratch.insert("tests/store/test_matrix.py", '"overrun": overran', example)
    scratch.insert("tests/store/test_matrix.py", "from simpleworkflow.model.moves", IMPORT)


IMPORT = "from simpleworkflow.model import moves\n"
ENDING: Recipe = {
    "row": add_ending,
    "constructor": add_constructor,
    "reason": add_reason,
    "examples": teach_tests,
}
MISSED_ENDINGS = {
    "row": "KeyError: 'postpone'",
    "constructor": "has no attribute 'postpone'",
    "reason": "a new move of the journal needs a name in worker/metrics.py",
    "examples": "a new move needs a line in BY_JOURNAL or BY_CONTROL, or one in perform()",
}


@pytest.mark.slow
def test_an_ending_is_added_as_the_recipe_says(tmp_path: Path) -> None:
    assert_recipe_works(tmp_path, ENDING, ENDING_FILES, ENDING_CHECKS)
    text = recipe_text("Add a move")
    for named in ("model/moves.py", "worker/metrics.py", *ENDING_FILES):
        assert f"`{named}`" in text


@pytest.mark.slow
@pytest.mark.parametrize("step", MISSED_ENDINGS)
def test_an_ending_that_lacks_a_step_is_missed(tmp_path: Path, step: str) -> None:
    assert_step_is_missed(tmp_path, ENDING, step, MISSED_ENDINGS[step], ENDING_FILES, ENDING_CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "files", "checks"),
    [
        pytest.param(QUERY, QUERY_FILES, "test_catalog or test_law or test_expanded_sql", id="query"),
        pytest.param(MOVE, MOVE_FILES, f"{MOVE_CHECKS} or test_law", id="move"),
        pytest.param(ENDING, ENDING_FILES, f"{ENDING_CHECKS} or test_law", id="ending"),
    ],
)
def test_a_recipe_holds_on_both_databases(tmp_path: Path, recipe: Recipe, files: tuple[str, ...], checks: str) -> None:
    assert_recipe_works(tmp_path, recipe, files, checks, EVERYWHERE)
