"""Objects whose class runs code when they are made, and moments whose zone JSON has no room for."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from simpleworkflow.model import payload, payload_objects
from simpleworkflow.model.errors import PayloadError
from simpleworkflow.model.payload_objects import has_own_code

T = TypeVar("T")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Doubled:
    net: Decimal

    def __post_init__(self) -> None:
        self.net *= 2


class DoubledStruct(msgspec.Struct):
    net: Decimal

    def __post_init__(self) -> None:
        self.net *= 2


@dataclasses.dataclass
class Discounted:
    net: Decimal
    discount: Decimal = dataclasses.field(init=False, default=Decimal(1))

    def __post_init__(self) -> None:
        self.discount = Decimal(1)


@dataclasses.dataclass
class Constrained:
    count: Annotated[int, pydantic.Field(gt=0)] = 1
    discount: int = dataclasses.field(init=False, default=1)


@dataclasses.dataclass
class Clean:
    """Its code gives the same however often it runs, and what it is given needs no type of its own."""

    name: str
    lines: Sequence[str] = ()
    price: Decimal = Decimal(0)
    colour: Colour = Colour.RED
    at: datetime = NOON
    tags: set[int] = dataclasses.field(default_factory=set)
    inner: Clean | None = None
    by: dict[int, Clean] = dataclasses.field(default_factory=dict)
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.name = self.name.strip()
        self.length = len(self.name)


@dataclasses.dataclass
class Holder(Generic[T]):
    inside: T

    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass
class Around:
    doubled: list[Doubled]

    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass
class Simple:
    net: Decimal


def discounted() -> Discounted:
    made = Discounted(Decimal(5))
    made.discount = Decimal(99)
    return made


def constrained() -> Constrained:
    made = Constrained()
    made.discount = 99
    return made


CHANGED = [
    (Doubled(Decimal(10)), "$.net", "__post_init__ runs at each reading"),
    (DoubledStruct(Decimal(10)), "$.net", "__post_init__ runs at each reading"),
    (Holder([Doubled(Decimal(10))]), "$.inside[0].net", "__post_init__ runs at each reading"),
    (Around([Doubled(Decimal(10))]), "$.doubled[0].net", "__post_init__ runs at each reading"),
    (discounted(), "$.discount", "drop init=False"),
    (constrained(), "$.discount", "drop init=False"),
]


@pytest.mark.parametrize(("value", "path", "remedy"), CHANGED, ids=lambda one: type(one).__name__)
def test_an_object_that_its_class_would_change_at_each_reading_is_refused(value: Any, path: str, remedy: str) -> None:
    kind = Holder[list[Doubled]] if isinstance(value, Holder) else type(value)
    for as_type, item, where in ((kind, value, path), (list[kind], [value], path.replace("$", "$[0]"))):  # type: ignore[valid-type]
        with pytest.raises(PayloadError) as caught:
            payload.keeper(as_type).write(item, limit=10_000, what="output of step pay")
        assert f"at {where}: " in str(caught.value)
        assert "would come back with another value" in str(caught.value)
        assert remedy in str(caught.value)


@pytest.mark.parametrize("value", [Doubled(Decimal(10)), DoubledStruct(Decimal(10)), constrained()], ids=repr)
def test_so_it_is_where_others_will_read_it(value: Any) -> None:
    with pytest.raises(PayloadError, match="would come back with another value"):
        payload.encode(value)


@pytest.mark.parametrize(
    "value",
    [
        Clean(" a "),
        Clean("a", ("b", "c"), Decimal("1.10"), tags={1, 2}, inner=Clean("b"), by={1: Clean("c")}),
        Clean("a", price="1.10", colour="red", at="2026-01-02T12:00:00+00:00"),  # type: ignore[arg-type]
        Clean("a", price=5, inner={"name": "b"}),  # type: ignore[arg-type]
        Clean("a", ["b"], inner=None, by={}),
        Discounted(Decimal(1)),
        Constrained(),
    ],
    ids=repr,
)
def test_an_object_whose_class_makes_the_same_of_it_comes_back(value: Any) -> None:
    kind = type(value)
    back = payload.decode(payload.keeper(kind).write(value, limit=10_000, what="output"), kind)
    assert type(back) is kind
    assert payload.encode(payload.decode(payload.encode(back), kind)) == payload.encode(back)


@pytest.mark.parametrize(
    "inside",
    [Decimal("1.10"), NOON, (1, 2), {1, 2}, frozenset({3}), b"x", Colour.RED, timedelta(1), Simple(Decimal(1))],
)
def test_a_generic_object_is_not_refused_for_what_its_bare_class_does_not_name(inside: Any) -> None:
    kind = Holder[type(inside)]  # type: ignore[misc]
    assert payload.decode(payload.keeper(kind).write(Holder(inside), limit=1000, what="output"), kind).inside == inside


def test_only_objects_with_code_of_their_own_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point(msgspec.Struct):
        x: int

    def never(kind: Any) -> Any:
        raise AssertionError("read back")

    monkeypatch.setattr(payload_objects, "decoder_of", never)
    payload.encode([Simple(Decimal(1)), Point(1), {"a": [1]}])
    assert [has_own_code(kind) for kind in (Simple, Point, Doubled, DoubledStruct, Constrained)] == [False] * 2 + [
        True
    ] * 3


def test_an_object_inside_another_one_that_is_read_back_is_read_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    found = payload_objects.decoder_of
    monkeypatch.setattr(payload_objects, "decoder_of", lambda kind: asked.append(kind) or found(kind))
    payload.encode(Clean("a", inner=Clean("b", inner=Clean("c"))))
    assert asked == [Clean]


def test_people_may_look_at_what_would_not_come_back() -> None:
    assert payload.glance(Doubled(Decimal(10)), limit=100) == '{"net":"20"}'


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1965, 1, 1, tzinfo=ZoneInfo("Africa/Monrovia")),
        datetime(1890, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        time(12, tzinfo=timezone(timedelta(minutes=53, seconds=28))),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_key", [False, True])
def test_an_offset_with_seconds_is_refused_and_not_cut_to_minutes(moment: Any, as_key: bool) -> None:
    kind = type(moment)
    value, as_type = ({moment: 1}, dict[kind, int]) if as_key else (moment, kind)  # type: ignore[valid-type]
    with pytest.raises(PayloadError, match=r"at \$: a .*time with the offset .* whole minutes; store .*UTC") as caught:
        payload.keeper(as_type).write(value, limit=1000, what="output")
    with pytest.raises(PayloadError, match="whole minutes"):
        payload.encode(value)
    assert (".astimezone(UTC)" in str(caught.value)) is (kind is datetime)


def test_a_time_whose_zone_needs_a_date_is_refused_and_does_not_come_back_naive() -> None:
    noon = time(12, tzinfo=ZoneInfo("Europe/Berlin"))
    with pytest.raises(PayloadError, match=r"a time with a zone .* without a zone; store the name of the zone"):
        payload.keeper(time).write(noon, limit=1000, what="output")


@pytest.mark.parametrize(
    "moment",
    [
        NOON,
        NOON.replace(tzinfo=None),
        datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 7, 1, tzinfo=ZoneInfo("Asia/Kolkata")),
        datetime(2026, 7, 1, tzinfo=timezone(-timedelta(hours=3, minutes=30))),
        time(12),
        time(12, tzinfo=UTC),
        time(12, tzinfo=timezone(timedelta(hours=1))),
    ],
    ids=str,
)
def test_every_other_moment_comes_back(moment: Any) -> None:
    kind = type(moment)
    back = payload.decode(payload.keeper(kind).write(moment, limit=1000, what="output"), kind)
    assert (back, back.utcoffset()) == (moment, moment.utcoffset())
