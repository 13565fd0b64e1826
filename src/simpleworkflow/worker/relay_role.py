"""The relay as a role of a worker: there when the worker was given a sink, and silent otherwise.

It runs in the worker's loop. A stop lets the batch that is under way be finished and marked, for a few seconds.
"""

from __future__ import annotations

import asyncio

from ..sinks.protocol import Sink
from ..store import Ledger
from .relay import Relay
from .relay_options import RelayOptions


class RelayRole:
    def __init__(self, sink: Sink | None, options: RelayOptions, me: str) -> None:
        self._sink = sink
        self._options = options
        self._me = me
        self._relay: Relay | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, ledger: Ledger, stopping: asyncio.Event) -> list[asyncio.Task[None]]:
        if self._sink is None:
            return []
        self._relay = Relay(ledger, self._sink, self._me, self._options)
        self._task = asyncio.create_task(self._relay.run(stopping), name="simpleworkflow-relay")
        return [self._task]

    def look(self) -> None:
        """Something has happened: there may be events."""
        if self._relay is not None:
            self._relay.look()

    async def end(self, timeout: float) -> None:
        """Wait for the last marks and for the lanes to be given back, but not for long."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout)
