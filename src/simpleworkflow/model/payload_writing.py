"""Writing JSON: one walk over a value that refuses, with its path, whatever could not be read back as it was.

See payload.py for the rules and the reasons; this is how they are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Protocol
from uuid import UUID

import msgspec

from .errors import PayloadError
from .limits import MAX_BYTES, MAX_DEPTH
from .payload_models import check_comes_back, dump, is_pydantic
from .payload_objects import check_made_again, has_own_code, is_record, record_fields, written_fields
from .payload_refusals import Endless, Lost, Refused, step, type_name
from .payload_scalars import check_zone, decimal_text, non_finite, refuse_surrogates

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

_ENCODER = msgspec.json.Encoder()


def encode(value: object, *, limit: int = MAX_BYTES, what: str = "payload") -> str:
    """The JSON text of `value`, or PayloadError naming `what` and the path to the part that cannot be stored."""
    if value is None:
        return "null"  # what most steps and many runs return
    return written(Walk(limit), value, what)


class Judge(Protocol):
    """Knows as what a value will be read."""

    plain: Callable[[Any], None] | None
    """Looks at plain JSON, where that may come back as something else."""

    place: str
    """Where the annotation of a whole value stands."""

    def look(self, value: object) -> None:
        """At a value that is not plain JSON; Lost when a part of it would come back as something else."""

    def advise(self, value: object) -> str:
        """What to do about it."""


def written(walk: Walk, value: object, what: str, judge: Judge | None = None) -> str:
    """What `walk` makes of a value."""
    try:
        data = _ENCODER.encode(walk.any(value, 1))
        if judge is not None and walk.met:
            judge.look(value)
        elif judge is not None and judge.plain is not None:
            judge.plain(value)
    except Lost as lost:
        remedy = _remedy(lost, value, judge)
        raise PayloadError(f"{what} would not come back as it is: at {lost.path()}: {lost.reason}; {remedy}") from None
    except Refused as refused:
        raise PayloadError(f"{what} cannot be stored as JSON: at {refused.path()}: {refused.reason}") from None
    except Endless as endless:
        raise _too_large(what, f"at least {endless.size}", walk.limit) from None
    except RecursionError:
        raise PayloadError(f"{what} cannot be stored as JSON: it is nested too deeply (limit {MAX_DEPTH})") from None
    except Exception as error:
        # Attributes and tzinfo objects run other people's code; whatever it raises, the caller learns one type.
        raise PayloadError(f"{what} cannot be stored as JSON: {type(error).__name__}: {error}") from error
    if len(data) > walk.limit:
        raise _too_large(what, f"{len(data)}", walk.limit)
    return data.decode()


def _remedy(lost: Lost, value: object, judge: Judge | None) -> str | None:
    if judge is None:
        return lost.remedy
    if lost.annotate is not None and not lost.steps:
        return f"annotate {judge.place} as {lost.annotate}"
    return judge.advise(value) if lost.remedy is None else lost.remedy


def _too_large(what: str, size: str, limit: int) -> PayloadError:
    return PayloadError(
        f"{what} is too large: {size} bytes as JSON, the limit is {limit} bytes. "
        "Store large data elsewhere (a file, a bucket, a table) and pass a reference to it."
    )


class Walk:
    """One look at one value. Every method returns the value itself, or what msgspec shall write in its place."""

    __slots__ = ("is_read_back", "limit", "met", "seen")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.met = False
        """Whether there was something that JSON has no type for: without an annotation it comes back as another."""
        self.seen = 0  # a lower bound of the encoded size
        self.is_read_back = False
        """Whether an object around this place will be read back, and this with it."""

    def any(self, value: object, depth: int) -> object:
        return _BY_TYPE.get(type(value), Walk.other)(self, value, depth)

    def count(self, size: int) -> None:
        self.seen += size
        if self.seen > self.limit:
            raise Endless(self.seen)

    def foreign(self, value: object) -> None:
        """Here is something that is written as JSON and is not JSON."""
        self.met = True

    def foreign_key(self, key: object) -> None:
        self.met = True

    # Scalars

    def same(self, value: object, depth: int) -> object:
        return value

    def known(self, value: object, depth: int) -> object:
        """msgspec knows how to write it."""
        self.foreign(value)
        return value

    def text(self, value: str, depth: int = 0) -> str:
        self.seen += len(value)  # count(), without the price of a call
        if self.seen > self.limit:
            raise Endless(self.seen)
        if "\0" in value:
            raise Refused("a string contains NUL (\\u0000), which PostgreSQL cannot store; remove or escape it")
        if not value.isascii():
            refuse_surrogates(value)
        return value

    def integer(self, value: int, depth: int = 0) -> int:
        if not _INT_MIN <= value <= _INT_MAX:
            # Not printed: Python refuses to print integers of more than 4300 digits.
            bits = value.bit_length()
            raise Refused(f"an integer of {bits} bits does not fit in signed 64 bits; pass it as a string")
        return value

    def number(self, value: float, depth: int = 0) -> float:
        if not isfinite(value):
            raise Refused(f"{non_finite(value)} has no JSON form; use None, or a string that your code understands")
        return value

    def moment(self, value: datetime | time, depth: int) -> object:
        self.foreign(value)
        if value.tzinfo is not None and value.tzinfo is not UTC:
            check_zone(value)
        return value

    def decimal(self, value: Decimal, depth: int = 0) -> str:
        self.foreign(value)
        return self.text(decimal_text(value))

    def binary(self, value: bytes | bytearray | memoryview, depth: int = 0) -> object:
        self.foreign(value)
        self.count(memoryview(value).nbytes)
        return value

    # Containers

    def enter(self, size: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Refused(f"nested more than {MAX_DEPTH} levels deep; does the value contain itself?")
        self.count(size)

    def array(self, value: list[object] | tuple[object, ...], depth: int) -> object:
        self.enter(len(value), depth)
        rebuilt: list[object] | None = None
        index, deeper = 0, depth + 1
        try:
            for index, item in enumerate(value):
                plain = _BY_TYPE.get(type(item), Walk.other)(self, item, deeper)  # any(), without the price of a call
                if plain is not item:
                    rebuilt = list(value) if rebuilt is None else rebuilt
                    rebuilt[index] = plain
        except Refused as refused:
            raise refused.inside(f"[{index}]")  # noqa: B904 (the same exception travels on)
        return value if rebuilt is None else rebuilt

    def row(self, value: tuple[object, ...], depth: int) -> object:
        self.foreign(value)
        return self.array(value, depth)

    def mapping(self, value: dict[Any, object], depth: int) -> object:
        self.enter(len(value), depth)
        size = 0
        for key in value:
            if type(key) is not str or not key.isascii() or "\0" in key:
                return self.items(self.renamed(value), depth)
            size += len(key)
        self.seen += size  # the next count compares the sum
        return self.items(value, depth)

    def items(self, value: dict[str, object], depth: int) -> dict[str, object]:
        rebuilt: dict[str, object] | None = None
        key, deeper = "", depth + 1
        try:
            for key, item in value.items():
                plain = _BY_TYPE.get(type(item), Walk.other)(self, item, deeper)
                if plain is not item:
                    rebuilt = dict(value) if rebuilt is None else rebuilt
                    rebuilt[key] = plain
        except Refused as refused:
            raise refused.inside(step(key))  # noqa: B904
        return value if rebuilt is None else rebuilt

    def renamed(self, value: dict[Any, object]) -> dict[str, object]:
        """The dict with the keys that JSON will have, each of them checked."""
        named: dict[str, object] = {}
        for key, item in value.items():
            if type(key) is not str:
                self.foreign_key(key)
            text = self.key(key)
            if text in named:
                raise Refused(f"two keys of this dict become the same JSON key {json.dumps(text)}").inside(step(text))
            named[text] = item
        return named

    def key(self, key: object) -> str:
        try:
            return self.text(_key_text(self, key))
        except Refused as refused:
            raise refused.inside(step(key)) if isinstance(key, str) else refused  # noqa: B904

    def unordered(self, value: set[object] | frozenset[object], depth: int) -> object:
        self.foreign(value)
        self.enter(len(value), depth)
        around, self.is_read_back = self.is_read_back, False  # later nobody could tell which has become which
        try:
            items = [self.any(item, depth + 1) for item in value]
        except Refused as refused:
            raise refused.inside("[*]")  # noqa: B904 (an index into a set would mean nothing)
        finally:
            self.is_read_back = around
        # An empty set stays one: msgspec's omit_defaults recognises it.
        return _sorted(items) if items else value

    # Objects

    def other(self, value: object, depth: int) -> object:
        """Everything that is not exactly a JSON builtin, the most specific reading first."""
        kind = type(value)
        if isinstance(value, Enum):
            self.foreign(value)
            return self.any(value._value_, depth)
        for base, narrow in _SUBCLASSES:
            if isinstance(value, base):
                self.foreign(value)
                return self.any(narrow(value), depth)
        if isinstance(value, UUID):  # asyncpg returns a subclass of its own
            return self.known(value, depth)
        if isinstance(value, msgspec.Struct):
            self.foreign(value)
            return self.struct(value, depth) if self.fills(kind) else self.made(value, self.struct, depth)
        if is_pydantic(kind):
            self.foreign(value)
            return self.model(value, depth)
        if is_record(kind):
            self.foreign(value)
            return self.record(value, depth) if self.fills(kind) else self.made(value, self.record, depth)
        raise Refused(
            f"a value of type {type_name(kind)} has no JSON form; "
            "convert it first, or use a dataclass, a msgspec Struct or a pydantic model"
        )

    def record(self, value: object, depth: int) -> object:
        fields = {name: getattr(value, name, msgspec.UNSET) for name in record_fields(type(value))}
        return self.mapping({name: item for name, item in fields.items() if item is not msgspec.UNSET}, depth)

    def struct(self, value: msgspec.Struct, depth: int) -> object:
        """Left to msgspec, who knows about tags, renames and omitted defaults; a changed field goes into a copy."""
        self.enter(0, depth)
        rebuilt: msgspec.Struct | None = None
        for name, written, item in written_fields(value):
            self.count(1)
            try:
                plain = self.any(item, depth + 1)
            except Refused as refused:
                raise refused.inside(step(written))  # noqa: B904
            if plain is not item:
                rebuilt = copy(value) if rebuilt is None else rebuilt
                msgspec.structs.force_setattr(rebuilt, name, plain)
        return value if rebuilt is None else rebuilt

    def fills(self, kind: type) -> bool:
        """Whether reading does no more than to fill the fields; or is tried for an object around this one."""
        return self.is_read_back or not has_own_code(kind)

    def made(self, value: Any, write: Callable[[Any, int], object], depth: int) -> object:
        self.is_read_back = True
        try:
            plain = write(value, depth)
        finally:
            self.is_read_back = False
        self.comes_back(value, plain, check_made_again)
        return plain

    def model(self, value: Any, depth: int) -> object:
        plain = self.any(dump(value), depth)
        # In JSON mode pydantic writes an untyped NaN as None and a secret as stars: only reading shows it.
        self.comes_back(value, plain, check_comes_back)
        return plain

    def comes_back(self, value: Any, plain: object, check: Callable[[Any, bytes], None]) -> None:
        check(value, _ENCODER.encode(plain))


def _key_text(walk: Walk, key: object) -> str:
    """The text that msgspec would write for a dict key, after the checks that it does not make."""
    if isinstance(key, Enum):
        return _key_text(walk, key._value_)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, Decimal):
        return decimal_text(key)
    if type(key) is int:
        return str(walk.integer(key))
    if type(key) is float:
        walk.number(key)
    if isinstance(key, datetime | time):
        check_zone(key)
    try:
        (text,) = msgspec.to_builtins({key: None}, str_keys=True)
    except TypeError:
        raise Refused(f"a dict key of type {type_name(type(key))} has no JSON form; use strings as keys") from None
    return str(text)


def _sorted(items: list[Any]) -> list[Any]:
    kinds = set(map(type, items))
    if kinds == {int} or kinds == {str}:
        return sorted(items)
    return sorted(items, key=_ENCODER.encode)  # mixed types cannot be compared, their texts can


_BY_TYPE: dict[type, Callable[[Walk, Any, int], object]] = {
    str: Walk.text,
    int: Walk.integer,
    bool: Walk.same,
    type(None): Walk.same,
    float: Walk.number,
    dict: Walk.mapping,
    list: Walk.array,
    tuple: Walk.row,
    set: Walk.unordered,
    frozenset: Walk.unordered,
    datetime: Walk.moment,
    date: Walk.known,
    time: Walk.moment,
    timedelta: Walk.known,
    UUID: Walk.known,
    Decimal: Walk.decimal,
    bytes: Walk.binary,
    bytearray: Walk.binary,
    memoryview: Walk.binary,
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
