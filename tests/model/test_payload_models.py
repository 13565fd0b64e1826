"""pydantic's values come back as they were, or are refused with the path to what would not."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NotRequired

import annotated_types
import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr, computed_field, field_serializer
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from simpleworkflow.model import payload, payload_models
from simpleworkflow.model.errors import InvalidInput, PayloadError
from simpleworkflow.model.payload import decode, encode


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    user_id: int
    at: datetime | None = None


class Validated(BaseModel):
    number: int = Field(validation_alias="no")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)
    first_price: Decimal
    inner: Camel

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> Decimal:
        return 2 * self.first_price


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    names: Sequence[str] = ()
    tags: set[int] = set()


@pydantic.dataclasses.dataclass
class Amount:
    cents: int = Field(gt=0, validation_alias="minor_units")
    inner: Camel | None = None


@dataclasses.dataclass
class Holder:
    amount: Amount
    count: Annotated[int, Field(gt=0)] = 1
    at: datetime | None = None


class Basket(BaseModel):
    amounts: list[Amount] = []
    holder: Holder | None = None
    camel: Camel | None = None


class Plain(msgspec.Struct):
    camel: Camel
    amounts: list[Camel] = []


CAMEL = Camel(userId=7, at=datetime(2026, 1, 2, tzinfo=UTC))
AMOUNT = Amount(minor_units=5, inner=CAMEL)  # type: ignore[call-arg]
Positive = Annotated[int, Field(gt=0)]


@pytest.mark.parametrize(
    ("value", "as_type"),
    [
        (CAMEL, Camel),
        ([CAMEL], list[Camel]),
        ({"k": CAMEL}, dict[str, Camel]),
        (CAMEL, Camel | None),
        (CAMEL, Camel | Validated),
        (Validated(no=3), Validated),
        (Strict(firstPrice=Decimal("1.10"), inner=CAMEL), Strict),
        (Open(names=("a", "b"), tags={1, 2}, more=[1, {"x": None}]), Open),
        (Plain(CAMEL, [CAMEL]), Plain),
        (AMOUNT, Amount),
        ([AMOUNT], list[Amount]),
        ({"k": AMOUNT}, dict[str, Amount]),
        (Holder(AMOUNT, 3, datetime(2026, 1, 2, tzinfo=UTC)), Holder),
        ([Holder(AMOUNT)], list[Holder]),
        (Basket(amounts=[AMOUNT], holder=Holder(AMOUNT), camel=CAMEL), Basket),
        (5, Positive),
        ([1, 2], list[Positive]),
        (3, pydantic.PositiveInt),
        (3, Annotated[int, annotated_types.Ge(3)]),
        ("x", Annotated[str, pydantic.StringConstraints(max_length=3)]),
        (pydantic.HttpUrl("https://example.org/a"), pydantic.HttpUrl),
    ],
    ids=str,
)
def test_values_of_pydantic_come_back_as_they_were_in_their_own_type(value: Any, as_type: Any) -> None:
    text = payload.keeper(as_type).write(value, limit=10_000, what="output")
    back = decode(text, as_type)
    assert type(back) is type(value)
    if isinstance(value, Open):
        assert (list(back.names), back.tags, back.more) == (["a", "b"], {1, 2}, [1, {"x": None}])  # type: ignore[attr-defined]
    else:
        assert back == value


@pytest.mark.parametrize(
    ("text", "as_type", "value"),
    [
        ('{"userId":7}', Camel, Camel(userId=7)),
        ('{"user_id":7}', Camel, Camel(userId=7)),
        ('[{"no":3}]', list[Validated], [Validated(no=3)]),
        ('{"minor_units":5}', Amount, Amount(minor_units=5)),  # type: ignore[call-arg]
        ('{"amount":{"minor_units":5}}', Holder, Holder(Amount(minor_units=5))),  # type: ignore[call-arg]
    ],
    ids=str,
)
def test_what_others_write_by_alias_is_read_as_well(text: str, as_type: Any, value: Any) -> None:
    assert decode(text, as_type) == value


@pytest.mark.parametrize(
    ("text", "as_type", "words"),
    [
        ("0", Positive, "greater than 0"),
        ("[1,-1]", list[Positive], "1: Input should be greater than 0"),
        ('{"cents":0}', Amount, "cents: Input should be greater than 0|minor_units: Input should be greater than 0"),
        ('[{"amount":{"cents":1},"count":0}]', list[Holder], "count: Input should be greater than 0"),
        ('{"a":{"cents":"x"}}', dict[str, Amount], "valid integer"),
        ("0", pydantic.PositiveInt, "greater than 0"),
        ('"no url"', pydantic.HttpUrl, "valid URL"),
    ],
    ids=str,
)
def test_constraints_of_pydantic_are_checked_wherever_they_stand(text: str, as_type: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        decode(text, as_type)


class Key(BaseModel):
    name: str = "k"
    secret: SecretStr = SecretStr("hunter2")
    raw: SecretBytes | None = None


class Revealing(BaseModel):
    secret: SecretStr

    @field_serializer("secret", when_used="json")
    def reveal(self, secret: SecretStr) -> str:
        return secret.get_secret_value()


class Left(BaseModel):
    kept: int = 1
    out: int = Field(default=0, exclude=True)
    must: int | None = None


class LeftOut(BaseModel):
    out: int = Field(exclude=True)


class Base(BaseModel):
    a: int = 1


class Sub(Base):
    b: int = 2


class Shelf(BaseModel):
    item: Base
    free: Any = None
    items: list[Base] = []


class Rounding(BaseModel):
    price: Decimal

    @field_serializer("price")
    def rounded(self, price: Decimal) -> str:
        return f"{price:.0f}"


class Growing(BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def louder(cls, name: str) -> str:
        return name + "!"


class Dance(enum.Enum):
    JIG = "jig"


@dataclasses.dataclass
class Vault:
    key: SecretStr


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        (Key(), "$.secret", "stored as stars"),
        ([Key(secret=SecretStr(""), raw=SecretBytes(b"x"))], "$[0].raw", "stored as stars"),
        (Shelf(item=Base(), free={"k": [SecretStr("x")]}), "$.free.k[0]", "stored as stars"),
        (Vault(SecretStr("x")), "$.key", "stored as stars"),
        (SecretStr("x"), "$", "stored as stars"),
        (Left(out=3), "$.out", "exclude=True"),
        ({"m": LeftOut(out=3)}, "$.m.out", "exclude=True"),
        (Shelf(item=Sub()), "$.item", "Sub would come back as .*Base"),
        (Shelf(item=Base(), items=[Base(), Sub()]), "$.items[1]", "Sub would come back as .*Base"),
        (Shelf(item=Base(), free=Decimal("1.10")), "$.free", "Decimal would come back as str"),
        (Shelf(item=Base(), free=[datetime(2026, 1, 2)]), "$.free[0]", "datetime would come back as str"),
        (Shelf(item=Base(), free=Dance.JIG), "$.free", "Dance would come back as str"),
        (Shelf(item=Base(), free=Base()), "$.free", "Base would come back as dict"),
        (Shelf(item=Base(), free=(1,)), "$.free", "tuple would come back as list"),
        (Shelf(item=Base(), free={1: 2}), '$.free["1"]', "the key, of type int"),
        (Open(when=datetime(2026, 1, 2)), "$.when", "datetime would come back as str"),
        (Rounding(price=Decimal("1.10")), "$.price", "another value"),
        (Growing(name="a"), "$.name", "another value"),
        (pydantic.RootModel[list[Any]]([Decimal(1)]), "$[0]", "Decimal would come back as str"),
    ],
    ids=str,
)
def test_what_would_not_come_back_is_refused_with_its_path_and_a_remedy(value: Any, path: str, words: str) -> None:
    with pytest.raises(PayloadError, match=words) as caught:
        encode(value, what="output of step pay")
    message = str(caught.value)
    assert message.startswith(f"output of step pay would not come back as it is: at {path}: ")
    assert ";" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("value", [Left(), Revealing(secret=SecretStr("x")), Key(secret=SecretStr(""))], ids=str)
def test_what_comes_back_by_the_owners_choice_is_not_refused(value: Any) -> None:
    assert decode(encode(value), type(value)) == value


def test_a_subclass_in_the_place_of_its_base_is_refused_where_only_the_annotation_is_known() -> None:
    with pytest.raises(PayloadError, match=r"at \$\[1\]: a .*Sub would come back as its base class"):
        payload.keeper(list[Base]).write([Base(), Sub()], limit=1000, what="output")
    assert decode(payload.keeper(Sub | Base).write(Sub(), limit=1000, what="output"), Sub | Base) == Sub()


def test_what_is_only_shown_to_people_may_say_less() -> None:
    assert payload.glance([Left(out=3), 1], limit=1000) == '[{"kept":1,"must":null},1]'
    assert "hunter2" not in payload.glance(Key(), limit=1000)


def test_bytes_next_to_types_of_pydantic_are_refused_instead_of_being_read_as_text() -> None:
    @dataclasses.dataclass
    class Mixed:
        data: bytes
        count: Annotated[int, Field(gt=0)] = 1

    with pytest.raises(PayloadError, match="put them into a pydantic model"):
        decode('{"data":"eA=="}', list[Mixed])


def test_a_type_that_neither_reader_can_read_is_refused_with_a_sentence() -> None:
    class Odd(msgspec.Struct):
        amount: Amount

    with pytest.raises(PayloadError, match="pydantic would have to read it, and cannot"):
        decode('{"amount":{"cents":1}}', Odd)


def test_an_older_pydantic_that_reads_aliases_alone_is_named_in_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic, "VERSION", "2.10.6")
    payload_models._both_names.cache_clear()
    try:
        with pytest.raises(PayloadError, match=r"pydantic 2\.11 or newer, or set populate_by_name=True"):
            encode(CAMEL)
        with pytest.raises(InvalidInput, match=r"pydantic 2\.11 or newer"):
            decode('{"user_id":1}', Camel)
        assert decode(encode(Base()), Base) == Base()
    finally:
        payload_models._both_names.cache_clear()


class NotFound(BaseModel):
    reason: str = "none"


class Priced(BaseModel):
    price: Decimal | str = ""
    found: NotFound | dict[str, int] | None = None


class Translated(BaseModel):
    name: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def translate(cls, data: Any) -> Any:
        return {"name": data["title"]} if isinstance(data, dict) and "title" in data else data


class Lookup(TypedDict):
    found: NotRequired[NotFound | dict[str, int]]


MONEY = Annotated[Decimal | str, Field()]


@pytest.mark.parametrize(
    ("as_type", "value", "path", "words"),
    [
        (NotFound | dict[str, int], {"stock": 3}, "$", "a dict would come back as .*NotFound"),
        (list[NotFound | dict[str, int]], [NotFound(), {"stock": 3}], "$[1]", "a dict would come back as .*NotFound"),
        (list[NotFound | dict[str, int]], [{"stock": 3}], "$[0]", "a dict would come back as .*NotFound"),
        (dict[str, tuple[MONEY, int]], {"a": ["1.10", 1]}, "$.a[0]", "a str would come back as .*Decimal"),
        (MONEY, "1.10", "$", "a str would come back as .*Decimal"),
        (MONEY | None, "1.10", "$", "a str would come back as .*Decimal"),
        (Priced, {"price": "1.10"}, "$.price", "a str would come back as .*Decimal"),
        (Priced | None, {"found": {"stock": 3}}, "$.found", "a dict would come back as .*NotFound"),
        (Priced, Priced.model_construct(price="1.10"), "$.price", "a str would come back as .*Decimal"),
        (Lookup, {"found": {"stock": 3}}, "$.found", "a dict would come back as .*NotFound"),
        (list[Decimal] | list[MONEY], ["1.10"], "$[0]", "a str would come back as .*Decimal"),
    ],
    ids=str,
)
def test_plain_json_that_a_union_names_and_would_read_as_another_of_its_members_is_refused(
    as_type: Any, value: Any, path: str, words: str
) -> None:
    with pytest.raises(PayloadError, match=words) as caught:
        payload.keeper(as_type).write(value, limit=1000, what="output")
    assert f"at {path}: " in str(caught.value)


@pytest.mark.parametrize(
    ("as_type", "value", "back"),
    [
        (NotFound | dict[str, int], NotFound(), NotFound()),
        (NotFound | None, {"reason": "x"}, NotFound(reason="x")),
        (NotFound | list[int], {"reason": "x"}, NotFound(reason="x")),
        (MONEY, "no price", "no price"),
        (MONEY, Decimal("1.10"), Decimal("1.10")),
        (Annotated[int, Field(gt=0)] | str, "5", "5"),
        (list[Camel], [{"userId": 3}, {"user_id": 4}], [Camel(userId=3), Camel(userId=4)]),
        (Camel | NotFound, {"userId": 3}, Camel(userId=3)),
        (Validated, {"no": 3}, Validated(no=3)),
        (Open, {"more": 1, "tags": [1]}, Open(more=1, tags={1})),
        (Translated, {"title": "x"}, Translated(name="x")),
        (dict[int, NotFound], {"1": {"reason": "x"}}, {1: NotFound(reason="x")}),
        (pydantic.RootModel[dict[str, int]], {"a": 1}, pydantic.RootModel[dict[str, int]]({"a": 1})),
        (Holder, {"amount": {"minor_units": 1}}, Holder(Amount(minor_units=1))),
    ],
    ids=str,
)
def test_plain_json_for_which_the_annotation_has_one_reading_is_read_so(as_type: Any, value: Any, back: Any) -> None:
    assert decode(payload.keeper(as_type).write(value, limit=1000, what="output"), as_type) == back


@pytest.mark.parametrize("as_type", [Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)] | None], ids=str)
def test_plain_json_is_looked_at_once_where_only_a_constraint_calls_for_pydantic(
    as_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = payload.keeper(as_type)

    def not_again(value: object) -> None:
        raise AssertionError("a second look at plain JSON")

    monkeypatch.setattr(keeper, "look", not_again)
    assert keeper.write(3, limit=100, what="output") == "3"


@pytest.mark.parametrize(
    ("as_type", "value", "path"),
    [
        (NotFound, {"stock": 3}, "$.stock"),
        (NotFound | None, {"reason": "x", "stock": 3}, "$.stock"),
        (Camel | NotFound, {"userId": 3, "typo": 1}, "$.typo"),
        (list[Amount], [{"minor_units": 1, "typo": 2}], "$[0].typo"),
        (Holder, {"amount": {"minor_units": 1}, "typo": 2}, "$.typo"),
        (Lookup, {"found": NotFound(), "typo": 2}, "$.typo"),
        (Lookup, {"typo": 2}, "$.typo"),
    ],
    ids=str,
)
def test_a_key_that_a_class_of_pydantic_would_drop_is_refused(as_type: Any, value: Any, path: str) -> None:
    with pytest.raises(PayloadError, match="would be dropped") as caught:
        payload.keeper(as_type).write(value, limit=1000, what="output")
    assert f"at {path}: " in str(caught.value)


@pytest.mark.parametrize(
    ("role", "as_type", "value", "place"),
    [
        ("output", Base | Left, Sub(), "the return"),
        ("input", Base | Left, Sub(), "the parameter"),
        ("output", list[Base | Left], [Sub()], "the field"),
        ("output", Shelf, Shelf(item=Sub()), "the field"),
    ],
    ids=str,
)
def test_a_refusal_names_the_place_whose_annotation_is_to_be_changed(
    role: Any, as_type: Any, value: Any, place: str
) -> None:
    with pytest.raises(PayloadError, match=rf"annotate {place} as test_payload_models\.Sub, or as a union that has it"):
        payload.keeper(as_type, role).write(value, limit=1000, what="value")


class Counted(BaseModel):
    counts: dict[str, int] = {}
    pair: tuple[int, int] = (0, 0)


class Two(NamedTuple):
    one: int
    two: int


@pytest.mark.parametrize(
    ("name", "value"), [("counts", collections.Counter("a")), ("pair", Two(1, 2))], ids=["Counter", "NamedTuple"]
)
def test_a_subclass_of_a_container_in_a_field_of_a_model_is_refused(name: str, value: Any) -> None:
    with pytest.raises(PayloadError, match=rf"at \$\.{name}: a .* would come back as (dict|tuple)"):
        encode(Counted.model_construct(**{name: value}))


class Patch(BaseModel):
    name: str | None = None
    price: Decimal | None = None


def test_which_fields_were_set_travels_in_a_dict() -> None:
    patch = Patch(price=Decimal("1.10"))
    assert decode(encode(patch), Patch).model_fields_set == {"name", "price"}, "as docs/durable.md says"
    sent = patch.model_dump(mode="json", exclude_unset=True)
    text = payload.keeper(dict[str, Any]).write(sent, limit=1000, what="payload")
    again = Patch.model_validate(decode(text, dict[str, Any]))
    assert (again, again.model_fields_set) == (patch, {"price"})
