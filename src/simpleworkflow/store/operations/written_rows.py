"""The rows and columns of journal entries, as the statements of entries.py take them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ...clock import to_us
from ...model import payload as json
from ...model.moves import Ending, Pause, Record
from ...model.states import Status

MOST_AWAITED = 20
"""Waits that the trail names for one pause; a fan-out of thousands is counted."""
_SEPARATOR = "\x1f"


def record_row(record: Record) -> tuple[Any, ...]:
    return (
        record.run_id,
        record.epoch,
        record.step_id,
        record.kind,
        record.status,
        record.attempt,
        to_us(record.elapsed),
        _micros(record.due_in),
        record.input,
        record.output,
        record.error,
    )


def last_of_each(records: Sequence[Record]) -> list[Record]:
    """One row per step and statement: a step that failed and succeeded within one batch is written once."""
    return list({(record.run_id, record.step_id): record for record in records}.values())


def in_columns(records: Sequence[Record]) -> dict[str, str] | None:
    """What record_results takes: a text for each column. None when one of them has the separator in it, so that the
    rows would not fit each other: a coroutine may call itself whatever it likes, and its tasks are named after it."""
    texts = {
        "step_ids": _SEPARATOR.join([record.step_id for record in records]),
        "inputs": _SEPARATOR.join([record.input or "" for record in records]),
        "outputs": _SEPARATOR.join([record.output or "" for record in records]),
    }
    if any(text.count(_SEPARATOR) != len(records) - 1 for text in texts.values()):
        return None
    return texts | {
        "run_ids": f"{{{','.join([str(record.run_id) for record in records])}}}",
        "epochs": f"{{{','.join([str(record.epoch) for record in records])}}}",
        "elapsed": f"{{{','.join([str(to_us(record.elapsed)) for record in records])}}}",
    }


def outbox_rows(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    places: Counter[UUID] = Counter()
    rows = []
    for record in records:
        assert record.emits is not None
        places[record.run_id] += 1
        rows.append((record.run_id, record.step_id, places[record.run_id], *record.emits))
    return rows


def settle_row(ending: Ending) -> tuple[Any, ...]:
    return (
        ending.run_id,
        ending.epoch,
        ending.status,
        ending.event,
        1 if ending.started else 0,
        to_us(ending.elapsed),
        ending.burns,
        to_us(ending.delay),
        1 if ending.anew else 0,
        ending.result,
        ending.error,
        ending.last_error,
        ending.hold_reason,
        _settle_data(ending),
    )


def settle_log_row(ending: Ending) -> tuple[Any, ...]:
    started, held = 1 if ending.started else 0, 0 if ending.hold_reason is None else 1
    data = _settle_data(ending)
    return (ending.run_id, ending.epoch, ending.event, started, to_us(ending.elapsed), data, held)


def _settle_data(ending: Ending) -> str | None:
    if ending.last_error is None:
        return None
    data: dict[str, Any] = {"error": ending.last_error[:500]}
    if ending.status == Status.PENDING:
        data["delay"] = round(ending.delay, 3)
    return json.encode(data, what="event data")


def pause_row(pause: Pause) -> tuple[Any, ...]:
    return (pause.run_id, pause.epoch, pause.wakes, _micros(pause.due_in))


def pause_log_row(pause: Pause) -> tuple[Any, ...]:
    return (pause.run_id, pause.epoch, to_us(pause.elapsed), _awaited(pause))


def _awaited(pause: Pause) -> str | None:
    """What the trail says of a pause: waits that were given up are on record like those that were not."""
    if not pause.awaited:
        return None
    told: dict[str, Any] = {"waits_for": list(pause.awaited[:MOST_AWAITED])}
    if len(pause.awaited) > MOST_AWAITED:
        told["of"] = len(pause.awaited)
    return json.encode(told, what="event data")


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else to_us(seconds)
