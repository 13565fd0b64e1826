"""Splits a recorded error into its fields and the lines of its traceback, causes first, as Python prints them.

The recorded form (`model/failure.py`) has a traceback per exception of the chain. Other programs may have recorded
something else; that stays among the fields.
"""

from __future__ import annotations

from typing import Any

from ...model.failure import traces

DEEPEST = 20
BETWEEN = "The exception above led to this one:"


def as_lines(error: Any) -> tuple[Any, list[str]]:
    """(the fields without tracebacks, the lines of the tracebacks)."""
    rest = _without(error, DEEPEST)
    lines: list[str] = []
    if rest == error:
        return error, lines  # no traceback
    for text in traces(error):
        lines += ["", BETWEEN, ""] if lines else []
        lines += text.split("\n")
    return rest, lines


def _without(error: Any, depth: int) -> Any:
    """The fields without tracebacks."""
    if not isinstance(error, dict) or depth <= 0:
        return error
    rest = {key: value for key, value in error.items() if key != "traceback" or not isinstance(value, str)}
    if "cause" in rest:
        rest["cause"] = _without(rest["cause"], depth - 1)
    if isinstance(members := rest.get("members"), list):
        rest["members"] = [_without(one, depth - 1) for one in members]
    return rest
