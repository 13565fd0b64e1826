"""Subclasses of dict, list, tuple and set: JSON has arrays and objects, so they come back as one of those builtins.

A Counter answers 0 for a key that it does not have, and a dict raises: its reader would notice late. So a subclass is
refused where the annotation names the builtin, and where it names Mapping or Sequence, which are read as dict and list.
Allowed is what is equal to what comes back and behaves like it: an OrderedDict for a dict, a StrEnum for a str.
"""

from __future__ import annotations

from collections import OrderedDict

from .payload_refusals import Lost, type_name

CONTAINERS = (dict, list, tuple, set, frozenset)
_AS_GOOD = frozenset({*CONTAINERS, OrderedDict})


def is_derived(value: object) -> bool:
    """Whether it is one of a subclass."""
    return type(value) not in _AS_GOOD and isinstance(value, CONTAINERS)


def converted(value: object) -> str:
    """What to do with one that no annotation can name."""
    base = next(base for base in CONTAINERS if isinstance(value, base))
    return f"convert it (`{base.__name__}(…)`)"


def is_named_tuple(value: object) -> bool:
    """Whether it has a class that an annotation can name: a NamedTuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def derived(value: object, home: type) -> Lost:
    """The refusal of a value that would be read as `home`."""
    kind = type(value)
    remedy = f"annotate {type_name(kind)}, or {converted(value)}" if is_named_tuple(value) else converted(value)
    return Lost(f"a {type_name(kind)} would come back as {home.__name__}, which the annotation names", remedy=remedy)
