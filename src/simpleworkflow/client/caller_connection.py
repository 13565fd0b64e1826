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
_SCOPES = {"scoped_session", "async_scoped_session"}
_NO_SUCH_TABLE = {"42P01", "3F000"}


async def create_on(
    connection: Any, url: DatabaseURL, new: Sequence[NewRun], clock: Clock | None
) -> list[Created | SimpleWorkflowError]:
    """Create the runs inside the caller's transaction; nothing is committed."""
    connection = _opened(connection)
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
        if package == "asyncpg" or (package in {"psycopg", "sqlalchemy"} and base.__name__.lower().startswith("async")):
            return True
    return False


def _opened(connection: Any) -> Any:
    """The session of the current scope, and the driver's connection, in what SQLAlchemy puts around them."""
    names = _sqlalchemy_names(connection)
    if names & _SCOPES:
        return connection.registry()
    if "PoolProxiedConnection" not in names:
        return connection
    if must_be_awaited(connection.driver_connection):
        raise InvalidInput(
            "connection= is the driver's connection below an async engine, on which SQLAlchemy has not begun its "
            "transaction; give the AsyncConnection itself"
        )
    return connection.driver_connection


def _sqlalchemy_names(connection: Any) -> set[str]:
    return {base.__name__ for base in type(connection).__mro__ if base.__module__.startswith("sqlalchemy.")}


def _sqlalchemy_dialect(connection: Any) -> str | None:
    if not _sqlalchemy_names(connection):
        return None
    bound = _engine_of(connection) if hasattr(connection, "get_bind") else connection
    name = getattr(getattr(bound, "dialect", None), "name", None)
    return None if name is None else str(name)


def _engine_of(session: Any) -> Any:
    """What the session runs plain statements on; one with binds= alone does not say."""
    try:
        return session.get_bind()
    except Exception as error:
        if type(error).__name__ != "UnboundExecutionError":
            raise
        waiting = "await " if must_be_awaited(session) else ""
        raise InvalidInput(
            f"this {type(session).__name__} does not say which of its engines is meant; write "
            f"connection={waiting}session.connection(bind_arguments={{'bind': engine}}), which is in its transaction"
        ) from None


def _is_unmigrated(error: Exception) -> bool:
    """By the code that PostgreSQL gives, wherever the driver keeps it, or by SQLite's words."""
    causes = [error, getattr(error, "orig", None)]
    codes = {getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) for cause in causes}
    return bool(codes & _NO_SUCH_TABLE) or "no such table" in str(error)
