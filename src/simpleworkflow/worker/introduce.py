"""A worker says what it serves: definitions for those who trigger, and itself among the living."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..model.errors import StoreUnavailable
from ..model.outbox import OutboxRule
from ..model.records import Definition
from ..store import Ledger
from ..store.operations import outbox_lanes, workers
from .claim import Claimer
from .loop import pause_unless
from .process import Identity

log = logging.getLogger("simpleworkflow.worker")


async def introduce(
    ledger: Ledger, claimer: Claimer, me: Identity, stopping: asyncio.Event, rules: Sequence[OutboxRule] = ()
) -> None:
    """Tell the database what is served here; a worker may start before its database."""
    while not stopping.is_set():
        try:
            served = [w.definition for w in claimer.routed()]
            await ledger.run(workers.define(served))
            await _warn_of_the_unknown(ledger, claimer, served)
            await ledger.run(outbox_lanes.add_rules(rules))
            await ledger.run(workers.announce(me.id, me.name, me.host, me.pid, claimer.spans()))
            return
        except StoreUnavailable as error:
            log.warning("the worker waits for its database: %s", error)
            await pause_unless(stopping, 1.0)


async def _warn_of_the_unknown(ledger: Ledger, claimer: Claimer, served: Sequence[Definition]) -> None:
    """Runs of a misspelt on_cancel or dead_letter would wait for ever, and only once something has gone wrong."""
    named = [
        (definition.name, option, other)
        for definition in served
        for option, other in (("on_cancel", definition.on_cancel), ("dead_letter", definition.dead_letter))
        if other is not None and not claimer.knows(other)
    ]
    if not named:
        return
    known = {one.name for one in await ledger.run(workers.definitions(sorted({other for _, _, other in named})))}
    for type, option, other in named:
        if other not in known:
            log.warning(
                "%s says %s=%r, a workflow that this App does not have and no worker has served yet; if that is "
                "not a slip of the pen, declare it: app.declare(%r)",
                type, option, other, other,
            )  # fmt: skip
