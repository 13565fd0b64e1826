"""Which names the code of a workflow can give to its steps and children.

A record that is not asked for was either passed by (its step stands further down, or in a branch that is not taken) or
left behind (its step was renamed or removed). The difference is whether the code can still ask for that name. It is
found by reading the code of the handler and of every function that it refers to: the functions and workflows that its
globals and closures name, and its words: attributes and string constants. Of the methods of a class only those count
whose names the code has. A step is one piece: what it refers to itself can only be called inside it. Code of libraries
is not read, except that of the package that the handler itself belongs to.

The answer errs to one side only where a name is computed by other means than an f-string with a constant part: then it
is taken for gone, and the run is held, which somebody notices.
"""

from __future__ import annotations

import dis
import functools
import sys
import sysconfig
from collections.abc import Iterator, Set
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from ..python_internals import closure_of
from .step import StepFunction

MOST_FUNCTIONS = 2_000
SHORTEST_PART = 2
"""Characters of a constant in an f-string that make a name recognisable."""

_LIBRARIES = tuple(
    {str(Path(sysconfig.get_paths()[name])) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parent.parent)}
)


class StepNames:
    def __init__(
        self, whole: set[str], parts: set[str], words: Set[str] = frozenset(), coroutines: Set[str] = frozenset()
    ) -> None:
        self._whole = whole
        """The names of what the code refers to."""
        self._coroutines = coroutines
        """The qualified names of the functions that the code may call, from which its branches have their names."""
        self._called = {name.rpartition(".")[2] for name in coroutines}
        self._words = words
        """Texts and attributes: each may be a name of a step, and may as well be the key of a dict."""
        self._parts = tuple(part for part in parts if len(part) >= SHORTEST_PART)

    def can_ask_for(self, name: str) -> bool:
        """A coroutine is known by its qualified name; the code mentions its last part."""
        last = name.rpartition(".")[2]
        return (
            self.refers_to(name)
            or last in self._words
            or name in self._words
            or name.startswith(self._parts)
            or name.endswith(self._parts)
        )

    def can_branch_to(self, coroutine: str) -> bool:
        """Whether a branch may have its name from this coroutine. A function that was moved, or that stands in a
        function of another name now, has another qualified name."""
        if coroutine.rpartition(".")[2] in self._called:
            return coroutine in self._coroutines
        return self.can_ask_for(coroutine)  # of a library, or the name of a scope

    def refers_to(self, name: str) -> bool:
        """Whether a function, a workflow or a constant of that name is in the code, and not a mere word."""
        return name.rpartition(".")[2] in self._whole or name in self._whole


def names_in(handler: Any, pieces: Set[CodeType] = frozenset()) -> StepNames:
    """`pieces`: code that is called as a step now. It is one piece, so what it refers to are no steps."""
    reader = _Reader(_package_of(handler), pieces)
    reader.read(handler)
    return StepNames(reader.whole, reader.parts, reader.words, reader.coroutines)


class _Reader:
    def __init__(self, own: str, pieces: Set[CodeType]) -> None:
        self._own = own
        self._pieces = pieces
        self._seen: set[int] = set()
        self._found: dict[int, Any] = {}
        """What the code refers to."""
        self._names: set[str] = set()
        """All names in the code, of attributes and of everything else."""
        self.whole: set[str] = set()
        self.parts: set[str] = set()
        self.words: set[str] = set()
        self.coroutines: set[str] = set()

    def read(self, handler: Any) -> None:
        """Turn by turn: a function that is read may name a method of what was found before."""
        self._found[id(handler)] = handler
        read = -1
        while read < len(self._seen) < MOST_FUNCTIONS:
            read = len(self._seen)
            for found in list(self._found.values()):
                self._look_into(found)

    def _look_into(self, found: Any) -> None:
        for name, one in _members(found, self._own):
            if isinstance(one, StepFunction) and self._is_mentioned(name):
                self.whole |= _known_as(one)
        for function in list(self._functions(found)):
            if id(function.__code__) not in self._seen:
                self._read_function(function)

    def _read_function(self, function: FunctionType) -> None:
        self._seen.add(id(function.__code__))
        if function.__code__ in self._pieces:
            return
        self.coroutines.add(function.__qualname__.replace("/", "."))
        for code in _codes(function.__code__, self._pieces):
            self.words |= {text for constant in code.co_consts for text in _strings(constant)}
            self.words |= {name for name in code.co_names if name not in function.__globals__}
            self._names.update(code.co_names)
            self.whole.add(code.co_name)
            self.coroutines.add(code.co_qualname.replace("/", "."))
            self.parts |= _parts(code)
            for found in _referred(code, function):
                self.whole |= _known_as(found)
                self._found[id(found)] = found

    def _functions(self, found: Any) -> Iterator[FunctionType]:
        """The functions of people's own code that may be called by calling this."""
        if isinstance(found, StepFunction):
            return  # a step is one piece: it makes no durable calls
        if isinstance(found, functools.partial | MethodType):
            yield from self._functions(found.func if isinstance(found, functools.partial) else found.__func__)
        elif isinstance(found, FunctionType):
            if _package_of(found) == self._own or not found.__code__.co_filename.startswith(_LIBRARIES):
                yield found
                if hasattr(found, "__wrapped__"):
                    yield from self._functions(found.__wrapped__)
        else:
            for name, member in _members(found, self._own):
                if isinstance(member, _METHODS) and self._is_mentioned(name):
                    yield from self._functions(getattr(member, "__func__", member))

    def _is_mentioned(self, member: str) -> bool:
        """Whether the code may call this method: it has its name, or makes names of methods."""
        return (
            member in self._names
            or member in self.words
            or member.startswith("__")
            or not self._names.isdisjoint(_BY_NAME)
            or any(len(part) >= SHORTEST_PART and part in member for part in self.parts)
        )


def _codes(code: CodeType, pieces: Set[CodeType]) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant not in pieces:
            yield from _codes(constant, pieces)


def codes_of(function: Any) -> frozenset[CodeType]:
    """Its code, and that of what it wraps by the means of the standard library."""
    if isinstance(function, functools.partial | MethodType):
        return codes_of(function.func if isinstance(function, functools.partial) else function.__func__)
    if not isinstance(function, FunctionType):
        return frozenset()
    return codes_of(getattr(function, "__wrapped__", None)) | {function.__code__}


_BY_NAME = frozenset({"getattr", "attrgetter", "methodcaller", "__dict__", "vars"})


def _strings(constant: Any) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, tuple | frozenset):
        for one in constant:
            yield from _strings(one)


def _parts(code: CodeType) -> set[str]:
    """The constant parts of its f-strings."""
    instructions = list(dis.get_instructions(code))
    spans = [_span(one) for one in instructions if one.opname == "BUILD_STRING"]
    loaded = [(_span(one), one.argval) for one in instructions if isinstance(one.argval, str) and "CONST" in one.opname]
    return {text for (start, end), text in loaded if any(first <= start and end <= last for first, last in spans)}


def _span(instruction: dis.Instruction) -> tuple[tuple[int, int], tuple[int, int]]:
    """From where to where in its source; nowhere when that is not known."""
    at = instruction.positions
    if at is None or at.lineno is None or at.end_lineno is None:
        return (1, 0), (0, 0)
    return (at.lineno, at.col_offset or 0), (at.end_lineno, at.end_col_offset or 0)


def _referred(code: CodeType, function: FunctionType) -> Iterator[Any]:
    """What the names of this code mean, as far as that is known here."""
    around = closure_of(function)
    modules = []
    for name in (*code.co_names, *code.co_freevars):
        if name in around:
            found = around[name]
        elif name in function.__globals__:
            found = function.__globals__[name]
        else:
            continue  # an attribute, or a variable of a function around it, whose code is read as well
        if isinstance(found, ModuleType):
            modules.append(found)
        yield found
    for module in modules:
        for name in code.co_names:
            yield getattr(module, name, None)
    yield from function.__defaults__ or ()


def _known_as(found: Any) -> set[str]:
    """The names under which a step or a child of this would be on record."""
    if isinstance(found, str):
        return {found}
    if isinstance(found, StepFunction):
        options = found.step_options
        return {name for name in (options.name or found.facts.name, *options.formerly) if name}
    if isinstance(found, dict | list | tuple | set | frozenset):
        values = found.values() if isinstance(found, dict) else found
        inner = [one for one in list(values)[:MOST_FUNCTIONS] if not isinstance(one, dict | list)]
        return {name for one in inner for name in _known_as(one)}
    if isinstance(found, functools.partial):
        return _known_as(found.func)
    name = getattr(found, "name", None) if hasattr(found, "takes_input") else getattr(found, "__name__", None)
    return {name} if isinstance(name, str) else set()


_METHODS = (FunctionType, staticmethod, classmethod)


def _members(found: Any, own: str) -> Iterator[tuple[str, Any]]:
    """What stands in a class of people's own, or in that of an object, by name."""
    for kind in (found if isinstance(found, type) else type(found)).__mro__:
        module = sys.modules.get(kind.__module__)
        file = str(getattr(module, "__file__", ""))
        if module is not None and (_package_of(kind) == own or not file.startswith(_LIBRARIES)):
            yield from list(vars(kind).items())


def _package_of(found: Any) -> str:
    return str(getattr(found, "__module__", None)).partition(".")[0]
