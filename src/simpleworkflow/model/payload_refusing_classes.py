"""Objects that could be written and that their own class would refuse to be made again.

A `__post_init__` that takes 0 to 1 and keeps 0 to 100 raises when it meets the 100. That is told from a value that does
not fit its annotation by the traceback: the object whose code has raised is the first argument of one of its frames.

A class with type parameters is read here without them, so a Decimal in it is text, for which its code may not be made.
Nothing is concluded from that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_type_hints

from .payload_refusals import Lost, class_remedy, type_name

_PLACE = re.compile(r" - at `\$([^`]*)`$")  # where msgspec has met the object


def refused_by_class(error: Exception, has_own_code: Callable[[Any], bool]) -> Lost | None:
    """None if reading failed for another reason than the code of a class."""
    for raised in _all_of(error):
        kind = _made_by(raised, has_own_code)
        if kind is None:
            continue
        if _has_parameters(kind):
            return None
        remedy = class_remedy(kind, "") or f"let the class {type_name(kind)} take what it has made"
        reason = f"this {type_name(kind)} would not be read back ({type(raised).__name__}: {raised})"
        place = _PLACE.search(str(error))
        lost = Lost(reason, remedy=remedy)
        if place is not None and place[1]:
            lost.inside(place[1])
        return lost
    return None


def _all_of(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and what pydantic has met."""
    for one in (error, error.__cause__):
        if one is None:
            continue
        yield one
        findings: Any = getattr(one, "errors", None)
        for finding in findings(include_url=False, include_input=False) if callable(findings) else ():
            met = finding.get("ctx", {}).get("error")
            if isinstance(met, BaseException):
                yield met


def _made_by(error: BaseException, has_own_code: Callable[[Any], bool]) -> Any:
    """The class of the object whose own code has raised it."""
    trace = error.__traceback__
    while trace is not None:
        code, found = trace.tb_frame.f_code, trace.tb_frame.f_locals
        first = found.get(code.co_varnames[0]) if code.co_argcount else None
        if has_own_code(type(first)):
            return type(first)
        trace = trace.tb_next
    return None


def _has_parameters(kind: Any) -> bool:
    try:
        hints = get_type_hints(kind, include_extras=True).values()
    except Exception:
        return True  # a name that cannot be resolved
    return any(isinstance(one, TypeVar) or bool(getattr(one, "__parameters__", ())) for one in hints)
