"""pydantic's classes: models, its dataclasses, its own types. Written by pydantic, read by pydantic, never imported.

A program with such a value has loaded pydantic, so it is found in `sys.modules`. Three dangers:

- A dump may say less than the value: `exclude=True`, SecretStr, a serializer that rounds, a subclass in a field of its
  base type. So what was dumped is read back at once and compared; what differs is refused with its path.
- Models are dumped by the names of their fields, and a model with aliases reads its aliases only. So both are allowed
  for reading (`by_alias`, `by_name`), which needs pydantic 2.11; foreign JSON comes with aliases.
- A pydantic dataclass looks like any dataclass to msgspec, and a constraint such as `Annotated[int, Field(gt=0)]` looks
  like a comment: neither would be validated. A type that mentions one of them is read by pydantic as a whole.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from .payload_comparing import compare, excluded
from .payload_hints import Hints, is_choice, is_typed_dict, members
from .payload_refusals import Lost, Refused, step, type_name
from .type_cache import kept_by_type

_PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_BINARY = (bytes, bytearray, memoryview)


def is_model(kind: Any) -> bool:
    """A model, or what behaves like one."""
    return hasattr(kind, "model_dump") and hasattr(kind, "__pydantic_serializer__")


def is_pydantic(kind: Any) -> bool:
    """Whether pydantic knows how to write and to read this class."""
    if is_model(kind):
        return True
    return isinstance(kind, type) and "pydantic" in sys.modules and hasattr(kind, "__get_pydantic_core_schema__")


def is_pydantic_dataclass(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and hasattr(kind, "__pydantic_validator__")


def dump(value: Any) -> Any:
    """The value as builtins that its own class can read."""
    kind: Any = type(value)
    try:
        if is_model(kind):
            return value.model_dump(mode="json", round_trip=True)
        return _adapter(kind).dump_python(value, mode="json", round_trip=True)
    except Exception as error:
        raise Refused(f"pydantic cannot dump this {type_name(kind)}: {error}") from None


def check_comes_back(value: Any, text: bytes) -> None:
    """Lost, with the path, when `text` does not say all that `value` is."""
    try:
        back = _read(type(value), text)
    except Exception as error:
        raise _unread(value, error) from None
    compare(value, back)


def validated(kind: Any, value: Any) -> Any:
    """pydantic's verdict on a builtin value. In JSON mode: strict models then accept dates as JSON has them."""
    try:
        return _read(kind, msgspec.json.encode(value))
    except Exception as error:
        raise ValueError(_told(error) + _older(kind)) from error


def _read(kind: Any, text: bytes) -> Any:
    read = kind.model_validate_json if is_model(kind) else _adapter(kind).validate_json
    return read(text, **_both_names())


def _new_adapter(kind: Any) -> Any:
    return sys.modules["pydantic"].TypeAdapter(kind)


@kept_by_type
def _adapter(kind: Any) -> Any:
    return _new_adapter(kind)


class Adapter:
    """Types that msgspec cannot read, or reads without the checks that pydantic would make."""

    def __init__(self, as_type: Any) -> None:
        self.adapter = _new_adapter(as_type)

    def decode(self, text: str | bytes, /) -> Any:
        value = _PLAIN.decode(text)  # through msgspec first: pydantic's own parser lets NaN and Infinity pass
        try:
            return self.adapter.validate_json(msgspec.json.encode(value), **_both_names())
        except Exception as error:
            raise ValueError(_told(error)) from error


# Names and aliases


def has_both_names() -> bool:
    """Whether this pydantic can be told to read names and aliases alike."""
    version: str = getattr(sys.modules.get("pydantic"), "VERSION", "0")
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) >= (2, 11)


@cache
def _both_names() -> Mapping[str, bool]:
    return {"by_alias": True, "by_name": True} if has_both_names() else {}


def _older(kind: Any) -> str:
    """What to do about a model whose names an older pydantic cannot read."""
    if _both_names() or not any(info.alias or info.validation_alias for info in _infos(kind).values()):
        return ""
    return "; this pydantic reads it by its aliases alone: install pydantic 2.11 or newer, or set populate_by_name=True"


# What went wrong


def _told(error: Any) -> str:
    """pydantic's findings on one line; its own text takes three lines and a link for each."""
    if not hasattr(error, "errors"):
        return str(error)
    findings = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, finding['loc'])) or 'value'}: {finding['msg']}" for finding in findings)


def _unread(value: Any, error: Any) -> Lost:
    """pydantic wrote it, and will not have it back."""
    kind = type(value)
    place: tuple[Any, ...] = ()
    if hasattr(error, "errors"):
        place = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
    info = _infos(kind).get(str(place[0])) if place else None
    if info is not None and info.exclude:
        lost = excluded()
    else:
        reason = f"this {type_name(kind)} cannot be read back from what pydantic writes ({_told(error)}){_older(kind)}"
        lost = Lost(reason, remedy="make its serializers and validators fit each other")
    for one in reversed(place):
        lost.inside(f"[{one}]" if isinstance(one, int) else step(str(one)))
    return lost


def _infos(kind: Any) -> Mapping[str, Any]:
    found = getattr(kind, "model_fields", None) or getattr(kind, "__pydantic_fields__", None)
    return found if isinstance(found, Mapping) else {}


# Which types are pydantic's to read


def needs_adapter(as_type: Any) -> bool:
    """Whether a type mentions what msgspec would take for something else."""
    return "pydantic" in sys.modules and any(_is_misread(one) for one in _mentioned(as_type))


def mentions_model(as_type: Any) -> bool:
    return any(is_pydantic(one) for one in _mentioned(as_type))


def mentions_binary(as_type: Any) -> bool:
    """Bytes that we write as base64 and pydantic would read as text."""
    return any(one in _BINARY for one in _mentioned(as_type) if isinstance(one, type))


def has_readings(as_type: Any) -> bool:
    """Whether plain JSON could lose something here: fields that are named, or a union that names plain JSON too."""
    return any(is_pydantic(one) or _has_fields(one) or _is_open(members(one)) for one in _mentioned(as_type))


def _is_open(hints: Hints) -> bool:
    return is_choice(hints) and not all(is_pydantic(one) or one is NoneType for one in hints)


def _is_misread(one: Any) -> bool:
    if is_pydantic_dataclass(one):
        return True
    return get_origin(one) is Annotated and any(_is_constraint(extra) for extra in one.__metadata__)


def _is_constraint(extra: Any) -> bool:
    homes = (kind.__module__.partition(".")[0] for kind in type(extra).__mro__)
    return not {"pydantic", "annotated_types"}.isdisjoint(homes)


def _mentioned(as_type: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """A type, the types inside it, and those of its fields; but not those inside a pydantic class."""
    seen = set() if seen is None else seen
    if id(as_type) in seen:
        return
    seen.add(id(as_type))
    yield as_type
    if is_pydantic(as_type):
        return
    origin = get_origin(as_type)
    inner = list(get_args(as_type)[:1] if origin is Annotated else get_args(as_type))
    inner += [] if origin in (None, Annotated) else [origin]
    if _has_fields(as_type):
        try:
            inner += get_type_hints(as_type, include_extras=True).values()
        except Exception:
            inner += []  # a name that cannot be resolved; msgspec says so when it reads
    for one in inner:
        yield from _mentioned(one, seen)


def _has_fields(as_type: Any) -> bool:
    return isinstance(as_type, type) and (
        dataclasses.is_dataclass(as_type)
        or is_typed_dict(as_type)
        or issubclass(as_type, msgspec.Struct)
        or hasattr(as_type, "__attrs_attrs__")
        or (issubclass(as_type, tuple) and hasattr(as_type, "_fields"))
    )
