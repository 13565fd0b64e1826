"""What is given comes back in its own type, or is refused with the annotation to write."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import enum
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest

from simpleworkflow.model import payload
from simpleworkflow.model.errors import PayloadError

KEY = uuid.UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


class Price(enum.Enum):
    LOW = Decimal("1.10")
    HIGH = Decimal("9.90")


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Pair(enum.Enum):
    ONE = (1, 2)


class Word(enum.StrEnum):
    YES = "yes"


class Name(str):
    pass


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal = Decimal(1)


@dataclasses.dataclass
class Thick(Line):
    depth: int = 3


@dataclasses.dataclass
class Node:
    free: Any = None
    next: Node | None = None


@dataclasses.dataclass
class Box(Generic[T]):
    inside: T


class Item(msgspec.Struct):
    price: Decimal


class Point(NamedTuple):
    x: int
    free: Any = None


class Movie(TypedDict):
    price: Decimal
    free: Any


def write(as_type: Any, value: Any) -> str:
    return payload.keeper(as_type).write(value, limit=100_000, what="output of step pay")


def refusal(as_type: Any, value: Any) -> str:
    with pytest.raises(PayloadError) as caught:
        write(as_type, value)
    return str(caught.value)


PLAIN = [None, True, 0, 1.5, "žluť", [], {}, [1, [None, "a"]], {"a": [{"b": 1.5}], "ž": False}]


@pytest.mark.parametrize("as_type", [Any, None, object])
@pytest.mark.parametrize("value", PLAIN, ids=ascii)
def test_plain_json_needs_no_annotation(as_type: Any, value: Any) -> None:
    assert payload.decode(write(as_type, value)) == value


@pytest.mark.parametrize(
    ("value", "back", "annotation"),
    [
        (Decimal("1.10"), "str", "Decimal"),
        (NOON, "str", "datetime"),
        (date(2026, 1, 2), "str", "date"),
        (time(1), "str", "time"),
        (timedelta(1), "str", "timedelta"),
        (KEY, "str", "UUID"),
        (b"x", "str", "bytes"),
        (bytearray(b"x"), "str", "bytearray"),
        ((1, "a"), "list", "tuple[int, str]"),
        ({1}, "list", "set[int]"),
        (frozenset({"a"}), "list", "frozenset[str]"),
        (Colour.RED, "str", "Colour"),
        (Word.YES, "str", "Word"),
        (Name("n"), "str", "Name"),
        (Line("x"), "dict", "Line"),
        (Item(Decimal(1)), "dict", "Item"),
        (Point(1), "list", "Point"),
        ({1: "a"}, "str", "dict[int, str]"),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_type", [Any, object, None])
def test_without_an_annotation_what_would_come_back_as_another_type_is_refused(
    value: Any, back: str, annotation: str, as_type: Any
) -> None:
    message = refusal(as_type, value)
    assert message.startswith("output of step pay would not come back as it is: at $: ")
    assert f"would come back as {back}, since no annotation names its type" in message
    assert f"annotate `-> {annotation}`" in message
    assert (
        type(payload.decode(write(type(value), value), type(value))) is type(value)
        if not isinstance(value, dict)
        else write(dict[int, str], value)
    )


@pytest.mark.parametrize(
    ("as_type", "value", "path", "annotation"),
    [
        (Any, [1, Decimal(1)], "$[1]", "…"),
        (Any, [Decimal(1)], "$[0]", "list[Decimal]"),
        (Any, {"a": {"b": [NOON]}}, "$.a.b[0]", "dict[str, dict[str, list[datetime]]]"),
        (Any, {"a": Decimal(1)}, "$.a", "dict[str, Decimal]"),
        (dict, {"a": Decimal(1)}, "$.a", "dict[str, Decimal]"),
        (dict, {1: 1}, "$", "dict[int, int]"),
        (list, [(1, 2)], "$[0]", "list[tuple[int, int]]"),
        (list[Any], [KEY], "$[0]", "list[UUID]"),
        (dict[str, Any], {"a": {"b": KEY}}, "$.a.b", "dict[str, dict[str, UUID]]"),
        (Sequence[Any], (KEY,), "$[0]", "tuple[UUID]"),
        (tuple[int, Any], (1, KEY), "$[1]", "tuple[int, UUID]"),
        (set, {KEY}, "$[*]", "set[UUID]"),
        (Any | None, KEY, "$", "UUID"),
    ],
    ids=str,
)
def test_a_part_that_no_annotation_names_is_refused_with_its_path(
    as_type: Any, value: Any, path: str, annotation: str
) -> None:
    message = refusal(as_type, value)
    assert f"at {path}: " in message
    assert f"annotate `-> {annotation}`" in message


@pytest.mark.parametrize(
    ("as_type", "value", "path", "field"),
    [
        (Node, Node(free=KEY), "$.free", "Node.free"),
        (Node, Node(next=Node(free=[KEY])), "$.next.free[0]", "Node.free"),
        (list[Node] | None, [Node(free=KEY)], "$[0].free", "Node.free"),
        (Box[Any], Box(KEY), "$.inside", "Box.inside"),
        (Box, Box(KEY), "$.inside", "Box.inside"),
        (Point, Point(1, KEY), "$.free", "Point.free"),
        (Movie, Movie(price=Decimal(1), free=KEY), "$.free", "Movie.free"),
    ],
    ids=str,
)
def test_a_field_that_no_annotation_names_is_refused_by_the_name_of_the_field(
    as_type: Any, value: Any, path: str, field: str
) -> None:
    message = refusal(as_type, value)
    assert f"at {path}: a uuid.UUID would come back as str" in message
    assert f"let the annotation of {__name__}.{field} name it" in message


@pytest.mark.parametrize(
    ("as_type", "value"),
    [
        (Decimal, "1.10"),
        (Sequence[str], ("a", "b")),
        (Mapping[str, int], collections.OrderedDict(a=1)),
        (dict, collections.OrderedDict(a=1)),
        (str, Word.YES),
        (str, Name("n")),
        (float, 1),
        (list[str], {"a"}),
        (Line, {"sku": "x", "price": "1"}),
        (Line | None, Line("x")),
        (Box[Decimal], Box(Decimal(1))),
        (dict[int, Line], {1: Line("x")}),
        (Movie, Movie(price=Decimal(1), free=[1])),
        (Node, Node([1], Node({"a": None}))),
        (Line | int, 3),
    ],
    ids=str,
)
def test_an_annotation_says_what_comes_back_whatever_was_given(as_type: Any, value: Any) -> None:
    payload.decode(write(as_type, value), as_type)


@pytest.mark.parametrize("as_type", [Line, list[Line], dict[str, Line], Line | None, Box[Line]], ids=str)
def test_a_subclass_that_would_come_back_as_its_base_class_is_refused(as_type: Any) -> None:
    thick = Thick("x")
    value = {list[Line]: [thick], dict[str, Line]: {"k": thick}, Box[Line]: Box(thick)}.get(as_type, thick)
    message = refusal(as_type, value)
    assert "Thick would come back as its base class" in message
    assert "or a union that has it" in message


def test_an_annotation_that_cannot_be_resolved_is_named_in_the_refusal() -> None:
    message = refusal(payload.Unresolved("name 'Order' is not defined"), KEY)
    assert "its annotation cannot be resolved (name 'Order' is not defined)" in message
    assert write(payload.Unresolved("…"), [1]) == "[1]"


def test_poison_is_refused_as_such_also_without_an_annotation() -> None:
    assert "no JSON form" in refusal(Any, [object()])
    assert "NaN" in refusal(Any, {"a": float("nan")})
    assert "key of type tuple" in refusal(Any, {(1,): 1})


def test_plain_json_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = payload.keeper(dict[str, Any])

    def not_again(value: object) -> None:
        raise AssertionError("a second look at plain JSON")

    monkeypatch.setattr(keeper, "look", not_again)
    assert keeper.write({"a": [1, "x", None]}, limit=100, what="output") == '{"a":[1,"x",null]}'


class Loose(TypedDict, total=False):
    price: int


class Renamed(msgspec.Struct, rename="camel", tag="renamed"):
    unit_price: Decimal


class Other(msgspec.Struct, tag="other"):
    price: int = 0


@dataclasses.dataclass
class Wide:
    sku: str
    price: Decimal
    discount: Decimal


@pytest.mark.parametrize(
    ("as_type", "value", "path"),
    [
        (Movie, {"price": Decimal(1), "free": 1, "extra": Decimal(2)}, "$.extra"),
        (Loose, {"typo": 3}, "$.typo"),
        (Line, {"sku": "x", "price": Decimal(1), "discount": Decimal(2)}, "$.discount"),
        (Line, {"sku": "x", "price": "1", "discount": "2"}, "$.discount"),
        (Line | None, {"sku": "x", "discount": 2}, "$.discount"),
        (list[Line], [{"sku": "x"}, {"sku": "x", "discount": 2}], "$[1].discount"),
        (dict[str, Loose], {"a": {"typo": 3}}, "$.a.typo"),
        (tuple[int, Loose], [1, {"typo": 3}], "$[1].typo"),
        (Box[Line], {"inside": {"sku": "x", "discount": 2}}, "$.inside.discount"),
        (Node, {"next": {"next": {"nxt": None}}}, "$.next.next.nxt"),
        (Renamed, {"unitPrice": "1", "unit_price": "1"}, "$.unit_price"),
        (Renamed | Other, {"type": "other", "unitPrice": 1}, "$.unitPrice"),
        (Line, Wide("x", Decimal(1), Decimal(2)), "$.discount"),
        (Line | None, Wide("x", Decimal(1), Decimal(2)), "$.discount"),
    ],
    ids=str,
)
def test_a_key_that_the_annotation_does_not_name_is_refused_and_not_dropped(
    as_type: Any, value: Any, path: str
) -> None:
    message = refusal(as_type, value)
    assert f"at {path}: " in message
    assert "would be dropped" in message


@pytest.mark.parametrize(
    ("as_type", "value"),
    [
        (Loose, {}),
        (Renamed, {"unitPrice": "1"}),
        (Renamed | Other, {"type": "renamed", "unitPrice": "1"}),
        (Renamed | None, {"type": "renamed", "unitPrice": "1"}),
        (Line | None, {"sku": "x"}),
        (dict[str, Decimal], {"any": Decimal(1)}),
    ],
    ids=str,
)
def test_a_key_that_the_annotation_names_is_kept(as_type: Any, value: Any) -> None:
    payload.decode(write(as_type, value), as_type)


def test_what_another_program_stored_may_have_more_keys_than_the_annotation_names() -> None:
    assert payload.decode('{"sku":"x","more":1}', Line) == Line("x")


@pytest.mark.parametrize("as_type", [dict, dict[str, Any], dict[Any, int], dict[str, Any] | None], ids=str)
@pytest.mark.parametrize("value", [Line("x"), Item(Decimal(1))], ids=repr)
def test_an_object_where_the_annotation_names_a_dict_of_anything_is_refused_with_the_line_to_write(
    as_type: Any, value: Any
) -> None:
    message = refusal(as_type, value)
    kind = type(value).__name__
    assert f"{kind} would come back as dict, since no annotation names its type; annotate `-> {kind}`" in message


@pytest.mark.parametrize("as_type", [str, list[int], dict[str, int], dict[str, list[Decimal]], Decimal | int], ids=str)
def test_plain_json_is_looked_at_once_where_the_annotation_names_no_keys(
    as_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = payload.keeper(as_type)

    def not_again(value: object) -> None:
        raise AssertionError("a second look at plain JSON")

    monkeypatch.setattr(keeper, "look", not_again)
    assert keeper.write(["x"], limit=100, what="output") == '["x"]'


@dataclasses.dataclass
class Priced:
    price: Price


@pytest.mark.parametrize("member", [Price.LOW, Mixed.ONE, Mixed.TWO, Pair.ONE], ids=str)
@pytest.mark.parametrize("around", [lambda one: one, lambda one: [one], lambda one: {"a": one}, Node])
def test_the_remedy_for_an_enum_that_cannot_be_read_is_one_that_works(member: enum.Enum, around: Any) -> None:
    kind = type(member)
    message = refusal(Node if around is Node else Any, around(member))
    assert "since its values are neither all text nor all whole numbers; store the name of the member" in message
    assert f"annotated `str`, and look it up where it is read (`{kind.__name__}[name]`)" in message
    assert kind[payload.decode(write(str, member.name), str)] is member


@pytest.mark.parametrize("as_type", [Price, list[Price], Priced, Mixed | None, dict[str, Pair]], ids=str)
def test_an_annotation_with_an_enum_that_cannot_be_read_is_told_with_a_remedy_that_works(as_type: Any) -> None:
    with pytest.raises(PayloadError, match=r"cannot be read as .* all str or all int .*; store the name of the member"):
        payload.decode('"x"', as_type)


class Ids(list[int]):
    pass


class Tags(set[str]):
    pass


DERIVED: list[tuple[Any, Any, str, str]] = [
    (collections.Counter("aab"), dict[str, int], "dict", "convert it (`dict(…)`)"),
    (collections.defaultdict(int, a=1), dict[str, int] | None, "dict", "convert it (`dict(…)`)"),
    (collections.Counter("a"), collections.abc.Mapping[str, int], "dict", "convert it (`dict(…)`)"),
    (Point(1, 2), tuple[int, int], "tuple", "annotate test_payload_keeping.Point, or convert it (`tuple(…)`)"),
    (Point(1, 2), tuple[int, ...], "tuple", "annotate test_payload_keeping.Point, or convert it (`tuple(…)`)"),
    (Point(1, 2), list[int], "list", "annotate test_payload_keeping.Point, or convert it (`tuple(…)`)"),
    (Ids([1]), list[int], "list", "convert it (`list(…)`)"),
    (Tags("a"), set[str], "set", "convert it (`set(…)`)"),
]


@dataclasses.dataclass
class Around(Generic[T]):
    inside: T


@pytest.mark.parametrize(("value", "as_type", "back", "remedy"), DERIVED, ids=str)
def test_a_subclass_of_a_container_does_not_stand_for_it(value: Any, as_type: Any, back: str, remedy: str) -> None:
    for kind, one, path in (
        (as_type, value, "$"),
        (list[as_type], [value], "$[0]"),
        (dict[str, as_type], {"a": value}, "$.a"),
        (tuple[int, as_type], (1, value), "$[1]"),
        (Around[as_type], Around(value), "$.inside"),
    ):
        message = refusal(kind, one)
        assert f"at {path}: a " in message
        assert f"would come back as {back}, which the annotation names; {remedy}" in message


@pytest.mark.parametrize(("value", "as_type", "back", "remedy"), DERIVED, ids=str)
def test_the_remedy_for_a_subclass_of_a_container_is_one_that_works(
    value: Any, as_type: Any, back: str, remedy: str
) -> None:
    base = next(base for base in (dict, list, tuple, set) if isinstance(value, base))
    write(as_type, base(value))
    message = refusal(Any, value)
    if isinstance(value, Point):
        assert "annotate `-> Point`" in message
        assert payload.decode(write(Point, value), Point) == value
    else:
        assert "since JSON has no type for it; convert it" in message
        assert payload.decode(write(as_type, base(value)), as_type) == base(value)


@pytest.mark.parametrize(
    ("value", "as_type"),
    [
        (Word.YES, str),
        ((1, 2), Sequence[int]),
        ((1,), list[int]),
        (collections.OrderedDict(a=1), dict[str, int]),
        ([1], set[int]),
        ({1}, list[int]),
        (Name("n"), str),
    ],
    ids=str,
)
def test_another_builtin_and_text_of_a_subclass_may_stand_where_they_can_be_read(value: Any, as_type: Any) -> None:
    payload.decode(write(as_type, value), as_type)
