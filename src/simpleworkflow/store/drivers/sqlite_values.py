"""Values on their way into SQLite and back: integers for instants, text for identities, one JSON text per batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ...clock import from_micros, to_micros
from ..catalog import Statement
from ..protocol import Query

_INSTANTS = frozenset(
    [
        "claimed_at",
        "due_at",
        "completed_at",
        "consumed_at",
        "run_at",
        "lease_until",
        "updated_at",
        "started_at",
        "finished_at",
        "held_at",
        "deadline_at",
        "start_by",
        "created_at",
        "deleted_at",
        "seen_at",
        "happened_at",
        "judged_at",
        "leased_at",
        "heartbeat_at",
        "stopped_at",
        "published_at",
        "skipped_at",
        "next_at",
        "paused_at",
        "last_slot_at",
        "last_fired_at",
        "last_skipped_at",
    ]
)
_IDS = frozenset(["id", "run_id", "workflow_id", "parent_id", "last_run_id", "extra_run_id"])
_json = msgspec.json.Encoder()


def bind(statement: Statement, wanted: Query, now: int) -> dict[str, Any]:
    """Parameters as SQLite wants them: integers for instants, text for identities, one JSON text per batch."""
    bound: dict[str, Any] = {}
    for name in statement.order:
        if name == "now":
            bound[name] = now
        elif name in statement.batches:
            bound[name] = _json.encode([[_plain(v) for v in row] for row in wanted.parameters[name]]).decode()
        else:
            bound[name] = _plain(wanted.parameters[name])
    return bound


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return to_micros(value)
    return value


def read_row(row: tuple[Any, ...], columns: list[tuple[str, Callable[[Any], Any] | None]]) -> dict[str, Any]:
    return {
        name: value if convert is None or value is None else convert(value)
        for value, (name, convert) in zip(row, columns, strict=True)
    }


def read_rows(description: Any, rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    columns = [(d[0], converter(d[0])) for d in description]
    return [read_row(row, columns) for row in rows]


def converter(column: str) -> Callable[[Any], Any] | None:
    if column in _INSTANTS:
        return from_micros
    if column in _IDS:
        return lambda value: UUID(value) if isinstance(value, str) else value
    return None
