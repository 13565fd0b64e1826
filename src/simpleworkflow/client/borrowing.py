"""Which of the connections that callers lend us have to be awaited.

Asked before the first statement is sent: a driver that was started and then abandoned half way is of no use to its
owner any more. Judged by the classes' names, so that no database package is imported for it.
"""

from __future__ import annotations

from typing import Any


def must_be_awaited(connection: Any) -> bool:
    """Whether this is an async connection: asyncpg's, psycopg's AsyncConnection, SQLAlchemy's Async ones."""
    for base in type(connection).__mro__:
        package = base.__module__.partition(".")[0]
        if package == "asyncpg" or (package in {"psycopg", "sqlalchemy"} and base.__name__.startswith("Async")):
            return True
    return False
