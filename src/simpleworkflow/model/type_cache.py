"""What was made for an annotation, kept for the next one who reads or writes the same type.

Two dangers, both silent. Annotations that compare equal need not mean the same: `A | B` and `B | A` are read in another
order, `Literal[1]` equals `Literal[True]`, and the validators of two `Annotated` may compare equal and do different
things. And a class that was made inside a function belongs to its caller: kept here, it would stay in memory
with all that its methods refer to. So annotations are told apart by the identity of the classes in them, in order, and
only what lives as long as its module is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, get_args, get_origin

P = ParamSpec("P")
T = TypeVar("T")

MOST = 1024
_ALWAYS = (Any, None, type(None), ...)


def kept_by_type(make: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """`make(as_type, …)`, once for each type and what else it was given."""
    known: dict[Hashable, T] = {}

    @wraps(make)
    def look(as_type: Any, /, *rest: P.args, **named: P.kwargs) -> T:
        key = as_type if type(as_type) is type else key_of(as_type)
        if key is None:
            return make(as_type, *rest, **named)
        place = (key, *rest)
        if place in known:
            return known[place]
        made = make(as_type, *rest, **named)
        if key_of(as_type) is not None:
            if len(known) >= MOST:
                known.clear()
            known[place] = made
        return made

    return look


def key_of(as_type: Any) -> Hashable | None:
    """What stands for this annotation; None when nothing of it may be kept."""
    if any(as_type is one for one in _ALWAYS):
        return (as_type,)
    origin = get_origin(as_type)
    if origin is None:
        return as_type if isinstance(as_type, type) and lives_as_long_as_its_module(as_type) else None
    if origin is Annotated:
        return None  # whatever stands in there
    if origin is Literal:
        return (Literal, *((type(one), one) for one in get_args(as_type)))
    keys = [key_of(one) for one in get_args(as_type)]
    return None if None in keys else (origin, type(as_type), *keys)  # Tuple and tuple[()] differ in the second


def lives_as_long_as_its_module(thing: Any) -> bool:
    """Whether a class or a function is what its module has under its name."""
    found: Any = sys.modules.get(str(getattr(thing, "__module__", None)))
    for part in str(getattr(thing, "__qualname__", "")).split("."):
        found = getattr(found, part, None)
    return found is thing
