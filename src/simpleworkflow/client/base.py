"""What every call of a client stands on: one database, opened by the first call, and what concerns it as a whole."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..clock import Clock
from ..config import DefaultURL, Settings, default_url, guards
from ..model.errors import InvalidInput, SimpleWorkflowError, StoreUnavailable
from ..store.migrate import Applied
from ..store.protocol import Operation
from ..store.url import parse_url
from .engine import CLOSED, Engine
from .findings import Finding

T = TypeVar("T")

_opening = threading.Lock()
"""Two threads whose first calls meet must not open two engines."""


def _new_lock() -> None:
    global _opening
    _opening = threading.Lock()  # a forked child may have been born while another thread held it


os.register_at_fork(after_in_child=_new_lock)


class Base:
    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._url = default_url() if url is None else url
        self._schema = schema
        self._parsed = parse_url(self._url, schema=schema)
        self._clock = clock
        self._running: Engine | None = None
        self._looked_up: set[str] = set()
        """Types that were triggered by name and have been looked at."""
        self.settings = settings or Settings()

    @property
    def _engine(self) -> Engine:
        """Opened by the first call, and anew in a forked child or after close(); but not by what is left of a call that
        was under way when it was closed: nobody would close that one."""
        with _opening:
            engine = self._running
            if engine is None or engine.is_closed or engine.is_inherited():
                if engine is not None and engine.is_here():
                    raise StoreUnavailable(CLOSED)
                if isinstance(self._url, DefaultURL):
                    for allow in guards:
                        allow(self._url)
                engine = self._running = Engine(self._url, self._schema, self.settings, self._clock)
            return engine

    def _home(self) -> object:
        """Equal for Apps and workers of one and the same database."""
        return self._engine.ledger.home

    def use(self, url: str) -> None:
        """Point this App at another database, before its first call."""
        if self._running is not None and not self._running.is_closed:
            raise InvalidInput("this App is already open; choose its database before the first call")
        self._parsed = parse_url(url, schema=self._schema)
        self._url = url

    @contextmanager
    def elsewhere(self, url: str, *, clock: Clock | None = None) -> Iterator[None]:
        """Use another database for a while, as tests do; the usual one is not touched meanwhile."""
        before = self._url, self._parsed, self._clock, self._running
        self._url, self._parsed, self._clock, self._running = url, parse_url(url), clock, None
        try:
            yield
        finally:
            self._url, self._parsed, self._clock, self._running = before

    def perform(self, operation: Operation[T]) -> Awaitable[T]:
        """Run one operation of the store; for tools that stand beside an App."""
        return self._engine.run(operation)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._parsed}>"

    async def check(self) -> None:
        """Reach the database and make sure that its tables fit; a SQLite file is migrated on the spot."""
        await self._engine.check()

    async def migrate(self) -> list[str]:
        """Bring the tables up to this version; says what was applied."""
        await self.migration_status()  # a database that cannot be reached is told at once, not after minutes
        return [f"{m.version}_{m.name}" for m in await self._engine.migrate(None)]

    async def migrate_down(self, count: int = 1) -> list[str]:
        """Take back the newest migrations, with their data."""
        await self.migration_status()
        return [f"{m.version}_{m.name}" for m in await self._engine.migrate(count)]

    async def migration_status(self) -> list[Applied]:
        """Every migration of this version, and when it was applied."""
        return await self._engine.migration_status()

    async def doctor(self) -> list[Finding]:
        """What is wrong with this installation, from the server's settings to unserved runs; changes nothing."""
        from .doctor import cannot_open, examine

        try:
            engine = self._engine
        except SimpleWorkflowError as error:
            return [cannot_open(error)]
        return await engine.call(lambda: examine(engine.ledger, self.settings, self._clock))

    async def close(self) -> None:
        """Close connections. The next call opens them again."""
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        with _opening:
            engine = self._running
        if engine is not None and not engine.is_inherited():
            engine.close()
