"""Reads the `.sql` files and turns them into statements that a driver can execute.

SQL is written once, portable, in `sql/queries/NOUN.sql`; `NOUN.postgres.sql` or `NOUN.sqlite.sql` may override a
statement by name and must say why (`-- differs:`). The small notation that makes one text fit two databases is told in
`sql/README.md`: `:name` parameters with declared types, batches (tables as parameters), `:now`, `us(x)`, fragments in
braces. The file `workflow.` prefix becomes the configured schema on PostgreSQL and disappears on SQLite.

An override without text means: another statement does this work on that database; drivers skip it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

DIALECTS = ("postgres", "sqlite")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_BATCH = re.compile(r"(\w+)\((.*)\)\s*$")

Columns = tuple[tuple[str, str], ...]
"""The names and types of a batch."""


class CatalogError(Exception):
    """A .sql file breaks the rules of sql/README.md."""


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
    each: str | None = None
    """A batch whose rows must be executed one by one."""
    for_one: str = ""
    """The text for batches of one row each, as plain parameters."""


@dataclass(slots=True)
class _Source:
    name: str
    where: str
    lines: list[str]
    batches: dict[str, Columns]
    types: dict[str, str]
    differs: str | None = None
    like: str | None = None
    each: str | None = None
    replacing: list[tuple[str, str]] | None = None

    @property
    def body(self) -> str:
        return "\n".join(self.lines).strip()


@cache
def statements(dialect: str, schema: str = "workflow") -> dict[str, Statement]:
    """Every statement of one dialect, by name."""
    sources, fragments = _load(dialect)
    return {name: _compile(_resolve(source, sources), fragments, dialect, schema) for name, source in sources.items()}


def _load(dialect: str) -> tuple[dict[str, _Source], dict[str, str]]:
    sources: dict[str, _Source] = {}
    fragments: dict[str, str] = {}
    folder = files(__package__) / "sql" / "queries"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    portable = [n for n in names if n.count(".") == 1]
    overrides = [n for n in names if n.split(".")[1:-1] == [dialect]]
    for file in portable + overrides:
        for source in _parse((folder / file).read_text(encoding="utf-8"), file):
            if source.name.startswith("{"):
                fragments[source.name.strip("{}")] = source.body
                continue
            if file in overrides and not source.differs:
                raise CatalogError(f"{file}: {source.name} overrides without a `-- differs:` line that says why")
            if file in portable and source.name in sources:
                raise CatalogError(f"{file}: {source.name} is defined twice")
            sources[source.name] = source
    return sources, fragments


def _parse(text: str, where: str) -> list[_Source]:
    found: list[_Source] = []
    for line in text.splitlines():
        head = re.match(r"-- (name|batch|param|each|differs|like|replacing|fragment): ?(.*)", line)
        if head is None:
            if found and not line.startswith("--"):
                found[-1].lines.append(line)
            continue
        key, value = head.groups()
        if key in {"name", "fragment"}:
            name = value.strip() if key == "name" else "{" + value.strip() + "}"
            found.append(_Source(name, where, [], {}, {}))
            continue
        if not found:
            raise CatalogError(f"{where}: `-- {key}:` before the first `-- name:`")
        try:
            _annotate(found[-1], key, value)
        except (ValueError, IndexError):
            raise CatalogError(f"{where}: {found[-1].name}: cannot read `-- {key}: {value}`") from None
    return found


def _annotate(source: _Source, key: str, value: str) -> None:
    if key == "batch":
        match = _BATCH.match(value)
        if match is None:
            raise ValueError(value)
        columns = tuple((c.split()[0], c.split()[1]) for c in match[2].split(","))
        source.batches[match[1]] = columns
    elif key == "param":
        for one in value.split(","):
            name, kind = one.split()
            source.types[name] = kind
    elif key == "differs":
        source.differs = value
    elif key in {"like", "each"}:
        setattr(source, key, value.strip())
    else:
        old, new = value.split(" -> ")
        source.replacing = [*(source.replacing or []), (old.strip(), new.strip())]


def _resolve(source: _Source, sources: dict[str, _Source]) -> _Source:
    if source.like is None:
        return source
    if source.like not in sources:
        raise CatalogError(f"{source.where}: {source.name} is like {source.like}, which is nowhere")
    model = _resolve(sources[source.like], sources)
    body = model.body
    for old, new in source.replacing or []:
        if old not in body:
            raise CatalogError(f"{source.name}: {old!r} is not in {model.name}")
        body = body.replace(old, new)
    batches, types = model.batches | source.batches, model.types | source.types
    return _Source(source.name, source.where, [body], batches, types, each=source.each or model.each)


def _compile(source: _Source, fragments: dict[str, str], dialect: str, schema: str) -> Statement:
    body = source.body
    for name, fragment in {**fragments, "schema": schema}.items():
        body = body.replace("{" + name + "}", fragment)
    body = place(_expand_us(body, dialect), dialect, schema)
    order: list[str] = []

    def written(table: Callable[[str, Columns, int], str]) -> str:
        return _PARAMETER.sub(lambda match: _postgres_parameter(match[1], source, order, table), body)

    if dialect == "postgres":
        text, for_one = written(_postgres_table), written(_postgres_row)
    else:
        text = for_one = _PARAMETER.sub(lambda match: _sqlite_parameter(match[1], source, order), body)
    if source.each is not None and source.each not in source.batches:
        raise CatalogError(f"{source.where}: {source.name}: each {source.each!r} is not one of its batches")
    return Statement(source.name, dialect, text, tuple(order), source.batches, source.types, body, source.each, for_one)


def place(text: str, dialect: str, schema: str) -> str:
    """Put the tables where they live: a schema on PostgreSQL, nowhere in particular on SQLite."""
    return re.sub(r"\bworkflow\.(?=\w)", f"{schema}." if dialect == "postgres" else "", text)


def _postgres_parameter(name: str, source: _Source, order: list[str], table: Callable[[str, Columns, int], str]) -> str:
    if name == "now":
        return "now()"
    columns = source.batches.get(name)
    kind = None if columns is not None else _type_of(name, source)
    if name not in order:
        order.append(name)
    position = 1 + sum(len(source.batches.get(other, (0,))) for other in order[: order.index(name)])
    return f"${position}::{kind}" if columns is None else table(name, columns, position)


def _postgres_row(name: str, columns: Columns, start: int) -> str:
    """A table of one row: no array has to be made, read and taken apart, and nobody has to be asked what it is."""
    values = ", ".join(f"${start + i}::{kind} AS {column}" for i, (column, kind) in enumerate(columns))
    return f"(SELECT {values}) AS {name}"


def _postgres_table(name: str, columns: Columns, start: int) -> str:
    """Arrays side by side. JSON comes as text: asyncpg writes the elements of an array of json three times slower."""
    sent = [("text" if kind == "json" else kind) for _, kind in columns]
    arrays = ", ".join(f"${start + i}::{kind}[]" for i, kind in enumerate(sent))
    table = f"unnest({arrays}) AS {name}({', '.join(column for column, _ in columns)})"
    if "json" not in {kind for _, kind in columns}:
        return table
    wanted = ", ".join(f"CAST({column} AS json) AS {column}" if kind == "json" else column for column, kind in columns)
    return f"(SELECT {wanted} FROM {table}) AS {name}"  # noqa: S608 - names of our own files


def _sqlite_parameter(name: str, source: _Source, order: list[str]) -> str:
    if name not in order:
        order.append(name)
    if name in source.batches:
        columns = ", ".join(
            f"json_extract(value, '$[{i}]') AS {column}" for i, (column, _) in enumerate(source.batches[name])
        )
        return f"(SELECT {columns} FROM json_each(:{name})) AS {name}"  # noqa: S608 - names of our own files
    if name != "now":
        _type_of(name, source)
    return f":{name}"


def _type_of(name: str, source: _Source) -> str:
    try:
        return source.types[name]
    except KeyError:
        raise CatalogError(
            f"{source.where}: {source.name} uses :{name} without `-- param: {name} TYPE`; or is it a `-- batch:`?"
        ) from None


def _expand_us(body: str, dialect: str) -> str:
    """us(x): x microseconds as that database adds them to an instant."""
    out, i = [], 0
    for match in re.finditer(r"\bus\(", body):
        if match.start() < i:
            raise CatalogError("us() cannot be nested")
        depth, end = 1, match.end()
        while depth:
            if end == len(body):
                raise CatalogError(f"a us( is never closed: {body[match.start() :][:60]}")
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
