"""One event to several places: taken when all of them took it.

A place that took it while another refused gets it again with the next attempt, and drops it by its id like any other
repetition. So the slowest place sets the pace, and a dead one holds back the others' later events of that run. Two
relays with a sink each are no way out: they share the events, and each place would get a part of them. Where places
must not wait for each other, deliver to one stream (Redis, a broker) that each of them reads for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..model.errors import InvalidPolicy
from .by_run import after, places_by_run
from .protocol import CloudEvent, Refusal, Sink


class SeveralSinks:
    """Hands every event to all `sinks` at the same time."""

    def __init__(self, *sinks: Sink) -> None:
        if not sinks:
            raise InvalidPolicy("several sinks need at least one")
        self._sinks = sinks

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        told = await asyncio.gather(*(sink.publish(events) for sink in self._sinks), return_exceptions=True)
        for one in told:
            if isinstance(one, BaseException):
                raise one
        answers = [_together(given) for given in zip(*told, strict=True)]
        for places in places_by_run(events):
            refusal: Refusal | None = None
            for place in places:
                if refusal:
                    answers[place] = after(refusal)
                refusal = refusal or answers[place]
        return answers

    async def close(self) -> None:
        for one in await asyncio.gather(*(sink.close() for sink in self._sinks), return_exceptions=True):
            if isinstance(one, BaseException):
                raise one


def _together(answers: Sequence[Refusal | None]) -> Refusal | None:
    refusals = [answer for answer in answers if answer is not None]
    if not refusals:
        return None
    waits = [refusal.retry_after for refusal in refusals if refusal.retry_after is not None]
    reasons = dict.fromkeys(refusal.reason for refusal in refusals)
    is_permanent = any(refusal.is_permanent for refusal in refusals)
    is_untried = all(refusal.is_untried for refusal in refusals)
    return Refusal("; ".join(reasons), is_permanent, max(waits, default=None), is_untried)
