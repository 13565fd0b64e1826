"""Stand-ins: what a workflow calls instead of a step's function while a test says so.

They are found by identity. A method is made anew each time that it is asked for, so its object and its function count:
a method of an object stands for that method of this object, a method of a class for that of all of its objects, also
of those that a workflow makes itself, and of subclasses that inherit it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

from ..runtime.step import Call, StepFunction, bound, is_async, plain, replacements


@dataclass(slots=True)
class StandIn:
    """What is called instead of a function, and whether it could be."""

    target: Any
    """Kept, so that its identity stays its own."""
    other: Callable[..., Any]
    is_used: bool = False
    was_missed: bool = False
    """The same method of another object has run for real."""


_STANDING: dict[tuple[int, ...], StandIn] = {}
"""By identity."""


@contextmanager
def stand_in(function: Any, other: Callable[..., Awaitable[Any]]) -> Iterator[StandIn]:
    """For tests: whenever a workflow runs this function as a step, the other one is called instead.

    A method of a class stands for that method of all of its objects, a method of an object for that of this object.
    """
    target = plain(function)
    found = StandIn(target, other)
    added = {next(_keys(target)): found}
    if bound(function) is not function:
        added[next(_keys(target.__func__))] = StandIn(target, _without_class(other))
    before = {key: _STANDING.get(key) for key in added}
    _STANDING.update(added)
    replacements[:] = [_replaced]
    try:
        yield found
    finally:
        for key, earlier in before.items():
            _STANDING.pop(key, None)
            if earlier is not None:
                _STANDING[key] = earlier
        if not _STANDING:
            replacements.clear()


def _without_class(other: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Where a classmethod binds the step itself, a direct call hands the class over as an argument."""

    async def called(_: type, *args: Any, **kwargs: Any) -> Any:
        return await other(*args, **kwargs)

    return called


def _keys(function: Any) -> Iterator[tuple[int, ...]]:
    """What a function may be found by: itself on its own object or class, on a base class, or anywhere.

    A method is made anew each time that it is asked for; its object and its function stay.
    """
    if isinstance(function, types.MethodType):
        owner, function = function.__self__, function.__func__
        for one in owner.__mro__ if isinstance(owner, type) else (owner,):
            yield id(one), id(function)
    yield (id(function),)


def _replaced(call: Call) -> Call:
    function = plain(call.function)
    found = next((_STANDING[key] for key in _keys(function) if key in _STANDING), None)
    if found is None:
        _remember_miss(function)
        return call
    found.is_used = True
    other = copy(call)
    other.runs(_in_place_of(call.function, found.other), is_async(plain(found.other)))
    return other


def _remember_miss(function: Any) -> None:
    if isinstance(function, types.MethodType):
        for one in _STANDING.values():
            if isinstance(one.target, types.MethodType) and one.target.__func__ is function.__func__:
                one.was_missed = True


def _in_place_of(function: Any, other: Callable[..., Any]) -> Callable[..., Any]:
    """With the arguments that a partial has already."""
    if isinstance(function, StepFunction):
        return _in_place_of(function.function, other)
    if isinstance(function, functools.partial):
        return functools.partial(_in_place_of(function.func, other), *function.args, **function.keywords)
    return other
