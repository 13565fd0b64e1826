"""Wake-up hints on their way out: coalesced, outside any durable transaction, never waited for.

A lost hint costs latency (polling finds the work), so sending one is never allowed to fail anything. One that travels
with a commit could: PostgreSQL refuses the whole commit when its queue of notifications is full, and that queue belongs
to all databases of a server. A commit that is refused with a hint is tried again without one.
"""

from __future__ import annotations

import asyncio
import contextvars
from enum import StrEnum

from ..model.errors import StoreError, StoreUnavailable
from ..store import Ledger

PAUSE = 0.005
SILENCE = 1.0
"""Seconds without a hint in a commit after one that was refused."""


class Hint(StrEnum):
    READY = "ready"
    """Something may be claimable."""

    FINISHED = "finished"
    """Someone may be waiting for a result."""

    CONTROL = "control"
    """A leased run was cancelled, held or deleted: owners look at their leases."""

    OUTBOX = "outbox"
    """A run has emitted an event: the relay of the outbox may look. Ends and other news of runs wake it too."""

    SCHEDULES = "schedules"
    """A schedule was written or resumed: its next slot may come sooner than anybody expects."""

    CHANGED = "changed"
    """Something committed, or news may have been missed: look at everything."""


class Hinter:
    """Sends each kind at most once per few milliseconds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kinds: set[Hint] = set()
        self._sender: asyncio.Task[None] | None = None
        self._stopped = False
        self._told = float("-inf")

    def may_tell_now(self) -> bool:
        """Whether a hint that travels with a commit of its own may take this turn; if so, the turn is taken."""
        now = asyncio.get_running_loop().time()
        if self._is_sending() or now - self._told < PAUSE:
            return False
        self._told = now
        return True

    def may_be_to_blame(self, error: StoreError) -> bool:
        """A commit with a hint in it failed. Whether it may go through without one; then there are none for a while."""
        if isinstance(error, StoreUnavailable):
            return False
        self._told = asyncio.get_running_loop().time() + SILENCE
        return True

    def tell(self, kind: Hint) -> None:
        self._kinds.add(kind)
        if not self._is_sending() and not self._stopped:
            self._sender = asyncio.get_running_loop().create_task(
                self._send(), name="simpleworkflow-hints", context=contextvars.Context()
            )

    def _is_sending(self) -> bool:
        return self._sender is not None and not self._sender.done()

    async def _send(self) -> None:
        try:
            while self._kinds:
                for kind in tuple(self._kinds):
                    self._kinds.discard(kind)
                    try:
                        await self._ledger.hint(kind)
                    except asyncio.CancelledError:
                        self._kinds.add(kind)
                        raise
                await asyncio.sleep(PAUSE)
        finally:
            self._sender = None

    async def stop(self) -> None:
        """Let the last hints out, but do not wait long for them; later ones are not sent."""
        self._stopped = True
        sender = self._sender
        if sender is not None and not (await asyncio.wait({sender}, timeout=0.5))[0]:
            sender.cancel()
            await asyncio.wait({sender}, timeout=1.0)
        elif self._kinds:  # the end of the loop has stopped the sender half way
            last = asyncio.create_task(self._send())
            await asyncio.wait({last}, timeout=0.5)
            last.cancel()
