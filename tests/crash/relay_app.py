"""A dispatcher for crash tests: a real process whose sink appends lines to a file, one write per event.

The file is the outside witness: it survives any kill and knows nothing of the database. RELAY_POINT names the place
at which the process kills itself, once: before or after it has published, before or after it has marked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from simpleworkflow.sinks.protocol import CloudEvent, Refusal
from simpleworkflow.store import open_ledger
from simpleworkflow.worker import relay as relay_module
from simpleworkflow.worker.process import own_identity
from simpleworkflow.worker.relay import Relay
from simpleworkflow.worker.relay_options import RelayOptions

POINT = os.environ.get("RELAY_POINT", "")
PACE = float(os.environ.get("RELAY_PACE", "0"))


def die_at(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


class AppendingSink:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        die_at("before publish")
        for place, event in enumerate(events):
            os.write(self._file, f"{event.run_id} {event.sequence} {os.getpid()}\n".encode())
            if place == 0:
                die_at("amid publish")
            if PACE:
                await asyncio.sleep(PACE)
        die_at("after publish")
        return [None] * len(events)

    async def close(self) -> None:
        os.close(self._file)


class DyingRelay(Relay):
    async def _mark(self, *args: object) -> None:
        die_at("before mark")
        await super()._mark(*args)  # type: ignore[arg-type]
        die_at("after mark")


async def main(url: str, path: str) -> None:
    ledger = open_ledger(url)
    lease, batch = float(os.environ.get("RELAY_LEASE", "30")), int(os.environ.get("RELAY_BATCH", "50"))
    options = RelayOptions(lease=lease, poll_every=0.1, batch=batch)
    relay_module.FIRST_SIZE = batch
    relay = DyingRelay(ledger, AppendingSink(path), own_identity("relay").id, options)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await relay.serve(stopping)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
