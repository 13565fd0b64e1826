"""The outbox as operators and programs see it: how it stands, what was given up, what goes there, and going past what
is stuck. Events are taken to others by a relay (worker/relay.py), which is no part of these calls.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable
from datetime import datetime
from typing import Any, overload
from uuid import UUID

from ...model.errors import InvalidFilter, InvalidInput, RunNotFound
from ...model.outbox import Delivery, OutboxEvent, OutboxRule, OutboxStatus, lifecycle_rules
from ...runtime.hints import Hint
from ...store.operations import outbox, outbox_lanes
from .. import reading
from ..client import Client
from ..request import RunId, aware, reason_text

PAGE = 1_000
REPLAYED_AT_ONCE = 500
MAX_NAME = 200
LATEST = 2**62


class Outbox:
    """The outbox as operators see it: `await app.outbox.status()`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def emit_lifecycle(self, prefix: str, /, *events: str) -> None:
        """Put these lifecycle events of runs whose type is below the prefix into the outbox, in the transaction of the
        move: app.outbox.emit_lifecycle("billing.*", "succeeded", "failed").

        Known to the database once a worker of this App has started, and from then on every program that moves a run
        obeys. Taking the line away leaves the rule, since other programs may want it: `simpleworkflow outbox rules
        delete` ends it.
        """
        self._client.registry.outbox_rules += lifecycle_rules(prefix, events)

    async def status(self) -> OutboxStatus:
        """How many events wait, are retried, stand behind others or are dead; how late the oldest is; who serves which
        lanes. Counts stop at `most`."""
        return await self._client.run(outbox.status(silence=self._client.settings.lease))

    async def events(self, run_id: RunId | None = None, *, key: str | None = None) -> list[OutboxEvent]:
        """A run's events in the outbox, in order, and what became of each."""
        wanted = await self._client.find(run_id, key)
        found: list[OutboxEvent] = []
        while True:
            after = found[-1].sequence if found else 0
            page = await self._client.run(outbox.events_of(wanted, after=after, limit=PAGE))
            found += page
            if len(page) < PAGE:
                return found

    async def dead(self, *, limit: int = 100) -> list[OutboxEvent]:
        """Events that were given up, the oldest first: each holds back the later ones of its run."""
        if not 1 <= limit <= PAGE:
            raise InvalidFilter(f"limit={limit} is not between 1 and {PAGE}")
        found, _ = await self._client.run(outbox.dead(after=0, limit=limit))
        return found

    async def replay(
        self,
        run_id: RunId | None = None,
        *,
        since: datetime | None = None,
        dead: bool = False,
        first: int = 1,
        key: str | None = None,
    ) -> int:
        """Offer events again, in their order, with attempts counted anew: says how many.

        run_id or key: of this run, from the number `first` on, whatever became of them. since: what was published since
        then, of all runs. dead: everything that was given up. Receivers know the event's id, and drop it if they have
        it.
        """
        of_run = run_id is not None or key is not None
        if sum([of_run, since is not None, dead]) != 1:
            raise InvalidInput("say what to offer again: one run, since= an instant, or dead=True")
        if of_run:
            count = await self._replay_run(await self._client.find(run_id, key), first)
        elif since is not None:
            count = await self._replay_since(aware("since", since, InvalidFilter))
        else:
            count = await self._replay_dead()
        if count:
            await self._client.tell(Hint.OUTBOX)
        return count

    async def _replay_run(self, run_id: UUID, first: int) -> int:
        if first < 1:
            raise InvalidInput(f"events of a run are numbered from 1; {first} is none of them")
        count = await self._client.run(outbox.replay_run(run_id, first=first))
        if not count and not await self.events(run_id):
            await reading.get(self._client, run_id)  # a run that does not exist has no events for another reason
        return count

    async def _replay_since(self, since: datetime) -> int:
        """What is published again meanwhile is later than the call, so this comes to an end."""
        until, total = await self._client.run(outbox.instant()), 0
        while True:
            count = await self._client.run(outbox.replay_published(since, until, limit=REPLAYED_AT_ONCE))
            if not count:
                return total
            total += count

    async def _replay_dead(self) -> int:
        last, place, total = await self._client.run(outbox.last_dead()), 0, 0
        while place < last:
            count, place = await self._client.run(outbox.replay_dead(after=place, until=last, limit=REPLAYED_AT_ONCE))
            total += count
        return total

    @overload
    async def skip(
        self,
        run_id: RunId | None,
        sequence: int,
        *,
        reason: str | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> OutboxEvent: ...

    @overload
    async def skip(
        self, sequence: int, /, *, key: str, reason: str | None = None, by: str | None = None
    ) -> OutboxEvent: ...

    @overload
    async def skip(
        self, *, sequence: int, key: str, reason: str | None = None, by: str | None = None
    ) -> OutboxEvent: ...

    async def skip(
        self,
        run_id: Any = None,
        sequence: Any = None,
        *,
        reason: str | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> OutboxEvent:
        """Let a run's later events pass one that is dead or retried. Who, when and why stay in its row.

        by: who decides so; the user and host of this process unless given. Skipping twice is fine.
        """
        if key is not None and sequence is None:
            run_id, sequence = None, run_id
        wanted = await self._client.find(run_id, key)
        who = _here() if by is None else by
        if not 1 <= len(who) <= MAX_NAME or not who.isprintable():
            raise InvalidInput(f"by= must be a name of 1 to {MAX_NAME} printable characters")
        if not 1 <= sequence < LATEST:
            raise InvalidInput(f"events of a run are numbered from 1; {sequence} is none of them")
        event = await self._client.run(outbox.skip(wanted, sequence, by=who, reason=reason_text(reason)))
        if event is None:
            await reading.get(self._client, wanted)
            raise RunNotFound(f"run {wanted} has no event {sequence} in the outbox")
        if event.status is not Delivery.SKIPPED:
            raise InvalidInput(
                f"event {sequence} of run {wanted} is {event.status}; only one that is dead or retried can be skipped"
            )
        await self._client.tell(Hint.OUTBOX)
        return event

    async def rules(self) -> list[OutboxRule]:
        """Which lifecycle events go to the outbox."""
        return await self._client.run(outbox_lanes.rules())

    async def add_rules(self, prefix: str, events: Iterable[str]) -> list[OutboxRule]:
        """From now on these lifecycle events ("succeeded", "failed", …) of types below the prefix go to the outbox, in
        the transaction of the move. Returns the rules that were not there yet."""
        return await self._client.run(outbox_lanes.add_rules(lifecycle_rules(prefix, _several(events))))

    async def delete_rules(self, prefix: str, events: Iterable[str]) -> list[OutboxRule]:
        """Exactly these rules, if they are there; what is in the outbox stays. Returns those that were."""
        return await self._client.run(outbox_lanes.delete_rules(lifecycle_rules(prefix, _several(events))))


def _several(events: str | Iterable[str]) -> list[str]:
    return [events] if isinstance(events, str) else list(events)


def _here() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"[:MAX_NAME]
