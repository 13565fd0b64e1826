"""Races: the first of several durable calls, decided once and the same on every replay.

The danger is two winners. A signal and a timer may come in the same instant, and a process may die between the two
records; then a consumed signal would belong to nobody. So the contender that first comes to its finishing record takes
the race along: both records are one journal entry, and from that moment on no other contender writes anything. A loser
is stopped; what it had taken it gives back, and its wait is marked as over.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..model import payload
from ..model.errors import InvalidWorkflow
from ..model.moves import Record
from ..model.states import StepKind, StepStatus
from .branches import BRANCH, Branch
from .children import Children
from .memo import FINISHED, Ticket

T = TypeVar("T")
Call = Coroutine[Any, Any, T]

_BEATEN = payload.encode({"type": "RaceLost", "message": "another contender of its race was first"})


@dataclass(frozen=True, slots=True)
class Winner(Generic[T]):
    """Which call of a race was first, counted from 0 in the order given, and what it returned."""

    index: int
    value: T


class Races(Children):
    def race(self, calls: Sequence[Call[T]]) -> Call[Winner[T]]:
        branch = self._enter()
        if not calls or not all(asyncio.iscoroutine(call) for call in calls):
            for call in calls:
                if asyncio.iscoroutine(call):
                    call.close()
            raise InvalidWorkflow("ctx.race takes the calls themselves: await ctx.race(ctx.sleep('1h'), ctx.step(f))")
        lanes = [branch if call in self._places else branch.spawn(_name(call)) for call in calls]
        return self._race(branch.identify("@race"), calls, lanes)

    async def _race(self, step_id: str, calls: Sequence[Call[T]], lanes: Sequence[Branch]) -> Winner[T]:
        self._enter()
        places = {self._places[call]: index for index, call in enumerate(calls) if call in self._places}
        known = self._recorded(step_id, StepKind.RACE)
        ticket = Ticket(self._record(step_id, StepKind.RACE, StepStatus.SUCCEEDED), places)
        index = self._finished_before(places) if known is None else int(payload.decode(known.output_json or "0"))
        if index is not None:
            for place in places:
                self.replay.passed(place)
            if known is None:
                ticket.claim(index)
                await self._write(ticket.record)
            return await self._only(index, calls, lanes)
        ticket.losers = tuple(record for place in places if (record := self._beaten(place)) is not None)
        self._tickets |= dict.fromkeys(places, ticket)
        try:
            return await self._contest(ticket, calls, lanes)
        finally:
            for place in places:
                self._tickets.pop(place, None)

    async def _contest(self, ticket: Ticket, calls: Sequence[Call[T]], lanes: Sequence[Branch]) -> Winner[T]:
        tasks = [_contend(call, lane) for call, lane in zip(calls, lanes, strict=True)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            first = next(index for index, task in enumerate(tasks) if task.done())
            if ticket.winner is None and ticket.claim(first):
                # A coroutine of the user's own: it leaves no finishing record that could have told.
                await self._write(ticket.record)
            index = first if ticket.winner is None else ticket.winner
            await asyncio.wait({tasks[index]})
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Winner(index, tasks[index].result())

    async def _only(self, index: int, calls: Sequence[Call[T]], lanes: Sequence[Branch]) -> Winner[T]:
        """The race is decided: its winner alone is asked."""
        for call in calls:
            if call is not calls[index]:
                call.close()
        return Winner(index, await _contend(calls[index], lanes[index]))

    def _finished_before(self, places: dict[str, int]) -> int | None:
        """A contender that is on record as finished though the race is not."""
        steps = self._stage.history.steps
        done = [index for place, index in places.items() if place in steps and steps[place].status in FINISHED]
        return min(done, default=None)

    def _beaten(self, place: str) -> Record | None:
        """What ends a loser's wait that is on record."""
        known = self._stage.history.steps.get(place)
        if known is None or known.status in FINISHED:
            return None
        return self._record(place, known.kind, StepStatus.FAILED, attempt=known.attempt, error=_BEATEN)


def _contend(call: Call[T], lane: Branch) -> asyncio.Task[T]:
    """A task of our own making: it is the branch that it was given, and counts for nothing in the one around it."""
    context = contextvars.copy_context()
    context.run(BRANCH.set, lane)
    return asyncio.get_running_loop().create_task(call, context=context)


def _name(call: Any) -> str:
    return str(getattr(call, "__qualname__", type(call).__qualname__)).replace("/", ".")
