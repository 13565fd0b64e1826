"""Write every statement as it is sent to src/simpleworkflow/store/sql/generated/{postgres,sqlite}.sql.

The sources in store/sql/queries are portable and made of fragments. What a database is really asked is only seen after
the catalogue has put them together; these files show it, for reading and for review: a change of a fragment shows in
every statement that uses it. They are generated and never read by the package, so they are not part of the wheel.

The text of a statement is exactly what the driver sends, in the schema `workflow`. Not shown is the second text that
PostgreSQL is sent for batches of one row: it differs only where a batch stands (store/sql/README.md).

`python tools/expand_sql.py --check` only compares, as a test does.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from simpleworkflow.store.catalog import DIALECTS, Statement, statements

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "simpleworkflow" / "store" / "sql" / "generated"
HEAD = """\
-- Every statement exactly as it is sent to {database}. Generated from store/sql/queries by tools/expand_sql.py; do not
-- edit, run `make gen`. A batch is sent as {batch}.
"""
DATABASES = {
    "postgres": {"database": "PostgreSQL", "batch": "one array per column; one row alone is sent as plain values"},
    "sqlite": {"database": "SQLite", "batch": "one JSON text, an array of rows"},
}
WIDTH = 120
TOGETHER = "\N{NO-BREAK SPACE}"


def expanded(dialect: str) -> str:
    """The file of one database: the statements in the order in which they are written."""
    blocks = [_block(statement) for statement in statements(dialect).values()]
    return "\n".join([HEAD.format(**DATABASES[dialect]), *blocks])


def _block(statement: Statement) -> str:
    lines = [f"-- name: {statement.name}", f"-- file: {statement.file}"]
    if statement.order:
        lines += _commented("parameters: " + ", ".join(_parameters(statement)))
    if statement.each and statement.dialect == "sqlite":
        lines.append(f"-- sent once for each row of {statement.each}")
    lines.append(statement.text or "-- nothing is sent: another statement does this here")
    return "\n".join(lines) + "\n"


def _commented(text: str) -> list[str]:
    lines = textwrap.wrap(
        text, WIDTH, initial_indent="-- ", subsequent_indent="--   ", break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(TOGETHER, " ") for line in lines]


def _parameters(statement: Statement) -> Iterator[str]:
    """Each parameter with its place: numbers on PostgreSQL, where a batch takes one for each column, else names."""
    number = 1
    for name in statement.order:
        columns = statement.batches.get(name)
        last = number + len(columns or (name,)) - 1
        numbers = f"${number} " if last == number else f"${number} to ${last} "
        number = last + 1
        place = numbers if statement.dialect == "postgres" else ":"
        if columns is None:
            yield _together(f"{place}{name} {'instant' if name == 'now' else statement.types[name]}")
        else:
            yield f"{_together(place)}{name}({', '.join(_together(' '.join(column)) for column in columns)})"


def _together(words: str) -> str:
    """No line is broken between them."""
    return words.replace(" ", TOGETHER)


def stale(target: Path = TARGET) -> list[Path]:
    """The files that are not what the sources make of them now."""
    files = {target / f"{dialect}.sql": expanded(dialect) for dialect in DIALECTS}
    return [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def write(target: Path = TARGET) -> None:
    target.mkdir(exist_ok=True)
    for dialect in DIALECTS:
        (target / f"{dialect}.sql").write_text(expanded(dialect), encoding="utf-8")


def main(check: bool) -> int:
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale())
    if names and not check:
        write()
    print(f"{'differs' if check else 'written'}: {names}" if names else "the expanded SQL is current")
    return 1 if check and names else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
