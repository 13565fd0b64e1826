"""A small past, written in plain SQL with fixed ids and instants, so that what screens show of it never changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from support.ledger import Raw

START = datetime(2030, 1, 31, 12, 0, 0, tzinfo=UTC)
ORDER = UUID("01900000-0000-7000-8000-000000000001")
CHILD = UUID("01900000-0000-7000-8000-000000000002")
FAILED = UUID("01900000-0000-7000-8000-000000000003")
HELD = UUID("01900000-0000-7000-8000-000000000004")
LATER = UUID("01900000-0000-7000-8000-000000000005")
NASTY = "card \x1b[31mdeclined [bold]\u202ex[/bold]"


class Story:
    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._place = 100

    def at(self, seconds: float) -> Any:
        instant = START + timedelta(seconds=seconds)
        return round(instant.timestamp() * 1e6) if self._raw.is_sqlite else instant

    def run(self, run_id: UUID, type: str, status: str, created: float, **columns: Any) -> None:
        row = {
            "id": run_id,
            "type": type,
            "status": status,
            "created_at": self.at(created),
            "updated_at": self.at(created),
            "run_at": self.at(created),
            **columns,
        }
        marks = ", ".join("?" * len(row))
        self._raw.sql(f"INSERT INTO workflow.workflow_run ({', '.join(row)}) VALUES ({marks})", *row.values())

    def event(self, run_id: UUID, type: str, at: float, epoch: int = 1, data: Any = None) -> None:
        always = "" if self._raw.is_sqlite else "OVERRIDING SYSTEM VALUE"
        self._raw.sql(
            "INSERT INTO workflow.workflow_event (id, workflow_id, event_type, lease_epoch, created_at, data)"
            f" {always} VALUES (?, ?, ?, ?, ?, ?)",
            self._next(),
            run_id,
            type,
            epoch,
            self.at(at),
            None if data is None else json.dumps(data),
        )

    def step(self, run_id: UUID, step_id: str, kind: str, begun: float, done: float | None, **columns: Any) -> None:
        row = {
            "run_id": run_id,
            "step_id": step_id,
            "kind": kind,
            "status": "waiting" if done is None else "succeeded",
            "started_at": self.at(begun),
            "completed_at": None if done is None else self.at(done),
            "lease_epoch": 1,
            "seq": self._place_of_piece(),
            **columns,
        }
        marks = ", ".join("?" * len(row))
        self._raw.sql(f"INSERT INTO workflow.workflow_step ({', '.join(row)}) VALUES ({marks})", *row.values())

    def done(self, run_id: UUID, step_id: str) -> None:
        """It was completed at this place of the trail, not where it was recorded first."""
        text = "UPDATE workflow.workflow_step SET done_seq = ? WHERE run_id = ? AND step_id = ?"
        self._raw.sql(text, self._place_of_piece(), run_id, step_id)

    def signal(self, run_id: UUID, name: str, payload: str, sent: float, consumed: float) -> None:
        columns = "(id, run_id, seq, name, payload, created_at, consumed_at)"
        values = UUID(int=9), run_id, self._place_of_piece(), name, payload, self.at(sent), self.at(consumed)
        with self._raw.without_triggers("workflow_signal"):  # they would number it
            self._raw.sql(f"INSERT INTO workflow.workflow_signal {columns} VALUES (?, ?, ?, ?, ?, ?, ?)", *values)

    def _next(self) -> int:
        self._place += 1
        return self._place

    def _place_of_piece(self) -> int:
        """SQLite leaves room between two events for the pieces that are recorded there."""
        return self._next() * (2**20 if self._raw.is_sqlite else 1)


def tell(raw: Raw) -> None:
    """An order with steps, a sleep, a child and a signal; one that failed; one that is held; one that is due later."""
    story = Story(raw)
    at = story.at
    worker = {"worker": "w1@host.1.1"}
    ends = {"started_at": at(0.1), "finished_at": at(10), "lease_epoch": 3, "max_attempts": 3}
    story.run(ORDER, "shop.order.v1", "succeeded", 0, payload='{"order": 7}', result='{"paid": true}', **ends)
    ends = {"started_at": at(5.7), "finished_at": at(8), "lease_epoch": 1, "result": "null"}
    story.run(CHILD, "shop.ship.v1", "succeeded", 5.65, parent_id=ORDER, **ends)
    error = json.dumps({"type": "ValueError", "message": NASTY})
    ends = {"started_at": at(20.5), "finished_at": at(24), "attempt": 2, "max_attempts": 2, "lease_epoch": 2}
    story.run(FAILED, "shop.refund.v1", "failed", 20, last_error=f"ValueError: {NASTY}", error=error, **ends)
    held = {"held_at": at(31), "hold_reason": "until [bold]the\x07 bank answers"}
    story.run(HELD, "shop.order.v1", "pending", 30, idempotency_key="order-8", **held)
    story.run(LATER, "media.resize.v1", "pending", 40, priority=5)
    raw.sql("UPDATE workflow.workflow_run SET run_at = ? WHERE id = ?", at(86_400), LATER)

    story.event(ORDER, "leased", 0.1, data=worker)
    retried = {"activity_name": "charge", "step_id": "charge#0", "attempt": 1, "error": NASTY, "delay": 0.25}
    story.step(ORDER, "charge#0", "step", 0.1, 0.6, attempt=1, input="7", output="14")
    story.event(ORDER, "step_retried", 0.2, data=retried)
    story.done(ORDER, "charge#0")
    story.step(ORDER, "@sleep#0", "sleep", 0.6, 5.6, due_at=at(5.6))
    story.event(ORDER, "paused", 0.6)
    story.event(ORDER, "leased", 5.6, epoch=2, data=worker)
    story.done(ORDER, "@sleep#0")
    waited = f"@result {CHILD}#0"
    story.step(ORDER, "shop.ship.v1#0", "child", 5.65, 5.65, input="14", output=json.dumps(str(CHILD)))
    story.step(ORDER, waited, "result", 5.65, 8, input='"shop.ship.v1"', output="null")
    story.event(ORDER, "paused", 5.65, epoch=2)
    story.event(ORDER, "leased", 8, epoch=3, data=worker)
    story.done(ORDER, waited)
    story.step(ORDER, "approve#0", "signal", 8, 9.5, output='"yes"')
    story.signal(ORDER, "approve", '"yes"', 9.4, 9.5)
    story.step(ORDER, "pack#0", "step", 9.5, 9.9, input="14", output='"box"')
    story.event(ORDER, "succeeded", 10, epoch=3)

    story.event(FAILED, "leased", 20.5, data=worker)
    story.event(FAILED, "retried", 21, data={"error": f"ValueError: {NASTY}", "delay": 2})
    story.event(FAILED, "leased", 23, epoch=2, data=worker)
    story.step(FAILED, "charge#0", "step", 23, 24, status="failed", attempt=1, error=error)
    story.event(FAILED, "failed", 24, epoch=2, data={"error": f"ValueError: {NASTY}"})
    story.event(HELD, "held", 31, epoch=0, data={"reason": "until [bold]the\x07 bank answers"})
