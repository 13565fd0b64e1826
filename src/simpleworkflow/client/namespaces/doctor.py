"""Whether the database can be used, and what is wrong with it."""

from __future__ import annotations

from ...model.errors import SimpleWorkflowError
from ..client import Client
from ..doctor.findings import Finding


class Doctor:
    """Whether the database can be used: `await app.doctor.check()`, `await app.doctor.examine()`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def check(self) -> None:
        """Reach the database and make sure that its tables fit; a SQLite file is migrated on the spot."""
        await self._client.engine.check()

    async def examine(self) -> list[Finding]:
        """What is wrong with this installation, from the server's settings to unserved runs; changes nothing."""
        from ..doctor.examine import cannot_open, examine

        client = self._client
        try:
            engine = client.engine
        except SimpleWorkflowError as error:
            return [cannot_open(error)]
        return await engine.call(lambda: examine(engine.ledger, client.settings, client.clock))
