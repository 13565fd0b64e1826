"""Calls whose arguments do not fit: no further attempt can mend that, so they are told from other errors at once.

Python raises TypeError for them, as it does for much that happens inside a function. A call counts as miscalled when it
is certain that no line of the function has run.
"""

from __future__ import annotations

import functools
import inspect
import re
import traceback
import types
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ..model.errors import InvalidWorkflow
from .step import StepOptions

_OPTIONS = frozenset(field.name for field in fields(StepOptions))
_OURS = f"{__package__.partition('.')[0]}."
_BINDING = re.compile(r"(\w+)\.([a-z]\w*)\(\) (?:got|takes|missing) ")
"""How Python says that a method cannot be called with these arguments."""

faces: dict[str, type] = {}
"""The classes whose methods people call, by name: Context and App with all that they inherit from."""


def add_face(cls: type) -> None:
    faces.update({one.__name__: one for one in cls.__mro__[:-1]})


def as_mistake(error: BaseException) -> BaseException:
    """The same error; or, when a call of ours was made with arguments that it does not take, a mistake of that name."""
    told = next(_told(error), None)
    return error if told is None else _mistake(f"the arguments do not fit: {told}", error)


def _told(error: BaseException) -> Iterator[str]:
    """What Python says of each such call, also inside groups."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _told(one)
    elif type(error) is TypeError:
        found = _BINDING.match(str(error))
        if found is not None and found[1] in faces and hasattr(faces[found[1]], found[2]):
            yield str(error)


def is_miscalled(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError) -> bool:
    """Whether the arguments do not fit a step's function: it is written in Python, cannot be called with them, and
    nothing but our own code is in the traceback."""
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    target = target.__func__ if isinstance(target, types.MethodType) else target
    if isinstance(target, type):
        return False  # who knows what making one of it has done
    if not isinstance(target if inspect.isroutine(target) else type(target).__call__, types.FunctionType):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not all(str(frame.f_globals.get("__name__")).startswith(_OURS) for frame in frames):
        return False
    try:
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError:
        return True
    except ValueError:
        pass  # it has no signature
    return False


def miscalled(kwargs: dict[str, Any], error: TypeError) -> InvalidWorkflow:
    told = f"the arguments do not fit: {error}"
    if chosen := [name for name in kwargs if name in _OPTIONS and f"'{name}'" in str(error)]:
        told += f"; {chosen[0]} is an option: write swf.step({chosen[0]}=…), or step.options({chosen[0]}=…)"
    return _mistake(told, error)


def _mistake(told: str, error: BaseException) -> InvalidWorkflow:
    mistake = InvalidWorkflow(told)
    mistake.__cause__ = error
    return mistake
