"""The histories of resumed runs: one that cannot be read holds its own run, and no other.

They are read together. A row that nobody can decode (an id or an instant of another form) fails the whole reading, so
what failed is read again in halves, until it stands alone. The run that it belongs to is held with the reason: to hand
it back would have it claimed again at once, and fail the reading of those claimed with it for ever. A database that is
away, or refuses the question, is no fault of a run: those are handed back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from ..model import failure
from ..model.errors import StoreError, StoreUnavailable
from ..model.records import History, Lease
from ..runtime.labels import about
from ..store import Ledger
from ..store.operations import runs, steps
from ..store.outage import level

log = logging.getLogger("simpleworkflow.worker")


async def read_histories(ledger: Ledger, resumed: Sequence[Lease]) -> dict[UUID, History]:
    """Of those that can be read; the others are to be handed back."""
    try:
        return await ledger.run(steps.load([lease.id for lease in resumed]))
    except StoreUnavailable as error:
        log.log(level(error), "%d runs are handed back, their histories cannot be read: %s", len(resumed), error)
        return {}
    except Exception as error:
        if len(resumed) == 1:
            await _leave_out(ledger, resumed[0], error)
            return {}
    half = len(resumed) // 2
    found = await read_histories(ledger, resumed[:half])
    return found | await read_histories(ledger, resumed[half:])


async def _leave_out(ledger: Ledger, lease: Lease, error: Exception) -> None:
    reason = f"its history cannot be read: {failure.one_line(error)}"
    if isinstance(error, StoreError):
        log.warning("run %s is handed back, %s", lease.id, reason, extra=about(lease))
        return
    log.error("run %s (%s) is held, %s", lease.id, lease.type, reason, extra=about(lease))
    try:
        await ledger.run(runs.hold([lease.id], reason))
    except Exception:
        log.exception("run %s cannot be held; it is handed back", lease.id, extra=about(lease))
