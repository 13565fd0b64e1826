"""What tests of schedules share: writing one down, and moving its next slot to where the test wants it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from simpleworkflow.model.schedule import NewSchedule, Schedule, new_schedule
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import schedules
from support.ledger import Raw

TYPE = "test.tick.v1"
WEEK = timedelta(weeks=1)
"""The rhythm of most schedules here: no test is likely to meet its slots by chance."""
OPTIONS: dict[str, Any] = {
    "every": None,
    "tz": "UTC",
    "payload_json": "null",
    "overlap": "allow",
    "catch_up": "one",
    "window": None,
}


def written(name: str = "tick", cron: str | None = None, type: str = TYPE, **rest: Any) -> NewSchedule:
    """Every week, unless told otherwise."""
    every = rest.pop("every", None if cron is not None else "1 week")
    return new_schedule(name, type, cron, **{**OPTIONS, "every": every, **rest})


async def put(ledger: Ledger, *wanted: NewSchedule, origin: str = "call") -> list[str]:
    return [done.change for done in await ledger.run(schedules.put(wanted, origin=origin))]


async def get(ledger: Ledger, name: str = "tick") -> Schedule:
    found = await ledger.run(schedules.get(name))
    assert found is not None
    return found


async def fire(ledger: Ledger, *, limit: int = 100, **rest: Any) -> dict[str, schedules.Fired]:
    fired = await ledger.run(schedules.fire(host="here", limit=limit, **rest))
    return {one.schedule.name: one for one in fired}


def ago(slots: int) -> datetime:
    """A slot of the week's schedule: the last one, or so many before it."""
    return seconds_ago(0, WEEK.total_seconds()) - slots * WEEK


def seconds_ago(seconds: float, step: float = 1.0) -> datetime:
    """A slot of an interval of so many seconds, at least so long ago."""
    return datetime.fromtimestamp((time.time() - seconds) // step * step, UTC)


def move(raw: Raw, instant: datetime, name: str = "tick") -> None:
    """The schedule as if its next slot had been this one."""
    value: Any = round(instant.timestamp() * 1e6) if raw.is_sqlite else instant
    raw.sql("UPDATE workflow.workflow_schedule SET next_at = ? WHERE name = ?", value, name)


def keys(raw: Raw) -> list[str]:
    """The idempotency keys of all scheduled runs, in the order of their creation."""
    text = "SELECT idempotency_key FROM workflow.workflow_run WHERE idempotency_key LIKE 'schedule:%' ORDER BY id"
    return [row["idempotency_key"] for row in raw.sql(text)]


def key(slot: datetime, name: str = "tick") -> str:
    return f"schedule:{name}:{slot:%Y-%m-%dT%H:%M:%S}Z"
