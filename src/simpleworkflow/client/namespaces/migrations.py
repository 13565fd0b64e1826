"""The tables of this version: which migrations are applied, and taking them back. `app.migrate()` applies them."""

from __future__ import annotations

from ...store.migrate import Applied
from ..client import Client


class Migrations:
    """Which migrations are applied: `await app.migrations.status()`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def status(self) -> list[Applied]:
        """Every migration of this version, and when it was applied."""
        return await self._client.engine.migration_status()

    async def up(self) -> list[str]:
        """Bring the tables up to this version; says what was applied."""
        await self.status()  # a database that cannot be reached is told at once, not after minutes
        return [f"{m.version}_{m.name}" for m in await self._client.engine.migrate(None)]

    async def down(self, count: int = 1) -> list[str]:
        """Take back the newest migrations, with their data."""
        await self.status()
        return [f"{m.version}_{m.name}" for m in await self._client.engine.migrate(count)]
