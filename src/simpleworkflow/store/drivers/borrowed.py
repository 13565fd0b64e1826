"""A caller's own connection: the run exists if and only if the caller's transaction commits.

Connections are recognised by the module of their class, so none of these packages is imported unless the caller did
so already. The statements are the catalogue's own; only the placeholders are rewritten. Nothing is committed here.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from ...clock import Clock, SystemClock
from ...model.errors import InvalidInput, MissingMigration, StoreError
from ..catalog import Statement, statements
from ..protocol import Operation, Rows, Script, Wanted, drive, drive_async
from ..url import DatabaseURL
from . import sqlite_values as lite

T = TypeVar("T")

_NOT_CONNECTIONS = {"Pool", "Engine", "AsyncEngine", "sessionmaker", "async_sessionmaker"}
"""They make connections; a transaction of the caller's is not among what they have."""
_CAST = re.compile(r"\$(\d+)::(\w+(?:\[\])?)")


async def run_on(connection: Any, url: DatabaseURL, operation: Operation[T], clock: Clock | None = None) -> T:
    """Run an operation inside the caller's open transaction. Blocking connections are driven without awaiting."""
    kind = "" if type(connection).__name__ in _NOT_CONNECTIONS else _kind(connection)
    session = getattr(connection, "sync_session", None) or getattr(connection, "sync_connection", None)
    if kind == "asyncpg":
        return await drive_async(operation.steps(), _Asyncpg(connection, url).execute)
    if kind == "psycopg" and "Async" in type(connection).__name__:
        return await drive_async(operation.steps(), _Psycopg(connection, url).execute_async)
    if kind == "psycopg":
        return drive(operation.steps(), _Psycopg(connection, url).execute)
    if kind == "sqlite3":
        return drive(operation.steps(), _Sqlite(connection, url, clock).execute)
    if kind == "sqlalchemy" and session is not None:
        return await drive_async(operation.steps(), _SqlAlchemy(connection, url, clock).execute_async)
    if kind == "sqlalchemy":
        return drive(operation.steps(), _SqlAlchemy(connection, url, clock).execute)
    raise InvalidInput(
        "connection= takes an open asyncpg, psycopg (3), sqlite3 or SQLAlchemy connection, "
        f"not {_shown(type(connection))}"
    )


def _shown(kind: type) -> str:
    """psycopg2 calls its class `connection`: the module says whose it is."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _kind(connection: Any) -> str:
    for base in type(connection).__mro__:
        root = base.__module__.split(".")[0]
        if root in {"asyncpg", "psycopg", "sqlite3", "sqlalchemy"}:
            return root
    return ""


def _numbered(statement: Statement, wanted: Any) -> list[Any]:
    from .postgres import bind

    return bind(statement, wanted.parameters)


class _Borrowed:
    dialect = "postgres"

    def __init__(self, connection: Any, url: DatabaseURL, clock: Clock | None = None) -> None:
        if url.dialect != self.dialect:
            raise InvalidInput(
                f"this App uses {url.dialect}, but connection= is a {type(connection).__module__} connection"
            )
        self._connection = connection
        self._statements = statements(url.dialect, url.schema)
        self._clock = clock or SystemClock()

    def _statement(self, wanted: Wanted) -> Statement:
        if isinstance(wanted, Script):
            raise StoreError("a script cannot run in a borrowed transaction")
        return self._statements[wanted.name]


class _Asyncpg(_Borrowed):
    async def execute(self, wanted: Wanted) -> Rows:
        statement = self._statement(wanted)
        rows: Rows = await self._connection.fetch(statement.text, *_numbered(statement, wanted))
        return rows


class _Psycopg(_Borrowed):
    def _prepare(self, wanted: Wanted) -> tuple[str, dict[str, Any]]:
        statement = self._statement(wanted)
        text = _CAST.sub(r"%(p\1)s::\2", statement.text.replace("%", "%%"))
        return text, {f"p{n}": value for n, value in enumerate(_numbered(statement, wanted), 1)}

    def execute(self, wanted: Wanted) -> Rows:
        text, values = self._prepare(wanted)
        with self._connection.cursor() as cursor:
            cursor.execute(text, values)
            return _rows(cursor, cursor.fetchall() if cursor.description else [])

    async def execute_async(self, wanted: Wanted) -> Rows:
        text, values = self._prepare(wanted)
        async with self._connection.cursor() as cursor:
            await cursor.execute(text, values)
            return _rows(cursor, await cursor.fetchall() if cursor.description else [])


def _rows(cursor: Any, rows: list[Any]) -> Rows:
    names = [column[0] for column in cursor.description or []]
    return [row if isinstance(row, dict) else dict(zip(names, row, strict=True)) for row in rows]


class _Sqlite(_Borrowed):
    dialect = "sqlite"

    def execute(self, wanted: Wanted) -> Rows:
        import sqlite3

        statement = self._statement(wanted)
        try:
            cursor = self._connection.execute(statement.text, lite.bind(statement, wanted, self._clock.wall()))  # type: ignore[arg-type]
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise MissingMigration("that SQLite file has no tables yet; await app.migrate() once before") from error
            raise
        return lite.read_rows(cursor.description or (), rows)


class _SqlAlchemy(_Borrowed):
    def __init__(self, connection: Any, url: DatabaseURL, clock: Clock | None) -> None:
        self.dialect = url.dialect
        super().__init__(connection, url, clock)

    def _prepare(self, wanted: Wanted) -> tuple[Any, dict[str, Any]]:
        from sqlalchemy import text

        statement = self._statement(wanted)
        if self.dialect == "sqlite":
            return text(statement.text), lite.bind(statement, wanted, self._clock.wall())  # type: ignore[arg-type]
        sql = _CAST.sub(r"CAST(:p\1 AS \2)", statement.text)
        return text(sql), {f"p{n}": value for n, value in enumerate(_numbered(statement, wanted), 1)}

    def _read(self, result: Any) -> Rows:
        if not result.returns_rows:
            return []
        rows = [tuple(row) for row in result.fetchall()]
        if self.dialect == "sqlite":
            return lite.read_rows([(name,) for name in result.keys()], rows)  # noqa: SIM118
        return [dict(zip(result.keys(), row, strict=True)) for row in rows]

    def execute(self, wanted: Wanted) -> Rows:
        return self._read(self._connection.execute(*self._prepare(wanted)))

    async def execute_async(self, wanted: Wanted) -> Rows:
        return self._read(await self._connection.execute(*self._prepare(wanted)))
