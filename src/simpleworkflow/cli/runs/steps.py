"""The recorded steps of a run: the name that is shown for each, and its JSON.

A step id is `branch/name#count`. The count 0 is left out. A step that a retry of the run has superseded is recorded
under a marked id, and shown under its old name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...model.names import child_of
from ...model.payload import decode
from ...model.records import Step
from ...model.states import StepKind, StepStatus
from ...model.step_places import unmarked
from ..common.output import safe

NOWHERE: Mapping[str, str] = {}


def identity_of(step: Step) -> str:
    """The step id without the mark of a superseded one."""
    return unmarked(step.step_id)


def started(steps: Iterable[Step]) -> dict[str, str]:
    """Id of each child run -> the step id that started it: children of one type differ only by their number or key."""
    starts = (step for step in steps if step.kind is StepKind.CHILD and step.output_json is not None)
    return {str(decode(step.output_json or "null", what="child")): identity_of(step) for step in starts}


def place_of(step: Step, starts: Mapping[str, str] = NOWHERE) -> str:
    """The name that is shown: `charge`, `charge#1`, `signal approve`, `child orders.ship.v1#=a-key`."""
    name = identity_of(step).removesuffix("#0")
    if step.kind is StepKind.RESULT:
        child = child_of(identity_of(step))
        type = decode(step.input_json, what="child") if step.input_json is not None else None
        name = f"child {starts.get(str(child), '').removesuffix('#0') or type or child}"
    elif step.kind is StepKind.SIGNAL:
        name = f"signal {name}"
    elif step.kind is StepKind.SLEEP:
        name = name.replace("@sleep", "sleep")
    return safe(f"{name} (superseded)" if step.status is StepStatus.SUPERSEDED else name)


def step_json(step: Step) -> dict[str, Any]:
    values = {"input": step.input_json, "output": step.output_json, "error": step.error_json}
    return {
        "step_id": identity_of(step),
        "kind": step.kind,
        "status": step.status,
        "attempt": step.attempt,
        "due_at": step.due_at,
        "started_at": step.started_at,
        "completed_at": step.completed_at,
        **{name: None if text is None else decode(text, what=name) for name, text in values.items()},
    }
