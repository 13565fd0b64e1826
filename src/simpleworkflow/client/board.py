"""What an operator's screens show beyond a run's own row: its family and pieces, the crew, everybody's events, rates.

Nothing here changes a run, and nothing here reads a whole table, so that a screen may ask once a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from ..model.errors import InvalidFilter
from ..model.names import span_of_prefix
from ..model.records import FeedPage, Pulse, Run, Step, WorkerState
from ..model.states import EventType
from ..store.operations import board
from .looking import Looking
from .request import RunId, aware, run_uuid

MOST_CHILDREN = 1_000
MOST_EVENTS = 10_000


class Board(Looking):
    async def steps(self, run_id: RunId | None = None, *, key: str | None = None) -> list[Step]:
        """Everything that a run has on record, in the order of recording, superseded failures included."""
        return await self._engine.run(board.steps_of(await self._meant(run_id, key)))

    async def waits(self, run_ids: Iterable[RunId]) -> dict[UUID, list[Step]]:
        """What paused runs wait for, as far as it is on record: a few open pieces of each."""
        wanted = [run_uuid(run_id) for run_id in run_ids]
        return await self._engine.run(board.waits_of(wanted)) if wanted else {}

    async def children(
        self,
        run_id: RunId | None = None,
        *,
        after: RunId | None = None,
        limit: int = 100,
        key: str | None = None,
    ) -> list[Run]:
        """One page of the runs that this run has started, oldest first; go on with after=the last id you saw."""
        _check_limit(limit, MOST_CHILDREN)
        place: UUID | None = None if after is None else run_uuid(after)
        wanted = await self._meant(run_id, key)
        found = await self._engine.run(board.children(wanted, after=place, limit=limit))
        if place is not None and not found:
            await self.get(place)  # behind a run that is gone nothing would come, as if there were no more
        return found

    async def worker_states(self) -> list[WorkerState]:
        """Every worker on record, the stopped and the silent ones too, and how many runs each holds now."""
        return await self._engine.run(board.worker_states(silence=self.settings.worker_silence))

    async def feed(
        self,
        instant: datetime,
        *,
        after: int = 0,
        limit: int = 1000,
        prefix: str | None = None,
        events: str | Iterable[str] | None = None,
    ) -> FeedPage:
        """A window of everybody's audit trail since an instant, with the type of each run; filters combine.

        Looks at so many events as `limit` says and returns those that fit, so a page may be short or empty before the
        end (`is_last`); go on with after=the page's `last`. On PostgreSQL transactions commit in any order: a line with
        a smaller id may turn up a moment later, so a reader that must miss none goes back a little.
        """
        moment = aware("instant", instant, InvalidFilter)
        _check_limit(limit, MOST_EVENTS)
        span = None if prefix is None else span_of_prefix(prefix)
        return await self._engine.run(
            board.feed(moment, after=after, limit=limit, span=span, events=event_types(events))
        )

    async def pulse(self, after: int | None = None) -> Pulse:
        """How many events of each kind came after a place in the trail (the `last_event` of the pulse before), and how
        late the most overdue run is. Without a place it only finds the newest one."""
        return await self._engine.run(board.pulse(after))


def event_types(events: str | Iterable[str] | None) -> list[EventType]:
    """One kind of event or several, as people write them."""
    wanted = [] if events is None else [events] if isinstance(events, str) else list(events)
    try:
        return [EventType(one) for one in wanted]
    except ValueError as error:
        raise InvalidFilter(f"{error}; an event is one of {', '.join(EventType)}") from None


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise InvalidFilter(f"limit={limit} is not between 1 and {most}; ask page by page")
