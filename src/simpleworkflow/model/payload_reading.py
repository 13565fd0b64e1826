"""Reading JSON: into the annotated type where there is one, leniently where a foreign writer was at work.

See payload.py for the rules and the reasons; this is how they are kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from .errors import InvalidInput, PayloadError
from .misfit import in_python
from .payload_models import Adapter, is_pydantic, mentions_binary, mentions_model, needs_adapter, validated
from .payload_refusals import by_name, type_name
from .type_cache import kept_by_type

_PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class _Decoder(Protocol):
    def decode(self, text: str | bytes, /) -> Any: ...


def decode(text: str | bytes, as_type: Any = Any, *, what: str = "payload") -> Any:
    """The value of JSON `text` as `as_type`; without a type (Any, None, no annotation) plain dicts, lists, scalars.

    Text that is no JSON raises PayloadError; JSON that does not fit the type raises InvalidInput.
    """
    try:
        return decoder_of(as_type).decode(text)
    except Exception as error:
        raise _explained(error, text, as_type, what) from error


def reader(as_type: Any, *, what: str = "payload") -> Callable[[str | bytes], Any]:
    """`decode` for callers that read the same type over and over: its decoder is looked up once."""
    try:
        read = decoder_of(as_type).decode
    except Exception:
        return partial(decode, as_type=as_type, what=what)  # which says what is wrong with the type, to each who asks

    def decode_one(text: str | bytes) -> Any:
        try:
            return read(text)
        except Exception as error:
            raise _explained(error, text, as_type, what) from error

    return decode_one


def same_json(a: str, b: str) -> bool:
    """Whether two JSON texts mean the same: key order and spelling of numbers are ignored, `true` is not `1`."""
    if a == b:
        return True
    pairs = [(decode(a), decode(b))]
    while pairs:  # a loop, not recursion: foreign text may be deeper than MAX_DEPTH
        left, right = pairs.pop()
        inner = _inner_pairs(left, right)
        if inner is None:
            return False
        pairs.extend(inner)
    return True


def _inner_pairs(left: Any, right: Any) -> list[tuple[Any, Any]] | None:
    """The pairs that must be the same for these two to be the same; None when they already differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [(left[key], right[key]) for key in left] if left.keys() == right.keys() else None
    if isinstance(left, list) and isinstance(right, list):
        return list(zip(left, right, strict=True)) if len(left) == len(right) else None
    if isinstance(left, dict | list) or isinstance(right, dict | list):
        return None
    alike = left == right and isinstance(left, bool) == isinstance(right, bool)
    return [] if alike else None


class _Unreadable(Exception):
    """An annotation into which no JSON can be read."""

    def __init__(self, reason: str, remedy: str = "change the annotation") -> None:
        super().__init__(reason)
        self.remedy = remedy


class Unresolved:
    """An annotation that names what cannot be found at run time: it is read as if there were none."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def is_untyped(as_type: Any) -> bool:
    """Whether values of this annotation are read as plain dicts, lists, scalars."""
    return (
        as_type is Any
        or as_type is None
        or as_type is inspect.Parameter.empty
        or as_type is object
        or isinstance(as_type, Unresolved)
    )


def decoder_of(as_type: Any) -> _Decoder:
    if is_untyped(as_type):
        return _PLAIN
    return _build(as_type)


@kept_by_type
def _build(as_type: Any) -> _Decoder:
    if needs_adapter(as_type):
        return _adapter(as_type)
    try:
        return msgspec.json.Decoder(as_type, dec_hook=_from_builtins)
    except Exception as error:
        if mentions_model(as_type):
            return _adapter(as_type)
        if str(error).startswith("Enums "):
            raise _Unreadable(str(error), by_name("that Enum")) from error
        raise _Unreadable(str(error)) from error


def is_readable(as_type: Any) -> bool:
    """Whether there is any JSON that could be read into it."""
    try:
        decoder_of(as_type)
    except Exception:
        return False
    return True


def _adapter(as_type: Any) -> _Decoder:
    """pydantic reads it as a whole; it is loaded, or there would be nothing that calls for it."""
    if mentions_binary(as_type):
        raise _Unreadable("bytes cannot be read next to pydantic's types; put them into a pydantic model")
    try:
        return Adapter(as_type)
    except Exception as error:
        told = str(error).partition("\n")[0]
        raise _Unreadable(f"pydantic would have to read it, and cannot: {told}") from error


def _from_builtins(kind: Any, value: Any) -> Any:
    """msgspec's hook for types that it does not know itself."""
    if kind is object:
        return value
    if is_pydantic(kind):
        return validated(kind, value)
    for base, fitting in ((str, (str,)), (int, (int,)), (float, (float, int))):
        if isinstance(kind, type) and issubclass(kind, base):
            if type(value) not in fitting:
                raise ValueError(f"expected {base.__name__}, got {type(value).__name__}")
            return kind(value)
    name = type_name(kind) if isinstance(kind, type) else repr(kind)
    raise _Unreadable(f"no JSON can be read into {name}")


def _explained(error: Exception, text: str | bytes, as_type: Any, what: str) -> Exception:
    """Whose fault: the text's (PayloadError), the annotation's (PayloadError) or the meeting of both (InvalidInput)."""
    try:
        _PLAIN.decode(text)
    except Exception as broken:
        return PayloadError(f"{what} is not readable JSON: {broken}")
    name = type_name(as_type) if isinstance(as_type, type) else str(as_type)
    if isinstance(error, _Unreadable):
        return PayloadError(f"{what} cannot be read as {name}: {error}; {error.remedy}")
    details = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return InvalidInput(f"{what} does not fit {name}: {in_python(details)}")
