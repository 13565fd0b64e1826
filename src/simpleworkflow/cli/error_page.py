"""A recorded error as people read it: the traceback as text, with its causes before it, as Python prints them.

The recorded form (model/failure.py) holds the traceback of each exception of the chain apart. Strangers may have
written something else there: whatever does not look like that is left among the other fields.
"""

from __future__ import annotations

from typing import Any

DEEPEST = 20
BETWEEN = "The exception above led to this one:"


def as_lines(error: Any) -> tuple[Any, list[str]]:
    """(what is left to show as JSON, the lines of the tracebacks)."""
    if not isinstance(error, dict):
        return error, []
    chain: list[str] = []
    rest = _without(error, chain, DEEPEST)
    lines: list[str] = []
    for text in reversed(chain):
        lines += ["", BETWEEN, ""] if lines else []
        lines += text.rstrip("\n").split("\n")
    return rest, lines


def _without(error: dict[str, Any], chain: list[str], depth: int) -> dict[str, Any]:
    """The same without the tracebacks, which go into the chain, the last one first."""
    rest = dict(error)
    if isinstance(rest.get("traceback"), str) and rest["traceback"]:
        chain.append(rest.pop("traceback"))
    if isinstance(rest.get("cause"), dict) and depth > 0:
        rest["cause"] = _without(rest["cause"], chain, depth - 1)
    return rest
