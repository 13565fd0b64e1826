"""The workers of a database, as they report themselves."""

from __future__ import annotations

from ...model.records import WorkerInfo, WorkerState
from ...store.operations import board, workers
from ..client import Client


class Workers:
    """The workers of this database: `await app.workers.alive()`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def alive(self) -> list[WorkerInfo]:
        """The workers heard of lately."""
        return await self._client.run(workers.alive(silence=self._client.settings.worker_silence))

    async def all(self) -> list[WorkerState]:
        """Every worker on record, the stopped and the silent ones too, and how many runs each holds now."""
        return await self._client.run(board.worker_states(silence=self._client.settings.worker_silence))
