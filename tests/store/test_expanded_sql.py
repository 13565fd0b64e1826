"""What is sent, written down: the generated files of tools/expand_sql.py are current, and show all that is sent.

The sources are made of fragments, so a reviewer of a source does not see what becomes of the statements that use them.
The files do; they are worth something only as long as nobody can forget to regenerate them.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from simpleworkflow.store import catalog

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import expand_sql

    return expand_sql


def test_a_reviewer_sees_every_change_of_what_is_sent(tool: ModuleType) -> None:
    assert tool.stale() == [], "run: make gen, and read the diff"


def test_a_changed_statement_makes_its_expanded_file_stale(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above can fail: one word in one source does it, on that database."""
    shutil.copytree(Path(catalog.__file__).parent / "sql" / "queries", tmp_path / "sql" / "queries")
    monkeypatch.setattr(catalog, "files", lambda package: tmp_path)
    monkeypatch.setattr(tool, "statements", catalog.statements.__wrapped__)  # not those that are remembered
    assert tool.stale() == []
    timeline = tmp_path / "sql" / "queries" / "timeline.postgres.sql"
    timeline.write_text(timeline.read_text().replace(", 1, 8)", ", 1, 9)"))
    assert [path.name for path in tool.stale()] == ["postgres.sql"]


def test_a_missing_file_is_stale_and_written_anew(tool: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "generated"
    assert len(tool.stale(target)) == 2
    tool.write(target)
    assert tool.stale(target) == []


@pytest.mark.parametrize("dialect", catalog.DIALECTS)
def test_every_statement_stands_there_with_its_exact_text(tool: ModuleType, dialect: str) -> None:
    written = (tool.TARGET / f"{dialect}.sql").read_text()
    known = catalog.statements(dialect)
    assert re.findall(r"^-- name: (\w+)$", written, flags=re.MULTILINE) == list(known)
    for statement in known.values():
        (block,) = re.findall(rf"^-- name: {statement.name}\n.*?(?=\n\n-- name: |\Z)", written, flags=re.M | re.S)
        assert block.strip().endswith(statement.text or "another statement does this here")


def test_a_parameter_is_told_with_its_place(tool: ModuleType) -> None:
    numbered = catalog.statements("postgres")["lock_leases"]
    assert "-- parameters: $1 to $2 b(run_id uuid, epoch bigint), $3 worker text" in tool._block(numbered)
    named = catalog.statements("sqlite")["log_leased"]
    assert "-- parameters: :worker text, :now instant, :e(run_id uuid, epoch bigint)" in tool._block(named)
    assert "-- sent once for each row of b" in tool._block(catalog.statements("sqlite")["cancel_runs"])
