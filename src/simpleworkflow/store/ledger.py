"""The face of the store: one database, reached from one event loop.

Other rooms build operations (store/operations) and hand them to `Ledger.run`. `twin()` gives the same database to
another event loop: the renewer's thread, an embedded worker, a forked child.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ..clock import Clock, SystemClock, monotonic
from ..model.errors import MissingMigration, StoreError, StoreUnavailable
from . import migrate
from .migrate import Applied, Migration
from .outage import Outage
from .protocol import Capabilities, Driver, Operation
from .timelines import Timelines
from .url import MEMORY, DatabaseURL, parse_url

T = TypeVar("T")


class Ledger:
    def __init__(self, url: DatabaseURL, driver: Driver, clock: Clock | None = None) -> None:
        self.url = url
        self._driver = driver
        self._clock = clock or SystemClock()
        self._checked = False
        self.outage: Outage | None = None
        """Who tells when the database goes away and comes back; a client's caller learns it by the exception."""

    def watch(self) -> Outage:
        """From now on the log says when the database goes away, and when it is back. Twins share what is known."""
        if self.outage is None:
            self._tell(Outage(str(self.url)))
        assert self.outage is not None
        return self.outage

    def _tell(self, outage: Outage | None) -> None:
        self.outage = outage
        if outage is not None:
            self._driver.on_gone = outage.failed

    @property
    def clock(self) -> Clock:
        """What tells how much time has passed here; a test may own it."""
        return self._clock

    @property
    def home(self) -> object:
        """Equal for ledgers of one and the same database; memory is shared by twins only."""
        return self.url if self.url.target != MEMORY else self._driver.home

    @property
    def can(self) -> Capabilities:
        return self._driver.can

    @property
    def timelines(self) -> Timelines:
        """Which history of the database is seen: a standby that takes over begins another one."""
        return self._driver.timelines

    @property
    def migrates_itself(self) -> bool:
        return self.url.dialect == "sqlite"

    def twin(self) -> Ledger:
        twin = Ledger(self.url, self._driver.twin(), self._clock)
        twin._checked = self._checked
        twin._tell(self.outage)
        return twin

    async def run(self, operation: Operation[T], *, timeout: float | None = None) -> T:
        """Run one operation. The first one makes sure that the tables are there."""
        outage = self.outage
        if outage is None:
            return await self._run(operation, timeout)
        began = monotonic()
        try:
            answer = await self._run(operation, timeout)
        except StoreUnavailable as error:
            outage.failed(error, began)
            raise
        outage.answered(began)
        return answer

    async def _run(self, operation: Operation[T], timeout: float | None) -> T:
        if not self._checked:
            began = monotonic()
            await self.check(timeout=timeout)
            timeout = None if timeout is None else timeout - (monotonic() - began)
        return await self._driver.run(operation, timeout=timeout)

    async def look(self, operation: Operation[T], *, timeout: float | None = None) -> T:
        """Run one operation on the tables as they are: who examines a database must not migrate it on the way in."""
        return await self._driver.run(operation, timeout=timeout)

    async def check(self, *, timeout: float | None = None) -> None:
        """A SQLite file is migrated on the spot; an unmigrated PostgreSQL gets an error that names the command."""
        try:
            report = await self._driver.run(migrate.status(self._known()), timeout=timeout)
            if self.migrates_itself and any(m.applied is None for m in report):
                await self.migrate_up()
            else:
                migrate.require_current(report, str(self.url))
        except MissingMigration:
            if not self.migrates_itself:
                raise
            await self.migrate_up()
        self._checked = True

    def _known(self) -> tuple[Migration, ...]:
        return migrate.migrations(self.url.dialect, self.url.schema)

    async def migrate_up(self) -> list[Migration]:
        try:
            return await self._driver.run(migrate.up(self._known()), timeout=300)
        except MissingMigration as error:
            raise migrate.foreign_book(error, self.url) or error from None
        except StoreError as error:
            raise migrate.in_the_way(error, self.url) or error from None

    async def migrate_down(self, count: int = 1) -> list[Migration]:
        self._checked = False
        if await self._is_untouched():
            return []
        try:
            return await self._driver.run(migrate.down(self._known(), count), timeout=300)
        except MissingMigration as error:
            if (foreign := migrate.foreign_book(error, self.url)) is not None:
                raise foreign from None
            return []

    async def migration_status(self, *, timeout: float | None = None) -> list[Applied]:
        """Which migrations are applied; a look, so no file is made and none of another program is touched."""
        if await self._is_untouched():
            return [Applied(m.version, m.name, None) for m in self._known()]
        try:
            return await self._driver.run(migrate.status(self._known()), timeout=timeout)
        except MissingMigration:
            return [Applied(m.version, m.name, None) for m in self._known()]

    async def _is_untouched(self) -> bool:
        """Whether this is a file that is not there, or that we have never migrated: opening it would change it."""
        if self.url.dialect != "sqlite" or self.url.target == MEMORY:
            return False
        from .drivers.sqlite_look import has_our_tables

        def look(path: str) -> bool:
            return not os.path.exists(path) or not has_our_tables(path)

        return await asyncio.to_thread(look, self.url.target)

    async def hint(self, kind: str) -> None:
        await self._driver.hint(kind)

    async def listen(self, heard: Callable[[str], None]) -> None:
        await self._driver.listen(heard)

    async def close(self) -> None:
        self.outage = None  # what is refused from now on is no outage
        await self._driver.close()


def open_ledger(url: str | DatabaseURL, *, schema: str | None = None, clock: Clock | None = None) -> Ledger:
    """A ledger for a URL. Nothing is contacted yet; drivers load on demand, so SQLite users need no asyncpg."""
    if isinstance(url, DatabaseURL):
        parsed = url if schema is None else replace(url, schema=schema)
    else:
        parsed = parse_url(url, schema=schema)
    if parsed.dialect == "sqlite":
        from .drivers.sqlite import SqliteDriver

        return Ledger(parsed, SqliteDriver(parsed.target, clock), clock)
    from .drivers.postgres import PostgresDriver

    return Ledger(parsed, PostgresDriver(parsed))
