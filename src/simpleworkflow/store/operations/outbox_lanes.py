"""Lanes of the outbox: who delivers what, and the rules of what goes there at all.

Sixteen rows, a lease on each. A dispatcher takes its share (as many as everybody gets when all are served), renews what
it has, gives up what is too much. Nobody is elected: the lanes and the list of the living are all there is to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...clock import to_us
from ...model.names import Span
from ...model.outbox import LANES, LaneState, OutboxRule
from ...model.states import EventType
from ..protocol import Steps, query, reading, statements, transaction


class Scene(NamedTuple):
    """Lanes and dispatchers at one moment."""

    lanes: list[LaneState]
    alive: list[str]


@reading
def scene(*, silence: float) -> Steps[Scene]:
    lanes = yield from lane_states()
    rows = yield query("live_dispatchers", silence=to_us(silence))
    return Scene(lanes, [row["dispatcher"] for row in rows])


def lane_states() -> Steps[list[LaneState]]:
    rows = yield query("outbox_lanes")
    return [
        LaneState(row["lane"], row["owner"], row["epoch"], bool(row["is_held"]), row["lease_until"]) for row in rows
    ]


def share(alive: int) -> int:
    """How many lanes each of so many dispatchers serves at most."""
    return -(-len(LANES) // max(alive, 1))


class Tended(NamedTuple):
    mine: dict[str, int]
    """Lanes and their epochs."""
    alive: int


@transaction
def tend(me: str, *, lease: float, dead: Sequence[str], spare: Sequence[str]) -> Steps[Tended]:
    """Say that we live, renew what is ours, take what is missing to our share or give up what is too much of it.

    `dead`: others of whom it is known that they live no more; `spare`: lanes of ours that may be given up now.
    """
    yield query("announce_dispatcher", id=me)
    yield query("forget_dispatchers", d=[(one,) for one in dead], silence=to_us(lease))
    alive = len((yield query("live_dispatchers", silence=to_us(lease))))
    renewed = yield query("renew_lanes", owner=me, lease=to_us(lease))
    mine = {row["lane"]: row["epoch"] for row in renewed}
    surplus = len(mine) - share(alive)
    if surplus > 0:
        leaving = [(lane, mine[lane]) for lane in sorted(spare) if lane in mine][:surplus]
        if leaving:
            for row in (yield query("release_lanes", l=leaving)):
                del mine[row["lane"]]
    elif surplus < 0:
        taken = yield query("take_lanes", w=[(one,) for one in dead], owner=me, lease=to_us(lease), limit=-surplus)
        mine |= {row["lane"]: row["epoch"] for row in taken}
    return Tended(mine, alive)


@transaction
def leave(me: str) -> Steps[None]:
    """Give everything back and say goodbye: also what was taken by a look that was cut short, and nobody knows of."""
    yield query("release_lanes_of", owner=me)
    yield query("forget_dispatchers", d=[(me,)], silence=to_us(7 * 24 * 3600.0))


@statements
def add_rules(rules: Sequence[OutboxRule]) -> Steps[list[OutboxRule]]:
    """What is there already stays; returns the new ones."""
    if not rules:
        return []
    rows = sorted({(str(rule.event), *rule.span) for rule in rules})
    added = yield query("add_outbox_rules", u=rows)
    return [OutboxRule(EventType(row["event_type"]), Span(row["low"], row["high"])) for row in added]


@statements
def delete_rules(rules: Sequence[OutboxRule]) -> Steps[list[OutboxRule]]:
    """Returns those that were there."""
    rows = sorted({(str(rule.event), *rule.span) for rule in rules})
    gone = yield query("delete_outbox_rules", u=rows)
    return [OutboxRule(EventType(row["event_type"]), Span(row["low"], row["high"])) for row in gone]


@reading
def rules() -> Steps[list[OutboxRule]]:
    rows = yield query("outbox_rules")
    return [OutboxRule(EventType(row["event_type"]), Span(row["low"], row["high"]), row["created_at"]) for row in rows]
