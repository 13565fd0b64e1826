"""Runs a worker in the main thread of a process until a signal stops it.

The first SIGTERM or SIGINT drains, a second one stops waiting for running code. When threads of user code still run
after that, the process exits by force: their runs have been handed back, and a deploy must not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

from ...app import App
from ...model.errors import StoreUnavailable
from ...runtime import tracing
from ..common.exit_codes import UNCLEAN

log = logging.getLogger("simpleworkflow.cli")


def serve(app: App, **options: Any) -> None:
    """Serve until a signal says stop; ends the process when threads would keep it from ending."""
    asyncio.run(_serve(app, options))


async def _serve(app: App, options: dict[str, Any]) -> None:
    app._client.engine.ledger.watch()  # an outage is logged once for the worker and its code
    worker, stopping = app._make_worker(process_ends=True, **options), asyncio.Event()

    def stop() -> None:
        stopping.set()
        worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if not await _check_tables(app, stopping):
        return
    await worker.run()
    if worker.stays_behind is not None:
        # Not after asyncio.run, which would wait for the code that does not stop.
        log.warning(worker.stays_behind)
        _exit_hard()


async def _check_tables(app: App, stopping: asyncio.Event) -> bool:
    """Tables of another version end the command; the worker waits for a database that is away. False: told to stop."""
    look, stop = asyncio.ensure_future(app.doctor.check()), asyncio.ensure_future(stopping.wait())
    await asyncio.wait({look, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.cancel():
        look.cancel()
        return False
    with suppress(StoreUnavailable):
        look.result()
    return True


def _exit_hard() -> NoReturn:
    if tracing.on is not None:
        tracing.on.flush()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(UNCLEAN)
