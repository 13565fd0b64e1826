"""After a failover: which leases are left, before any new one is taken.

A server that takes over may not have seen the last commits of the one before. What was leased there may be free here,
and is leased again with the epoch that it had: to another worker, whose name is in the proof of every write, or to this
very worker, which the database cannot tell from itself. So when a connection shows that the database is on another
timeline, nothing is claimed until every lease that was held has been verified, executions without one have stopped,
and whatever they had handed to the journal before has been answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..model import moves
from ..model.records import Renewal
from ..runtime.journal import Journal
from ..store import Ledger
from ..store.operations import leases
from .held_leases import HeldLeases
from .slots import Key, key_of

log = logging.getLogger("simpleworkflow.worker")

AGAIN = 1.0


class Failover:
    """`hear` stops what is lost; `go_on` is called when claims may go on."""

    def __init__(
        self,
        ledger: Ledger,
        held_leases: HeldLeases,
        journal: Journal,
        worker: str,
        *,
        hear: Callable[[list[Renewal]], None],
        go_on: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._held = held_leases
        self._journal = journal
        self._worker = worker
        self._hear = hear
        self._go_on = go_on
        self._unverified: set[Key] = set()
        self._task: asyncio.Task[None] | None = None
        ledger.timelines.on_new = self.changed

    def changed(self) -> None:
        """In the worker's loop, before anything is written on the new timeline."""
        self._unverified |= {key_of(lease) for lease in self._held.all()}
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._verify(), name="simpleworkflow-failover")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _verify(self) -> None:
        timelines, timeline = self._ledger.timelines, None
        while timeline is None or self._unverified or timeline != timelines.current:
            timeline, keys = timelines.current, sorted(self._unverified)
            try:
                news = await self._ledger.run(leases.check_leases(keys, self._worker)) if keys else []
            except Exception as error:
                log.warning("leases cannot be verified after a failover, and nothing is claimed meanwhile: %s", error)
                await asyncio.sleep(AGAIN)
                continue
            self._unverified.difference_update(keys)
            lost = [renewal for renewal in news if not renewal.owned]
            told = "the database is on another timeline (%s): a standby took over; %d of %d leases still hold"
            log.warning(told, timeline, len(news) - len(lost), len(news), extra={"worker": self._worker})
            self._hear(news)
            await self._see_off(lost)
        timelines.accept(timeline)
        self._go_on()

    async def _see_off(self, lost: list[Renewal]) -> None:
        """Entries of a run are written in order: what is behind them is answered after them."""
        last = [self._journal.write(moves.release_stranger(one.id, one.epoch)) for one in lost]
        await asyncio.gather(*last, return_exceptions=True)
