"""The types of runs that the database knows: workers write down what they serve, and these calls change it."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.names import check_type
from ...model.records import Definition
from ...store.operations import workers
from ..client import Client


class Definitions:
    """The types that the database knows: `await app.definitions.disable("media.encode.v1")`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, name: str, *, description: str | None = None) -> None:
        """Make a type known before any worker serves it, so that require="definition" is met. Asking twice is fine."""
        known = check_type(name)
        await self._client.run(workers.create_definition(known, description, self._here(known)))

    async def disable(self, name: str) -> None:
        """Refuse triggers and claims of a type; runs that are under way go on."""
        await self._client.run(workers.enable(check_type(name), False, self._here(name)))

    async def enable(self, name: str) -> None:
        """Allow triggers and claims of a type again."""
        await self._client.run(workers.enable(check_type(name), True, self._here(name)))

    def _here(self, name: str) -> Sequence[Definition]:
        return [one for one in self._client.definitions() if one.name == name]
