"""Runs side by side, but the events of one run in their order: what every sink owes that sends them one by one.

A few runs are served at a time; within one, an event goes out when the one before it was taken. After a refusal the
rest of that run is refused unsent, since receivers may rely on having seen all earlier ones.

A call must also come to an end before the relay gives up on it, because then nothing of it counts as taken. A receiver
that is slow but well would run into that with a large batch, so nothing is started that could take longer than what is
left of `CALL_SECONDS`: it is refused, and comes again with the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ..clock import monotonic
from .protocol import CloudEvent, Refusal

Deliver = Callable[[CloudEvent], Awaitable[Refusal | None]]

EARLIER_REFUSED = "an earlier event of the run was refused"
NO_TIME_LEFT = Refusal("the receiver is slow: there was no time left for this event in its batch", is_untried=True)
CALL_SECONDS = 50.0
"""The relay gives a call 60."""


async def deliver_by_run(
    events: Sequence[CloudEvent], deliver: Deliver, at_once: int, *, longest: float = 10.0
) -> list[Refusal | None]:
    """One answer per event, in the order of `events`. An exception of `deliver` ends the others, in a group.

    `longest`: how many seconds one delivery may take.
    """
    answers: list[Refusal | None] = [None] * len(events)
    waiting = iter(places_by_run(events))
    until = monotonic() + CALL_SECONDS - longest

    async def serve() -> None:
        for places in waiting:  # shared: a thread that is free takes the next run
            refusal: Refusal | None = None
            for place in places:
                if refusal is not None:
                    answers[place] = after(refusal)
                    continue
                refusal = NO_TIME_LEFT if monotonic() > until else await deliver(events[place])
                answers[place] = refusal

    async with asyncio.TaskGroup() as servers:
        for _ in range(min(at_once, len(events))):
            servers.create_task(serve())
    return answers


def places_by_run(events: Sequence[CloudEvent]) -> list[list[int]]:
    """Where in `events` each run's are, runs in the order of their first one."""
    places: dict[UUID, list[int]] = {}
    for place, event in enumerate(events):
        places.setdefault(event.run_id, []).append(place)
    return list(places.values())


def after(earlier: Refusal) -> Refusal:
    """The answer for an event that was not sent because of an earlier one; it waits no shorter than that one."""
    return Refusal(EARLIER_REFUSED, retry_after=earlier.retry_after)
