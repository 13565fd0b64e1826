"""A sink's answers: checked before anything is marked by them, stored as sound text, told in few lines.

A sink may be anybody's code. The danger is an answer that the relay stumbles over after the events have been published:
nothing would be marked, and the same events would be published again, and again. So whatever is not an answer is found
here, and is the sink's trouble; and the reason of a refusal is made such that every database takes it.

The other danger is a log that nobody can read any more. When the other side is down, thousands of runs are refused:
that is told in one line, not more often than every few seconds. What is given up is told at once, in a line per round.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ..clock import monotonic
from ..model.errors import SimpleWorkflowError
from ..model.failure import storable
from ..model.outbox import Delivery, Offered, Refused
from ..sinks.calling import LONGEST_REASON
from ..sinks.protocol import Refusal
from ..store.url import mask_text

log = logging.getLogger("simpleworkflow.relay")

TELL_EVERY = 10.0
"""Seconds between two lines about refusals that will be tried again."""


class SinkTrouble(SimpleWorkflowError):
    """The sink could not take events."""


def checked(answers: Iterable[object], count: int) -> list[Refusal | None]:
    """One answer per event, None or a Refusal; SinkTrouble when they are something else."""
    found: list[Refusal | None] = []
    for answer in answers:
        if answer is not None and not isinstance(answer, Refusal):
            told = "None means that an event was taken, a Refusal that it was not"
            raise SinkTrouble(f"the sink answered with a {type(answer).__name__}; {told}")
        found.append(answer)
    if len(found) != count:
        raise SinkTrouble(f"the sink gave {len(found)} answers to {count} events")
    return found


def sound_reason(text: str) -> str:
    """Without passwords, and short: it is stored and shown."""
    return mask_text(storable(text))[:LONGEST_REASON]


class Telling:
    """Lines about refusals."""

    def __init__(self) -> None:
        self._told = float("-inf")
        self._untold = 0

    def refused(self, marks: Sequence[tuple[Offered, Refused]]) -> None:
        """What one round has brought."""
        dead = [pair for pair in marks if pair[1].status is Delivery.DEAD]
        again = [pair for pair in marks if pair[1].status is not Delivery.DEAD]
        if dead:
            self._tell_dead(dead)
        if again:
            self._tell_again(again)
        for event, mark in marks:
            log.debug("event %d of run %s is %s: %s", event.sequence, event.run_id, mark.status, mark.reason)

    def _tell_dead(self, dead: Sequence[tuple[Offered, Refused]]) -> None:
        event, mark = dead[0]
        told = "event %d (%s) of run %s is dead after %d attempts and holds back that run's later ones: %s"
        if len(dead) > 1:
            told += f" (and {len(dead) - 1:,} of other runs: simpleworkflow outbox list)"
        values = (event.sequence, event.event_type, event.run_id, mark.attempt, mark.reason)
        log.error(told, *values, extra=_about(event))

    def _tell_again(self, again: Sequence[tuple[Offered, Refused]]) -> None:
        now = monotonic()
        if now - self._told < TELL_EVERY:
            self._untold += len(again)
            return
        event, mark = again[0]
        others = len(again) - 1 + self._untold
        self._told, self._untold = now, 0
        told = "event %d (%s) of run %s was refused, next try in %.0f s: %s"
        if others:
            told += f" (and {others:,} more)"
        log.info(told, event.sequence, event.event_type, event.run_id, mark.delay, mark.reason, extra=_about(event))


def _about(event: Offered) -> dict[str, object]:
    return {"run_id": str(event.run_id), "sequence": event.sequence}
