"""Whether a value that was read back is the value that was written: same types, same contents.

Used where reading runs other people's code (pydantic), so that the text alone cannot say what will come of it. Plain
JSON that became something else is no loss where the annotation asked for it; it is one where a union names what was
given as well, and where a key was dropped. Opaque objects are compared by their own `==` if their class has one. Values
are never shown: they may be secrets.

Moments are compared by their fields and their offset, not by `==`: what is read has a fixed offset, and in an hour that
its zone has twice or never, a moment equals none of another zone (PEP 495), while both of the twice are equal there.
"""

from __future__ import annotations

import collections.abc
import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, get_args, get_origin

import msgspec

from .payload_hints import Hints, claims, fields_by_key, of_entry, of_field, of_item
from .payload_kinds import is_derived
from .payload_refusals import Lost, Refused, class_remedy, dropped, step, type_name

_SCALARS = frozenset({str, int, float, bool, type(None)})
_JSON = _SCALARS | {list, dict}
_ARRAYS = (list, tuple)
_IDENTITY: Any = object.__eq__
_FIT = "make its serializer and its validator fit each other"


def compare(given: Any, back: Any, hints: Hints = (), *, is_abstract: bool = False) -> None:
    """Lost, with the path, when `back` is not what `given` was. `is_abstract`: any kind of sequence or set will do."""
    kind, other = type(given), type(back)
    if isinstance(given, _ARRAYS) and isinstance(back, _ARRAYS):
        _items(given, back, hints, is_abstract)
        if kind is other or is_abstract or kind is list:
            return
    elif kind is other:
        _alike(kind, given, back, hints)
        return
    elif kind in _SCALARS and other in _SCALARS:
        if is_equal(given, back):  # 1 and 1.0
            return
    elif kind in _JSON:
        made(given, back, hints)
        return
    elif _stands_for(given, other, is_abstract) and own_fields(kind) is None and is_equal(given, back):
        return  # a subclass of str, in a field that is a str
    raise _other_type(kind, other, is_base=isinstance(given, other))


def _stands_for(given: Any, other: type, is_abstract: bool) -> bool:
    return is_abstract or (isinstance(given, other) and not is_derived(given))


def made(given: Any, back: Any, hints: Hints = ()) -> None:
    """Lost, with the path, when plain JSON became what the annotation does not ask for, or lost a key."""
    kind, other = type(given), type(back)
    if kind not in _JSON:
        return  # the annotation names its type
    if kind is not other and claims(hints, given) and not (kind in _SCALARS and is_equal(given, back)):
        raise _chosen(kind, other)
    if kind is list and isinstance(back, _ARRAYS) and len(given) == len(back):
        for index, (one, became) in enumerate(zip(given, back, strict=True)):
            _made_inside(f"[{index}]", one, became, of_item(hints, index, len(given)))
    elif kind is dict:
        _made_of_dict(given, back, hints)


def _made_of_dict(given: dict[Any, Any], back: Any, hints: Hints) -> None:
    if isinstance(back, dict):
        if len(back) < len(given):  # a TypedDict; keys may have become numbers or dates
            raise dropped(next(key for key in given if key not in back), None)
        for key in given.keys() & back.keys():
            _made_inside(step(str(key)), given[key], back[key], of_entry(hints, key))
        return
    kind: Any = type(back)
    infos = own_fields(kind)
    names = None if infos is None else fields_by_key(kind, infos)
    if infos is None or names is None or set(infos) == {"root"}:
        return
    for key, item in given.items():
        name = names.get(key)
        if name is None:
            raise dropped(key, kind)
        if name and hasattr(back, name):
            _made_inside(step(key), item, getattr(back, name), of_field(kind, name, infos[name]))


def _made_inside(place: str, given: Any, back: Any, hints: Hints) -> None:
    try:
        made(given, back, hints)
    except Refused as refused:
        raise refused.inside(place)  # noqa: B904


def _chosen(kind: type, other: type) -> Lost:
    name = type_name(kind)
    remedy = "let the members of the union differ in what JSON shows, for example by a field with a Literal"
    return Lost(f"a {name} would come back as {type_name(other)}, though its annotation names {name}", remedy=remedy)


def _other_type(kind: type, other: type, *, is_base: bool) -> Lost:
    if hasattr(kind, "get_secret_value"):
        return _secret(kind)
    annotate = type_name(kind)
    if is_base:
        annotate += ", or as a union that has it: its annotation names a base class"
    return Lost(f"a {type_name(kind)} would come back as {type_name(other)}", annotate=annotate)


def _alike(kind: type, given: Any, back: Any, hints: Hints) -> None:
    names = own_fields(kind)
    if names is not None:
        _fields(kind, names, given, back)
    elif isinstance(given, dict):
        _entries(given, back, hints)
    elif isinstance(given, deque):
        _items(given, back, hints, False)
    elif isinstance(given, set | frozenset) and len(given) == len(back):
        if not are_among(given, back, _is_alike):
            raise _changed(kind)
    elif not is_equal(given, back):
        raise _secret(kind) if hasattr(kind, "get_secret_value") else _changed(kind)


def _is_alike(given: Any, back: Any) -> bool:
    try:
        compare(given, back)
    except Refused:
        return False
    return True


def _items(given: Any, back: Any, hints: Hints, is_abstract: bool) -> None:
    if len(given) != len(back):
        raise Lost(f"{len(given)} items would come back as {len(back)}", remedy="make its serializers keep all of them")
    for index, (one, other) in enumerate(zip(given, back, strict=True)):
        try:
            compare(one, other, of_item(hints, index, len(given)), is_abstract=is_abstract)
        except Refused as refused:
            raise refused.inside(f"[{index}]")  # noqa: B904


def _entries(given: dict[Any, Any], back: dict[Any, Any], hints: Hints = ()) -> None:
    for key, item in given.items():
        if key not in back and type(key) is str and len(back) < len(given):
            raise dropped(key, None)
        try:
            compare(item, back[_key_of(key, back)], of_entry(hints, key))
        except Refused as refused:
            raise refused.inside(step(str(key)))  # noqa: B904


def _key_of(key: Any, back: dict[Any, Any]) -> Any:
    if key in back:
        return key
    for other in back if isinstance(key, datetime) else ():
        if is_equal(key, other):
            return other
    raise Lost(f"the key, of type {type_name(type(key))}, would not come back", remedy="use strings as keys")


def _fields(kind: Any, names: Mapping[str, Any], given: Any, back: Any) -> None:
    for name, info in names.items():
        was, became = getattr(given, name, msgspec.UNSET), getattr(back, name, msgspec.UNSET)
        if was is became:
            continue
        try:
            hints = of_field(kind, name, info)
            compare(was, became, hints, is_abstract=_is_abstract(getattr(info, "annotation", None)))
        except Refused as refused:
            told = excluded() if getattr(info, "exclude", None) else refused
            if isinstance(told, Lost) and told.remedy == _FIT:
                told.remedy = class_remedy(kind, name) or _FIT
            is_root = name == "root" and len(names) == 1 and hasattr(kind, "model_dump")
            raise told if is_root else told.inside(step(name))  # noqa: B904
    extra = getattr(given, "__pydantic_extra__", None)
    if isinstance(extra, dict):
        _entries(extra, getattr(back, "__pydantic_extra__", None) or {})


def own_fields(kind: Any) -> Mapping[str, Any] | None:
    """Field names, with what pydantic knows about each; None for a class without fields."""
    for infos in (getattr(kind, "model_fields", None), getattr(kind, "__pydantic_fields__", None)):
        if isinstance(infos, Mapping):
            return infos
    if dataclasses.is_dataclass(kind):
        return {field.name: None for field in dataclasses.fields(kind)}
    attributes = getattr(kind, "__attrs_attrs__", None) or ()
    names = getattr(kind, "__struct_fields__", None) or [attribute.name for attribute in attributes]
    return dict.fromkeys(names) if names else None


def _is_abstract(annotation: Any) -> bool:
    """Sequence[str] and the like: a tuple and the list that it comes back as are both one."""
    origin = get_origin(annotation) or annotation
    home = getattr(origin, "__module__", None)
    return home == collections.abc.__name__ or any(_is_abstract(inner) for inner in get_args(annotation))


def is_equal(given: Any, back: Any) -> bool:
    if getattr(type(given), "__eq__", None) is _IDENTITY:
        return type(given) is type(back)  # it has no equality to ask for
    try:
        if isinstance(given, datetime) and isinstance(back, datetime):
            return _is_same_moment(given, back)
        return bool(given == back) or (given != given and back != back)
    except Exception:
        return type(given) is type(back)  # an array of numbers, or a stranger's code


def _is_same_moment(given: datetime, back: datetime) -> bool:
    ours, theirs = given.utcoffset(), back.utcoffset()
    if ours is None or theirs is None:
        return given == back
    return given.replace(tzinfo=None) - back.replace(tzinfo=None) == ours - theirs  # no sum, which could overflow


def are_among(given: Collection[Any], back: Collection[Any], is_alike: Callable[[Any, Any], bool]) -> bool:
    """Whether each item of one set, or of what became it, has its like in the other, by its hash or else its text."""
    left: dict[bytes, list[Any]] = {}
    for other in back:
        if not _is_in(other, given):
            left.setdefault(_text(other), []).append(other)
    return all(_is_in(one, back) or any(is_alike(one, other) for other in left.get(_text(one), ())) for one in given)


def _text(one: Any) -> bytes:
    try:
        return msgspec.json.encode(one, enc_hook=lambda inner: inner.model_dump(mode="json"))
    except Exception:
        return b""


def _is_in(one: Any, many: Collection[Any]) -> bool:
    try:
        return one in many
    except Exception:
        return False  # it has no hash, or a stranger's


def excluded() -> Lost:
    remedy = "drop exclude=True, or leave the field at its default"
    return Lost("exclude=True keeps this field out of what is stored", remedy=remedy)


def _changed(kind: type) -> Lost:
    return Lost(f"a {type_name(kind)} would come back with another value", remedy=_FIT)


def _secret(kind: type) -> Lost:
    remedy = "pass the name of the secret and read it in a step; a field_serializer that reveals it stores it readable"
    return Lost(f"a {type_name(kind)} would be stored as stars", remedy=remedy)
