"""What an annotation says about the parts of a value: the members of a union, the items, the fields, the keys.

For types that pydantic reads as a whole. Its unions take whichever member fits best, so a dict may be read as a model
whose fields all have defaults, and the text of a number as a Decimal: `claims` tells when a value of plain JSON is
itself what the union names, and must stay so. Its classes drop keys that they do not know: `fields_by_key` names those
that they do.

Hints are the members of one annotation, or of several where the value does not say which one it belongs to; no hints
mean that nothing is known, and nothing is claimed.
"""

from __future__ import annotations

import collections.abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Hints = tuple[Any, ...]

_ABOUT_KEYS = ("Required", "NotRequired", "ReadOnly")
_HOMES: dict[type, tuple[Any, ...]] = {
    dict: (dict, collections.abc.Mapping, collections.abc.MutableMapping),
    list: (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection),
}
_OF_ITEMS = (*_HOMES[list], tuple, set, frozenset, collections.abc.Set, collections.abc.Iterable)


def members(annotation: Any) -> Hints:
    """What a value of this annotation may be: the members of a union, without the names and comments around them."""
    inner = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
    if inner is not None:  # type X = …, NewType
        return members(inner)
    origin: Any = get_origin(annotation)
    if origin is Annotated or getattr(origin, "_name", None) in _ABOUT_KEYS:
        return members(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return tuple(one for inner in get_args(annotation) for one in members(inner))
    return () if annotation is None else (annotation,)


def is_typed_dict(kind: Any) -> bool:
    """Also that of typing_extensions, which pydantic wants before Python 3.12."""
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__required_keys__")


def is_choice(hints: Hints) -> bool:
    """Whether there is more than one thing that a value may be, besides None."""
    return len([one for one in hints if one is not NoneType]) > 1


def claims(hints: Hints, value: Any) -> bool:
    """Whether a choice names what this value of plain JSON is."""
    return is_choice(hints) and any(_is_one(value, one) for one in hints)


def _is_one(value: Any, hint: Any) -> bool:
    kind, origin = type(value), get_origin(hint)
    if hint is Any or hint is object:
        return True
    if origin is Literal:
        return any(type(one) is kind and one == value for one in get_args(hint))
    if is_typed_dict(hint):
        return kind is dict and hint.__required_keys__ <= value.keys() <= hint.__annotations__.keys()
    home = origin or hint
    return any(home is one for one in _HOMES.get(kind, (kind,)))


def of_item(hints: Hints, index: int, size: int) -> Hints:
    """What an item of an array may be."""
    found: list[Any] = []
    for hint in hints:
        args = get_args(hint)
        home: Any = get_origin(hint)
        if home is tuple and args[1:] != (...,):
            found += members(args[index]) if len(args) == size else ()
        elif args and home in _OF_ITEMS:
            found += members(args[0])
    return tuple(found)


def of_entry(hints: Hints, key: Any) -> Hints:
    """What the value under a key of a dict may be."""
    found: list[Any] = []
    for hint in hints:
        args = get_args(hint)
        if get_origin(hint) in _HOMES[dict] and len(args) > 1:
            found += members(args[1])
        elif is_typed_dict(hint):
            found += members(_hints_of(hint).get(key))
    return tuple(found)


def of_field(kind: Any, name: str, info: Any) -> Hints:
    """What a field of a class may hold; `info` is what pydantic knows about it."""
    annotation = getattr(info, "annotation", None)
    return members(_hints_of(kind).get(name) if annotation is None else annotation)


def _hints_of(kind: Any) -> Mapping[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except Exception:
        return {}  # a name that cannot be resolved


def fields_by_key(kind: Any, infos: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The keys that a class of pydantic, or a dataclass, reads, and the fields that they fill; computed ones fill none.

    None when that is not known: other keys may be kept, or its own code looks at them.
    """
    config: Any = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    decorators = getattr(kind, "__pydantic_decorators__", None)
    validators = getattr(decorators, "model_validators", {}).values()
    if config.get("extra") == "allow" or any(one.info.mode != "after" for one in validators):
        return None
    found = {key: name for name, info in infos.items() for key in (name, *_aliases(info))}
    computed = dict.fromkeys(getattr(decorators, "computed_fields", {}), "")
    initial = {one.name: "" for one in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    return {**initial, **computed, **found}


def _aliases(info: Any) -> Iterator[str]:
    yield from _texts(getattr(info, "alias", None))
    yield from _texts(getattr(info, "validation_alias", None))


def _texts(alias: Any) -> Iterable[str]:
    """An alias, an AliasPath, or AliasChoices."""
    if isinstance(alias, str):
        return [alias]
    if path := getattr(alias, "path", None):
        return [str(path[0])]
    return [text for one in getattr(alias, "choices", ()) for text in _texts(one)]
