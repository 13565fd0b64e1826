"""Entries of a run's history as lines: `+1.2s  ActivityFailed  charge: ValueError: card declined`.

The types are those of the view workflow_history; the details of an entry are put into a few words.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.text import Text

from ...model.records import HistoryEvent
from ..common.output import safe
from ..screen.text import compact, first_line, length

GOOD = {"ActivityCompleted", "WorkflowCompleted"}
BAD = {"ActivityFailed", "WorkflowFailed", "WorkflowTimedOut"}
WARNING = {"ActivityRetryScheduled", "WorkflowCancelRequested", "WorkflowCanceled"}
LONGEST = 24
"""The longest type, so that what follows is aligned."""


def offset(instant: datetime, start: datetime) -> str:
    return f"+{length((instant - start).total_seconds())}"


def happening_line(happening: HistoryEvent, start: datetime) -> Text:
    line = Text(f"{offset(happening.at, start):>9}  ", "dim")
    line.append(f"{safe(happening.type):<{LONGEST}}", f"not dim {style_of(happening.type)}")
    line.append(f"  {words_of(happening, start)}", "not dim")
    line.rstrip()
    return line


def style_of(type: str) -> str:
    return "green" if type in GOOD else "red" if type in BAD else "yellow" if type in WARNING else "default"


def words_of(happening: HistoryEvent, start: datetime) -> str:
    details = happening.details
    if not isinstance(details, dict):
        return "" if details is None else first_line(compact(details))
    name = _name(details)
    words = [name] if name else []
    if details.get("attempt") is not None:
        words.append(f"attempt {details['attempt']} failed")
    if details.get("error") is not None:
        words.append(error_words(details["error"]))
    if isinstance(details.get("delay"), int | float):
        words.append(f"again in {length(details['delay'])}")
    if isinstance(details.get("fire_at"), str):
        words.append(f"fires at {_fire_at(details['fire_at'], start)}")
    if details.get("reason") is not None:
        words.append(f"reason: {details['reason']}")
    if details.get("by") is not None:
        words.append(f"by {details['by']}")
    return first_line(": ".join(words[:2]) + "".join(f"; {word}" for word in words[2:]), 400)


def _name(details: dict[str, Any]) -> str:
    """The step, signal or workflow, with its count when it is not the first of that name."""
    name = details.get("activity_name") or details.get("signal_name") or details.get("workflow_name")
    place = str(details.get("step_id") or details.get("timer_id") or "")
    if place and not place.startswith("@result"):
        name = place.removesuffix("#0").replace("@sleep", "sleep")
    return "" if name is None else str(name)


def _fire_at(text: str, start: datetime) -> str:
    try:
        return offset(datetime.fromisoformat(text), start)
    except (ValueError, TypeError):
        return text


def error_words(error: Any) -> str:
    """`Type: message` of an error, in any form that is recorded."""
    if isinstance(error, dict) and "type" in error:
        return f"{error['type']}: {error.get('message', '')}"
    return error if isinstance(error, str) else compact(error)
