"""Races: the first of several durable calls, decided once and the same on every replay.

The danger is two winners. A signal and a timer may come in the same instant, and a process may die between the two
records; then a consumed signal would belong to nobody. So the contender that first comes to its finishing record takes
the race along: both records are one journal entry, and from that moment on no other contender writes anything. A loser
is stopped, again and again until it is (code may swallow a cancellation); what it had taken it gives back, and its
waits are marked as over.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from uuid import UUID

from ...model import payload
from ...model.errors import InvalidWorkflow, NonDeterminismError
from ...model.moves import Record
from ...model.names import child_of
from ...model.states import StepKind, StepStatus
from ...model.step_places import path_of
from ..branches import BRANCH, Branch
from .children import Children
from .memo import FINISHED, Memo, durable

T = TypeVar("T")
FindLosers = Callable[[Sequence[str], Sequence[Branch]], tuple[tuple[Record, ...], tuple[UUID, ...]]]
Call = Coroutine[Any, Any, T]

CANCEL_AGAIN = 0.05
_BEATEN = payload.encode({"type": "RaceLost", "message": "another contender of its race was first"})


@dataclass(frozen=True, slots=True)
class RaceResult(Generic[T]):
    """Which call of a race was first, counted from 0 in the order given, and what it returned."""

    index: int
    value: T


class Ticket:
    """Who won a race: the first contender to come to its finishing record, and nobody after it."""

    def __init__(
        self, record: Record, places: dict[str, int], lanes: Sequence[Branch], trunk: Branch, find_losers: FindLosers
    ) -> None:
        self._record = record
        self.step_id = record.step_id
        self.places = places
        self._lanes = lanes
        self.trunk = trunk
        self.winner: int | None = None
        self._find_losers = find_losers

    def is_lost_for(self, step_id: str) -> bool:
        return self.winner is not None and self.winner != self.places[step_id]

    def claim(self, index: int) -> tuple[Record, ...]:
        """Decide the race; the records that say so, for those who lost too."""
        self.winner = index
        beaten = [place for place, contender in self.places.items() if contender != index]
        waits, children = self._find_losers(beaten, self.lose(but=self._lanes[index]))
        return (replace(self._record, output=payload.encode(self.place_of(index)), cancels=children), *waits)

    def place_of(self, index: int) -> str:
        """What a contender is known by, also when the code around it has changed."""
        direct = (place for place, contender in self.places.items() if contender == index)
        return next(direct, self._lanes[index].path)

    def winner_of(self, output: str | None) -> int:
        """Who had won, by the record."""
        known = payload.decode(output or "null")
        places = [self.place_of(index) for index in range(len(self._lanes))]
        if known not in places:
            raise NonDeterminismError(
                f"{self.step_id} was won by {known}, which is no contender any more; "
                "the code of a run under way has changed"
            )
        return places.index(known)

    def lose(self, *, but: Branch | None = None) -> list[Branch]:
        """Nothing more is done in the branches of these contenders."""
        lost = [lane for lane in self._lanes if lane is not but and lane is not self.trunk]
        for lane in lost:
            lane.lost = True
        return lost


class Races:
    def __init__(self, memo: Memo, find_children: Callable[[], Children | None]) -> None:
        """`find_children`: the child runs of this execution, if it has any."""
        self._memo = memo
        self._stage = memo.stage
        self._find_children = find_children

    @durable
    def race(self, calls: Sequence[Call[T]]) -> Call[RaceResult[T]]:
        branch = self._memo.enter()
        if not calls or not all(asyncio.iscoroutine(call) for call in calls) or len(set(map(id, calls))) < len(calls):
            self._dismiss(calls)
            raise InvalidWorkflow(
                "ctx.race takes the calls themselves, each once: await ctx.race(ctx.sleep('1h'), ctx.step(f))"
            )
        self._memo.has_raced = True
        lanes = [branch if self._memo.place_of(call) else branch.spawn(_name(call)) for call in calls]
        step_id = branch.identify("@race")
        race = self._memo.at(step_id, self._race(step_id, branch, calls, lanes), "race")
        self._memo.inner[step_id] = calls
        return race

    async def _race(
        self, step_id: str, branch: Branch, calls: Sequence[Call[T]], lanes: Sequence[Branch]
    ) -> RaceResult[T]:
        self._memo.begin(step_id)
        self._memo.inner.pop(step_id, None)
        places = {place: index for index, call in enumerate(calls) if (place := self._memo.place_of(call)) is not None}
        known = self._memo.recorded(step_id, StepKind.RACE)
        race = self._memo.record(step_id, StepKind.RACE, StepStatus.SUCCEEDED)
        ticket = Ticket(race, places, lanes, branch, self._losers)
        try:
            index = self._finished_before(places) if known is None else ticket.winner_of(known.output_json)
        except NonDeterminismError as error:
            self._dismiss(calls)
            raise self._memo.misfit(error) from None
        if index is not None:
            for place in places:
                self._memo.replay.passed(place)
            if known is None:
                await self._decide(ticket, index)
            return await self._only(index, calls, lanes, branch)
        self._memo.tickets |= dict.fromkeys(places, ticket)
        try:
            return await self._contest(ticket, calls, lanes)
        finally:
            for place in places:
                self._memo.tickets.pop(place, None)

    async def _decide(self, ticket: Ticket, index: int) -> None:
        race, *losers = ticket.claim(index)
        await self._memo.write(replace(race, also=tuple(losers)))

    async def _contest(self, ticket: Ticket, calls: Sequence[Call[T]], lanes: Sequence[Branch]) -> RaceResult[T]:
        tasks = [_contend(call, lane) for call, lane in zip(calls, lanes, strict=True)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ticket.winner is None:
                # A coroutine of the user's own: it leaves no finishing record that could have told.
                await self._decide(ticket, next(index for index, task in enumerate(tasks) if task.done()))
            index = ticket.winner
            assert index is not None
            await asyncio.wait({tasks[index]})
        finally:
            await self._stop(tasks)
        self._leave(lanes, but=(lanes[index], ticket.trunk))
        return RaceResult(index, tasks[index].result())

    async def _stop(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Losers get the time that their own cleaning up takes, but not the power to go on."""
        self._stage.begin_work()
        pause = CANCEL_AGAIN
        try:
            while pending := [task for task in tasks if not task.done()]:
                for task in pending:
                    task.cancel()
                await asyncio.wait(pending, timeout=pause)
                pause = min(pause * 2, 1.0)
        finally:
            self._stage.end_work()
        for task in tasks:
            if not task.cancelled():
                task.exception()  # seen: a loser's last words interest nobody

    async def _only(
        self, index: int, calls: Sequence[Call[T]], lanes: Sequence[Branch], trunk: Branch
    ) -> RaceResult[T]:
        """The race is decided: its winner alone is asked."""
        self._dismiss([call for call in calls if call is not calls[index]])
        self._leave(lanes, but=(lanes[index], trunk))
        return RaceResult(index, await _contend(calls[index], lanes[index]))

    def _leave(self, lanes: Sequence[Branch], but: Sequence[Branch]) -> None:
        """What the losers have on record in branches of their own is not asked for any more."""
        for lane in lanes:
            if lane not in but:
                self._memo.replay.leave(lane.path)

    def _dismiss(self, calls: Sequence[Any]) -> None:
        """Calls that will never be awaited, with those inside them."""
        for call in calls:
            if asyncio.iscoroutine(call):
                place = self._memo.place_of(call) or ""
                self._memo.written.pop(place, None)
                self._dismiss(self._memo.inner.pop(place, ()))
                call.close()

    def _finished_before(self, places: dict[str, int]) -> int | None:
        """A contender that is on record as finished though the race is not."""
        steps = self._stage.history.steps
        done = [index for place, index in places.items() if place in steps and steps[place].status in FINISHED]
        return min(done, default=None)

    def _losers(self, places: Sequence[str], lanes: Sequence[Branch]) -> tuple[tuple[Record, ...], tuple[UUID, ...]]:
        """What ends the losers' waits that are on record, and the children that calls of ctx.run have started for them.

        A race that lost takes its own contenders along.
        """
        places, lanes = list(places), list(lanes)
        for place in places:
            for inner in {ticket for ticket in self._memo.tickets.values() if ticket.step_id == place}:
                lanes += inner.lose()
                places += inner.places
        waits = {step.step_id: step.kind for step in self._stage.history.steps.values() if step.status not in FINISHED}
        waits |= {record.step_id: record.kind for record in self._stage.kept.values()}
        paths = tuple(lane.path for lane in lanes)

        def has_lost(step_id: str) -> bool:
            return step_id in places or bool(paths and path_of(step_id).startswith(paths))

        ended = (
            self._memo.record(s, kind, StepStatus.FAILED, error=_BEATEN) for s, kind in waits.items() if has_lost(s)
        )
        children = self._awaited_children(has_lost)
        # What a coroutine of the user's own waited for before it was unwound is known by its record alone.
        inside = (step_id for step_id in waits if paths and path_of(step_id).startswith(paths))
        children |= {child for step_id in inside if (child := child_of(step_id)) is not None}
        return tuple(ended), tuple(sorted(children))

    def _awaited_children(self, has_lost: Callable[[str], bool]) -> set[UUID]:
        """Those that ctx.run has started for a call that has lost."""
        children = self._find_children()
        if children is None:
            return set()
        lost = (started for place, started in children.awaited.items() if has_lost(place))
        return {child for child, place in lost if children.has_started(child, place)}


def _contend(call: Call[T], lane: Branch) -> asyncio.Task[T]:
    """A task of our own making: it is the branch that it was given, and counts for nothing in the one around it."""
    context = contextvars.copy_context()
    context.run(BRANCH.set, lane)
    return asyncio.get_running_loop().create_task(call, context=context)


def _name(call: Any) -> str:
    return str(getattr(call, "__qualname__", type(call).__qualname__)).replace("/", ".")
