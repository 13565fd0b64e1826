"""Turns the `.sql` files into statements that a driver can execute.

SQL is written once, portable, in `sql/queries/NOUN.sql`; `NOUN.postgres.sql` or `NOUN.sqlite.sql` may override a
statement or a fragment by name and must say why (`-- differs:`). The small notation that makes one text fit two
databases is told in `sql/README.md`. `notation.py` reads the files and `fragments.py` puts fragments in their places;
here `:name` becomes the database's own parameter, a batch becomes a table, `us(x)` a span of time, and the prefix
`workflow.` the configured schema on PostgreSQL and nothing on SQLite.

An override without text means: another statement does this work on that database; drivers skip it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from .fragments import Fragments, indented
from .notation import Block, CatalogError, Columns, parse

__all__ = ["DIALECTS", "CatalogError", "Statement", "adapt_batch", "place", "statements"]

DIALECTS = ("postgres", "sqlite")
_WIDTH = 110
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement for one dialect: text with that driver's placeholders, and how to bind."""

    name: str
    dialect: str
    text: str
    order: tuple[str, ...]
    batches: dict[str, Columns]
    types: dict[str, str]
    source: str
    """The text with named parameters, for drivers of callers' own connections."""
    file: str
    """Where it is written."""
    each: str | None = None
    """A batch whose rows must be executed one by one."""
    for_one: str = ""
    """The text for batches of one row each, as plain parameters."""


@cache
def statements(dialect: str, schema: str = "workflow") -> dict[str, Statement]:
    """Every statement of one dialect, by name."""
    blocks, fragments = _load(dialect)
    return _compiled(blocks, Fragments(fragments, schema), dialect)


def _load(dialect: str) -> tuple[dict[str, Block], dict[str, Block]]:
    """Statements and fragments by name, each as this dialect has it."""
    found: tuple[dict[str, Block], dict[str, Block]] = {}, {}
    folder = files(__package__) / "sql" / "queries"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    for file in names:
        if not file.endswith(tuple(f".{one}.sql" for one in DIALECTS)) and file.count(".") > 1:
            raise CatalogError(f"{file}: a file is NOUN.sql or NOUN.DIALECT.sql, with one of {', '.join(DIALECTS)}")
    portable = [file for file in names if file.count(".") == 1]
    overrides = [file for file in names if file.endswith(f".{dialect}.sql")]
    for file in portable + overrides:
        for block in parse((folder / file).read_text(encoding="utf-8"), file):
            _add(block, found[block.is_fragment], is_override=file in overrides)
    return found


def _add(block: Block, known: dict[str, Block], *, is_override: bool) -> None:
    before = known.get(block.name)
    if before is not None and (not is_override or before.file.count(".") > 1):
        raise block.mistake(f"is defined twice, here and in {before.file}")
    if block.differs and not is_override:
        raise block.mistake("says why it differs, but it is the portable one")
    if is_override and not block.differs and (before is not None or not block.is_fragment):
        raise block.mistake("overrides without a `-- differs:` line that says why")
    known[block.name] = block


def _compiled(blocks: dict[str, Block], fragments: Fragments, dialect: str) -> dict[str, Statement]:
    return {name: _compile(_resolve(block, blocks), fragments, dialect) for name, block in blocks.items()}


def _resolve(block: Block, blocks: dict[str, Block], asked: tuple[str, ...] = ()) -> Block:
    """A statement that is like another one, with that one's text."""
    if block.like is None:
        return block
    if block.like not in blocks:
        raise block.mistake(f"is like {block.like}, which is nowhere")
    if block.like in asked:
        raise block.mistake(f"is like {block.like}, which is like {block.name}")
    model = _resolve(blocks[block.like], blocks, (*asked, block.name))
    batches, types = model.batches | block.batches, model.types | block.types
    return Block(block.name, block.file, lines=model.lines, batches=batches, types=types, each=block.each or model.each)


def _compile(block: Block, fragments: Fragments, dialect: str) -> Statement:
    if block.each is not None and block.each not in block.batches:
        raise block.mistake(f"each {block.each!r} is not one of its batches")
    body = place(_expand_us(fragments.fill(block), block, dialect), dialect, fragments.schema)
    order: list[str] = []

    def written(table: Callable[[str, Columns, int], str]) -> str:
        return _PARAMETER.sub(lambda at: indented(_postgres_parameter(at[1], block, order, table), at), body)

    if dialect == "postgres":
        text, for_one = written(_postgres_table), written(_postgres_row)
    else:
        text = for_one = _PARAMETER.sub(lambda at: indented(_sqlite_parameter(at[1], block, order), at), body)
    unused = {*block.batches, *block.types}.difference(order)
    if body and unused:
        raise block.mistake(f"declares :{min(unused)} and does not use it")
    return Statement(
        name=block.name,
        dialect=dialect,
        text=text,
        order=tuple(order),
        batches=block.batches,
        types=block.types,
        source=body,
        file=block.file,
        each=block.each,
        for_one=for_one,
    )


def place(text: str, dialect: str, schema: str) -> str:
    """Put the tables where they live: a schema on PostgreSQL, nowhere in particular on SQLite."""
    return re.sub(r"\bworkflow\.(?=\w)", f"{schema}." if dialect == "postgres" else "", text)


def _postgres_parameter(name: str, block: Block, order: list[str], table: Callable[[str, Columns, int], str]) -> str:
    if name == "now":
        return "now()"
    columns = block.batches.get(name)
    kind = None if columns is not None else _type_of(name, block)
    if name not in order:
        order.append(name)
    position = 1 + sum(len(block.batches.get(other, (0,))) for other in order[: order.index(name)])
    return f"${position}::{kind}" if columns is None else table(name, columns, position)


def _postgres_row(name: str, columns: Columns, start: int) -> str:
    """A table of one row: no array has to be made, read and taken apart, and nobody has to be asked what it is."""
    values = _listed(f"${start + i}::{kind} AS {column}" for i, (column, kind) in enumerate(columns))
    return f"(SELECT {values}) AS {name}"


def _postgres_table(name: str, columns: Columns, start: int) -> str:
    """Arrays side by side. JSON comes as text: asyncpg writes the elements of an array of json three times slower."""
    sent = [("text" if kind == "json" else kind) for _, kind in columns]
    arrays = _listed(f"${start + i}::{kind}[]" for i, kind in enumerate(sent))
    table = f"unnest({arrays}) AS {name}({_listed(column for column, _ in columns)})"
    if "json" not in {kind for _, kind in columns}:
        return table
    wanted = _listed(f"CAST({column} AS json) AS {column}" if kind == "json" else column for column, kind in columns)
    return f"(SELECT {wanted}{_gap(wanted)}FROM {table}) AS {name}"


def _listed(items: Iterable[str]) -> str:
    """With commas, and with line breaks where that would be a line that nobody can read."""
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > _WIDTH:
            lines.append("")
        lines[-1] += f"{item}, "
    return "\n  ".join(line.rstrip() for line in lines).removesuffix(",")


def _gap(listed: str) -> str:
    return "\n" if "\n" in listed else " "


def _sqlite_parameter(name: str, block: Block, order: list[str]) -> str:
    if name not in order:
        order.append(name)
    if name in block.batches:
        columns = _listed(
            f"json_extract(value, '$[{i}]') AS {column}" for i, (column, _) in enumerate(block.batches[name])
        )
        return f"(SELECT {columns}{_gap(columns)}FROM json_each(:{name})) AS {name}"
    if name != "now":
        _type_of(name, block)
    return f":{name}"


def _type_of(name: str, block: Block) -> str:
    try:
        return block.types[name]
    except KeyError:
        raise block.mistake(f"uses :{name} without `-- param: {name} TYPE`; or is it a `-- batch:`?") from None


def _expand_us(body: str, block: Block, dialect: str) -> str:
    """us(x): x microseconds as that database adds them to an instant."""
    out, i = [], 0
    for match in re.finditer(r"\bus\(", body):
        if match.start() < i:
            raise block.mistake("us() cannot be nested")
        depth, end = 1, match.end()
        while depth:
            if end == len(body):
                raise block.mistake(f"a us( is never closed: {body[match.start() :][:60]}")
            depth += {"(": 1, ")": -1}.get(body[end], 0)
            end += 1
        inner = body[match.end() : end - 1]
        span = f"(({inner}) * interval '1 microsecond')" if dialect == "postgres" else f"({inner})"
        out += [body[i : match.start()], span]
        i = end
    return "".join([*out, body[i:]])


def adapt_batch(rows: list[tuple[Any, ...]], width: int) -> list[list[Any] | None]:
    """Rows to columns, as array parameters want them. A column of nothing but NULL need not be sent: arrays side by
    side are as long as the longest, so the first one always is."""
    if not rows:
        return [[] for _ in range(width)]
    first, *others = zip(*rows, strict=True)
    return [list(first), *(None if _is_empty(column) else list(column) for column in others)]


def _is_empty(column: tuple[Any, ...]) -> bool:
    return column[0] is None and column.count(None) == len(column)
