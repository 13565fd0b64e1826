"""The relay: takes events from the outbox to a sink, at least once, and each run's in order.

Dangers, and what is done about them:
- It may be killed at any point. What was published and not marked is published again by the next owner of its lanes;
  what was marked had been published. Receivers drop what they have seen by the event's id.
- It may be frozen, lose its lanes, and wake up. Its marks must prove the lane's epoch under the lane's lock
  (store/operations/outbox.py): they do not land.
- One event may be refused for ever. It is tried again with growing pauses, then it is dead; only the later events of
  its own run wait behind it.
- The sink may be broken as a whole, and raise. No event is to blame, so none is marked: the relay pauses and goes on
  carefully, one event at a time. An event that makes the sink raise even alone has been found, and counts as refused.

- It may be slow. A call that takes long is given fewer events the next time: what a sink has no time for it refuses,
  and an event that is refused for that reason alone must not end as a dead one.
- Events may be large. Few of them are read and handed over at once then, and few at the start: a process that had no
  room for them and was killed would only come back to read the same again.

One call of the sink at a time, with many events in it: a sink that can do several things at once knows best how.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..clock import EPOCH, monotonic
from ..model.errors import StoreUnavailable
from ..model.outbox import Delivery, Marks, Offered, Refused
from ..runtime.tasks import is_being_cancelled
from ..sinks.calling import refusal_of
from ..sinks.protocol import CloudEvent, Refusal, Sink, SinkGone
from ..store import Ledger
from ..store.operations import outbox
from ..store.outage import level
from .loop import forever
from .relay_answers import SinkTrouble, Telling, checked, sound_reason
from .relay_lanes import Lanes
from .relay_options import RelayOptions

log = logging.getLogger("simpleworkflow.relay")

LOOK_EVERY = 1.0
PRUNE_EVERY = 60.0
PRUNE_BATCH = 500
PRUNE_LOOKS = 10_000
"""Rows that must stay, looked at in one go."""
BREATH = 0.02
"""Between two looks, however many hints come."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
MANY_RUNS = 10
"""So many runs whose events are all refused say that the other side is down, not that the events are bad."""
LONGEST_WAIT = 24 * 3600.0
LEAVE_TIMEOUT = 2.0
FIRST_SIZE = 64
LARGE = 8 * 1024 * 1024
"""Characters of data that one call of the sink gets at most, if there is more than one event in it."""
LONG_CALL = 15.0
SHORT_CALL = 5.0
"""Seconds. A sink gives up on the rest of a batch after 40; batches grow again, and fast while calls are short."""


class Relay:
    def __init__(self, ledger: Ledger, sink: Sink, me: str, options: RelayOptions) -> None:
        self._ledger = ledger
        self._sink = sink
        self._me = me
        self._options = options
        self._source = options.source or f"/simpleworkflow/{ledger.url.schema}"
        self._wake = asyncio.Event()
        self._lanes = Lanes(ledger, me, lease=options.lease, on_change=self.look)
        self._careful = 0
        """So many more events are offered one by one."""
        self._turn = 0
        self._size = min(options.batch, FIRST_SIZE)
        """Events in one call: fewer when the sink is slow or the events are large."""
        self._troubles = 0
        self._telling = Telling()
        self._pruned_to = (EPOCH, 0)
        self.counts: Counter[Delivery] = Counter()
        """What became of the events that were offered here."""

    def look(self, _: object = None) -> None:
        """Something may be waiting."""
        self._wake.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Publish until told to stop; what is under way is finished and marked first. SinkGone when the sink is."""
        roles = [
            asyncio.create_task(forever("the outbox's lanes", LOOK_EVERY, self._lanes.tend, stopping)),
            asyncio.create_task(forever("the outbox's pruning", PRUNE_EVERY, self.prune, stopping)),
        ]
        try:
            await self._publish_until(stopping)
        finally:
            for role in roles:
                role.cancel()
            await asyncio.wait(roles, timeout=LEAVE_TIMEOUT)
            await self._lanes.leave(LEAVE_TIMEOUT)
            with suppress(Exception):
                await self._sink.close()

    async def serve(self, stopping: asyncio.Event) -> None:
        """The same for a process of its own: hears hints itself, and closes the ledger in the end."""
        hearing = asyncio.create_task(self._ledger.listen(self.look))
        try:
            await self.run(stopping)
        finally:
            hearing.cancel()
            await asyncio.wait({hearing}, timeout=1.0)
            await self._ledger.close()

    async def run_once(self) -> int:
        """Publish what is due now in the lanes that are free; says how many lanes those were. SinkTrouble when the sink
        takes nothing."""
        try:
            await self._lanes.tend()
            lanes = self.serves
            while await self._round():
                if self._troubles > 2:
                    raise SinkTrouble("the sink fails again and again; nothing is lost, the rest is offered next time")
                await self._lanes.tend()
            await self.prune()
        finally:
            await self._lanes.leave(LEAVE_TIMEOUT)
            await self._sink.close()
            await self._ledger.close()
        return lanes

    @property
    def serves(self) -> int:
        """How many lanes are served here."""
        return len(self._lanes.usable)

    async def _publish_until(self, stopping: asyncio.Event) -> None:
        away, stumbles = False, 0
        while not stopping.is_set():
            more = False
            self._wake.clear()
            try:
                more = await self._round()
                away, stumbles = False, 0
            except StoreUnavailable as error:
                if not away:
                    log.log(level(error), "the relay waits for the database: %s", error)
                away = True
            except SinkGone:
                raise
            except Exception:
                log.exception("the relay stumbled and goes on")
                more, stumbles = True, stumbles + 1
                self._careful = 2 * self._options.batch  # what cannot be marked is published again: only that one then
            if not more:
                await self._rest(stopping, 0.0)
            elif troubles := max(self._troubles, stumbles):
                await self._rest(stopping, min(FIRST_PAUSE * 2 ** min(troubles - 1, 10), LONGEST_PAUSE))

    async def _rest(self, stopping: asyncio.Event, pause: float) -> None:
        """Until a hint or the next poll; after trouble for so long, hints or not."""
        wanted = [stopping.wait()] if pause else [stopping.wait(), self._wake.wait()]
        waits = [asyncio.ensure_future(one) for one in wanted]
        patience = pause * random.uniform(0.8, 1.0) if pause else self._options.poll_every
        try:
            await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not stopping.is_set():
            await asyncio.sleep(BREATH)

    async def _round(self) -> bool:
        """Read, publish, mark; False when there is nothing to do."""
        lanes = self._lanes.usable
        if not lanes:
            return False
        per_lane = 1 if self._careful else max(self._size // len(lanes), 1)
        self._lanes.in_flight = set(lanes)  # from here on: what is given up now would be published by two
        try:
            batch = await self._ledger.run(outbox.next_batch(self._in_turn(lanes), per_lane=per_lane))
            offered = self._fitting(batch.offered)
            if self._careful and offered:
                offered = [batch.offered[self._turn % len(batch.offered)]]
            if not offered and not batch.behind:
                return False
            self._lanes.in_flight = {event.lane for event in offered}
            answers = await self._publish(offered)
            if answers is None:
                return True
            marks = self._judge(offered, answers, batch.behind)
            await self._mark({lane: lanes[lane] for lane in marks}, marks)
        finally:
            self._lanes.in_flight = set()
        return True

    def _in_turn(self, lanes: Iterable[str]) -> list[str]:
        """Another lane comes first each time: the sink may have no time for the last ones."""
        self._turn += 1
        names = sorted(lanes)
        first = 0 if self._careful else self._turn % len(names)
        return names[first:] + names[:first]

    def _fitting(self, offered: list[Offered]) -> list[Offered]:
        """As many as one call may have; when they are large, fewer are read the next time."""
        length = 0
        for place, event in enumerate(offered[: self._size]):
            length += len(event.payload_json)
            if length > LARGE and place:
                self._size = place
                break
        return offered[: self._size]

    async def _publish(self, offered: Sequence[Offered]) -> Sequence[Refusal | None] | None:
        """The sink's answers; None when it failed as a whole and nobody is to blame yet."""
        if not offered:
            return []
        limit, began = asyncio.timeout(self._options.timeout), monotonic()
        try:
            async with limit:
                events = [self._cloud_event(event) for event in offered]
                answers = checked(await self._sink.publish(events), len(events))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, SinkGone) or (isinstance(error, asyncio.CancelledError) and is_being_cancelled()):
                raise
            late = f"no answer within {self._options.timeout:g} seconds"
            return self._blame(offered, late if limit.expired() else refusal_of(error).reason)
        self._careful = max(self._careful - 1, 0)
        self._pace(len(offered), monotonic() - began)
        runs = {event.run_id for event in offered}
        is_down = len(runs) >= MANY_RUNS and all(answer is not None for answer in answers)
        self._troubles = self._troubles + 1 if is_down else 0
        return answers

    def _pace(self, count: int, took: float) -> None:
        if took > LONG_CALL:
            self._size = max(count // 2, 1)
        else:  # on and on up to the limit: a sink that does several things at once shows it only with several events
            more = self._size if took < SHORT_CALL else max(self._size // 2, 1)
            self._size = min(self._size + more, self._options.batch)

    def _blame(self, offered: Sequence[Offered], told: str) -> Sequence[Refusal] | None:
        refusal = Refusal(sound_reason(told))
        log.warning("the sink failed with %d events: %s", len(offered), refusal.reason)
        self._troubles += 1
        self._careful = 2 * self._options.batch
        return [refusal] if len(offered) == 1 else None

    def _judge(
        self, offered: Sequence[Offered], answers: Sequence[Refusal | None], behind: Sequence[tuple[int, str]]
    ) -> dict[str, Marks]:
        marks: dict[str, Marks] = defaultdict(lambda: Marks([], [], []))
        stuck = set()
        refused: list[tuple[Offered, Refused]] = []
        for event, answer in zip(offered, answers, strict=True):
            lane = marks[event.lane]
            if event.run_id in stuck:
                lane.behind.append(event.id)  # whatever the sink says of it: first things first
            elif answer is None:
                lane.published.append((event.id, event.run_id))
            else:
                stuck.add(event.run_id)
                refused.append((event, self._refused(event, answer)))
                lane.refused.append(refused[-1][1])
        for row, name in behind:
            marks[name].behind.append(row)
        self._telling.refused(refused)
        return dict(marks)

    def _refused(self, event: Offered, refusal: Refusal) -> Refused:
        reason = sound_reason(refusal.reason)
        failures = event.attempt + (0 if refusal.is_untried else 1)
        if refusal.is_permanent or (not refusal.is_untried and failures >= self._options.retry.max_attempts):
            return Refused(event.id, Delivery.DEAD, failures, None, reason)
        delay = self._options.retry.delay(max(failures, 1), random.random())
        if refusal.retry_after is not None:
            delay = max(delay, min(refusal.retry_after, LONGEST_WAIT))
        return Refused(event.id, Delivery.RETRYING, failures, delay, reason)

    async def _mark(self, epochs: dict[str, int], marks: dict[str, Marks]) -> None:
        """Again and again while the lanes are ours: what is not marked is published twice."""
        while True:
            try:
                lost = await self._ledger.run(outbox.mark(self._me, epochs, marks))
                break
            except StoreUnavailable:
                if not self._lanes.usable:
                    raise
                await asyncio.sleep(0.5)
        if lost:
            self._lanes.lost(lost)
        for lane in marks.keys() - lost:
            self.counts[Delivery.PUBLISHED] += len(marks[lane].published)
            self.counts.update(one.status for one in marks[lane].refused)

    def _cloud_event(self, event: Offered) -> CloudEvent:
        return CloudEvent(
            id=f"{event.run_id}/{event.sequence}",
            source=self._source,
            type=event.event_type,
            time=event.created_at,
            run_id=event.run_id,
            sequence=event.sequence,
            workflow_type=event.workflow_type,
            data=event.payload_json,
            traceparent=event.traceparent,
        )

    async def prune(self) -> int:
        """Delete what left the outbox long ago, all of it, in small bites; how many rows. Of those that must stay only
        so many are looked at each time, and the next time goes on behind them."""
        keep = self._options.keep
        deleted = kept = 0
        while keep is not None and kept < PRUNE_LOOKS:
            done = await self._ledger.run(outbox.prune(self._pruned_to, age=keep, limit=PRUNE_BATCH))
            deleted += done.deleted
            kept += PRUNE_BATCH - done.deleted
            self._pruned_to = done.place or (EPOCH, 0)
            if done.place is None:
                break
            await asyncio.sleep(BREATH)
        return deleted
