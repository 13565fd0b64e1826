"""What happens among all runs: how many there are, everybody's audit trail, and what operators' screens ask beside it.

Nothing here changes a run. Pages of the trail are read by an index, so that a screen may ask once a second; a count
reads the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from string import hexdigits
from uuid import UUID

from ...model.errors import InvalidFilter
from ...model.explanation import Found
from ...model.names import span_of_prefix
from ...model.records import Count, EventPage, Pulse, Step
from ...model.states import EventType
from ...store.operations import board, explain, runs
from ..client import Client
from ..request import RunId, aware, run_uuid

MOST_EVENTS = 10_000


class Activity:
    """What happens among all runs: `await app.activity.counts()`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def counts(self) -> list[Count]:
        """How many runs there are of each type and status."""
        return await self._client.run(runs.count())

    async def events(
        self,
        since: datetime,
        *,
        after: int = 0,
        limit: int = 1000,
        prefix: str | None = None,
        events: str | Iterable[str] | None = None,
    ) -> EventPage:
        """A page of everybody's audit trail since an instant, with the type of each run; filters combine.

        Looks at so many events as `limit` says and returns those that fit, so a page may be short or empty before the
        end (`is_last`); go on with after=the page's `last`. On PostgreSQL transactions commit in any order: a line with
        a smaller id may turn up a moment later, so a reader that must miss none goes back a little.
        """
        moment = aware("since", since, InvalidFilter)
        if not 1 <= limit <= MOST_EVENTS:
            raise InvalidFilter(f"limit={limit} is not between 1 and {MOST_EVENTS}; ask page by page")
        span = None if prefix is None else span_of_prefix(prefix)
        return await self._client.run(
            board.feed(moment, after=after, limit=limit, span=span, events=event_types(events))
        )

    async def pulse(self, after: int | None = None) -> Pulse:
        """How many events of each kind came after a place in the trail (the `last_event` of the pulse before), and how
        late the most overdue run is. Without a place it only finds the newest one."""
        return await self._client.run(board.pulse(after))

    async def waits(self, run_ids: Iterable[RunId]) -> dict[UUID, list[Step]]:
        """What paused runs wait for, as far as it is on record: a few open pieces of each."""
        wanted = [run_uuid(run_id) for run_id in run_ids]
        return await self._client.run(board.waits_of(wanted)) if wanted else {}

    async def find(self, beginning: str, *, limit: int = 10) -> list[Found]:
        """The runs whose ids begin like this: 1 to 32 hexadecimal digits, dashes as you like; oldest first."""
        digits = beginning.replace("-", "").lower()
        if not 1 <= len(digits) <= 32 or not set(digits) <= set(hexdigits):
            raise InvalidFilter(f"{beginning!r} is not the beginning of an id: use up to 32 digits 0-9, a-f")
        low, high = (UUID(digits.ljust(32, fill)) for fill in "0f")
        return await self._client.run(explain.runs_between(low, high, limit=limit))


def event_types(events: str | Iterable[str] | None) -> list[EventType]:
    """One kind of event or several, as people write them."""
    wanted = [] if events is None else [events] if isinstance(events, str) else list(events)
    try:
        return [EventType(one) for one in wanted]
    except ValueError as error:
        raise InvalidFilter(f"{error}; an event is one of {', '.join(EventType)}") from None
