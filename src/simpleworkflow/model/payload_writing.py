"""Writing JSON: one walk over a value that refuses, with its path, whatever could not be read back as it was.

See payload.py for the rules and the reasons; this is how they are kept.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from copy import copy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from .errors import PayloadError
from .limits import MAX_BYTES, MAX_DEPTH

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_LONGEST_KEY_SHOWN = 200
_NOTHING = object()

_ENCODER = msgspec.json.Encoder()


def encode(value: object, *, limit: int = MAX_BYTES, what: str = "payload") -> str:
    """The JSON text of `value`, or PayloadError naming `what` and the path to the part that cannot be stored."""
    if value is None:
        return "null"  # what most steps and many runs return
    walk = _Walk(limit)
    try:
        data = _ENCODER.encode(walk.any(value, 1))
    except _Refused as refused:
        raise PayloadError(f"{what} cannot be stored as JSON: at {refused.path()}: {refused.reason}") from None
    except _Endless as endless:
        raise _too_large(what, f"at least {endless.size}", limit) from None
    except RecursionError:
        raise PayloadError(f"{what} cannot be stored as JSON: it is nested too deeply (limit {MAX_DEPTH})") from None
    except Exception as error:
        # Attributes and tzinfo objects run other people's code; whatever it raises, the caller learns one type.
        raise PayloadError(f"{what} cannot be stored as JSON: {type(error).__name__}: {error}") from error
    if len(data) > limit:
        raise _too_large(what, f"{len(data)}", limit)
    return data.decode()


def _too_large(what: str, size: str, limit: int) -> PayloadError:
    return PayloadError(
        f"{what} is too large: {size} bytes as JSON, the limit is {limit} bytes. "
        "Store large data elsewhere (a file, a bucket, a table) and pass a reference to it."
    )


class _Refused(Exception):
    """A part that cannot be stored. Each container on the way out appends its step: paths cost nothing until then."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def path(self) -> str:
        return "$" + "".join(reversed(self.steps))

    def inside(self, step: str) -> _Refused:
        self.steps.append(step)
        return self


class _Endless(Exception):
    """The walk has already seen more bytes than the limit allows."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def _step(key: str) -> str:
    if key.isidentifier():
        return f".{key}"
    shown = key if len(key) <= _LONGEST_KEY_SHOWN else key[:_LONGEST_KEY_SHOWN] + "…"
    return f"[{json.dumps(shown)}]"  # ASCII only: a message with a lone surrogate could not be logged


def type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Walk:
    """One look at one value. Every method returns the value itself, or what msgspec shall write in its place."""

    __slots__ = ("limit", "seen")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seen = 0  # a lower bound of the encoded size

    def any(self, value: object, depth: int) -> object:
        return _BY_TYPE.get(type(value), _Walk.other)(self, value, depth)

    def count(self, size: int) -> None:
        self.seen += size
        if self.seen > self.limit:
            raise _Endless(self.seen)

    # Scalars

    def same(self, value: object, depth: int) -> object:
        return value

    def text(self, value: str, depth: int = 0) -> str:
        self.seen += len(value)  # count(), without the price of a call
        if self.seen > self.limit:
            raise _Endless(self.seen)
        if "\0" in value:
            raise _Refused("a string contains NUL (\\u0000), which PostgreSQL cannot store; remove or escape it")
        if not value.isascii():
            _refuse_surrogates(value)
        return value

    def integer(self, value: int, depth: int = 0) -> int:
        if not _INT_MIN <= value <= _INT_MAX:
            # Not printed: Python refuses to print integers of more than 4300 digits.
            bits = value.bit_length()
            raise _Refused(f"an integer of {bits} bits does not fit in signed 64 bits; pass it as a string")
        return value

    def number(self, value: float, depth: int = 0) -> float:
        if not isfinite(value):
            raise _Refused(f"{_non_finite(value)} has no JSON form; use None, or a string that your code understands")
        return value

    def decimal(self, value: Decimal, depth: int = 0) -> str:
        return self.text(_decimal_text(value))

    def binary(self, value: bytes | bytearray | memoryview, depth: int = 0) -> object:
        self.count(memoryview(value).nbytes)
        return value

    # Containers

    def enter(self, size: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _Refused(f"nested more than {MAX_DEPTH} levels deep; does the value contain itself?")
        self.count(size)

    def array(self, value: list[object] | tuple[object, ...], depth: int) -> object:
        self.enter(len(value), depth)
        rebuilt: list[object] | None = None
        index, deeper = 0, depth + 1
        try:
            for index, item in enumerate(value):
                plain = _BY_TYPE.get(type(item), _Walk.other)(self, item, deeper)  # any(), without the price of a call
                if plain is not item:
                    rebuilt = list(value) if rebuilt is None else rebuilt
                    rebuilt[index] = plain
        except _Refused as refused:
            raise refused.inside(f"[{index}]")  # noqa: B904 (the same exception travels on)
        return value if rebuilt is None else rebuilt

    def mapping(self, value: dict[Any, object], depth: int) -> object:
        self.enter(len(value), depth)
        size = 0
        for key in value:
            if type(key) is not str or not key.isascii() or "\0" in key:
                return self.items(self.renamed(value), depth)
            size += len(key)
        self.seen += size  # whoever counts next compares the sum
        return self.items(value, depth)

    def items(self, value: dict[str, object], depth: int) -> dict[str, object]:
        rebuilt: dict[str, object] | None = None
        key, deeper = "", depth + 1
        try:
            for key, item in value.items():
                plain = _BY_TYPE.get(type(item), _Walk.other)(self, item, deeper)
                if plain is not item:
                    rebuilt = dict(value) if rebuilt is None else rebuilt
                    rebuilt[key] = plain
        except _Refused as refused:
            raise refused.inside(_step(key))  # noqa: B904
        return value if rebuilt is None else rebuilt

    def renamed(self, value: dict[Any, object]) -> dict[str, object]:
        """The dict with the keys that JSON will have, each of them checked."""
        named: dict[str, object] = {}
        for key, item in value.items():
            text = self.key(key)
            if text in named:
                raise _Refused(f"two keys of this dict become the same JSON key {json.dumps(text)}").inside(_step(text))
            named[text] = item
        return named

    def key(self, key: object) -> str:
        try:
            return self.text(_key_text(self, key))
        except _Refused as refused:
            raise refused.inside(_step(key)) if isinstance(key, str) else refused  # noqa: B904

    def unordered(self, value: set[object] | frozenset[object], depth: int) -> object:
        self.enter(len(value), depth)
        try:
            items = [self.any(item, depth + 1) for item in value]
        except _Refused as refused:
            raise refused.inside("[*]")  # noqa: B904 (an index into a set would mean nothing)
        # An empty set stays one: msgspec's omit_defaults recognises it.
        return _sorted(items) if items else value

    # Objects

    def other(self, value: object, depth: int) -> object:
        """Everything that is not exactly a JSON builtin, the most specific reading first."""
        kind = type(value)
        if isinstance(value, Enum):
            return self.any(value._value_, depth)
        for base, narrow in _SUBCLASSES:
            if isinstance(value, base):
                return self.any(narrow(value), depth)
        if isinstance(value, UUID):  # asyncpg returns a subclass of its own
            return value
        if isinstance(value, msgspec.Struct):
            return self.struct(value, depth)
        if is_pydantic(kind):
            return self.model(value, depth)
        names = _record_fields(kind)
        if names is not None:
            return self.record(value, names, depth)
        raise _Refused(
            f"a value of type {type_name(kind)} has no JSON form; "
            "convert it first, or use a dataclass, a msgspec Struct or a pydantic model"
        )

    def record(self, value: object, names: Iterable[str], depth: int) -> object:
        fields = {name: getattr(value, name, msgspec.UNSET) for name in names}
        return self.mapping({name: item for name, item in fields.items() if item is not msgspec.UNSET}, depth)

    def struct(self, value: msgspec.Struct, depth: int) -> object:
        """Left to msgspec, who knows about tags, renames and omitted defaults; a changed field goes into a copy."""
        self.enter(0, depth)
        rebuilt: msgspec.Struct | None = None
        for name, written, item in _written_fields(value):
            self.count(1)
            try:
                plain = self.any(item, depth + 1)
            except _Refused as refused:
                raise refused.inside(_step(written))  # noqa: B904
            if plain is not item:
                rebuilt = copy(value) if rebuilt is None else rebuilt
                msgspec.structs.force_setattr(rebuilt, name, plain)
        return value if rebuilt is None else rebuilt

    def model(self, value: Any, depth: int) -> object:
        try:
            dumped, raw = value.model_dump(mode="json"), value.model_dump()
        except Exception as error:
            raise _Refused(f"pydantic cannot dump this {type_name(type(value))}: {error}") from None
        # In JSON mode pydantic writes an untyped NaN as None and a Decimal NaN as text: only the raw dump shows them.
        self.refuse_hidden(raw)
        return self.any(dumped, depth)

    def refuse_hidden(self, raw: object) -> None:
        if isinstance(raw, float):
            self.number(raw)
        elif isinstance(raw, Decimal):
            _decimal_text(raw)
        elif isinstance(raw, dict):
            self.refuse_hidden_in((_step(str(key)), item) for key, item in raw.items())
        elif isinstance(raw, list | tuple):
            self.refuse_hidden_in((f"[{index}]", item) for index, item in enumerate(raw))
        elif isinstance(raw, set | frozenset):
            self.refuse_hidden_in(("[*]", item) for item in raw)

    def refuse_hidden_in(self, parts: Iterable[tuple[str, object]]) -> None:
        for step, item in parts:
            try:
                self.refuse_hidden(item)
            except _Refused as refused:
                raise refused.inside(step)  # noqa: B904


def _refuse_surrogates(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Refused(
            "a string contains a lone surrogate, which is not text; clean it with errors='replace'"
        ) from None


def _non_finite(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise _Refused(f"Decimal('{value}') has no JSON form; use None, or a string that your code understands")
    return str(value)


def _key_text(walk: _Walk, key: object) -> str:
    """The text that msgspec would write for a dict key, after the checks that it does not make."""
    if isinstance(key, Enum):
        return _key_text(walk, key._value_)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, Decimal):
        return _decimal_text(key)
    if type(key) is int:
        return str(walk.integer(key))
    if type(key) is float:
        walk.number(key)
    try:
        (text,) = msgspec.to_builtins({key: None}, str_keys=True)
    except TypeError:
        raise _Refused(f"a dict key of type {type_name(type(key))} has no JSON form; use strings as keys") from None
    return str(text)


def _sorted(items: list[Any]) -> list[Any]:
    kinds = set(map(type, items))
    if kinds == {int} or kinds == {str}:
        return sorted(items)
    return sorted(items, key=_ENCODER.encode)  # mixed types cannot be compared, their texts can


def is_pydantic(kind: type) -> bool:
    return hasattr(kind, "model_dump") and hasattr(kind, "__pydantic_serializer__")


def _written_fields(value: msgspec.Struct) -> Iterable[tuple[str, str, object]]:
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


def _record_fields(kind: type) -> tuple[str, ...] | None:
    """Field names of a dataclass or an attrs class; None for any other class."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(attribute.name for attribute in attributes)


_BY_TYPE: dict[type, Callable[[_Walk, Any, int], object]] = {
    str: _Walk.text,
    int: _Walk.integer,
    bool: _Walk.same,
    type(None): _Walk.same,
    float: _Walk.number,
    dict: _Walk.mapping,
    list: _Walk.array,
    tuple: _Walk.array,
    set: _Walk.unordered,
    frozenset: _Walk.unordered,
    datetime: _Walk.same,
    date: _Walk.same,
    time: _Walk.same,
    timedelta: _Walk.same,
    UUID: _Walk.same,
    Decimal: _Walk.decimal,
    bytes: _Walk.binary,
    bytearray: _Walk.binary,
    memoryview: _Walk.binary,
}

# Subclasses (namedtuple, defaultdict, numpy.float64) become what they are at heart. The builtin's own methods are
# named, not the instance's: an overridden __iter__ must not show the check one thing and the encoder another.
_SUBCLASSES: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__pos__),
    (float, float.__pos__),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (set, lambda value: frozenset(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
)
