"""Objects with fields: what is written of them, and whether their own code changes it at each reading.

`__post_init__` runs whenever an object is made, so also when it is read. One that doubles a price doubles it again in
every reader: sent as 20 it arrives as 40. The text alone cannot show that, so such an object is read back when it is
written, and must be equal. Only classes that have such code pay for it. One that refuses what it has made itself would
be refused in every reader, too. What merely does not fit its annotation is left to the reader to tell.

Equal means: of the same contents. A tuple may become a list and text a Decimal, since there the annotation decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import msgspec

from .payload_comparing import are_among, is_equal, own_fields
from .payload_models import is_pydantic
from .payload_reading import decoder_of
from .payload_refusals import CODE_OF_OBJECTS, Lost, Refused, class_remedy, step, type_name
from .payload_refusing_classes import refused_by_class
from .type_cache import kept_by_type

_NOTHING = object()
_ARRAYS = (list, tuple)
_SETS = (set, frozenset)
_SCALARS = (str, int, float, bool)


def is_record(kind: type) -> bool:
    """Whether it is a dataclass or an attrs class."""
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__attrs_attrs__")


def record_fields(kind: type) -> Iterable[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return [attribute.name for attribute in getattr(kind, "__attrs_attrs__", ())]


def written_fields(value: msgspec.Struct) -> Iterable[tuple[str, str, object]]:
    """Name, JSON name and value of the fields that msgspec will write: what it leaves out can do no harm."""
    kind = type(value)
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    omits = kind.__struct_config__.omit_defaults and not kind.__struct_config__.array_like
    padded = (_NOTHING,) * (len(names) - len(defaults)) + defaults
    for name, written, default in zip(names, kind.__struct_encode_fields__, padded, strict=True):
        item = getattr(value, name, msgspec.UNSET)
        if item is msgspec.UNSET or (omits and (item is default or _is_empty(item))):
            continue
        yield name, written, item


def _is_empty(item: object) -> bool:
    return type(item) in (list, dict, set) and not item


def has_own_code(kind: Any) -> bool:
    """Whether making an object of this class does more than to fill its fields with what is given."""
    if issubclass(kind, msgspec.Struct):
        return hasattr(kind, "__post_init__")  # which is quicker than to look for what is known
    return _has_own_code(kind)


@kept_by_type
def _has_own_code(kind: Any) -> bool:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else getattr(kind, "__attrs_attrs__", ())
    return any(hasattr(kind, name) for name in CODE_OF_OBJECTS) or not all(getattr(one, "init", True) for one in fields)


def check_made_again(value: Any, text: bytes) -> None:
    """Lost, with the path, when the class of `value` makes something else of `text` than it was written from."""
    back = _read(type(value), text)
    if back is not _NOTHING:
        _same_fields(value, back)


def _read(kind: type, text: bytes) -> Any:
    try:
        return decoder_of(kind).decode(text)
    except Exception as error:
        lost = refused_by_class(error, has_own_code)
        if lost is not None:
            raise lost from None
    return _NOTHING  # it does not fit, and the reader says so


def _same_fields(given: Any, back: Any) -> None:
    kind = type(given)
    for name in own_fields(kind) or ():
        was, became = getattr(given, name, msgspec.UNSET), getattr(back, name, msgspec.UNSET)
        if was is became:
            continue
        try:
            if not _same(was, became):
                raise _changed(kind, name, was)
        except Refused as refused:
            raise refused.inside(step(name))  # noqa: B904


def _changed(kind: Any, name: str, was: Any) -> Lost:
    remedy = class_remedy(kind, name) or f"let the class {type_name(kind)} keep what it is given"
    return Lost(f"a {type_name(type(was))} would come back with another value", remedy=remedy)


def _same(given: Any, back: Any) -> bool:
    """Lost, with the path, where it is a part of an object inside that has changed."""
    kind = type(given)
    if isinstance(given, Enum) and not isinstance(back, Enum):
        return _same(given.value, back)
    if own_fields(kind) is not None:
        if kind is type(back) and not is_pydantic(kind):  # a model has been read back already
            _same_fields(given, back)
        elif isinstance(back, dict | list) and not is_pydantic(kind):  # its place names no type: a generic class
            check_made_again(given, msgspec.json.encode(back))
        return True  # of another class: the annotation has decided
    if isinstance(given, _ARRAYS) and isinstance(back, _ARRAYS):
        return len(given) == len(back) and all(
            _same_inside(f"[{index}]", *pair) for index, pair in enumerate(zip(given, back, strict=True))
        )
    if isinstance(given, dict) and isinstance(back, dict):
        return len(given) == len(back) and all(
            _same_inside(step(_key_text(key)), item, became) for key, item, became in _entries(given, back)
        )
    if isinstance(given, _SETS) and isinstance(back, _ARRAYS):
        return len(given) == len(back)  # objects in a set are read back one by one when they are written
    if isinstance(given, (*_SETS, *_ARRAYS)) and isinstance(back, _SETS):
        return (len(given) == len(back) or isinstance(given, _ARRAYS)) and are_among(given, back, _is_alike)
    return is_equal(given, back) or _is_read_as(given, back) or _is_read_as(back, given)


def _entries(given: dict[Any, Any], back: dict[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Each key with what it had and has; what is not the same key any more is found by the order of both."""
    others = iter([item for key, item in back.items() if key not in given])
    for key, item in given.items():
        yield key, item, back[key] if key in back else next(others, item)


def _key_text(key: Any) -> str:
    return str(key.value if isinstance(key, Enum) else key)


def _is_alike(given: Any, back: Any) -> bool:
    try:
        return _same(given, back)
    except Refused:
        return False


def _same_inside(place: str, given: Any, back: Any) -> bool:
    try:
        return _same(given, back)
    except Refused as refused:
        raise refused.inside(place)  # noqa: B904


def _is_read_as(text: Any, value: Any) -> bool:
    """Whether plain JSON means this value: "1.10" a Decimal; plain dicts become what their annotation names."""
    if isinstance(text, dict):
        return own_fields(type(value)) is not None
    if not isinstance(text, _SCALARS):
        return False
    try:
        return is_equal(msgspec.convert(text, type(value), strict=False), value)
    except Exception:
        return False
