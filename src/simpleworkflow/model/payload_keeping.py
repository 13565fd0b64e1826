"""Values that somebody will read again by an annotation: an output, or the input of a workflow.

What comes back must be of the type that was given: a Decimal that returns as text is money gone wrong without a word.
The annotation decides what is read, so it decides what may be written:

- Where it names a type, that type is what comes back, whatever was given, as long as it can be read as one.
- Where it names none (no annotation, `Any`, `object`, the inside of a bare `dict`), only what JSON itself has may be
  there: str, int, float, bool, None, list, dict with keys of str.
- An instance of a subclass in the place of its base class would lose what makes it one, so it is refused.
- Where it names fields, other keys would be dropped when it is read, so they are refused.

Plain JSON is not looked at twice: the walk that writes a value knows whether it met anything else, and only then are
the parts of the value compared with the annotation. But it is where the annotation names fields, or has a union that
pydantic resolves by what fits best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Literal, get_origin

from msgspec import inspect

from .payload_advice import a_kind, annotation_of, plain_name
from .payload_comparing import compare, made, own_fields
from .payload_hints import Hints, is_typed_dict, members
from .payload_kinds import converted, derived, is_derived, is_named_tuple
from .payload_models import Adapter, has_readings, is_pydantic
from .payload_reading import Unresolved, decoder_of, is_readable, is_untyped
from .payload_refusals import Lost, Refused, by_name, dropped, step, type_name
from .payload_writing import Walk, encode, written
from .type_cache import kept_by_type

Check = Callable[[Any], None]
"""Raises Lost, with the path, if a value would come back as something else."""
Role = Literal["output", "input", "anything"]

_ARRAYS = (list, tuple, set, frozenset)
_LONGEST = 80


class Keeper:
    """Writes values that will be read as one type."""

    def __init__(self, as_type: Any, role: Role) -> None:
        self._as_type = as_type
        self._role = role
        self.place = "the return" if role == "output" else "the parameter"
        self._is_untyped = is_untyped(as_type)
        self._check: Check | None = None
        self._is_ready = self._is_untyped
        self.plain: Check | None = None

    def write(self, value: object, *, limit: int, what: str) -> str:
        """The JSON text of `value`, or PayloadError when it cannot be stored, or would come back as another type."""
        if value is None:
            return "null"  # what most steps and many runs return
        if self._is_untyped:
            return written(Exact(limit), value, what, self)
        if not self._is_ready:  # when the first value comes: the annotation may name what is defined later
            self._check, self.plain = _check_of(self._as_type)
            self._is_ready = True
        return written(Walk(limit), value, what, self)

    def look(self, value: object) -> None:
        if self._check is not None:
            self._check(value)

    def advise(self, value: object) -> str:
        if isinstance(self._as_type, Unresolved):
            return (
                f"its annotation cannot be resolved ({self._as_type.reason}): "
                "define what it names at the top of a module, outside TYPE_CHECKING"
            )
        named = annotation_of(value, 3)
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
        raise _untyped(value, f"{a_kind(type(value))} would come back as {plain_name(value)}")

    def foreign_key(self, key: object) -> None:
        Walk(self.limit).key(key)  # which has more to say about a key that cannot be written at all
        raise _untyped(key, f"{a_kind(type(key))} as the key of a dict would come back as str")


def _untyped(value: object, reason: str) -> Lost:
    if is_derived(value) and not is_named_tuple(value):
        return Lost(f"{reason}, since JSON has no type for it", remedy=converted(value))
    if not isinstance(value, Enum) or is_readable(type(value)):
        return Lost(f"{reason}, since no annotation names its type")
    why = "since its values are neither all text nor all whole numbers"
    return Lost(f"{reason}, {why}", remedy=by_name(type(value).__qualname__))


def glance(value: object, *, limit: int) -> str:
    """For people to look at: nobody will read it back, so it need not say all that the value is."""
    return written(_Glance(limit), value, "value")


class _Glance(Walk):
    __slots__ = ()

    def comes_back(self, value: Any, plain: object, check: Callable[[Any, bytes], None]) -> None:
        return


# What an annotation lets through


def _check_of(as_type: Any) -> tuple[Check | None, Check | None]:
    """For any value, and for plain JSON; None where what can be read comes back as what the annotation names."""
    try:
        if isinstance(decoder_of(as_type), Adapter):
            return _read_back(as_type), _read_plain(as_type, members(as_type)) if has_readings(as_type) else None
        node, known = inspect.type_info(as_type), _Known()
        plain = _check(node, known)
        return _check(node, _Known(has_kinds=True)), plain if known else None
    except Exception:
        return None, None  # it cannot be read either, and the reader says so


def _read_back(as_type: Any) -> Check:
    """Read by pydantic, whose validators may do anything: what comes back is compared."""
    hints = members(as_type)

    def check(value: Any) -> None:
        compare(value, decoder_of(as_type).decode(encode(value)), hints)

    return check


def _read_plain(as_type: Any, hints: Hints) -> Check:
    """The same for plain JSON, of which the annotation may make what it names."""

    def check(value: Any) -> None:
        try:
            back = decoder_of(as_type).decode(encode(value))
        except Exception:
            return  # it does not fit, and the reader says so
        made(value, back, hints)

    return check


def _exact(value: Any) -> None:
    Exact(2**62).any(value, 1)


class _Known(dict[int, "_Fields"]):
    """The classes that an annotation mentions, by what is known about them."""

    def __init__(self, *, has_kinds: bool = False) -> None:
        super().__init__()
        self.has_kinds = has_kinds
        """Whether containers are looked at, too; in plain JSON all of them are builtins."""


def _check(node: inspect.Type, known: _Known) -> Check | None:
    check, home = _check_parts(node, known), _HOMES.get(type(node))
    return check if home is None or not known.has_kinds else _builtin(home, check)


def _builtin(home: type, check: Check | None) -> Check:
    def builtin(value: Any) -> None:
        if is_derived(value):
            raise derived(value, home)
        if check is not None:
            check(value)

    return builtin


_HOMES: dict[type, type] = {
    inspect.DictType: dict,
    inspect.ListType: list,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
    inspect.VarTupleType: tuple,
    inspect.TupleType: tuple,
}


def _check_parts(node: inspect.Type, known: _Known) -> Check | None:
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
    if not (is_pydantic(node.cls) if isinstance(node, inspect.CustomType) else hasattr(node, "fields")):
        return None
    if id(node) not in known:  # a class may mention itself
        found = known[id(node)] = _Fields(node)
        found.take(node, known)
    return known[id(node)]


def _class_of(node: Any) -> Any:
    return get_origin(node.cls) or node.cls


def _written_names(kind: Any) -> Iterable[str]:
    return getattr(kind, "__struct_encode_fields__", None) or own_fields(kind) or ()


class _Fields:
    """The fields of a class; and the instance must be of that very class, or of an unrelated one that is read as it."""

    def __init__(self, node: Any) -> None:
        self.kind = _class_of(node)
        self.is_class = isinstance(self.kind, type) and not is_typed_dict(self.kind)
        self.tag: tuple[str, Any] | None = None
        self.keys: frozenset[str] | None = None
        """None for a model: pydantic knows what it reads."""
        self.fields: list[tuple[str, str, Check]] = []
        """Name, JSON name, and what its value must be."""

    def take(self, node: Any, known: _Known) -> None:
        if isinstance(node, inspect.CustomType):
            return
        own = getattr(self.kind, "__dataclass_fields__", ())  # some of which it may not take
        self.keys = frozenset((*own, *(one.encode_name for one in node.fields)))
        if getattr(node, "tag_field", None) is not None:
            self.tag = (node.tag_field, node.tag)
            self.keys |= {node.tag_field}
        checks = ((one, _check(one.type, known)) for one in node.fields)
        self.fields = [(one.name, one.encode_name, check) for one, check in checks if check is not None]

    def __call__(self, value: Any) -> None:
        kind, is_dict = type(value), isinstance(value, dict)
        if kind is not self.kind:
            if not is_dict:
                self._refuse_subclass(kind)
            self._refuse_other_keys(value)
        for name, written_as, check in self.fields:
            item = value.get(written_as) if is_dict else getattr(value, name, None)
            try:
                check(item)
            except Lost as lost:
                if lost.remedy is None:
                    lost.remedy = f"let the annotation of {type_name(self.kind)}.{name} name it, or convert it"
                raise lost.inside(step(name))  # noqa: B904

    def _refuse_other_keys(self, value: Any) -> None:
        keys = value if isinstance(value, dict) else _written_names(type(value))
        if self.keys is not None:
            for key in keys:
                if isinstance(key, str) and key not in self.keys:
                    raise dropped(key, self.kind)
        elif isinstance(value, dict):
            _read_plain(self.kind, ())(value)

    def is_base(self, value: Any) -> bool:
        return self.is_class and isinstance(value, self.kind)

    def may_be(self, value: Any) -> bool:
        """Whether a value, in a union that names this class, may be meant for it."""
        if isinstance(value, dict):
            return self.tag is None or value.get(self.tag[0], self.tag[1]) == self.tag[1]
        return own_fields(type(value)) is not None

    def _refuse_subclass(self, kind: type) -> None:
        if not self.is_class or not issubclass(kind, self.kind):
            return
        raise Lost(
            f"{a_kind(kind)} would come back as its base class {type_name(self.kind)}, which the annotation names",
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
        if (is_any_key or check is _exact) and own_fields(type(value)) is not None:
            _exact(value)
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
        found: Check | None = exactly.get(type(value)) or next(
            (one for one in exactly.values() if one.is_base(value)), None
        )
        if found is None:
            found = next((check for node, check in checks if _may_be(node, check, value)), None)
        if found is not None:
            found(value)

    return one_of


def _may_be(node: inspect.Type, check: Check, value: Any) -> bool:
    if isinstance(check, _Fields):
        return check.may_be(value)
    if isinstance(node, inspect.DictType):
        return isinstance(value, dict) or own_fields(type(value)) is not None
    return isinstance(value, _ARRAYS)
