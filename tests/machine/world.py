"""The database side of the machine: one ledger, one stranger's connection, and time that is moved, not waited for.

On SQLite the clock is ours, so instants are compared to the microsecond. PostgreSQL judges by its own clock; there the
instants of all runs are moved into the past instead, and compared with a tolerance that is smaller than the smallest
step of time that the machine uses. One database serves all examples and is wiped between them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from support.ledger import LEAVING, Raw

from simpleworkflow.clock import ManualClock
from simpleworkflow.store import open_ledger
from simpleworkflow.store.protocol import Operation

T = TypeVar("T")
TABLES = {"run": "id", "step": "run_id", "signal": "run_id", "event": "workflow_id"}
ORDER = {"run": "id", "step": "run_id, step_id", "signal": "run_id, seq", "event": "id"}


@dataclass
class Rows:
    """All that the database holds, by run."""

    runs: dict[UUID, dict[str, Any]]
    steps: dict[UUID, list[dict[str, Any]]]
    signals: dict[UUID, list[dict[str, Any]]]
    events: dict[UUID, list[dict[str, Any]]]


class World:
    def __init__(self, url: str) -> None:
        self.raw = Raw(url)
        self.clock = ManualClock() if self.raw.is_sqlite else None
        self.slack = 0.0 if self.clock else 20.0
        """How far the law's clock may be behind the database's."""
        self.ledger = open_ledger(url, clock=self.clock)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.ledger.check())
        self._origin = 0.0
        self.examples = 0
        self.seen: Counter[str] = Counter()
        """What happened how often, over all examples."""

    @property
    def lane_by_lane(self) -> bool:
        return not self.ledger.can.walks_lanes

    def run(self, operation: Operation[T]) -> T:
        return self.loop.run_until_complete(self.ledger.run(operation))

    def begin(self) -> None:
        """An empty database and a new zero of time."""
        empty = "DELETE FROM" if self.clock else "TRUNCATE"  # dead rows would make every later look slower
        for table in TABLES:
            self.raw.sql(f"{empty} workflow.workflow_{table}")
        self.examples += 1
        self._origin = self.clock.wall() / 1e6 if self.clock else time.time()

    def advance(self, seconds: float) -> None:
        if self.clock:
            self.clock.advance(seconds)
            return
        self._origin -= seconds
        shifts = ", ".join(f"{column} = {column} {self.raw.back(seconds)}" for column in LEAVING)
        self.raw.sql(f"UPDATE workflow.workflow_run SET {shifts}")

    def instant(self, value: Any) -> float | None:
        """An instant of the database as the law counts it: seconds since the example began."""
        if value is None:
            return None
        seconds = value.timestamp() if isinstance(value, datetime) else value / 1e6
        return float(round(seconds - self._origin, 6))

    def rows(self) -> Rows:
        found = {}
        for table, column in TABLES.items():
            grouped = defaultdict(list)
            for row in self.raw.sql(f"SELECT * FROM workflow.workflow_{table} ORDER BY {ORDER[table]}"):
                grouped[UUID(str(row[column]))].append(row)
            found[table] = grouped
        return Rows({key: one for key, (one,) in found["run"].items()}, found["step"], found["signal"], found["event"])

    def close(self) -> None:
        self.raw.close()
        self.loop.run_until_complete(self.ledger.close())
        self.loop.close()
