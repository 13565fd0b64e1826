"""Creating runs on a connection that the caller lends us.

Mistakes are found before the first statement is sent: a driver that was started and then abandoned half way, or a
transaction that a foreign dialect's SQL has aborted, is of no use to its owner any more. Connections are judged by
the names of their classes, so that no database package is imported for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..clock import Clock
from ..model.errors import InvalidInput, MissingMigration, SimpleWorkflowError
from ..model.records import Created, NewRun
from ..store.drivers.borrowed import run_on
from ..store.operations import runs
from ..store.url import DatabaseURL

_DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite"}
_NO_SUCH_TABLE = {"42P01", "3F000"}


async def create_on(
    connection: Any, url: DatabaseURL, new: Sequence[NewRun], clock: Clock | None
) -> list[Created | SimpleWorkflowError]:
    """Create the runs inside the caller's transaction; nothing is committed."""
    spoken = _sqlalchemy_dialect(connection)
    if spoken is not None and _DIALECTS.get(spoken) != url.dialect:
        raise InvalidInput(f"this App uses {url.dialect}, but connection= is a SQLAlchemy connection to {spoken}")
    try:
        return await run_on(connection, url, runs.create(new), clock)
    except SimpleWorkflowError:
        raise
    except Exception as error:
        if _is_unmigrated(error):
            raise MissingMigration(
                f"the database of that connection has not been migrated; run: simpleworkflow migrate up --url {url}"
            ) from error
        raise


def must_be_awaited(connection: Any) -> bool:
    """Whether this is an async connection: asyncpg's, psycopg's AsyncConnection, SQLAlchemy's Async ones."""
    for base in type(connection).__mro__:
        package = base.__module__.partition(".")[0]
        if package == "asyncpg" or (package in {"psycopg", "sqlalchemy"} and base.__name__.startswith("Async")):
            return True
    return False


def _sqlalchemy_dialect(connection: Any) -> str | None:
    if not any(base.__module__.startswith("sqlalchemy.") for base in type(connection).__mro__):
        return None
    bound = connection.get_bind() if hasattr(connection, "get_bind") else connection
    name = getattr(getattr(bound, "dialect", None), "name", None)
    return None if name is None else str(name)


def _is_unmigrated(error: Exception) -> bool:
    """By the code that PostgreSQL gives, wherever the driver keeps it, or by SQLite's words."""
    causes = [error, getattr(error, "orig", None)]
    codes = {getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) for cause in causes}
    return bool(codes & _NO_SUCH_TABLE) or "no such table" in str(error)
