"""What is made for an annotation serves that annotation alone, and nothing that a function made is kept."""

from __future__ import annotations

import gc
import typing
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from simpleworkflow.model import payload
from simpleworkflow.model.type_cache import kept_by_type, key_of

MANY = 300
A_HANDFUL = 5


def test_annotations_with_validators_are_not_kept() -> None:
    """Two of them may compare equal and do different things."""
    assert key_of(Annotated[str, pydantic.AfterValidator(str.upper)]) is None
    assert key_of(list[Annotated[str, pydantic.AfterValidator(str.upper)]]) is None
    assert payload.decode('"x"', Annotated[str, pydantic.AfterValidator(str.upper)]) == "X"


class First(pydantic.BaseModel):
    a: int = 0


class Second(pydantic.BaseModel):
    a: int = 0


def test_unions_are_read_in_their_own_order() -> None:
    one, other = First | Second, Second | First
    assert one == other
    assert type(payload.decode('{"a": 1}', one)) is First
    assert type(payload.decode('{"a": 1}', other)) is Second


def test_literals_of_other_types_are_told_apart() -> None:
    assert payload.decode("1", Literal[1]) == 1
    assert key_of(Literal[1]) != key_of(Literal[True])


@pytest.mark.parametrize("any_first", [True, False])
@pytest.mark.parametrize("around", [lambda kind: kind, lambda kind: list[kind]], ids=["bare", "inside"])  # type: ignore[valid-type]
def test_a_tuple_of_anything_and_an_empty_one_are_told_apart(around: Any, any_first: bool) -> None:
    anything, empty = around(typing.Tuple), around(tuple[()])  # noqa: UP006
    assert key_of(anything) != key_of(empty)
    look = kept_by_type(lambda as_type: msgspec.json.Decoder(as_type))
    full, none = ("[[1]]", "[[]]") if around(int) is not int else ("[1]", "[]")
    for kind in (anything, empty) if any_first else (empty, anything):
        look(kind).decode(none)
    look(anything).decode(full)
    with pytest.raises(msgspec.ValidationError):
        look(empty).decode(full)


def local_dataclass() -> Any:
    return dataclass(type("Local", (), {"__annotations__": {"a": int}}))


def local_struct() -> Any:
    return msgspec.defstruct("Local", [("a", int)])


def local_model() -> Any:
    return pydantic.create_model("Local", a=(int, ...))


def in_a_list() -> Any:
    kind = local_struct()
    return list[kind]


MAKERS: dict[str, Callable[[], Any]] = {
    "dataclass": local_dataclass,
    "struct": local_struct,
    "model": local_model,
    "list": in_a_list,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_no_type_that_a_function_has_made_is_kept(make: Callable[[], Any]) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    for _ in range(MANY):
        kind = make()
        alive.add(getattr(kind, "__args__", (kind,))[0])
        text = "[]" if make is in_a_list else '{"a": 1}'
        value = payload.decode(text, kind)
        payload.keeper(kind).write(value, limit=1000, what="value")
    del kind, value
    gc.collect()
    assert len(alive) <= A_HANDFUL


def test_what_is_made_for_a_type_of_a_module_is_made_once() -> None:
    made: list[Any] = []

    @kept_by_type
    def make(as_type: Any, role: str) -> str:
        made.append(as_type)
        return f"{role} of {as_type}"

    for as_type in (First, list[First], First | None, First | Second, Second | First, Any, None):
        for _ in range(3):
            assert make(as_type, "reader") == f"reader of {as_type}"
    assert len(made) == 7
    assert make(First, "writer") == f"writer of {First}"
