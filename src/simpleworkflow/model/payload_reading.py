"""Reading JSON: into the annotated type where there is one, leniently where a foreign writer was at work.

See payload.py for the rules and the reasons; this is how they are kept.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol, get_args

import msgspec

from .errors import InvalidInput, PayloadError
from .misfit import in_python
from .payload_writing import is_pydantic, type_name

_PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class _Decoder(Protocol):
    def decode(self, text: str | bytes, /) -> Any: ...


def decode(text: str | bytes, as_type: Any = Any, *, what: str = "payload") -> Any:
    """The value of JSON `text` as `as_type`; without a type (Any, None, no annotation) plain dicts, lists, scalars.

    Text that is no JSON raises PayloadError; JSON that does not fit the type raises InvalidInput.
    """
    try:
        return _decoder(as_type).decode(text)
    except Exception as error:
        raise _explained(error, text, as_type, what) from error


def reader(as_type: Any, *, what: str = "payload") -> Callable[[str | bytes], Any]:
    """`decode` for whoever reads the same type over and over: its decoder is looked up once."""
    try:
        read = _decoder(as_type).decode
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


def _decoder(as_type: Any) -> _Decoder:
    if as_type is Any or as_type is None or as_type is inspect.Parameter.empty or as_type is object:
        return _PLAIN
    try:
        hash(as_type)
    except TypeError:  # Annotated with an unhashable extra
        return _build(as_type)
    return _cached(as_type)


def _build(as_type: Any) -> _Decoder:
    try:
        return msgspec.json.Decoder(as_type, dec_hook=_from_builtins)
    except Exception as error:
        if _mentions_model(as_type):
            return _Adapter(as_type)
        raise _Unreadable(str(error)) from error


@lru_cache(maxsize=1024)
def _cached(as_type: Any) -> _Decoder:
    return _build(as_type)


class _Adapter:
    """Unions of pydantic models, which msgspec does not support; pydantic is loaded, or there would be no model."""

    def __init__(self, as_type: Any) -> None:
        self.adapter = sys.modules["pydantic"].TypeAdapter(as_type)

    def decode(self, text: str | bytes, /) -> Any:
        # Through msgspec first: pydantic's own parser lets NaN and Infinity pass.
        return _validated(self.adapter.validate_json, _PLAIN.decode(text))


def _mentions_model(as_type: Any) -> bool:
    return is_pydantic(as_type) or any(_mentions_model(inner) for inner in get_args(as_type))


def _from_builtins(kind: Any, value: Any) -> Any:
    """msgspec's hook for types that it does not know itself."""
    if kind is object:
        return value
    if is_pydantic(kind):
        return _validated(kind.model_validate_json, value)
    for base, fitting in ((str, (str,)), (int, (int,)), (float, (float, int))):
        if isinstance(kind, type) and issubclass(kind, base):
            if type(value) not in fitting:
                raise ValueError(f"expected {base.__name__}, got {type(value).__name__}")
            return kind(value)
    name = type_name(kind) if isinstance(kind, type) else repr(kind)
    raise _Unreadable(f"no JSON can be read into {name}")


def _validated(validate: Callable[[bytes], Any], value: Any) -> Any:
    """pydantic's verdict on a builtin value. In JSON mode: strict models then accept dates as JSON has them."""
    try:
        return validate(msgspec.json.encode(value))
    except Exception as error:
        raise ValueError(_pydantic_story(error)) from error


def _pydantic_story(error: Any) -> str:
    """pydantic's findings on one line; its own text takes three lines and a link for each."""
    if not hasattr(error, "errors"):
        return str(error)
    findings = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, finding['loc'])) or 'value'}: {finding['msg']}" for finding in findings)


def _explained(error: Exception, text: str | bytes, as_type: Any, what: str) -> Exception:
    """Whose fault: the text's (PayloadError), the annotation's (PayloadError) or the meeting of both (InvalidInput)."""
    try:
        _PLAIN.decode(text)
    except Exception as broken:
        return PayloadError(f"{what} is not readable JSON: {broken}")
    name = type_name(as_type) if isinstance(as_type, type) else str(as_type)
    if isinstance(error, _Unreadable):
        return PayloadError(f"{what} cannot be read as {name}: {error}; change the annotation")
    story = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return InvalidInput(f"{what} does not fit {name}: {in_python(story)}")
