"""What was read back is the value that was written: hours that exist twice or never, and what generics hold inside."""

from __future__ import annotations

import collections
import dataclasses
import enum
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from simpleworkflow.model import payload
from simpleworkflow.model.errors import InvalidInput, PayloadError
from simpleworkflow.model.payload_comparing import are_among

T = TypeVar("T")
BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
MOMENTS = [TWICE, TWICE.replace(fold=1), datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)]


@dataclasses.dataclass
class Held:
    at: datetime
    many: list[datetime] = dataclasses.field(default_factory=list)
    by: dict[str, datetime] = dataclasses.field(default_factory=dict)
    keys: dict[datetime, int] = dataclasses.field(default_factory=dict)
    tags: set[datetime] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Visit:
    at: datetime


class Entry(pydantic.BaseModel, frozen=True):
    at: datetime


class Model(pydantic.BaseModel):
    at: datetime | None = None
    many: list[datetime] = []
    row: tuple[datetime, ...] = ()
    by: dict[str, datetime] = {}
    keys: dict[datetime, int] = {}
    tags: set[datetime] = set()
    queue: collections.deque[datetime] = collections.deque()
    visits: frozenset[Visit] = frozenset()
    entries: frozenset[Entry] = frozenset()


@pydantic.dataclasses.dataclass
class Plain:
    at: datetime


@dataclasses.dataclass
class Holder(Generic[T]):
    inside: T

    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass
class Box(Generic[T]):
    inside: T


@dataclasses.dataclass
class Pinned:
    """Says that it keeps its moments in Berlin, and drops which of the two half past twos it was."""

    at: datetime

    def __post_init__(self) -> None:
        self.at = self.at.replace(tzinfo=BERLIN)


@dataclasses.dataclass
class Moved:
    at: datetime

    def __post_init__(self) -> None:
        self.at = self.at.astimezone(BERLIN)


def holding(at: datetime) -> list[tuple[Any, Any]]:
    held = [Held(at), Held(at, [at], {"a": at}, {at: 1}, {at}), Moved(at), Plain(at)]
    models = [Model(at=at), Model(many=[at]), Model(row=(at,)), Model(by={"a": at}), Model(keys={at: 1})]
    more = [Model(tags={at}), Model(queue=collections.deque([at])), Model(visits=frozenset({Visit(at)}))]
    more.append(Model(entries=frozenset({Entry(at=at)})))
    generic = [Holder(at), Holder([at]), Holder({at: at}), Holder({at}), Holder(Holder(at)), Holder(Visit(at))]
    kinds = [datetime, list[datetime], dict[datetime, datetime], set[datetime], Holder[datetime], Visit]
    return [(one, type(one)) for one in (*held, *models, *more)] + [
        (one, Holder[kind])  # type: ignore[valid-type]
        for one, kind in zip(generic, kinds, strict=True)
    ]


@pytest.mark.parametrize("at", MOMENTS, ids=["first", "second", "never"])
def test_a_moment_that_exists_twice_or_never_comes_back(at: datetime) -> None:
    for value, kind in holding(at):
        payload.encode(value)
        back = payload.decode(payload.keeper(kind).write(value, limit=10_000, what="output"), kind)
        if hasattr(back, "at") and back.at is not None:
            assert back.at - at.astimezone(UTC) == timedelta(0)


def test_another_moment_is_another_value_also_where_python_calls_the_two_equal() -> None:
    value = Pinned(TWICE.replace(fold=1))
    value.at = TWICE.replace(fold=1)
    with pytest.raises(PayloadError, match=r"at \$\.at: a datetime\.datetime would come back with another value"):
        payload.encode(value)


class Shifting(pydantic.BaseModel):
    tags: Annotated[set[datetime], pydantic.AfterValidator(lambda tags: {one + timedelta(hours=1) for one in tags})]


def test_a_set_of_other_moments_is_another_value() -> None:
    with pytest.raises(PayloadError, match=r"at \$\.tags: a set would come back with another value"):
        payload.encode(Shifting(tags={TWICE}))


def test_a_large_set_of_what_no_hash_finds_is_compared_in_no_time() -> None:
    compared: list[Any] = []
    given, back = ({Alone(index) for index in range(1000)} for _ in range(2))
    assert are_among(given, back, lambda one, other: compared.append(one) or one.net == other.net)  # type: ignore[func-returns-value]
    assert len(compared) == 1000


# A class that refuses what it has made itself


@dataclasses.dataclass
class Percent:
    """Takes 0 to 1 and keeps 0 to 100."""

    share: int

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError("not a share")
        self.share *= 100


@dataclasses.dataclass
class Keyed(Percent):
    def __post_init__(self) -> None:
        self.share = {0: 0, 1: 100}[self.share]


class PercentStruct(msgspec.Struct):
    share: int

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError("not a share")
        self.share *= 100


@dataclasses.dataclass
class Constrained(Percent):
    count: Annotated[int, pydantic.Field(gt=0)] = 1


@dataclasses.dataclass
class Around:
    lines: list[Percent]
    others: list[Keyed] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        pass


REFUSING = [
    (Percent(1), Percent, "$", "not a share"),
    (Keyed(1), Keyed, "$", "100"),
    (PercentStruct(1), PercentStruct, "$", "not a share"),
    (Constrained(1), Constrained, "$", "not a share"),
    (Around([Percent(1)]), Around, "$.lines[0]", "not a share"),
    (Holder(Percent(1)), Holder[Percent], "$.inside", "not a share"),
    (Box(Percent(1)), Box[Percent], "$.inside", "not a share"),
    ({"a": [Percent(1)]}, dict[str, list[Percent]], "$.a[0]", "not a share"),
]


@pytest.mark.parametrize(("value", "kind", "path", "story"), REFUSING, ids=lambda one: type(one).__name__)
def test_what_its_own_class_would_refuse_is_refused_when_it_is_written(
    value: Any, kind: Any, path: str, story: str
) -> None:
    for write in (payload.encode, lambda one: payload.keeper(kind).write(one, limit=1000, what="output")):
        with pytest.raises(PayloadError) as caught:
            write(value)
        told = str(caught.value)
        assert f"at {path}: " in told
        assert "would not be read back" in told
        assert story in told
        assert "; __post_init__ runs at each reading: " in told


@dataclasses.dataclass
class Bounded(Generic[T]):
    most: T

    def __post_init__(self) -> None:
        if self.most < Decimal(0):  # type: ignore[operator]
            raise ValueError("negative")


class Below(Bounded[Decimal]):
    pass


@dataclasses.dataclass
class Bounds:
    all: list[Bounded[Decimal]]

    def __post_init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Bounded(Decimal(1)), Bounded[Decimal]),
        (Below(Decimal(1)), Below),
        (Holder(Bounded(Decimal(1))), Holder[Bounded[Decimal]]),
        (Bounds([Bounded(Decimal(1))]), Bounds),
    ],
    ids=repr,
)
def test_a_generic_class_is_not_refused_for_code_that_needs_what_its_parameter_names(value: Any, kind: Any) -> None:
    assert payload.decode(payload.keeper(kind).write(value, limit=1000, what="output"), kind) == value
    payload.encode(value)


@pytest.mark.parametrize("share", ["1", None, [1]])
def test_what_does_not_fit_its_annotation_is_left_to_its_reader_to_tell(share: Any) -> None:
    value = Percent(1)
    value.share = share
    text = payload.encode(value)
    with pytest.raises(InvalidInput, match="does not fit"):
        payload.decode(text, Percent)


# What generic classes hold


class Sku(enum.Enum):
    A = "a"


@dataclasses.dataclass(frozen=True)
class Doubled:
    net: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "net", self.net * 2)


class Row(msgspec.Struct, array_like=True, frozen=True):
    doubled: Any
    typed: Doubled | None = None


class DoubledRow(msgspec.Struct, array_like=True):
    net: int

    def __post_init__(self) -> None:
        self.net *= 2


@dataclasses.dataclass(frozen=True)
class Simple:
    doubled: Doubled
    tags: set[int] = dataclasses.field(default_factory=set, hash=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Alone:
    net: int

    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass
class Loners:
    all: set[Alone]
    numbers: set[int] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        pass


INSIDE = [
    ({Doubled(1)}, set[Doubled], "[*].net"),
    (frozenset({Doubled(1), Doubled(2)}), frozenset[Doubled], "[*].net"),
    ([{Simple(Doubled(1))}], list[set[Simple]], "[0][*].doubled.net"),
    (Row(None, Doubled(1)), Row, ".typed.net"),
    (DoubledRow(1), DoubledRow, ".net"),
    ([DoubledRow(1)], list[DoubledRow], "[0].net"),
    (Simple(Doubled(1)), Simple, ".doubled.net"),
    ({1: Doubled(1)}, dict[int, Doubled], '["1"].net'),
    ({Sku.A: Doubled(1)}, dict[Sku, Doubled], ".a.net"),
]


@pytest.mark.parametrize(("inside", "kind", "path"), INSIDE, ids=lambda one: str(one)[:30])
def test_a_changing_object_is_found_wherever_a_generic_class_holds_it(inside: Any, kind: Any, path: str) -> None:
    for value, as_type, start in (
        (Holder(inside), Holder[kind], "$.inside"),
        (Holder(Holder(inside)), Holder[Holder[kind]], "$.inside.inside"),
    ):
        with pytest.raises(PayloadError) as caught:
            payload.keeper(as_type).write(value, limit=1000, what="output")
        assert f"at {start}{path}: a int would come back with another value" in str(caught.value)


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        (frozenset({Alone(1)}), frozenset[Alone]),
        (Row(1), Row),
        ({1: Alone(1)}, dict[int, Alone]),
        (Box([Decimal(1), {2}]), Box[tuple[Decimal, set[int]]]),
    ],
    ids=str,
)
def test_what_stays_the_same_inside_a_generic_class_is_written(inside: Any, kind: Any) -> None:
    text = payload.keeper(Holder[kind]).write(Holder(inside), limit=1000, what="output")
    assert payload.encode(payload.decode(text, Holder[kind])) == text


def test_sets_are_compared_by_what_they_hold_and_a_list_may_become_one() -> None:
    for value in (Loners({Alone(1), Alone(2)}), Loners(set(), [1, 1, 2])):  # type: ignore[arg-type]
        text = payload.keeper(Loners).write(value, limit=1000, what="output")
        assert isinstance(payload.decode(text, Loners).numbers, set)
    assert payload.encode(Holder(Simple(doubled=None, tags=[1])))  # type: ignore[arg-type]
