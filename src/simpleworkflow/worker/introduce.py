"""A worker says what it serves: definitions for those who trigger, and itself among the living."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..model.errors import StoreUnavailable
from ..model.outbox import OutboxRule
from ..store import Ledger
from ..store.operations import outbox_lanes, workers
from .claim import Claimer
from .loop import pause_unless
from .process import Identity
from .unknown import warn_of_the_unknown

log = logging.getLogger("simpleworkflow.worker")


async def introduce(
    ledger: Ledger, claimer: Claimer, me: Identity, stopping: asyncio.Event, rules: Sequence[OutboxRule] = ()
) -> None:
    """Tell the database what is served here; a worker may start before its database."""
    while not stopping.is_set():
        try:
            served = [w.definition for w in claimer.routed()]
            await ledger.run(workers.define(served))
            await warn_of_the_unknown(ledger, claimer, served)
            await ledger.run(outbox_lanes.add_rules(rules))
            await ledger.run(workers.announce(me.id, me.name, me.host, me.pid, claimer.spans()))
            return
        except StoreUnavailable as error:
            log.warning("the worker waits for its database: %s", error)
            await pause_unless(stopping, 1.0)
