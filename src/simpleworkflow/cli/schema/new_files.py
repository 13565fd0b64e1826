"""`simpleworkflow migrate create NAME`: writes an empty migration for both databases.

A migration is a pair, FOLDER/postgres/NNNN_name.sql and FOLDER/sqlite/NNNN_name.sql, in dbmate's format. The number is
one more than the highest in either folder. Nothing is overwritten.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..common.exit_codes import CALLED_WRONGLY
from ..common.output import fail

DIALECTS = ("postgres", "sqlite")
TEMPLATE = """-- {title}: say in a sentence what it is for.

-- migrate:up


-- migrate:down

"""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_FILE = re.compile(r"(\d+)_(\w+)\.sql")


def create_pair(name: str, folder: Path | None) -> list[Path]:
    if not _NAME.fullmatch(name):
        fail(
            f"{name!r} cannot be the name of a migration; use lower-case letters, digits and _, beginning with a"
            " letter, such as add_due_index",
            CALLED_WRONGLY,
        )
    home = folder or own_folder()
    found = [match for match in map(_FILE.fullmatch, _names_in(home)) if match]
    taken = [match[0] for match in found if match[2] == name]
    if taken:
        fail(f"there is a migration of that name already: {taken[0]}")
    number = 1 + max((int(match[1]) for match in found), default=0)
    paths = [home / dialect / f"{number:04}_{name}.sql" for dialect in DIALECTS]
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x") as file:
                file.write(TEMPLATE.format(title=name.replace("_", " ").capitalize()))
    except OSError as error:
        fail(f"the migration could not be written: {error}")
    return paths


def own_folder() -> Path:
    """The migrations of the package, in a checkout only."""
    package = Path(__file__).resolve().parents[2]
    if not (package.parents[1] / "pyproject.toml").is_file():
        fail("simpleworkflow is installed, not checked out: its own migrations come with it; name a folder with --dir")
    return package / "store" / "sql" / "migrations"


def _names_in(folder: Path) -> list[str]:
    return [path.name for dialect in DIALECTS for path in sorted((folder / dialect).glob("*.sql"))]
