"""Values that somebody will read again by an annotation: an output, or the input of a workflow.

What comes back must be of the type that was given: a Decimal that returns as text is money gone wrong without a word.
The annotation decides what is read, so it decides what may be written:

- Where it names a type, that type is what comes back, whatever was given, as long as it can be read as one.
- Where it names none (no annotation, `Any`, `object`, the inside of a bare `dict`), only what JSON itself has may be
  there: str, int, float, bool, None, list, dict with keys of str.
- An instance of a subclass in the place of its base class would lose what makes it one, so it is refused.

Plain JSON is not looked at twice: the walk that writes a value knows whether it met anything else, and only then are
the parts of the value compared with the annotation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_origin, is_typeddict

import msgspec
from msgspec import inspect

from .payload_comparing import compare
from .payload_models import Adapter, is_pydantic
from .payload_reading import Unresolved, decoder_of, is_untyped
from .payload_refusals import Lost, Refused, step, type_name
from .payload_writing import Walk, encode, written
from .type_cache import kept_by_type

Check = Callable[[Any], None]
"""Raises Lost, with the path, if a value would come back as something else."""
Role = Literal["output", "input", "anything"]

_ARRAYS = (list, tuple, set, frozenset)
_LOOKED_AT = 20
"""Items of a collection that are looked at for a suggestion."""
_LONGEST = 80


class Keeper:
    """Writes values that will be read as one type."""

    def __init__(self, as_type: Any, role: Role) -> None:
        self._as_type = as_type
        self._role = role
        self._is_untyped = is_untyped(as_type)
        self._check: Check | None = None
        self._is_ready = self._is_untyped

    def write(self, value: object, *, limit: int, what: str) -> str:
        """The JSON text of `value`, or PayloadError when it cannot be stored, or would come back as another type."""
        if value is None:
            return "null"  # what most steps and many runs return
        if self._is_untyped:
            return written(Exact(limit), value, what, self)
        return written(Walk(limit), value, what, self)

    def look(self, value: object) -> None:
        """Only at what is not plain JSON; so the annotation is taken apart when the first such value comes."""
        if not self._is_ready:
            self._check, self._is_ready = _check_of(self._as_type), True
        if self._check is not None:
            self._check(value)

    def advise(self, value: object) -> str:
        if isinstance(self._as_type, Unresolved):
            return (
                f"its annotation cannot be resolved ({self._as_type.reason}): "
                "define what it names at the top of a module, outside TYPE_CHECKING"
            )
        named = _annotation(value, 3)
        if named is None or len(named) > _LONGEST:
            named = "…"
        shown = f"`-> {named}`" if self._role == "output" else f"the parameter as `{named}`"
        if named == "…":
            shown += ", with a dataclass or a TypedDict that names the type of each part"
        return f"annotate {shown}, or convert it to what JSON has"


@kept_by_type
def keeper(as_type: Any, role: Role = "output") -> Keeper:
    return Keeper(as_type, role)


class Exact(Walk):
    """For values that will be read without a type: whatever is not JSON itself would come back as something else."""

    __slots__ = ()

    def foreign(self, value: object) -> None:
        raise Lost(f"{_a(type(value))} would come back as {_plain_name(value)}, since no annotation names its type")

    def foreign_key(self, key: object) -> None:
        Walk(self.limit).key(key)  # which has more to say about a key that cannot be written at all
        raise Lost(f"{_a(type(key))} as the key of a dict would come back as str, since no annotation names its type")


def glance(value: object, *, limit: int) -> str:
    """For people to look at: nobody will read it back, so it need not say all that the value is."""
    return written(_Glance(limit), value, "value")


class _Glance(Walk):
    __slots__ = ()

    def comes_back(self, value: Any, plain: object) -> None:
        return


# What an annotation lets through


def _check_of(as_type: Any) -> Check | None:
    """None where whatever can be read comes back as what the annotation names."""
    if isinstance(decoder_of(as_type), Adapter):
        return _read_back(as_type)
    try:
        return _check(inspect.type_info(as_type), {})
    except Exception:
        return None  # msgspec cannot read it either, and says so


def _read_back(as_type: Any) -> Check:
    """Read by pydantic, whose validators may do anything: what comes back is compared."""

    def check(value: Any) -> None:
        compare(value, decoder_of(as_type).decode(encode(value)))

    return check


def _exact(value: Any) -> None:
    Exact(2**62).any(value, 1)


def _check(node: inspect.Type, known: dict[int, _Fields]) -> Check | None:
    if isinstance(node, inspect.AnyType) or (isinstance(node, inspect.CustomType) and node.cls is object):
        return _exact
    if isinstance(node, inspect.CollectionType):
        return _each(_check(node.item_type, known))
    if isinstance(node, inspect.TupleType):
        return _each_its_own([_check(item, known) for item in node.item_types])
    if isinstance(node, inspect.DictType):
        return _mapping(isinstance(node.key_type, inspect.AnyType), _check(node.value_type, known))
    if isinstance(node, inspect.UnionType):
        return _one_of([(one, _check(one, known)) for one in node.types])
    if isinstance(node, inspect.CustomType):
        return _Fields(_class_of(node)) if is_pydantic(node.cls) else None
    fields = getattr(node, "fields", None)
    if fields is None:
        return None
    if id(node) not in known:  # a class may mention itself
        found = known[id(node)] = _Fields(_class_of(node))
        found.fields = [(one.name, check) for one in fields if (check := _check(one.type, known)) is not None]
    return known[id(node)]


def _class_of(node: Any) -> Any:
    return get_origin(node.cls) or node.cls


class _Fields:
    """The fields of a class; and the instance must be of that very class, or of an unrelated one that is read as it."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.is_class = isinstance(kind, type) and not is_typeddict(kind)
        self.fields: list[tuple[str, Check]] = []

    def __call__(self, value: Any) -> None:
        kind = type(value)
        if kind is not self.kind and kind is not dict:
            self._refuse_subclass(kind)
        for name, check in self.fields:
            item = value.get(name, None) if kind is dict else getattr(value, name, None)
            try:
                check(item)
            except Lost as lost:
                if lost.remedy is None:
                    lost.remedy = f"let the annotation of {type_name(self.kind)}.{name} name it, or convert it"
                raise lost.inside(step(name))  # noqa: B904

    def _refuse_subclass(self, kind: type) -> None:
        if not self.is_class or not issubclass(kind, self.kind):
            return
        raise Lost(
            f"{_a(kind)} would come back as its base class {type_name(self.kind)}, which the annotation names",
            remedy=f"annotate {type_name(kind)}, or a union that has it",
        )


def _each(check: Check | None) -> Check | None:
    if check is None:
        return None

    def each(value: Any) -> None:
        for index, item in enumerate(value if isinstance(value, _ARRAYS) else ()):
            try:
                check(item)
            except Refused as refused:
                raise refused.inside("[*]" if isinstance(value, set | frozenset) else f"[{index}]")  # noqa: B904

    return each


def _each_its_own(checks: list[Check | None]) -> Check | None:
    if not any(checks):
        return None

    def each_its_own(value: Any) -> None:
        for index, (item, check) in enumerate(zip(value, checks, strict=False) if isinstance(value, _ARRAYS) else ()):
            try:
                if check is not None:
                    check(item)
            except Refused as refused:
                raise refused.inside(f"[{index}]")  # noqa: B904

    return each_its_own


def _mapping(is_any_key: bool, check: Check | None) -> Check | None:
    if check is None and not is_any_key:
        return None

    def entries(value: Any) -> None:
        for key, item in value.items() if isinstance(value, dict) else ():
            if is_any_key and type(key) is not str:
                Exact(2**62).foreign_key(key)
            try:
                if check is not None:
                    check(item)
            except Refused as refused:
                raise refused.inside(step(str(key)))  # noqa: B904

    return entries


def _one_of(members: list[tuple[inspect.Type, Check | None]]) -> Check | None:
    if any(check is _exact for _, check in members):
        return _exact
    checks = [(node, check) for node, check in members if check is not None]
    if not checks:
        return None
    exactly = {check.kind: check for _, check in checks if isinstance(check, _Fields)}

    def one_of(value: Any) -> None:
        found: Check | None = exactly.get(type(value))
        if found is None:
            found = next((check for node, check in checks if _may_be(node, check, value)), None)
        if found is not None:
            found(value)

    return one_of


def _may_be(node: inspect.Type, check: Check, value: Any) -> bool:
    if isinstance(check, _Fields):
        return isinstance(value, check.kind if check.is_class else dict)
    return isinstance(value, dict) if isinstance(node, inspect.DictType) else isinstance(value, _ARRAYS)


# What to write instead


def _annotation(value: Any, levels: int) -> str | None:
    """The annotation with which this value would come back as it is; None when it takes a class of its own."""
    kind = type(value)
    if value is None:
        return "None"
    if kind in (list, set, frozenset):
        inner = _common(list(value)[:_LOOKED_AT], levels)
        return None if inner is None else f"{kind.__name__}[{inner}]"
    if kind is tuple:
        parts = [_annotation(item, levels - 1) for item in value[:_LOOKED_AT]] if levels else [None]
        return None if None in parts or not parts else f"tuple[{', '.join(str(part) for part in parts)}]"
    if isinstance(value, dict):
        keys = _common(list(value)[:_LOOKED_AT], levels)
        values = _common(list(value.values())[:_LOOKED_AT], levels)
        return None if keys is None or values is None else f"dict[{keys}, {values}]"
    bases = (base for base in (bytes, bytearray, memoryview) if isinstance(value, base))
    return next(bases, kind).__qualname__


def _common(values: list[Any], levels: int) -> str | None:
    if not levels or not values:
        return None
    names = dict.fromkeys(_annotation(value, levels - 1) for value in values)
    return None if None in names or len(names) > 1 else next(iter(names))


def _a(kind: type) -> str:
    name = type_name(kind)
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _plain_name(value: object) -> str:
    try:
        return type(msgspec.json.decode(encode(value))).__name__
    except Exception:
        return "plain JSON"
