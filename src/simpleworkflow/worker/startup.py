"""A worker says what it serves: to the database, for those who trigger and who list workers, and to the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..model.errors import StoreUnavailable
from ..model.names import EVERYTHING
from ..model.outbox import OutboxRule
from ..model.schedule import NewSchedule
from ..store import Ledger
from ..store.operations import outbox_lanes, workers
from ..store.outage import level
from ..version import __version__
from .claim import Claimer
from .loop import pause_unless
from .process import Identity
from .sweep import some_runs
from .unknown import warn_of_the_unknown

log = logging.getLogger("simpleworkflow.worker")

MOST_TYPES = 20
"""Named in one line of the log."""


async def introduce(
    ledger: Ledger, claimer: Claimer, me: Identity, stopping: asyncio.Event, rules: Sequence[OutboxRule] = ()
) -> None:
    """Tell the database what is served here; a worker may start before its database."""
    while not stopping.is_set():
        try:
            served = [w.definition for w in claimer.routed()]
            await ledger.run(workers.define(served))
            await warn_of_the_unknown(ledger, claimer, served)
            await ledger.run(outbox_lanes.add_rules(rules))
            await ledger.run(workers.announce(me.id, me.name, me.host, me.pid, claimer.spans()))
            return
        except StoreUnavailable as error:
            log.log(level(error), "the worker waits for its database: %s", error)
            await pause_unless(stopping, 1.0)


def say_ready(
    ledger: Ledger, claimer: Claimer, me: Identity, concurrency: int, schedules: Sequence[NewSchedule] | None
) -> None:
    """One line that answers the first questions of an operator: which version, which database, what is served."""
    about = {"worker": me.id}
    types = sorted(workflow.name for workflow in claimer.routed())
    served = f"serves {_some(types)}" if types else "serves no workflow"
    if claimer.fails_unknown:
        served += f" and fails other types of {_some(_prefixes(claimer))}"
    if schedules:
        served += f", with {len(schedules)} schedule{'s' if len(schedules) > 1 else ''}"
    told = "worker %s is ready (simpleworkflow %s): database %s, %s, up to %d runs at a time"
    log.info(told, me.id, __version__, ledger.url, served, concurrency, extra=about)
    if not types and not claimer.fails_unknown:
        log.warning("worker %s serves no workflow; %s", me.id, _why_none(claimer), extra=about)


def _why_none(claimer: Claimer) -> str:
    others = sorted(claimer.all_types())
    if not others:
        return "import the modules that define them beside the App, or name them: --import flows"
    return f"none of its App's types ({_some(others)}) begins with {_some(_prefixes(claimer))}: look at the prefixes"


def _prefixes(claimer: Claimer) -> list[str]:
    return ["every prefix" if span == EVERYTHING else f"{span.low}*" for span in claimer.routes]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_TYPES} more" if len(names) > MOST_TYPES else ""
    return ", ".join(names[:MOST_TYPES]) + more


def what_waits(under_way: int) -> str:
    """While the database is away."""
    keep = "keeps what it finishes" if under_way == 1 else "keep what they finish"
    ours = f"{some_runs(under_way)} under way here {keep} in memory, and " if under_way else ""
    return f"{ours}nothing is claimed until it is back"


def say_stopping(me: Identity, under_way: int, patience: float, *, is_embedded: bool) -> None:
    """Somebody may be waiting for this process to end. A program that has set up no logging shows warnings only."""
    about = {"worker": me.id}
    if under_way and is_embedded and patience > 0:
        told = "worker %s stops; %s under way; what has not finished within %g s is handed back"
        log.warning(told, me.id, some_runs(under_way), patience, extra=about)
    else:
        log.info("worker %s stops; %s under way", me.id, some_runs(under_way), extra=about)
