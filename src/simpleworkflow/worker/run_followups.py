"""What follows a run on its worker: what it does for a run, or asks about one, beside executing it."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from ..clock import monotonic
from ..model import failure, moves
from ..model.moves import Ending
from ..model.records import Lease, Run
from ..model.states import NO_HANDLER
from ..runtime.batch import Batcher
from ..runtime.execute import Execution
from ..runtime.failing import Failures
from ..runtime.hints import Hint, Hinter
from ..runtime.labels import about
from ..store import Ledger
from ..store.operations import leases, runs, steps, writing
from .held_leases import HeldLeases

log = logging.getLogger("simpleworkflow.worker")

LOOK_UPS = 200
HOLD_AGAIN = 5.0


async def hold_refused(
    ledger: Ledger, held_leases: HeldLeases, worker: str, lease: Lease, error: BaseException, ending: Ending
) -> None:
    """The database refuses how it ended for good; executing it again would end the same way: an operator must see it.
    Until the database lets us say so the run stays ours: another worker would know nothing of what has run. At
    last it is given back, as `ending` says."""
    reason = f"the database refused its ending: {failure.one_line(error)}"
    while True:
        try:
            await ledger.run(runs.hold([lease.id], reason))
            await ledger.run(writing.write([ending], worker))
            break
        except Exception:
            log.exception("run %s cannot be held either; tried again in %g s", lease.id, HOLD_AGAIN, extra=about(lease))
        await asyncio.sleep(HOLD_AGAIN)
    held_leases.remove(lease)


async def hasten_undo(ledger: Ledger, hinter: Hinter, worker: str, lease: Lease) -> None:
    """This execution of a cancelled run has stopped: its undo run need not wait for the lease to end."""
    try:
        if await ledger.run(leases.hasten_undo(lease.id, lease.epoch, worker)):
            hinter.tell(Hint.READY)
    except Exception as error:
        told = "the undo run of %s starts at the end of the lease: %s"
        log.debug(told, lease.id, error, extra=about(lease))


async def confirm(ledger: Ledger, held_leases: HeldLeases, worker: str, lease: Lease) -> bool:
    """After a silence longer than the lease: does it still hold?"""
    sent = monotonic()
    (state,) = await ledger.run(leases.renew([(lease.id, lease.epoch, lease.lease_seconds)], worker))
    if state.renewed:
        held_leases.renewed(lease.id, sent)
    return state.owned


async def prolong(ledger: Ledger, worker: str, lease: Lease, seconds: float) -> bool:
    """Its code asks for more time; False when the lease is lost."""
    return await ledger.run(leases.heartbeat(lease.id, lease.epoch, worker, max(seconds, lease.lease_seconds)))


def without_handler(lease: Lease, failures: Failures) -> Ending:
    """How a run ends that was claimed here and has no code here."""
    error, line = failure.failure(NO_HANDLER, NO_HANDLER)
    ending = moves.fail(lease, error, line, elapsed=None)
    failures.of_run(lease, ending, LookupError(NO_HANDLER))
    return ending


async def tell_news(ledger: Ledger, execution: Execution) -> None:
    """Something has happened to a run that waits in memory here."""
    lease, worker = execution.lease, execution.services.worker
    try:
        state, history = await ledger.run(steps.reload(lease.id, lease.epoch, worker))
        execution.post.hear(state.wakes, history)
    except Exception as error:
        log.debug("news for run %s must wait: %s", lease.id, error, extra=about(lease, worker=worker))


def looking_up(ledger: Ledger) -> Batcher[UUID, Run | None]:
    """Looks at runs on behalf of others, many at a time: a parent of hundreds asks once.

    Patient, as the journal is: a database that is away is no failure of the run that asks.
    """

    async def look(run_ids: list[UUID], _: bool) -> list[Run | None]:
        return await ledger.run(runs.get(run_ids))

    return Batcher(look, limit=LOOK_UPS, patient=True, name="look-up")
