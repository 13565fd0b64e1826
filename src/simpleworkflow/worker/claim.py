"""Claiming: which lanes to serve, in which order, and how many runs to take.

Never more than there are free slots: a run that waits in this process's memory could have run in another one. Lanes
are looked up again as soon as a claim comes back short or the list is a moment old, so a new, more urgent lane is seen
soon even under load; many lanes are walked in turns. Lanes of equal priority take turns too. Runs whose
process ended with them once are taken like others; to which that happened again (suspects), one at a time.

A claimed run leaves a dead entry at the head of its lane's index until the database cleans up. Under load a claim
starts where the last one stopped instead of walking over them all; once a second, and whenever a claim comes back
short, it starts from the beginning, for the sake of rows that were locked or not yet committed when it passed. While
somebody holds an old snapshot nothing is cleaned up, and such a walk, like the look for lanes, takes ever longer: then
it is made less often, so that under load it takes a small part of the time only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ..clock import monotonic, to_us
from ..config import Settings
from ..model.errors import StoreUnavailable
from ..model.names import Span, in_span, merge_spans, span_of_type
from ..model.records import Lane, Lease
from ..model.retry import DEFAULT_RETRY
from ..runtime.registry import Registry, Workflow
from ..store import Ledger
from ..store.operations import leases
from ..store.operations.leases import Crashes, Offer
from .failing import FailingLanes

MAX_LANES = 256
MAX_PAGES = 40
"""Of lanes, in one look: lanes of future runs must not hide due ones behind them."""
LANES_FRESH = 0.25
FEW_LANES = 16
LOWS_FRESH = 1.0
REST = 20
"""So many times as long as a walk over dead entries took, there is no other."""
LONGEST_REST = 2.0
_START = Lane("", -1)


class _Routes(NamedTuple):
    """What a worker serves, with the state of the registry that it was worked out from. One piece: other threads ask,
    too."""

    changes: int
    workflows: list[Workflow[Any, Any]]
    spans: tuple[Span, ...]


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
        self._lows: dict[Lane, datetime] = {}
        """Where the last claim of each lane stopped."""
        self._lows_since = 0.0
        self._lanes_rest, self._lows_rest = LANES_FRESH, LOWS_FRESH
        self._known: list[Lane] = []
        """Some lanes that had due runs when last seen."""
        self._cursor = _START
        self._looked = 0.0
        self.failing = FailingLanes()
        self.next_due = float("inf")
        """Seconds from the last look until the next run that was not due yet."""
        self._routes = _Routes(-1, [], ())
        self._served: dict[int, str] = {}
        self._served_suspects: dict[int, str] = {}

    @property
    def routes(self) -> Sequence[Span]:
        """The prefixes that it was given."""
        return self._spans

    @property
    def fails_unknown(self) -> bool:
        return self._any_type

    def all_types(self) -> list[str]:
        """Those with a handler here, whether they are served or not."""
        return [workflow.name for workflow in self._registry.served()]

    def routed(self) -> list[Workflow[Any, Any]]:
        """The workflows with a handler here whose type this worker serves."""
        return self._known_routes().workflows

    def _known_routes(self) -> _Routes:
        changes, known = self._registry.changes, self._routes
        if known.changes != changes:
            routed = [w for w in self._registry.served() if any(in_span(w.name, span) for span in self._spans)]
            spans = self._spans if self._any_type else merge_spans([span_of_type(w.name) for w in routed])
            known = self._routes = _Routes(changes, routed, tuple(spans))
        return known

    def shortest_lease(self) -> float:
        return min([self._settings.lease, *(w.lease for w in self.routed() if w.lease is not None)])

    @property
    def only_type(self) -> str | None:
        """The type of the only lane that has work, if there is only one and no type that is served here has a cap."""
        if len(self._lanes) != 1 or any(workflow.concurrency is not None for workflow in self.routed()):
            return None
        return self._lanes[0].type

    def is_async(self, type: str) -> bool:
        workflow = self._registry.find(type)
        return workflow is not None and workflow.handler is not None and workflow.is_async

    def knows(self, type: str) -> bool:
        """Whether the App has a workflow of this name: served, routed elsewhere or declared."""
        return self._registry.find(type) is not None

    def spans(self) -> Sequence[Span]:
        """What this worker serves: all of its spans, or exactly the types it has handlers for."""
        return self._known_routes().spans

    async def claim(self, limit: int, room: dict[str, int]) -> list[Lease]:
        """Up to `limit` runs. `room` says how many more runs of each capped type may start."""
        if monotonic() - self._looked > self._lanes_rest or not self._lanes:
            await self._look()
        taken = await self._claim_from(self._in_turn(self._lanes, self._served), limit, dict(room))
        if len(taken) < limit:
            self._looked = float("-inf")
        return taken

    async def claim_where_work_was(self, limit: int, room: dict[str, int]) -> list[Lease]:
        """Up to `limit` runs from the lanes that had some the last time: what an idle worker is woken for is mostly
        more of the same, and is had in one round trip. Lanes that are new are found by the next look."""
        spans = self.spans()
        served = [lane for lane in self._known if any(in_span(lane.type, span) for span in spans)]
        lanes = [lane for lane in served if lane.type not in room and not self.failing.has(lane)]
        if self._lanes or not lanes or not self._ledger.can.walks_lanes:
            return []  # where there are no round trips to save, a look costs nothing
        self._looked = float("-inf")
        offers = [self._offer(lane, None) for lane in self._in_turn(lanes, self._served)]
        try:
            return await self._ledger.run(leases.claim(offers, limit, self._worker))
        except StoreUnavailable:
            raise
        except Exception:
            return []  # the next look finds out which of them it was

    async def claim_crashed(self, limit: int, room: dict[str, int], *, suspect: bool) -> list[Lease]:
        """Up to `limit` runs whose process ended with them once; and if a `suspect` may start, one to which it happened
        again."""
        taken: list[Lease] = []
        after: Lane | None = _START
        spans, left = self.spans(), dict(room)
        for _ in range(MAX_PAGES):
            if not spans or after is None or len(taken) >= limit:
                break
            lanes, after, _ = await self._ledger.run(leases.find_lanes(spans, after, MAX_LANES, suspects=True))
            if not lanes:
                continue
            lanes = self._in_turn(lanes, self._served_suspects)
            if suspect:
                taken += await self._claim_from(lanes, 1, left, leases.AGAIN)
                suspect = not taken
            taken += await self._claim_from(lanes, limit - len(taken), left, leases.ONCE)
        return taken

    async def _claim_from(
        self, lanes: list[Lane], limit: int, left: dict[str, int], crashes: Crashes | None = None
    ) -> list[Lease]:
        """From lanes in serving order; what is taken of a capped type is `left` no more."""
        taken: list[Lease] = []
        willing = [lane for lane in lanes if not self.failing.rests(lane, crashes)] if self.failing else lanes
        for group in _groups(willing, left, self.failing, crashes):
            capped = left.get(group[0].type)
            wanted = limit - len(taken) if capped is None else min(capped, limit - len(taken))
            if wanted <= 0:
                continue
            found = await self._take(group, wanted, crashes)
            taken += found
            if capped is not None:
                left[group[0].type] = capped - len(found)
        return taken

    async def _look(self) -> None:
        spans, began = self.spans(), monotonic()
        if began - self._lows_since > self._lows_rest:
            self._lows.clear()
            self._lows_since = began
        if not spans:
            self._lanes = []
            return
        lanes: list[Lane] = []
        self.next_due = float("inf")
        after = self._cursor
        for _ in range(MAX_PAGES):
            found, last, coming = await self._ledger.run(leases.find_lanes(spans, after, MAX_LANES))
            self.next_due = min(self.next_due, coming)
            lanes += [lane for lane in found if lane not in lanes]
            if last is None and after == _START:
                break
            after = last or _START  # at the end the walk goes on from the beginning
            if lanes:
                break
        self._cursor = after if last is not None else _START
        self._lanes = lanes
        self._known = lanes[:FEW_LANES] or self._known
        self._looked = monotonic()
        self._lanes_rest = _rest(LANES_FRESH, self._looked - began)

    def _in_turn(self, lanes: list[Lane], served: dict[int, str]) -> list[Lane]:
        """Serving order: by priority, and among equals the one after the one that went first the last time."""
        if len(lanes) == 1:
            served[lanes[0].priority] = lanes[0].type
            return lanes
        ordered: list[Lane] = []
        for priority in sorted({lane.priority for lane in lanes}):
            equals = sorted(lane for lane in lanes if lane.priority == priority)
            last = served.get(priority, "")
            start = next((index for index, lane in enumerate(equals) if lane.type > last), 0)
            served[priority] = equals[start].type
            ordered += equals[start:] + equals[:start]
        return ordered

    async def _take(self, lanes: list[Lane], limit: int, crashes: Crashes | None = None) -> list[Lease]:
        offers = [self._offer(lane, None if crashes else self._lows.get(lane)) for lane in lanes]
        one_by_one, began = not self._ledger.can.walks_lanes, monotonic()
        claim = leases.claim(offers, limit, self._worker, crashes=crashes, lane_by_lane=one_by_one)
        try:
            found = await self._ledger.run(claim)
        except StoreUnavailable:
            raise
        except Exception as error:  # refused by the database, or a value that nobody can decode
            return await self._isolate(lanes, limit, error, crashes)
        if self.failing and len(lanes) == 1:
            self.failing.worked(lanes[0], crashes)
        if crashes is not None:
            return found
        if any(offer.low is None for offer in offers):
            self._lows_rest = _rest(LOWS_FRESH, monotonic() - began)
        if len(found) < limit:
            self._lows.clear()
        elif len(lanes) == 1:
            self._lows[lanes[0]] = found[-1].run_at
        else:
            self._lows.update({Lane(lease.type, lease.priority): lease.run_at for lease in found})
        return found

    async def _isolate(self, lanes: list[Lane], limit: int, error: Exception, crashes: Crashes | None) -> list[Lease]:
        """One of these lanes cannot be claimed; that stops no other."""
        if len(lanes) == 1:
            self.failing.failed(lanes[0], error, crashes)
            return []
        found: list[Lease] = []
        for lane in lanes:
            if len(found) < limit:
                found += await self._take([lane], limit - len(found), crashes)
        return found

    def _offer(self, lane: Lane, low: datetime | None) -> Offer:
        workflow = self._registry.find(lane.type)
        if workflow is None or workflow.handler is None:
            return Offer(lane.type, lane.priority, DEFAULT_RETRY.max_attempts, to_us(self._settings.lease), None, low)
        lease = workflow.lease or self._settings.lease
        timeout = None if workflow.timeout is None else to_us(workflow.timeout)
        return Offer(lane.type, lane.priority, workflow.retry.max_attempts, to_us(lease), timeout, low)


def _rest(least: float, took: float) -> float:
    """How long to do without another walk."""
    return max(least, min(REST * took, LONGEST_REST))


def _groups(
    lanes: list[Lane], capped: dict[str, int], failing: FailingLanes, crashes: Crashes | None
) -> Iterator[list[Lane]]:
    """Lanes in serving order, as few statements as caps allow: a capped type's lane is claimed by itself, and so is one
    whose claims have failed."""
    group: list[Lane] = []
    for lane in lanes:
        if lane.type not in capped and not failing.has(lane, crashes):
            group.append(lane)
            continue
        if group:
            yield group
            group = []
        yield [lane]
    if group:
        yield group
