"""Claiming: which lanes to serve, in which order, and how many runs to take.

Never more than there are free slots: a run that waits in this process's memory could have run in another one. Lanes
are looked up again as soon as a claim comes back short or the list is a moment old, so a new, more urgent lane is seen
soon even under load; many lanes are walked in turns. Lanes of equal priority take turns too. Runs whose last execution
took their process down (suspects) are taken one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..clock import monotonic, to_us
from ..config import Settings
from ..model.names import Span, in_span, merge_spans, span_of_type
from ..model.records import Lane, Lease
from ..model.retry import DEFAULT_RETRY
from ..runtime.registry import Registry, Workflow
from ..store import Ledger
from ..store.operations import leases
from ..store.operations.leases import Offer

MAX_LANES = 256
LANES_FRESH = 0.25
_START = Lane("", -1)


class Claimer:
    """Takes due runs for one worker."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        settings: Settings,
        *,
        worker: str,
        spans: Sequence[Span],
        any_type: bool,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._settings = settings
        self._worker = worker
        self._spans = tuple(spans)
        self._any_type = any_type
        self._lanes: list[Lane] = []
        self._cursor = _START
        self._looked = 0.0
        self._turn = 0

    def routed(self) -> list[Workflow[Any, Any]]:
        """The workflows with a handler here whose type this worker serves."""
        return [w for w in self._registry.served() if any(in_span(w.name, span) for span in self._spans)]

    def spans(self) -> list[Span]:
        """What this worker serves: all of its spans, or exactly the types it has handlers for."""
        if self._any_type:
            return list(self._spans)
        return merge_spans([span_of_type(workflow.name) for workflow in self.routed()])

    async def claim(self, limit: int, room: dict[str, int]) -> list[Lease]:
        """Up to `limit` runs. `room` says how many more runs of each capped type may start."""
        if monotonic() - self._looked > LANES_FRESH or not self._lanes:
            await self._look()
        taken: list[Lease] = []
        open_lanes = [lane for lane in self._lanes if lane.type not in room]
        if open_lanes:
            taken = await self._take(self._in_turn(open_lanes), limit)
        for name, left in room.items():
            lanes = [lane for lane in self._lanes if lane.type == name]
            wanted = min(left, limit - len(taken))
            if lanes and wanted > 0:
                taken += await self._take(self._in_turn(lanes), wanted)
        if len(taken) < limit:
            self._looked = float("-inf")
        return taken

    async def claim_suspect(self) -> list[Lease]:
        spans = self.spans()
        if not spans:
            return []
        lanes, _ = await self._ledger.run(leases.find_lanes(spans, _START, MAX_LANES, suspects=True))
        return await self._take(self._in_turn(lanes), 1, suspects=True) if lanes else []

    async def _look(self) -> None:
        spans = self.spans()
        if not spans:
            self._lanes = []
            return
        started_at = self._cursor
        lanes, last = await self._ledger.run(leases.find_lanes(spans, started_at, MAX_LANES))
        if last is None and started_at != _START:
            # The walk reached the end; what is left of the allowance goes to the beginning.
            more, last = await self._ledger.run(leases.find_lanes(spans, _START, MAX_LANES))
            lanes = list(dict.fromkeys([*lanes, *more]))
        self._cursor = last or _START
        self._lanes = lanes
        self._looked = monotonic()

    def _in_turn(self, lanes: list[Lane]) -> list[Lane]:
        """Serving order: by priority, and among equals a different one first each time."""
        self._turn += 1
        ordered = sorted(lanes)
        start = self._turn % len(ordered)
        return sorted(ordered[start:] + ordered[:start], key=lambda lane: lane.priority)

    async def _take(self, lanes: list[Lane], limit: int, *, suspects: bool = False) -> list[Lease]:
        offers = [self._offer(lane) for lane in lanes]
        one_by_one = not self._ledger.has_lateral
        return await self._ledger.run(
            leases.claim(offers, limit, self._worker, suspects=suspects, lane_by_lane=one_by_one)
        )

    def _offer(self, lane: Lane) -> Offer:
        workflow = self._registry.find(lane.type)
        if workflow is None or workflow.handler is None:
            return Offer(lane.type, lane.priority, DEFAULT_RETRY.max_attempts, to_us(self._settings.lease), None)
        lease = workflow.lease or self._settings.lease
        timeout = None if workflow.timeout is None else to_us(workflow.timeout)
        return Offer(lane.type, lane.priority, workflow.retry.max_attempts, to_us(lease), timeout)
