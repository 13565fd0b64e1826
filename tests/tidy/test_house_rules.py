"""The house rules that a machine can keep. Exceptions stand here with their reason; the list can only shrink."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "simpleworkflow"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in SOURCES]

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
LONG_FILES = {"client/generated/sync.py": 1000}  # generated, and read by nobody
SQL = re.compile(r"\b(SELECT\s+\S|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE (TABLE|INDEX|SCHEMA))")
SQL_ALLOWED = {"store/drivers/postgres.py", "store/drivers/sqlite.py"}  # BEGIN, PRAGMA and a ping: session control
CLOCKS = re.compile(r"\b(datetime\.(now|utcnow|today)|time\.(time|time_ns|monotonic|perf_counter|sleep))\b")
STATES = {"pending", "leased", "paused", "succeeded", "cancelled", "timed_out"}


@pytest.fixture(params=SOURCES, ids=NAMES)
def source(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """String literals that are not documentation."""
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node


def test_a_file_has_one_purpose_and_fits_on_a_few_screens(source: Path) -> None:
    lines = source.read_text().count("\n")
    assert lines <= LONG_FILES.get(name_of(source), LONGEST_FILE)


def test_a_file_says_what_it_is_for(source: Path) -> None:
    assert ast.get_docstring(ast.parse(source.read_text())), "a file opens with a short essay"


def test_a_function_fits_on_one_screen(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"


def test_sql_stands_in_sql_files_only(source: Path) -> None:
    if name_of(source) in SQL_ALLOWED:
        return
    for literal in strings(ast.parse(source.read_text())):
        assert not SQL.search(literal.value), f"line {literal.lineno}: {literal.value[:60]!r}"


def test_only_the_clock_reads_the_clock(source: Path) -> None:
    if name_of(source) == "clock.py":
        return
    for number, line in enumerate(source.read_text().splitlines(), 1):
        assert not CLOCKS.search(line), f"line {number}: {line.strip()}"


def test_state_names_are_spelled_in_the_law_only(source: Path) -> None:
    if name_of(source) == "model/states.py":
        return
    for literal in strings(ast.parse(source.read_text())):
        assert literal.value not in STATES, f"line {literal.lineno} spells {literal.value!r}; use Status or EventType"


def test_nothing_is_pickled_evaluated_or_imported_by_name(source: Path) -> None:
    tree = ast.parse(source.read_text())
    banned = {"pickle", "marshal", "shelve", "cloudpickle", "dill"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not banned & {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in banned
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "__import__"}
    # The operator names the module of an App on the command line; the tree of commands names modules of its own table.
    if name_of(source) not in {"cli/common/load_app.py", "cli/main.py"}:
        assert "import_module" not in source.read_text()


def test_every_test_name_is_a_sentence() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                assert node.name.count("_") >= 3, f"{path.name}: {node.name} is not a sentence"


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    pattern = re.compile(r"mark\.(skip|skipif|xfail)|pytest\.(skip|xfail|importorskip)\(")
    for path in (ROOT / "tests").rglob("*.py"):
        if path != Path(__file__):
            assert not pattern.search(path.read_text()), f"{path.name} skips"


def test_the_repository_names_no_machine() -> None:
    for pattern in ("*.py", "*.md", "*.sql", "*.toml", "Makefile"):
        for path in ROOT.rglob(pattern):
            parts = path.relative_to(ROOT).parts
            if parts[0].startswith(".") or path == Path(__file__):
                continue
            assert not re.search(r"/(work|root|home|Users)/\w", path.read_text()), f"{path} names a machine's folder"


def test_nobody_is_sent_to_a_package_index_for_our_name() -> None:
    """It is not there; another package of that name might be. Messages take the line from model/install.py."""
    index = re.compile(r"pip install [^\n`]*?(?<![/\w])simpleworkflow\b")
    for folder, pattern in (("docs", "**/*.md"), ("src", "**/*.py"), ("examples", "**/*.py")):
        for path in sorted((ROOT / folder).glob(pattern)):
            if path != PACKAGE / "model" / "install.py":
                assert not index.search(path.read_text()), path


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_names_the_two_commands_and_ci_runs_one() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text()
