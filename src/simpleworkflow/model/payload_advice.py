"""What to write instead of an annotation that does not name the type of a value, in the words of the value itself."""

from __future__ import annotations

from typing import Any

import msgspec

from .payload_refusals import type_name
from .payload_writing import encode

_LOOKED_AT = 20
"""Items of a collection that are looked at for a suggestion."""


def annotation_of(value: Any, levels: int) -> str | None:
    """The annotation with which this value would come back as it is; None when it takes a class of its own."""
    kind = type(value)
    if value is None:
        return "None"
    if kind in (list, set, frozenset):
        inner = _common(list(value)[:_LOOKED_AT], levels)
        return None if inner is None else f"{kind.__name__}[{inner}]"
    if kind is tuple:
        parts = [annotation_of(item, levels - 1) for item in value[:_LOOKED_AT]] if levels else [None]
        return None if None in parts or not parts else f"tuple[{', '.join(str(part) for part in parts)}]"
    if isinstance(value, dict):
        keys = _common(list(value)[:_LOOKED_AT], levels)
        values = _common(list(value.values())[:_LOOKED_AT], levels)
        return None if keys is None or values is None else f"dict[{keys}, {values}]"
    bases = (base for base in (bytes, bytearray, memoryview) if isinstance(value, base))
    return next(bases, kind).__qualname__


def _common(values: list[Any], levels: int) -> str | None:
    if not levels or not values:
        return None
    names = dict.fromkeys(annotation_of(value, levels - 1) for value in values)
    return None if None in names or len(names) > 1 else next(iter(names))


def a_kind(kind: type) -> str:
    name = type_name(kind)
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def plain_name(value: object) -> str:
    try:
        return type(msgspec.json.decode(encode(value))).__name__
    except Exception:
        return "plain JSON"
