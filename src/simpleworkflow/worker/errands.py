"""Giving runs back, and looking at others: the small errands of a worker that need nothing but the ledger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from ..model import failure, moves
from ..model.errors import StoreUnavailable
from ..model.moves import Ending
from ..model.records import Lease, Run
from ..runtime.batch import Batcher
from ..runtime.hints import Hint, Hinter
from ..runtime.labels import about
from ..store import Ledger
from ..store.operations import leases, runs
from .holdings import Holdings

log = logging.getLogger("simpleworkflow.worker")

LOOK_UPS = 200


async def hand_back(ledger: Ledger, endings: Sequence[Ending], timeout: float) -> None:
    """Release what this worker will not finish; a database that is away finds out when the leases run out."""
    try:
        if endings:
            await ledger.run(leases.settle(endings), timeout=timeout)
    except StoreUnavailable as error:
        log.warning("%d runs could not be handed back; their leases will run out: %s", len(endings), error)


async def hand_back_strangers(ledger: Ledger, worker_id: str, holdings: Holdings, timeout: float) -> None:
    """A claim that was cut off by a stop may have leased runs that nobody here knows."""
    try:
        await ledger.run(leases.release_strangers(worker_id, holdings), timeout=timeout)
    except StoreUnavailable as error:
        log.warning("what is leased to this worker could not be looked at; such leases will run out: %s", error)


async def hold_refused(ledger: Ledger, lease: Lease, error: BaseException, elapsed: float | None) -> None:
    """The database refuses its ending for good; executing it again would end the same way: an operator must see it."""
    try:
        reason = f"the database refused its ending: {failure.one_line(error)}"
        await ledger.run(runs.hold([lease.id], reason))
        await ledger.run(leases.settle([moves.release(lease, elapsed=elapsed)]))
    except Exception:
        log.exception("run %s could not be held; its lease will run out", lease.id, extra=about(lease))


async def hasten_undo(ledger: Ledger, hinter: Hinter, lease: Lease) -> None:
    """This execution of a cancelled run has stopped: its undo run need not wait for the lease to end."""
    try:
        if await ledger.run(leases.hasten_undo(lease.id, lease.epoch)):
            hinter.tell(Hint.READY)
    except Exception as error:
        told = "the undo run of %s starts at the end of the lease: %s"
        log.debug(told, lease.id, error, extra=about(lease))


def looking_up(ledger: Ledger) -> Batcher[UUID, Run | None]:
    """Looks at runs on behalf of others, many at a time: a parent of hundreds asks once.

    Patient, as the journal is: a database that is away is no failure of the run that asks.
    """

    async def look(run_ids: list[UUID], _: bool) -> list[Run | None]:
        return await ledger.run(runs.get(run_ids))

    return Batcher(look, limit=LOOK_UPS, patient=True, name="look-up")
