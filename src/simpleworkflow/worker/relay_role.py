"""The relay as a role of a worker: there when the worker was given a sink, and silent otherwise.

It runs in the worker's loop. A stop lets the batch that is under way be finished and marked, for a few seconds.
"""

from __future__ import annotations

import asyncio
import logging

from ..sinks.protocol import Sink, SinkGone
from ..store import Ledger
from .relay import Relay
from .relay_options import RelayOptions

log = logging.getLogger("simpleworkflow.relay")


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
        self._task = asyncio.create_task(_run(self._relay, stopping), name="simpleworkflow-relay")
        return [self._task]

    def look(self) -> None:
        """Something has happened: there may be events."""
        if self._relay is not None:
            self._relay.look()

    async def end(self, timeout: float) -> None:
        """Wait for the last marks and for the lanes to be given back, but not for long."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout)


async def _run(relay: Relay, stopping: asyncio.Event) -> None:
    try:
        await relay.run(stopping)
    except SinkGone as error:
        log.error("this worker goes on with its runs, but delivers no more events: %s", error)
