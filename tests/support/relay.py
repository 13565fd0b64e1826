"""Relays in tests: each with a ledger of its own, on one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import simpleworkflow as swf
from simpleworkflow.sinks.protocol import Sink
from simpleworkflow.store import open_ledger
from simpleworkflow.worker.relay import Relay
from simpleworkflow.worker.relay_options import RelayOptions

from .ledger import Raw
from .waiting import eventually

QUICK = swf.Retry(max_attempts=3, initial="10ms", backoff=1.0, max_delay="10ms", jitter=0.0)


class Stage:
    """Relays on one database, each with a ledger of its own."""

    def __init__(self, url: str, raw: Raw) -> None:
        self.url = url
        self.raw = raw
        self._names = iter("abcdefgh")

    def relay(self, sink: Sink, **options: Any) -> Relay:
        chosen: dict[str, Any] = {"poll_every": 0.05, "retry": QUICK, **options}
        return Relay(open_ledger(self.url), sink, f"relay-{next(self._names)}", RelayOptions(**chosen))

    @asynccontextmanager
    async def running(self, sink: Sink, **options: Any) -> AsyncIterator[Relay]:
        relay, stopping = self.relay(sink, **options), asyncio.Event()
        work = asyncio.ensure_future(relay.serve(stopping))
        try:
            yield relay
        finally:
            stopping.set()
            await asyncio.wait_for(work, 20)

    async def until(self, met: Callable[[], Any], what: str) -> None:
        await eventually(met, what, 20.0)
