"""The law of payloads: what is accepted comes back the same; what would not is refused, with the path to it."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import inspect
import json
import math
import subprocess
import sys
import typing
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleworkflow.model.errors import InvalidInput, PayloadError
from simpleworkflow.model.payload import MAX_BYTES, MAX_DEPTH, decode, encode, same_json

NAN, INF = math.nan, math.inf
KEY = uuid.UUID("12345678-1234-5678-1234-567812345678")


@dataclass
class Line:
    sku: str
    price: Any = 1
    tags: Any = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    later: Any = field(init=False, repr=False)


class Item(msgspec.Struct):
    a: Any
    b: Any = None


class Tagged(msgspec.Struct, rename="camel", tag="kind", omit_defaults=True):
    first_name: Any
    many: Any = msgspec.field(default_factory=set)
    odd: Any = NAN


class Positional(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    a: Any = NAN


class Model(pydantic.BaseModel):
    a: int
    when: datetime | None = None
    free: Any = None


class Other(pydantic.BaseModel):
    name: str


class StrictModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: date
    pair: tuple[int, int]


class Holder(msgspec.Struct):
    model: Model
    models: list[Model] = []


class Colour(enum.Enum):
    RED = "red"
    TWO = 2
    PAIR = (1, 2)
    BAD = NAN
    ODD = object()


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    pass


class Count(int):
    pass


class Ratio(float):
    pass


class Point(NamedTuple):
    x: Any
    y: Any = 0


class Movie(TypedDict):
    title: str
    year: int


def kind(value: object) -> str:
    """A test id that is the same in every process, unlike the repr of a set or an object."""
    return ascii(value)[:20] if type(value) is str else type(value).__name__


def refusal(value: object, **options: Any) -> str:
    with pytest.raises(PayloadError) as caught:
        encode(value, **options)
    message = str(caught.value)
    message.encode()  # every message can be written to a log
    return message


# What is accepted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-(2**63), "-9223372036854775808"),
        (2**63 - 1, "9223372036854775807"),
        (1.5, "1.5"),
        (-0.0, "-0.0"),
        ("", '""'),
        ("žluť 🚀\n", '"žluť 🚀\\n"'),
        ([], "[]"),
        ({}, "{}"),
        ((1, "a"), '[1,"a"]'),
        ({"b": 1, "a": [{}]}, '{"b":1,"a":[{}]}'),
        ({"": 1}, '{"":1}'),
        ({"ž": 1}, '{"ž":1}'),
        (Line("x", 2), '{"sku":"x","price":2,"tags":[]}'),
        (Frozen(1), '{"a":1}'),
        (Item(1), '{"a":1,"b":null}'),
        (Item(msgspec.UNSET, 2), '{"b":2}'),
        (Line(msgspec.UNSET), '{"price":1,"tags":[]}'),
        (Tagged("x"), '{"type":"kind","firstName":"x"}'),
        (Tagged("x", {"b", "a"}), '{"type":"kind","firstName":"x","many":["a","b"]}'),
        (Tagged("x", [], 1), '{"type":"kind","firstName":"x","many":[],"odd":1}'),
        (Positional(3), "[3]"),
        (Colour.RED, '"red"'),
        (Colour.TWO, "2"),
        (Colour.PAIR, "[1,2]"),
        (Level.HIGH, "3"),
        (datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), '"2026-01-02T03:04:05Z"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (time(1, 2), '"01:02:00"'),
        (timedelta(hours=36), '"P1DT43200S"'),
        (KEY, f'"{KEY}"'),
        (Decimal("1.10"), '"1.10"'),
        (Decimal("1E+5"), '"1E+5"'),
        (b"x", '"eA=="'),
        (bytearray(b"x"), '"eA=="'),
        (memoryview(b"x"), '"eA=="'),
        (set(), "[]"),
        ({10, 9, 1}, "[1,9,10]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ({1, "a", None}, '"a",1,null'.join("[]")),
        (Point(1), "[1,0]"),
        (Movie(title="M", year=1), '{"title":"M","year":1}'),
        (collections.OrderedDict(a=1), '{"a":1}'),
        (collections.defaultdict(int, a=1), '{"a":1}'),
        (Name("n"), '"n"'),
        (Count(4), "4"),
        (Ratio(0.5), "0.5"),
        (Model(a=1), '{"a":1,"when":null,"free":null}'),
        (pydantic.RootModel[list[int]]([1]), "[1]"),
    ],
    ids=kind,
)
def test_accepted_values_become_this_text(value: object, text: str) -> None:
    assert encode(value) == text


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (1, "1"),
        (-(2**63), "-9223372036854775808"),
        (1.5, "1.5"),
        (Name("n"), "n"),
        (Colour.RED, "red"),
        (Colour.TWO, "2"),
        (Level.HIGH, "3"),
        (KEY, str(KEY)),
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.0"), "1.0"),
        (b"x", "eA=="),
    ],
    ids=kind,
)
def test_keys_that_have_one_obvious_text_are_written_as_that_text(key: object, text: str) -> None:
    assert decode(encode({key: 1, "plain": 2})) == {text: 1, "plain": 2}


@pytest.mark.parametrize(
    "inner", [Line("x"), Item(1), Model(a=1), Point(1), {1, 2}, Decimal("2"), Name("n"), Colour.RED, KEY], ids=kind
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda v: [v],
        lambda v: (0, v),
        lambda v: {"k": v},
        lambda v: Line("s", v),
        lambda v: Item(v),
        lambda v: Item({"deep": [v]}),
        lambda v: Tagged(v),
        lambda v: Positional(v),
        lambda v: Point(v),
        lambda v: {1: v},
    ],
)
def test_every_kind_of_value_may_stand_inside_every_kind_of_container(inner: Any, wrap: Any) -> None:
    assert encode(inner) in encode(wrap(inner))


def test_encoding_leaves_the_value_as_it_was() -> None:
    value = {"item": Item({2, 1}, [Name("a"), Model(a=1)]), 3: (Decimal("1"), {"x": Colour.RED})}
    before = copy.deepcopy(value)
    encode(value)
    assert value == before
    assert type(value["item"].a) is set  # type: ignore[union-attr]


def test_key_order_is_kept() -> None:
    assert encode({"z": 1, "a": {"y": Decimal("1"), "b": 1}}) == '{"z":1,"a":{"y":"1","b":1}}'


def test_the_same_set_is_the_same_text_in_every_process() -> None:
    program = (
        "from simpleworkflow.model.payload import encode;"
        "print(encode({'tags': {'alpha', 'beta', 'gamma', 'delta', 1, None, (1, 'x'), frozenset({'q', 'w', 'e'})}}))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(1, 4)
    }
    assert len(texts) == 1


def test_attrs_classes_are_recognised_by_their_field_list() -> None:
    class Attribute(NamedTuple):
        name: str

    class Attrs:
        __attrs_attrs__ = (Attribute("a"), Attribute("unset"))
        a = 1

    assert encode([Attrs()]) == '[{"a":1}]'


def test_overridden_iteration_cannot_hide_poison_from_the_check() -> None:
    class Sly(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([1])

    class SlyDict(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            return {"a": 1}.items()

    assert "at $.k[0]:" in refusal({"k": Sly([NAN])})
    assert "at $.k.b:" in refusal({"k": SlyDict(b=NAN)})


# What is refused, and where


@pytest.mark.parametrize(
    ("poison", "word"),
    [
        (NAN, "NaN"),
        (INF, "Infinity"),
        (-INF, "-Infinity"),
        (Ratio(NAN), "NaN"),
        (Decimal("NaN"), "NaN"),
        (Decimal("sNaN"), "NaN"),
        (Decimal("-Infinity"), "Infinity"),
        ("a\0b", "NUL"),
        (Name("\0"), "NUL"),
        ("\ud800", "surrogate"),
        ("ok \udfff 🚀", "surrogate"),
        ("\ud83d\ude80", "surrogate"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (10**5000, "64 bits"),
        (Count(2**64), "64 bits"),
        (object(), "type object"),
        (1 + 2j, "type complex"),
        (int, "type type"),
        (Line, "type type"),
        (len, "builtin_function_or_method"),
        (ValueError("x"), "type ValueError"),
        (iter([]), "list_iterator"),
        (range(3), "type range"),
        (collections.deque([1]), "collections.deque"),
        (msgspec.Raw(b"NaN"), "msgspec.Raw"),
        (msgspec.UNSET, "UnsetType"),
        (Colour.BAD, "NaN"),
        (Colour.ODD, "type object"),
        ({"x\0": 1}, "NUL"),
        ({"\ud800": 1}, "surrogate"),
        ({Name("\0"): 1}, "NUL"),
        ({(1, 2): 1}, "key of type tuple"),
        ({None: 1}, "key of type NoneType"),
        ({True: 1}, "key of type bool"),
        ({Count(1): 1}, "key of type"),
        ({frozenset({1}): 1}, "key of type frozenset"),
        ({Colour.PAIR: 1}, "key of type tuple"),
        ({2**63: 1}, "64 bits"),
        ({NAN: 1}, "NaN"),
        ({Decimal("NaN"): 1}, "NaN"),
        ({1: "a", "1": "b"}, 'same JSON key "1"'),
        ({KEY: "a", str(KEY): "b"}, "same JSON key"),
        ({Colour.RED: "a", "red": "b"}, "same JSON key"),
    ],
    ids=kind,
)
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda v: v, "$"),
        (lambda v: {"orders": [1, 2, 3, {"price": v}]}, "$.orders[3].price"),
        (lambda v: {"two words": (v,)}, '$["two words"][0]'),
        (lambda v: {7: v}, '$["7"]'),
        (lambda v: {"": v}, '$[""]'),
        (lambda v: {"ž": v}, "$.ž"),
        (lambda v: [Line("x", tags=[v])], "$[0].tags[0]"),
        (lambda v: Frozen([v]), "$.a[0]"),
        (lambda v: Item(1, {"b": v}), "$.b.b"),
        (lambda v: Tagged([v]), "$.firstName[0]"),
        (lambda v: Positional([v]), "$.a[0]"),
        (lambda v: Point(1, (v,)), "$[1][0]"),
    ],
)
def test_poison_is_refused_with_the_path_to_it(poison: Any, word: str, wrap: Any, path: str) -> None:
    message = refusal(wrap(poison), what="input of billing.invoice")
    assert message.startswith("input of billing.invoice cannot be stored as JSON: at $")
    assert f"at {path}" in message
    assert word in message


def test_a_bad_key_is_named_as_part_of_the_path() -> None:
    assert 'at $.a["x\\u0000y"]:' in refusal({"a": {"x\0y": 1}})
    assert 'at $.a["\\ud800"]:' in refusal({"a": {"\ud800": 1}})
    assert 'at $.a["1"]:' in refusal({"a": {1: 1, "1": 2}})
    assert "at $.a:" in refusal({"a": {(1,): 1}})


def test_a_poisoned_set_member_has_no_index() -> None:
    assert "at $.tags[*]:" in refusal({"tags": {NAN}})
    assert "at $.tags[*][1]:" in refusal({"tags": frozenset({(1, NAN)})})


def test_a_struct_default_that_is_not_written_is_not_refused_but_one_that_is_written_is() -> None:
    assert "odd" not in encode(Tagged(1))
    assert "at $.odd:" in refusal(Tagged(1, odd=float("nan")))
    assert "at $.a:" in refusal(Positional())


@pytest.mark.parametrize("poison", [NAN, INF, -INF, Decimal("NaN"), Decimal("Infinity")], ids=str)
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda v: v, "$.m.free"),
        (lambda v: [0, v], "$.m.free[1]"),
        (lambda v: {"x": (v,)}, "$.m.free.x[0]"),
        (lambda v: {v}, "$.m.free"),
    ],
)
def test_pydantic_cannot_turn_nan_into_null_behind_our_back(poison: Any, wrap: Any, path: str) -> None:
    assert f"{path}:" in refusal({"m": Model(a=1, free=wrap(poison))})


@pytest.mark.parametrize("poison", ["\0", "\ud800", 2**64, {"\0": 1}], ids=ascii)
def test_poison_inside_a_pydantic_model_is_refused_with_its_path(poison: Any) -> None:
    assert "at $[0].free.k" in refusal([Model(a=1, free={"k": poison})])


def test_a_pydantic_model_that_cannot_be_dumped_is_refused() -> None:
    assert "pydantic cannot dump" in refusal({"m": Model(a=1, free=object())})
    assert "at $.m:" in refusal({"m": Model(a=1, free=object())})


def nested(depth: int, wrap: Any) -> Any:
    value: Any = wrap(None)
    for _ in range(depth - 1):
        value = wrap(value)
    return value


WRAPS: list[Any] = [
    lambda v: [v],
    lambda v: (v,),
    lambda v: {"k": v},
    lambda v: {1: v},
    lambda v: Frozen(v),
    lambda v: Item(v),
    lambda v: Positional(v),
    lambda v: frozenset({v}),
    lambda v: Point(v),
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_depth_64_is_accepted_and_65_refused(wrap: Any) -> None:
    assert decode(encode(nested(MAX_DEPTH, wrap))) is not None
    assert "more than 64 levels" in refusal(nested(MAX_DEPTH + 1, wrap))


@pytest.mark.parametrize("wrap", WRAPS)
def test_extreme_depth_is_a_payload_error_and_never_a_recursion_error(wrap: Any) -> None:
    assert "more than 64 levels" in refusal(nested(500, wrap))


def cycles() -> list[Any]:
    array: list[Any] = []
    array.append(array)
    mapping: dict[str, Any] = {}
    mapping["self"] = mapping
    line, item, model = Line("x"), Item(1), Model(a=1)
    line.price, item.b, model.free = line, item, model
    through: list[Any] = [Line("x", Item(1))]
    through[0].price.b = {"back": through}
    return [array, mapping, line, item, model, through, [Model(a=1, free=array)], (line,), {"i": item}]


@pytest.mark.parametrize("value", cycles(), ids=kind)
def test_a_value_that_contains_itself_is_refused(value: Any) -> None:
    refusal(value)


def test_a_model_that_dumps_itself_forever_is_refused() -> None:
    class Endless:
        __pydantic_serializer__ = None

        def model_dump(self, **options: Any) -> Any:
            return self

    assert "nested too deeply" in refusal(Endless())


def test_near_the_recursion_limit_the_caller_still_gets_a_payload_error() -> None:
    def dive(left: int) -> None:
        if left:
            dive(left - 1)
        else:
            refusal(nested(500, lambda v: [v]))

    dive(400)


@pytest.mark.parametrize("error", [KeyError("k"), RuntimeError("no"), AttributeError("gone"), RecursionError()])
def test_whatever_foreign_code_raises_becomes_a_payload_error(error: Exception) -> None:
    class Zone(tzinfo):
        def utcoffset(self, moment: datetime | None) -> timedelta:
            raise error

        def dst(self, moment: datetime | None) -> timedelta | None:
            return None

        def tzname(self, moment: datetime | None) -> str | None:
            return None

    refusal({"at": datetime(2026, 1, 1, tzinfo=Zone())})


# Size


def test_the_default_limit_is_one_mebibyte_and_exact() -> None:
    assert MAX_BYTES == 1_048_576
    assert len(encode("x" * (MAX_BYTES - 2))) == MAX_BYTES
    message = refusal("x" * (MAX_BYTES - 1), what="result")
    assert message.startswith("result is too large: 1048577 bytes as JSON, the limit is 1048576 bytes")
    assert "reference" in message


def test_size_is_counted_in_bytes_of_utf8() -> None:
    assert encode("ž", limit=4) == '"ž"'
    assert "4 bytes" in refusal("ž", limit=3)


@pytest.mark.parametrize(
    "value",
    [
        {"ž": 1, "abc": 2, 3: 4, Decimal("1.5"): 5},
        Tagged("x"),
        Tagged("x", {"a", "bb"}),
        Model(a=1, free="1.23456789"),
        [Item("a" * 50), Line("b" * 50)],
        {1, "a", Decimal("3")},
        [b"abc", bytearray(b""), memoryview(b"123")],
        [[], {}, (), set(), None, "", 0],
    ],
    ids=kind,
)
def test_a_limit_of_exactly_the_size_is_enough_and_one_byte_less_is_not(value: Any) -> None:
    size = len(encode(value).encode())
    assert encode(value, limit=size) == encode(value)
    assert f"the limit is {size - 1} bytes" in refusal(value, limit=size - 1)


@pytest.mark.parametrize(
    ("seed", "double"),
    [
        ([], lambda v: [v, v]),
        ({}, lambda v: {"a": v, "b": v}),
        (Item(1), lambda v: Item(v, v)),
        (Line("x"), lambda v: Line("x", v, v)),
        ("x" * 1000, lambda v: [v] * 1000),
        (b"x" * 1000, lambda v: [v] * 1000),
        ({"k" * 1000: 1}, lambda v: [v] * 1000),
        (Decimal("1" * 1000), lambda v: [v] * 1000),
    ],
)
def test_values_that_share_each_other_cannot_make_the_walk_endless(seed: Any, double: Any) -> None:
    value = seed
    for _ in range(40):
        value = double(value)
    assert "too large: at least" in refusal(value)


# Reading


@pytest.mark.parametrize("as_type", [Any, None, inspect.Parameter.empty, inspect.Signature.empty, object])
def test_without_a_type_json_is_read_as_plain_builtins(as_type: Any) -> None:
    assert decode('{"a":[1,2.5,"x",true,null]}', as_type) == {"a": [1, 2.5, "x", True, None]}


@pytest.mark.parametrize(
    ("text", "as_type", "value"),
    [
        ("1", int, 1),
        ("1", float, 1.0),
        ("null", type(None), None),
        ("null", Optional[int], None),  # noqa: UP045
        ('{"sku":"x","price":2}', Line, Line("x", 2)),
        ('[{"a":1}]', list[Item], [Item(1)]),
        ('{"type":"kind","firstName":"x"}', Tagged, Tagged("x")),
        ("[3]", Positional, Positional(3)),
        ('{"title":"M","year":1}', Movie, {"title": "M", "year": 1}),
        ("[1,2]", Point, Point(1, 2)),
        ("[1,2]", tuple[int, ...], (1, 2)),
        ("[1,1]", set[int], {1}),
        ('"red"', Literal["red"], "red"),
        ("3", Level, Level.HIGH),
        ('"2026-01-02"', date, date(2026, 1, 2)),
        ('"P1D"', timedelta, timedelta(days=1)),
        (f'"{KEY}"', uuid.UUID, KEY),
        ('"1.10"', Decimal, Decimal("1.10")),
        ('"eA=="', bytes, b"x"),
        ('{"1":2}', dict[int, int], {1: 2}),
        ('"n"', NewType("Id", str), "n"),
        ('"n"', Name, Name("n")),
        ('["n"]', list[Name], [Name("n")]),
        ("4", Count, Count(4)),
        ("0.5", Ratio, Ratio(0.5)),
        ("1", Ratio, Ratio(1)),
        ("[1]", list[object], [1]),
        ('{"a":1}', Model, Model(a=1)),
        ('[{"a":1}]', list[Model], [Model(a=1)]),
        ('{"k":{"a":1}}', dict[str, Model], {"k": Model(a=1)}),
        ("null", Model | None, None),
        ('{"a":1}', Model | None, Model(a=1)),
        ('{"a":1}', Annotated[Model, "note"], Model(a=1)),
        ('{"model":{"a":1},"models":[{"a":2}]}', Holder, Holder(Model(a=1), [Model(a=2)])),
        ('{"name":"x"}', Model | Other, Other(name="x")),
        ("[1]", list[Model | int], [1]),
        ('{"day":"2026-01-02","pair":[1,2]}', StrictModel, StrictModel(day=date(2026, 1, 2), pair=(1, 2))),
        ("[1]", Annotated[list[int], {"unhashable": True}], [1]),
    ],
    ids=str,
)
def test_json_is_read_into_the_annotated_type(text: str, as_type: Any, value: Any) -> None:
    for form in (text, text.encode()):
        result = decode(form, as_type)
        assert result == value
        assert type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "as_type", "words"),
    [
        ('"x"', int, ["fit int: expected int, got str"]),
        ("1.5", int, ["got float"]),
        ('{"sku":1}', Line, [": sku: expected str, got int"]),
        ("{}", Line, [": the field sku is missing"]),
        ('[{"a":1},{}]', list[Item], [": [1]: the field a is missing"]),
        ('{"x":1}', dict[int, int], [": a key of it: expected int, got str"]),
        ('{"a":{"x":1}}', dict[str, dict[int, int]], [": a key of [...]: expected int, got str"]),
        ("{}", type(None), ["expected None, got dict"]),
        ("[]", dict[str, int] | None, ["expected dict | None, got list"]),
        ("1", Annotated[int, msgspec.Meta(ge=3)], [">= 3"]),
        ("1", type(None), ["None"]),
        ('"!!"', bytes, ["base64"]),
        ('{"a":"x"}', Model, ["Model", "a: Input should be a valid integer"]),
        ('[{"a":1},{"a":[]}]', list[Model], [": [1]: a: Input should be a valid integer"]),
        ("1", Model, ["Model"]),
        ('"x"', Model | int, ["valid integer"]),
        ("1", Name, ["expected str, got int"]),
        ("[true]", list[Count], [": [0]: expected int, got bool"]),
        ("[[1]]", set[Any], ["unhashable"]),
    ],
    ids=str,
)
def test_json_that_does_not_fit_the_type_is_invalid_input_with_the_path(
    text: str, as_type: Any, words: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(text, as_type, what="input of billing.invoice")
    message = str(caught.value)
    assert message.startswith("input of billing.invoice does not fit ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_constructor_that_raises_anything_is_invalid_input() -> None:
    @dataclass
    class Boom:
        a: int

        def __post_init__(self) -> None:
            raise KeyError("no such thing")

    with pytest.raises(InvalidInput, match=r"KeyError.*no such thing"):
        decode('{"a":1}', Boom)


@pytest.mark.parametrize("as_type", [complex, "str", 3, typing.NoReturn, collections.abc.Callable], ids=str)
def test_an_annotation_that_json_cannot_fill_is_a_payload_error_that_says_so(as_type: Any) -> None:
    with pytest.raises(PayloadError, match=r"cannot be read as .* change the annotation"):
        decode("1", as_type)


BROKEN: list[str | bytes] = [
    "",
    " ",
    "{",
    "[1,]",
    "nul",
    "NaN",
    "[Infinity]",
    "-Infinity",
    "1 2",
    "'a'",
    "\ufeff1",
    "1e999",
    "9" * 5000,
    '"\\ud800"',
    '"\ud800"',
    '"\n"',
    b"\xff",
    b'"\xff"',
    "[" * 100_000,
    "[" * 50_000 + "]" * 50_000,  # deeper than any interpreter we support can read
]


@pytest.mark.parametrize("as_type", [Any, int, str, Line, Model, list[Model], Model | int, complex], ids=str)
@pytest.mark.parametrize("text", BROKEN, ids=lambda text: ascii(text[:12]))
def test_text_that_is_no_json_is_a_payload_error_whatever_the_type(text: Any, as_type: Any) -> None:
    with pytest.raises(PayloadError, match=r"^result is not readable JSON: "):
        decode(text, as_type, what="result")


@pytest.mark.parametrize("text", [None, 1, object(), {}])
def test_something_that_is_no_text_is_a_payload_error(text: Any) -> None:
    with pytest.raises(PayloadError):
        decode(text)


@settings(max_examples=300)
@given(st.binary(max_size=40) | st.text(max_size=40), st.sampled_from([Any, int, Line, Item, Model, list[Model]]))
def test_no_text_at_all_makes_decode_raise_another_kind_of_error(text: Any, as_type: Any) -> None:
    with contextlib.suppress(PayloadError, InvalidInput):
        decode(text, as_type)


def test_foreign_duplicates_and_big_integers_are_readable() -> None:
    assert decode('{"a":1,"a":2}') == {"a": 2}
    assert decode(str(2**200)) == 2**200
    assert decode('"\\u0000"') == "\0"


def test_the_decoder_of_a_type_is_built_once() -> None:
    from simpleworkflow.model.payload_reading import decoder_of

    assert decoder_of(list[Line]) is decoder_of(list[Line])
    assert decoder_of(Literal[1]) is not decoder_of(Literal[True])  # type: ignore[comparison-overlap]


def test_the_module_does_not_import_pydantic() -> None:
    program = "import sys, simpleworkflow.model.payload; sys.exit('pydantic' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=True)


# Sameness


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("1", "1", True),
        ("1", "1.0", True),
        ("100", "1e2", True),
        ("0", "-0.0", True),
        ("1", "2", False),
        ("true", "1", False),
        ("1", "true", False),
        ("false", "0", False),
        ("[true]", "[1.0]", False),
        ("true", " true", True),
        ("null", "0", False),
        ("null", "false", False),
        ('"1"', "1", False),
        ('"a"', '"\\u0061"', True),
        ('{"a":1,"b":2}', '{ "b": 2.0, "a": 1 }', True),
        ('{"a":1}', '{"a":1,"b":null}', False),
        ('{"a":1,"b":null}', '{"a":1,"c":null}', False),
        ('{"a":1,"a":2}', '{"a":2}', True),
        ("[1,2]", "[2,1]", False),
        ("[1]", "[1,1]", False),
        ("[]", "{}", False),
        ("{}", "[]", False),
        ("[]", "null", False),
        ('""', "[]", False),
        ("{}", "0", False),
        ('{"a":[{"b":true}]}', '{"a":[{"b":1}]}', False),
        ("9007199254740993", "9007199254740993.0", False),
        ("[" * 600 + "1" + "]" * 600, "[" * 600 + "1.0" + "]" * 600, True),
    ],
)
def test_same_json_compares_meaning_and_not_spelling(a: str, b: str, same: bool) -> None:
    assert same_json(a, b) is same
    assert same_json(b, a) is same


def test_same_json_of_broken_text_is_a_payload_error() -> None:
    with pytest.raises(PayloadError):
        same_json("{", "1")
    with pytest.raises(PayloadError):
        same_json("1", "{")


# Properties

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5), max_leaves=30
)


@settings(max_examples=500)
@given(JSON)
def test_every_json_value_survives_the_round_trip_unchanged(value: Any) -> None:
    text = encode(value)
    back = decode(text)
    assert back == value
    assert repr(back) == repr(value)  # also tells 1 from 1.0 and from True, and keeps key order
    assert json.loads(text) == value
    assert encode(value, limit=len(text.encode())) == text
    assert same_json(text, json.dumps(value, sort_keys=True, indent=1))


STEPS = st.lists(st.integers(0, 4) | TEXT, max_size=12)
POISONS = st.sampled_from(
    [
        NAN,
        INF,
        -INF,
        Decimal("NaN"),
        "\0",
        "x\0",
        "\ud800",
        "ž\udfff",
        2**63,
        -(2**63) - 1,
        object(),
        1j,
        {1: 1, "1": 2},
    ]
)


def planted(poison: Any, steps: list[Any], around: Any) -> tuple[Any, str]:
    """The poison at the end of `steps`, beside innocent neighbours; and the path that a message must name."""
    value, path = poison, ""
    for step in reversed(steps):
        if isinstance(step, int):
            value, path = [around] * step + [value, around], f"[{step}]{path}"
        else:
            shown = f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]"
            value, path = {"neighbour of " + step: around, step: value}, shown + path
    return value, "$" + path


@settings(max_examples=500)
@given(POISONS, STEPS, JSON)
def test_poison_planted_anywhere_is_refused_with_its_exact_path(poison: Any, steps: list[Any], around: Any) -> None:
    value, path = planted(poison, steps, around)
    path += '["1"]' if isinstance(poison, dict) else ""
    assert refusal(value, what="step 'pay'").startswith(f"step 'pay' cannot be stored as JSON: at {path}: ")


@given(st.sampled_from(["\0", "a\0", "\ud800"]), STEPS, JSON)
def test_a_poisoned_key_anywhere_is_refused_with_its_exact_path(key: str, steps: list[Any], around: Any) -> None:
    value, path = planted({"good": 1, key: around}, steps, around)
    assert f"at {path}[{json.dumps(key)}]: " in refusal(value)


@given(JSON, JSON)
def test_same_json_agrees_with_equality_of_values(a: Any, b: Any) -> None:
    def strict(value: Any) -> Any:
        if isinstance(value, list):
            return [strict(item) for item in value]
        if isinstance(value, dict):
            return {key: strict(item) for key, item in value.items()}
        return ("bool", value) if isinstance(value, bool) else value

    assert same_json(encode(a), encode(b)) is (strict(a) == strict(b))
    assert same_json(encode(a), " " + encode(a))


def test_dataclasses_and_structs_survive_the_round_trip_with_their_type() -> None:
    line = Line("x", 1.5, ["a", {"b": None}])
    assert decode(encode(line), Line) == line
    assert decode(encode([Item(1, [line])]), list[Item])[0].b == [dataclasses.asdict(line)]
    model = Model(a=1, when=datetime(2026, 1, 2, tzinfo=UTC))
    assert decode(encode({"k": [model]}), dict[str, list[Model]]) == {"k": [model]}
