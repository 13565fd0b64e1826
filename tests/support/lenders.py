"""Connections of every kind that a caller may lend us, each with an open transaction.

A `Lender` opens one of its kind, begins, commits and rolls back as its users do; whether its calls are awaited or
block is its own business.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker


class Lender(ABC):
    """One kind of connection, with a transaction open on it."""

    is_async = False

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    async def open(self) -> Any: ...
    @abstractmethod
    async def commit(self) -> None: ...
    @abstractmethod
    async def rollback(self) -> None: ...
    @abstractmethod
    async def close(self) -> None: ...


class Blocking(Lender):
    """Anything with blocking commit, rollback and close."""

    connection: Any

    def connect(self) -> Any:
        raise NotImplementedError

    async def open(self) -> Any:
        self.connection = self.connect()
        return self.connection

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def close(self) -> None:
        self.connection.close()


class Sqlite(Blocking):
    def connect(self) -> Any:
        return sqlite3.connect(self.url)


class SqliteWithRows(Blocking):
    def connect(self) -> Any:
        connection = sqlite3.connect(self.url)
        connection.row_factory = sqlite3.Row
        return connection


class SqliteExplicit(Blocking):
    """autocommit mode, transactions begun by hand."""

    def connect(self) -> Any:
        connection = sqlite3.connect(self.url, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        return connection

    async def commit(self) -> None:
        self.connection.execute("COMMIT")

    async def rollback(self) -> None:
        self.connection.execute("ROLLBACK")


class Psycopg(Blocking):
    def connect(self) -> Any:
        return psycopg.connect(self.url)


class PsycopgWithDicts(Blocking):
    def connect(self) -> Any:
        return psycopg.connect(self.url, row_factory=dict_row)


def alchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://") if "://" in url else f"sqlite:///{url}"


class Alchemy(Blocking):
    def connect(self) -> Any:
        self.engine = sqlalchemy.create_engine(alchemy_url(self.url, "psycopg"))
        return self.engine.connect()

    async def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


class AlchemySession(Alchemy):
    def connect(self) -> Any:
        self.engine = sqlalchemy.create_engine(alchemy_url(self.url, "psycopg"))
        return Session(self.engine)


class ScopedSession(Alchemy):
    """What Flask-SQLAlchemy's `db.session` is."""

    def connect(self) -> Any:
        self.engine = sqlalchemy.create_engine(alchemy_url(self.url, "psycopg"))
        return scoped_session(sessionmaker(self.engine))


class RawConnection(Alchemy):
    """The pool's wrapper of the driver's own connection."""

    def connect(self) -> Any:
        self.engine = sqlalchemy.create_engine(alchemy_url(self.url, "psycopg"))
        return self.engine.raw_connection()


class Awaited(Lender):
    is_async = True
    connection: Any

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class AsyncPsycopg(Awaited):
    async def open(self) -> Any:
        self.connection = await psycopg.AsyncConnection.connect(self.url)
        return self.connection


class Asyncpg(Awaited):
    async def open(self) -> Any:
        self.connection = await asyncpg.connect(self.url)
        self.transaction = self.connection.transaction()
        await self.transaction.start()
        return self.connection

    async def commit(self) -> None:
        await self.transaction.commit()

    async def rollback(self) -> None:
        await self.transaction.rollback()


class AsyncpgFromPool(Asyncpg):
    async def open(self) -> Any:
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.connection = await self.pool.acquire()
        self.transaction = self.connection.transaction()
        await self.transaction.start()
        return self.connection

    async def close(self) -> None:
        await self.pool.release(self.connection)
        await self.pool.close()


class AsyncAlchemy(Awaited):
    driver = "psycopg"

    async def open(self) -> Any:
        self.engine = create_async_engine(alchemy_url(self.url, self.driver))
        self.connection = await self.engine.connect()
        return self.connection

    async def close(self) -> None:
        await self.connection.close()
        await self.engine.dispose()


class AsyncAlchemySession(AsyncAlchemy):
    async def open(self) -> Any:
        self.engine = create_async_engine(alchemy_url(self.url, self.driver))
        self.connection = AsyncSession(self.engine)
        return self.connection


class AsyncScopedSession(AsyncAlchemy):
    async def open(self) -> Any:
        self.engine = create_async_engine(alchemy_url(self.url, self.driver))
        self.connection = async_scoped_session(async_sessionmaker(self.engine), asyncio.current_task)
        return self.connection


class AsyncAlchemyOnAsyncpg(AsyncAlchemy):
    driver = "asyncpg"


class AsyncAlchemySessionOnAsyncpg(AsyncAlchemySession):
    driver = "asyncpg"


ON_SQLITE: list[type[Lender]] = [
    Sqlite,
    SqliteWithRows,
    SqliteExplicit,
    Alchemy,
    AlchemySession,
    ScopedSession,
    RawConnection,
]
ON_POSTGRES: list[type[Lender]] = [
    Psycopg,
    PsycopgWithDicts,
    Alchemy,
    AlchemySession,
    ScopedSession,
    RawConnection,
    AsyncPsycopg,
    Asyncpg,
    AsyncpgFromPool,
    AsyncAlchemy,
    AsyncAlchemySession,
    AsyncScopedSession,
    AsyncAlchemyOnAsyncpg,
    AsyncAlchemySessionOnAsyncpg,
]
