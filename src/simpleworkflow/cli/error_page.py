"""A recorded error as people read it: the traceback as text, with its causes before it, as Python prints them.

The recorded form (model/failure.py) holds the traceback of each exception of the chain apart. Strangers may have
written something else there: whatever does not look like that is left among the other fields.
"""

from __future__ import annotations

from typing import Any

from ..model.failure import traces

DEEPEST = 20
BETWEEN = "The exception above led to this one:"


def as_lines(error: Any) -> tuple[Any, list[str]]:
    """(what is left to show as JSON, the lines of the tracebacks)."""
    rest = _without(error, DEEPEST)
    lines: list[str] = []
    if rest == error:
        return error, lines  # there is none
    for text in traces(error):
        lines += ["", BETWEEN, ""] if lines else []
        lines += text.split("\n")
    return rest, lines


def _without(error: Any, depth: int) -> Any:
    """The same without the tracebacks."""
    if not isinstance(error, dict) or depth <= 0:
        return error
    rest = {key: value for key, value in error.items() if key != "traceback" or not isinstance(value, str)}
    if "cause" in rest:
        rest["cause"] = _without(rest["cause"], depth - 1)
    if isinstance(members := rest.get("members"), list):
        rest["members"] = [_without(one, depth - 1) for one in members]
    return rest
