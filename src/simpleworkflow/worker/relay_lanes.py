"""The lanes of one dispatcher: taken, renewed, shared with those who come, given back.

Sixteen lanes, any number of dispatchers, no leader. Each looks at the lanes and at the list of the living once a second
and writes only when there is something to change, or when a third of the lease has passed. A dispatcher that was killed
on this host is seen at once, elsewhere its lanes are free when their leases end. Lanes that are being published from
are never given up; and when renewals fail for too long nothing more is offered, before somebody else may do so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..clock import monotonic
from ..model.outbox import LaneState
from ..store import Ledger
from ..store.operations import outbox_lanes
from ..store.operations.outbox_lanes import Scene, share
from .process import is_dead

log = logging.getLogger("simpleworkflow.relay")

SAFE = 0.75
"""The part of a lease during which it is certainly ours, whatever the clocks do."""


class Lanes:
    def __init__(self, ledger: Ledger, me: str, *, lease: float, on_change: Callable[[], None]) -> None:
        self._ledger = ledger
        self._me = me
        self._lease = lease
        self._on_change = on_change
        self._mine: dict[str, int] = {}
        self._leaving: set[str] = set()
        self._renewed = float("-inf")
        self.in_flight: set[str] = set()
        """Lanes of the batch that is being published."""
        self.alive = 1

    @property
    def usable(self) -> dict[str, int]:
        """Lanes and epochs that may be published from now; none when the lease may have run out unseen."""
        if monotonic() - self._renewed > self._lease * SAFE:
            return {}
        return {lane: epoch for lane, epoch in self._mine.items() if lane not in self._leaving}

    def lost(self, lanes: set[str]) -> None:
        told = "lanes %s of the outbox have gone to another dispatcher; nothing was marked"
        log.warning(told, ", ".join(sorted(lanes)), extra={"worker": self._me})
        self._mine = {lane: epoch for lane, epoch in self._mine.items() if lane not in lanes}

    async def tend(self) -> None:
        """Look, and change what must be changed."""
        sent = monotonic()
        scene = await self._ledger.run(outbox_lanes.scene(silence=self._lease))
        dead = self._dead(scene)
        if not self._must_act(scene, dead, sent):
            return
        alive = len({*scene.alive, self._me} - set(dead))
        surplus = max(len(self._mine) - share(alive), 0)
        # Lanes that are to go take part in no new batch; those of the batch under way go at the next look.
        self._leaving = set(sorted(self._mine, key=lambda lane: (lane in self.in_flight, lane))[:surplus])
        spare, before = sorted(self._leaving - self.in_flight), set(self._mine)
        tended = await self._ledger.run(outbox_lanes.tend(self._me, lease=self._lease, dead=dead, spare=spare))
        self._mine, self.alive, self._renewed = tended.mine, tended.alive, sent
        self._leaving &= set(self._mine)
        if set(self._mine) != before:
            told = "%d of 16 lanes of the outbox are served here; dispatchers alive: %d"
            log.info(told, len(self._mine), self.alive, extra={"worker": self._me})
            self._on_change()

    def _dead(self, scene: Scene) -> list[str]:
        known = {*scene.alive, *(lane.owner for lane in scene.lanes if lane.owner is not None)} - {self._me}
        return sorted(one for one in known if is_dead(one))

    def _must_act(self, scene: Scene, dead: list[str], now: float) -> bool:
        if now - self._renewed >= self._lease / 3 or self._me not in scene.alive or self._leaving:
            return True
        here = sum(lane.owner == self._me for lane in scene.lanes)
        if here != len(self._mine):
            return True
        quota = share(len({*scene.alive} - set(dead)))
        return here > quota or (here < quota and any(self._is_free(lane, dead) for lane in scene.lanes))

    def _is_free(self, lane: LaneState, dead: list[str]) -> bool:
        return lane.owner != self._me and (not lane.is_held or lane.owner in dead)

    async def leave(self, timeout: float) -> None:
        """Give them all back at once, so that nobody waits for leases to end."""
        self._mine = {}
        try:
            await self._ledger.run(outbox_lanes.leave(self._me), timeout=timeout)
        except Exception as error:
            log.warning("the lanes of the outbox could not be given back; they are free when leases end: %s", error)
